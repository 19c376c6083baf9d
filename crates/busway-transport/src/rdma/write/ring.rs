//! Makes both ends of a queuing channel whose sender writes the queue in the receiver's port store.
//!
//! Contract: see [`crate::contract::LandingRing`]. The receiver registers lines and data of the
//! ring for remote writing, and nothing else of the store; beside that it has a *control line* of
//! its own. An address outside ends the queue pair at both hosts. Made on the control thread
//! ([`super::channels`]); the ends are [`super::ring_sender`] and [`super::ring_receiver`].
//!
//! ```text
//! description, postcard: see `RingPlace`
//! request      + 0  origin, + 8  newest number, + 16  lost; all u64, little-endian
//!
//! receiver's control line                         sender's memory
//! +  0  tag of a sender that has closed           +  0  lines, + 8  data: what programs released
//! +  8  wish, +16 mark, +24 read: see `wake`      + 16  line behind what the store has
//! + 32  address, + 40  key: sender's memory       + 64  bell line: see `wake`
//! ```
//!
//! A connection's private data has no room for the sender's address and key beside its numbers, so
//! the sender WRITEs them before it greets: the greeting's SEND is delivered after what was written
//! before it (InfiniBand Architecture, 9.5; RFC 5040, 5.5).
#![allow(unsafe_code)] // Windows onto registered memory.

use std::sync::Arc;

use busway_core::ring::{CREDIT_BYTES, Layout, Position, RingProducer};
use busway_core::{LINE_BYTES, RemoteWrite as _};
use serde::{Deserialize, Serialize};

use super::access::Far;
use super::far_memory::{FarMemory, SECOND_AT};
use super::pipe::{CAPACITY, Handle, Pipe, RECV_BYTES};
use super::place::{RECEIVER_BELL_AT, SENDER_BELL_AT, SENDER_BYTES};
use super::register::PortRegion;
use super::ring_receiver::RingReceiver;
use super::ring_sender::{RingSender, Wiring};
use super::ring_words::{ADDRESS_AT, DATA_AT, LINES_AT, PLACED_AT};
use super::wake::WakeState;
use super::{described, part, refused, staging_for, text, window_of};
use crate::contract::{ChannelSpec, Keep, LandingRing, Message, QueueNumbers, RingOwner};
use crate::rdma::channel_kind::{Accepted, Asking};
use crate::rdma::cm::CmId;
use crate::rdma::device::{Access, Device, Region};
use crate::rdma::error::RdmaError;
use crate::rdma::lane::Lane;
use crate::rdma::queue_pair::QueuePair;
use crate::remote_write::ENTRY_BYTES;
use crate::session::mailbox::DroppedSenders;

/// No ring is believed to be longer, in bytes.
const LONGEST_BYTES: usize = 1 << 30;
/// Bytes of a request.
const REQUEST_BYTES: usize = 24;

/// A queue, as its owner describes it to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingPlace {
    lines: u32,
    line_bytes: u32,
    data_bytes: u64,
    max_size_bytes: u32,
    is_checked: bool,
    depth: u32,
    /// See [`LandingRing`], line and data.
    position: (u64, u64),
    released: (u64, u64),
    origin: u64,
    newest: u64,
    lost: u64,
    /// Address of the ring at the receiver, and its key.
    ring: (u64, u32),
    /// Of the control line.
    control: (u64, u32),
    /// Names the channel among all that the receiver ever made, never 0.
    tag: u64,
}

impl RingPlace {
    fn encode(&self) -> Vec<u8> {
        // At most 6 * 5 + 1 + 11 * 10 bytes.
        described::encode(self, 192)
    }

