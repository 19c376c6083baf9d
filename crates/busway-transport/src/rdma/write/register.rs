//! Both ends of a sampling channel whose sender writes the register in the receiver's port store.
//!
//! Contract: see [`crate::contract::LandingRegister`]. The receiver registers the register, and
//! nothing else, for remote writing, describes it to the sender, and posts no work from then on:
//! its end only notices that the queue pair has ended. Dropping it destroys the queue pair, and
//! then nobody reaches the memory any more. The sender writes slots and index by WRITEs of one
//! queue pair and never reads. An address outside the register ends the queue pair at both hosts.
//!
//! ```text
//! description, postcard: see `RegisterPlace`
//! request      + 0  origin, + 8  newest number, both u64, little-endian
//! ```
//!
//! The ends are made on the control thread ([`super::channels`]). The sender is used on a lane, the
//! receiver wherever its owner likes.
#![allow(unsafe_code)] // Registers memory with the device, and ends a queue pair.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use busway_core::Window;
use busway_core::register::Layout;
use serde::{Deserialize, Serialize};

use super::pipe::{CAPACITY, FarMemory, Handle, Pipe, RECV_BYTES};
use super::register_sender::RegisterSender;
use super::wake::WakeState;
use super::{described, part, refused, staging_for, text};
use crate::contract::{
    BeginWriting, ChannelError, LandingRegister, Message, PortMemory, Receiver, Sink, SourceNumbers, WaitFor,
};
use crate::rdma::channel_kind::{Accepted, Asking};
use crate::rdma::cm::CmId;
use crate::rdma::completion::{Completions, NOTHING};
use crate::rdma::device::{Access, Device, Region};
use crate::rdma::error::RdmaError;
use crate::rdma::lane::Lane;
use crate::rdma::queue_pair::{Capacity, QueuePair};
use crate::rdma::sys;
use crate::remote_write::ENTRY_BYTES;

/// No register is believed to be longer, in bytes.
const LONGEST_BYTES: usize = 1 << 30;
/// Bytes of a request.
const REQUEST_BYTES: usize = 16;
/// The receiver waits for no SEND: its RECV shows that the queue pair has ended.
const RECEIVES: Capacity = Capacity { sends: 1, recvs: 1 };

/// A register, as its owner describes it to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisterPlace {
    slots: u32,
    max_size_bytes: u32,
    is_checked: bool,
    /// See [`LandingRegister`].
    start: u64,
    latest: u64,
    origin: u64,
    newest: u64,
    /// Address of the register at the receiver.
    address: u64,
    /// Its key.
    key: u32,
}

impl RegisterPlace {
    fn encode(&self) -> Vec<u8> {
        // At most 3 * 5 + 1 + 5 * 10 bytes.
        described::encode(self, 96)
    }

    /// Decodes and checks a peer's description.
    ///
    /// # Errors
    /// In words: what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<(RegisterPlace, Layout), String> {
        let place: RegisterPlace = described::decode(bytes, "register")?;
        let layout = Layout::new(place.slots as usize, place.max_size_bytes as usize).map_err(text)?;
        let layout = if place.is_checked {
            layout.with_checksum()
        } else {
            layout
        };
        let is_in_address_space = place
            .address
            .checked_add(layout.required_bytes() as u64)
            .is_some();
        if layout.required_bytes() > LONGEST_BYTES || !is_in_address_space {
            return Err(format!("{place:?} is impossible"));
        }
        Ok((place, layout))
    }

    fn numbers(&self) -> SourceNumbers {
        SourceNumbers {
            origin: self.origin,
            newest: self.newest,
        }
    }
}

/// A register or queue of the port store, registered with a device.
#[derive(Debug)]
pub(super) struct PortRegion {
    key: NonNull<sys::ibv_mr>,
    memory: PortMemory,
    device: Arc<Device>,
}

// SAFETY: the registration is only read, and released once; the memory is reached through windows.
unsafe impl Send for PortRegion {}