    /// Decodes and checks a peer's description.
    ///
    /// # Errors
    /// In words: what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<(RingPlace, Layout), String> {
        let place: RingPlace = described::decode(bytes, "queue")?;
        let data_bytes = usize::try_from(place.data_bytes).map_err(text)?;
        let layout = Layout::with_wide_lines(
            place.lines as usize,
            place.line_bytes as usize,
            data_bytes,
            place.max_size_bytes as usize,
        )
        .map_err(text)?;
        let layout = if place.is_checked {
            // A message is complete when its checksum fits, so its commit word needs no write of
            // its own.
            layout.with_checksum().map_err(text)?.with_commit_in_line()
        } else {
            layout
        };
        if layout.required_bytes() > LONGEST_BYTES || !place.is_possible(&layout) {
            return Err(format!("{place:?} is impossible"));
        }
        Ok((place, layout))
    }

    fn is_possible(&self, layout: &Layout) -> bool {
        let has_room = |(address, _): (u64, u32), len_bytes: usize| {
            address != 0 && address.checked_add(len_bytes as u64).is_some()
        };
        let is_aligned = |data: u64| data.is_multiple_of(LINE_BYTES as u64);
        has_room(self.ring, layout.required_bytes())
            && has_room(self.control, ENTRY_BYTES)
            && (1..=self.lines).contains(&self.depth)
            && self.position.0.wrapping_sub(self.released.0) <= u64::from(self.lines)
            && self.position.1.wrapping_sub(self.released.1) <= self.data_bytes
            && is_aligned(self.position.1)
            && is_aligned(self.released.1)
            && self.tag != 0
    }

    fn numbers(&self) -> QueueNumbers {
        QueueNumbers {
            origin: self.origin,
            newest: self.newest,
            lost: self.lost,
        }
    }

    fn position(&self) -> Position {
        Position {
            line: self.position.0,
            data: self.position.1,
        }
    }
}

/// A queue without a sender.
pub(super) struct PreparedRing {
    region: PortRegion,
    control: Region,
    place: RingPlace,
    released: Position,
    owner: Box<dyn RingOwner>,
    lane: Arc<Lane>,
}

/// Registers `ring`; returns its description for the sender.
pub(super) fn prepare(
    device: &Arc<Device>,
    ring: LandingRing,
    lane: &Arc<Lane>,
) -> Result<(PreparedRing, Vec<u8>), RdmaError> {
    let LandingRing {
        memory,
        layout,
        depth,
        position,
        released,
        numbers,
        owner,
    } = ring;
    let region = PortRegion::new(device, memory)?;
    let control = Region::new(device, ENTRY_BYTES, Access::RemoteReadWrite)?;
    let place = RingPlace {
        // Inside: a layout has at most 2^31 lines of at most 2^20 bytes, and a queue's messages
        // at most u32::MAX bytes.
        lines: layout.lines() as u32,
        line_bytes: layout.line_bytes() as u32,
        data_bytes: layout.data_bytes() as u64,
        max_size_bytes: layout.max_size_bytes() as u32,
        is_checked: layout.has_checksum(),
        depth: depth.clamp(1, layout.lines()) as u32,
        position: (position.line, position.data),
        released: (released.line, released.data),
        origin: numbers.origin,
        newest: numbers.newest,
        lost: numbers.lost,
        ring: (region.address(), region.remote_key()),
        control: (control.address(), control.remote_key()),
        tag: crate::session::token::draw_token().max(1),
    };
    let prepared = PreparedRing {
        region,
        control,
        place,
        released,
        owner,
        lane: Arc::clone(lane),
    };
    Ok((prepared, place.encode()))
}

/// Makes the receiving end for a sender that connects with this (hostile) request.
pub(super) fn accept(
    prepared: PreparedRing,
    device: &Arc<Device>,
    id: CmId,
    request: &[u8],
) -> Result<Accepted, String> {
    let PreparedRing {
        region,
        control,
        place,
        released,
        mut owner,
        lane,
    } = prepared;
    let numbers = decode_request(request, place.numbers())?;
    let pair = Arc::new(QueuePair::new(id, device, CAPACITY).map_err(text)?);
    let staging = Region::new(device, staging_for(0), Access::Local).map_err(text)?;
    let line = part(&window_of(&control), 0, ENTRY_BYTES)?;
    let mark = place.position.0.wrapping_add(released.line);
    let rest = WakeState::new(
        line.clone(),
        RECEIVER_BELL_AT,
        SENDER_BELL_AT,
        mark,
        Arc::clone(&lane),
    )
    .greeted();
    let pipe = Pipe::new(Arc::clone(&pair), FarMemory::UNKNOWN, control, staging, rest).map_err(refused)?;
    lane.watch(pipe.fd()).map_err(text)?;
    owner.begin(numbers)?;
    let receiver = RingReceiver::new(
        Handle::new(pipe, None),
        (Arc::clone(&pair), region),
        (line, place.tag),
        (place.position(), released, place.depth.into()),
        owner,
    );
    Ok(Accepted {
        receiver: Box::new(receiver),
        pair,
        answer: Vec::new(),
        outlives_conversation: false,
    })
}

/// Reads a request, behind which a transport may have added zeros.
///
/// # Errors
/// In words: what is wrong.
pub(super) fn decode_request(bytes: &[u8], told: QueueNumbers) -> Result<QueueNumbers, String> {
    let request: &[u8; REQUEST_BYTES] = described::request(bytes)?;
    let word = |at| described::word(request, at);
    let numbers = QueueNumbers {
        origin: word(0),
        newest: word(8),
        lost: word(16),
    };
    let goes_back = numbers.newest < told.newest || numbers.lost < told.lost;
    if numbers.origin == 0 || numbers.origin == told.origin && goes_back {
        return Err(format!(
            "{numbers:?} from the sender, where the receiver has {told:?}"
        ));
    }
    Ok(numbers)
}

/// A queue to which a sender may connect.
#[derive(Clone)]
pub(super) struct CheckedRing {
    place: RingPlace,
    layout: Layout,
    source: QueueNumbers,
    lane: Arc<Lane>,
}

/// Checks the description that a peer gave of its queue, for a sender of `source`.
pub(super) fn judge(
    description: &[u8],
    source: QueueNumbers,
    lane: &Arc<Lane>,
) -> Result<CheckedRing, String> {
    let (place, layout) = RingPlace::decode(description)?;
    let told = place.numbers();
    let source = if told.origin == source.origin {
        // What the receiver has is not written again. What it lacks and the source's queue has not
        // any more, it counts as lost.
        QueueNumbers {
            newest: source.newest.max(told.newest),
            lost: source.lost.max(told.lost),
            ..source
        }
    } else {
        source
    };
    Ok(CheckedRing {
        place,
        layout,
        source,
        lane: Arc::clone(lane),
    })
}