impl PortRegion {
    pub(super) fn new(device: &Arc<Device>, memory: PortMemory) -> Result<PortRegion, RdmaError> {
        let window = memory.window();
        let len_bytes = window.len_bytes();
        // SAFETY: the range is mapped as long as `memory` lives, which goes after the registration.
        // What a peer writes there, programs read through windows only.
        let key = unsafe {
            device.libraries().verbs.ibv_reg_mr(
                device.domain(),
                window.address().cast(),
                len_bytes,
                (sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE).cast_signed(),
            )
        };
        let key = NonNull::new(key).ok_or_else(|| RdmaError::Registration {
            len_bytes,
            error: std::io::Error::last_os_error(),
        })?;
        Ok(PortRegion {
            key,
            memory,
            device: device.clone(),
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.window().address().expose_provenance() as u64
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: registered until `drop`.
        unsafe { self.key.as_ref().rkey }
    }
}

impl Drop for PortRegion {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, released once.
        unsafe { self.device.libraries().verbs.ibv_dereg_mr(self.key.as_ptr()) };
    }
}

/// A register without a sender.
pub(super) struct PreparedRegister {
    region: PortRegion,
    place: RegisterPlace,
    begin: BeginWriting,
}

/// Registers `register`; returns its description for the sender.
pub(super) fn prepare(
    device: &Arc<Device>,
    register: LandingRegister,
) -> Result<(PreparedRegister, Vec<u8>), RdmaError> {
    let LandingRegister {
        memory,
        layout,
        start,
        latest,
        numbers,
        begin,
    } = register;
    let region = PortRegion::new(device, memory)?;
    let place = RegisterPlace {
        // Inside: a layout has at most 4096 slots of at most u32::MAX bytes.
        slots: layout.slots() as u32,
        max_size_bytes: layout.max_size_bytes() as u32,
        is_checked: layout.has_checksum(),
        start,
        latest,
        origin: numbers.origin,
        newest: numbers.newest,
        address: region.address(),
        key: region.remote_key(),
    };
    let description = place.encode();
    Ok((PreparedRegister { region, place, begin }, description))
}

/// Makes the receiving end for a sender that connects with this (hostile) request.
pub(super) fn accept(
    prepared: PreparedRegister,
    device: &Arc<Device>,
    id: CmId,
    request: &[u8],
) -> Result<Accepted, String> {
    let PreparedRegister { region, place, begin } = prepared;
    let numbers = decode_request(request, place.numbers())?;
    let pair = Arc::new(QueuePair::new(id, device, RECEIVES).map_err(text)?);
    let nothing = Region::new(device, RECV_BYTES, Access::Local).map_err(text)?;
    pair.post_recv(&nothing, 0, RECV_BYTES, 0).map_err(refused)?;
    begin(numbers);
    let receiver = RegisterReceiver {
        completions: Completions::new(Arc::clone(&pair)),
        pair: Arc::clone(&pair),
        _region: region,
        _nothing: nothing,
    };
    Ok(Accepted {
        receiver: Box::new(receiver),
        pair,
        answer: Vec::new(),
        outlives_conversation: true,
    })
}

/// Reads a request, behind which a transport may have added zeros.
///
/// # Errors
/// In words: what is wrong.
pub(super) fn decode_request(bytes: &[u8], told: SourceNumbers) -> Result<SourceNumbers, String> {
    let request: &[u8; REQUEST_BYTES] = described::request(bytes)?;
    let word = |at| described::word(request, at);
    let numbers = SourceNumbers {
        origin: word(0),
        newest: word(8),
    };
    if numbers.origin == 0 || numbers.origin == told.origin && numbers != told {
        return Err(format!(
            "{numbers:?} from the sender, where the receiver has {told:?}"
        ));
    }
    Ok(numbers)
}

/// See the module.
struct RegisterReceiver {
    completions: Completions,
    pair: Arc<QueuePair>,
    // After `drop` has ended the queue pair.
    _region: PortRegion,
    _nothing: Region,
}

impl Receiver for RegisterReceiver {
    fn poll(&mut self, _sink: &mut dyn Sink, _budget: usize) -> Result<usize, ChannelError> {
        let mut batch = NOTHING;
        let count = self.completions.poll(&mut batch)?;
        match batch[..count].first() {
            None => Ok(0),
            Some(completion) if completion.is_success() => {
                Err(ChannelError::Corrupt("a SEND, where only WRITEs belong"))
            }
            Some(_) if self.pair.is_ended_by_peer() => Err(ChannelError::Closed),
            Some(completion) => Err(self.pair.failure(completion.status).into()),
        }
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
}

impl Drop for RegisterReceiver {
    fn drop(&mut self) {
        // SAFETY: only this end posts, and it has no more to post.
        unsafe { self.pair.close() };
    }
}

/// A register to which a sender may connect.
#[derive(Clone)]
pub(super) struct CheckedRegister {
    place: RegisterPlace,
    layout: Layout,
    source: SourceNumbers,
    lane: Arc<Lane>,
}

/// Checks the description that a peer gave of its register, for a sender of `source`.
pub(super) fn judge(
    description: &[u8],
    source: SourceNumbers,
    lane: &Arc<Lane>,
) -> Result<CheckedRegister, String> {
    let (place, layout) = RegisterPlace::decode(description)?;
    // A source that the receiver does not know begins with its newest message.
    let source = if place.origin == source.origin {
        place.numbers()
    } else {
        SourceNumbers {
            newest: source.newest.saturating_sub(1),
            ..source
        }
    };
    Ok(CheckedRegister {
        place,
        layout,
        source,
        lane: Arc::clone(lane),
    })
}

/// Makes the sending end, over an id whose route is resolved.
pub(super) fn connect<M: Message>(
    checked: CheckedRegister,
    device: &Arc<Device>,
    id: CmId,
) -> Result<Asking<M>, String> {
    let CheckedRegister {
        place,
        layout,
        source,
        lane,
    } = checked;
    let pair = Arc::new(QueuePair::new(id, device, CAPACITY).map_err(text)?);
    // Nobody writes or reads it: the pipe has it for channels whose ends wake each other.
    let own = Region::new(device, ENTRY_BYTES, Access::Local).map_err(text)?;
    let staging_bytes = staging_for(layout.max_size_bytes());
    let staging = Region::new(device, staging_bytes + RECV_BYTES, Access::Local).map_err(text)?;
    let line = part(&window_of(&own), 0, ENTRY_BYTES)?;
    let rest = WakeState::new(line, 0, 0, 0, lane);
    let far = FarMemory {
        address: place.address,
        key: place.key,
        len_bytes: layout.required_bytes(),
    };
    let pipe = Pipe::new(Arc::clone(&pair), far, own, staging, rest).map_err(refused)?;
    let fd = pipe.fd().as_raw_fd();
    // What was not sent when it is dropped, the next channel sends again.
    let handle = Handle::new(pipe, None);
    let first = (source.newest, place.latest);
    let sender = RegisterSender::<M>::new(handle, fd, (layout, place.start), first);
    let request = [source.origin.to_le_bytes(), source.newest.to_le_bytes()].concat();
    Ok(Asking {
        finish: Box::new(|_answer| Ok(Box::new(sender))),
        pair,
        request,
        outlives_conversation: true,
    })
}

/// The window onto the pipe's own memory.
fn window_of(region: &Region) -> Window {
    // SAFETY: the window goes into the pipe that holds the region, and windows have no `drop`.
    unsafe { region.window() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> RegisterPlace {
        RegisterPlace {
            slots: 4,
            max_size_bytes: 100,
            is_checked: true,
            start: 0,
            latest: 7,
            origin: 3,
            newest: 5,
            address: 0x1000,
            key: 9,
        }
    }

    #[test]
    fn register_description_survives_the_wire_and_every_cut_of_it_is_refused() {
        let bytes = place().encode();
        let (decoded, layout) = RegisterPlace::decode(&bytes).expect("a good one");
        assert_eq!(decoded, place());
        assert!(layout.has_checksum() && layout.max_size_bytes() == 100);
        for end in 0..bytes.len() {
            assert!(RegisterPlace::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn impossible_register_descriptions_are_refused() {
        let with = |change: fn(&mut RegisterPlace)| {
            let mut place = place();
            change(&mut place);
            place.encode()
        };
        for bad in [
            with(|place| place.slots = 2),
            with(|place| place.slots = 5000),
            with(|place| place.address = u64::MAX - 10),
            with(|place| place.max_size_bytes = u32::MAX),
        ] {
            assert!(RegisterPlace::decode(&bad).is_err());
        }
    }

    #[test]
    fn request_of_a_known_source_with_other_numbers_is_refused() {
        let request = |origin: u64, newest: u64| [origin.to_le_bytes(), newest.to_le_bytes()].concat();
        let told = place().numbers();
        assert_eq!(decode_request(&request(3, 5), told), Ok(told));
        assert!(decode_request(&request(3, 6), told).is_err());
        assert!(decode_request(&request(0, 5), told).is_err());
        assert!(decode_request(&request(3, 5)[..15], told).is_err());
        let other = SourceNumbers { origin: 4, newest: 6 };
        assert_eq!(decode_request(&request(4, 6), told), Ok(other));
    }
}