/// Makes the sending end, over an id whose route is resolved.
pub(super) fn connect<M: Message>(
    checked: CheckedRing,
    device: &Arc<Device>,
    id: CmId,
    spec: &ChannelSpec,
    dropped: &Arc<DroppedSenders>,
) -> Result<Asking<M>, String> {
    let CheckedRing {
        place,
        layout,
        source,
        lane,
    } = checked;
    let Keep::All { depth: most } = spec.keep else {
        return Err("a queue of a port for a channel that keeps the latest message".into());
    };
    let pair = Arc::new(QueuePair::new(id, device, CAPACITY).map_err(text)?);
    let own = Region::new(device, SENDER_BYTES, Access::RemoteReadWrite).map_err(text)?;
    let (own_address, own_key) = (own.address(), u64::from(own.remote_key()));
    let staging_bytes = staging_for(layout.max_size_bytes());
    let staging = Region::new(device, staging_bytes + RECV_BYTES, Access::Local).map_err(text)?;
    let window = window_of(&own);
    let credit = part(&window, 0, CREDIT_BYTES)?;
    for (at, word) in [
        (LINES_AT, place.released.0),
        (DATA_AT, place.released.1),
        (PLACED_AT, place.position.0),
    ] {
        credit.store(at, word).map_err(text)?;
    }
    let bell = part(&window, SENDER_BELL_AT, ENTRY_BYTES)?;
    let rest = WakeState::new(
        bell,
        SENDER_BELL_AT,
        RECEIVER_BELL_AT,
        place.position.0,
        Arc::clone(&lane),
    );
    let far = |(address, key): (u64, u32), len_bytes| FarMemory {
        address,
        key,
        len_bytes,
    };
    let control = far(place.control, ENTRY_BYTES);
    let mut pipe = Pipe::new(Arc::clone(&pair), control, own, staging, rest).map_err(refused)?;
    pipe.far().set_second(far(place.ring, layout.required_bytes()));
    lane.watch(pipe.fd()).map_err(text)?;
    let handle = Handle::new(pipe, Some(Arc::clone(dropped)));
    let producer = RingProducer::resume(
        Far::new(&handle, SECOND_AT, layout.required_bytes()),
        layout,
        place.position(),
        credit.clone(),
    )
    .map_err(text)?;
    let mut control = Far::new(&handle, 0, ENTRY_BYTES);
    let wiring = Wiring {
        handle: handle.clone(),
        control: control.clone(),
        tag: place.tag,
        credit,
    };
    let sender = RingSender::<M>::new(wiring, producer, source, (most, place.depth));
    let request = [source.origin, source.newest, source.lost].map(u64::to_le_bytes);
    Ok(Asking {
        finish: Box::new(move |_answer| {
            control
                .write(ADDRESS_AT, &[own_address, own_key], &[])
                .map_err(text)?;
            handle.with(Pipe::greet);
            Ok(Box::new(sender))
        }),
        pair,
        request: request.concat(),
        outlives_conversation: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> RingPlace {
        RingPlace {
            lines: 8,
            line_bytes: 128,
            data_bytes: 0,
            max_size_bytes: 100,
            is_checked: true,
            depth: 5,
            position: (7, 0),
            released: (4, 0),
            origin: 3,
            newest: 5,
            lost: 1,
            ring: (0x1000, 9),
            control: (0x2000, 10),
            tag: u64::MAX,
        }
    }

    #[test]
    fn ring_description_survives_the_wire_and_every_cut_of_it_is_refused() {
        let bytes = place().encode();
        let (decoded, layout) = RingPlace::decode(&bytes).expect("a good one");
        assert_eq!(decoded, place());
        assert!(layout.has_checksum() && layout.max_size_bytes() == 100 && layout.lines() == 8);
        for end in 0..bytes.len() {
            assert!(RingPlace::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn impossible_ring_descriptions_are_refused() {
        let with = |change: fn(&mut RingPlace)| {
            let mut place = place();
            change(&mut place);
            place.encode()
        };
        for bad in [
            with(|place| place.lines = 3),
            with(|place| place.line_bytes = 100),
            with(|place| place.data_bytes = 1 << 50),
            with(|place| place.max_size_bytes = 200),
            with(|place| place.depth = 0),
            with(|place| place.depth = 9),
            with(|place| place.position = (13, 0)),
            with(|place| place.position = (3, 0)),
            with(|place| place.position = (7, 64)),
            with(|place| place.ring = (u64::MAX - 10, 9)),
            with(|place| place.control = (0, 9)),
            with(|place| place.tag = 0),
        ] {
            assert!(RingPlace::decode(&bad).is_err());
        }
    }

    #[test]
    fn request_of_a_known_source_that_goes_back_is_refused() {
        let request = |words: [u64; 3]| words.map(u64::to_le_bytes).concat();
        let told = place().numbers();
        assert_eq!(decode_request(&request([3, 5, 1]), told), Ok(told));
        assert!(decode_request(&request([3, 9, 4]), told).is_ok(), "it lost some");
        assert!(decode_request(&request([3, 4, 1]), told).is_err());
        assert!(decode_request(&request([3, 5, 0]), told).is_err());
        assert!(decode_request(&request([0, 5, 1]), told).is_err());
        assert!(decode_request(&request([3, 5, 1])[..23], told).is_err());
        assert!(
            decode_request(&request([4, 0, 0]), told).is_ok(),
            "another source"
        );
    }
}
