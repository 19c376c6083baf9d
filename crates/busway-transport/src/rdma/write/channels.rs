//! Makes the two ends of a channel over RDMA WRITE.
//!
//! Contract: see [`ChannelKind`]. The receiver's memory is registered before its description
//! leaves, the sender's before its request does; each end's RECVs are posted before the other may
//! ring. Called by the link, on the control thread.
#![allow(unsafe_code)] // Windows onto registered memory.

use std::marker::PhantomData;
use std::sync::Arc;

use busway_core::Window;
use busway_core::register::{RegisterReader, RegisterWriter};
use busway_core::ring::{RingConsumer, RingProducer};

use super::access::{Far, OverRdma};
use super::pipe::{CAPACITY, Handle, Pipe, RECV_BYTES};
use super::place::{
    LandingMemory, ONE_WRITE_BYTES, RECEIVER_BELL_AT, SENDER_BELL_AT, SENDER_BYTES, decode_request,
    encode_request,
};
use super::register::{self, CheckedRegister, PreparedRegister};
use super::ring::{self, CheckedRing, PreparedRing};
use super::wake::WakeState;
use crate::contract::{
    ChannelSpec, Keep, LandingRegister, LandingRing, Message, OpenError, QueueNumbers, Receiver, Sender,
    SourceNumbers, WaitFor,
};
use crate::rdma::channel_kind::{Accepted, Asking, ChannelKind};
use crate::rdma::cm::CmId;
use crate::rdma::device::{Access, Device, Region};
use crate::rdma::error::{PostError, RdmaError};
use crate::rdma::lane::Lane;
use crate::rdma::queue_pair::QueuePair;
use crate::rdma::settings::LinkSettings;
use crate::remote_write::ENTRY_BYTES;
use crate::remote_write::credit_writer::CreditWriter;
use crate::remote_write::receiver::{LatestReceiver, QueueReceiver, ReceiverBase};
use crate::remote_write::sender::{LatestSender, QueueSender, SenderBase};
use crate::remote_write::shape::{Parts, Shape};
use crate::session::mailbox::DroppedSenders;

/// About what a landing place may take, in bytes. Longer messages go in pieces.
const BUDGET_BYTES: usize = 2 << 20;
/// The staging area of a sender is at least as long, in bytes; that of a receiver, whose words
/// travel in the request, is.
const LEAST_STAGING_BYTES: usize = 16 << 10;
/// Unchecked messages of at most this many bytes, head included, use wide lines, so that each is
/// one WRITE beside its commit word.
const WIDE_BYTES: usize = 6 << 10;
/// Messages on a channel for at most this many bytes, head included, are checked over every
/// transport: the checksum of so few bytes costs less than a WRITE of the word that publishes.
const SHORT_BYTES: u64 = 320;
/// Bytes of a register with a wrong checksum that a reader looks at before it fails: some seconds
/// of polling.
const PATIENCE_BYTES: u64 = 1 << 32;

/// See [`super`].
#[derive(Debug)]
pub(super) struct WriteChannels<C>(PhantomData<C>);

/// Whether messages carry checksums.
pub(super) trait Checking: Send + 'static {
    /// On such a channel over this device.
    fn is_checked(device: &Device, spec: &ChannelSpec) -> bool;
}

/// Where the transport needs them, or they save a WRITE.
#[derive(Debug)]
pub(super) struct ByTransport;
/// Over every transport.
#[derive(Debug)]
pub(super) struct Always;
/// Not even over iWARP: for cards that are known to place in order.
#[derive(Debug)]
pub(super) struct Never;

impl Checking for ByTransport {
    fn is_checked(device: &Device, spec: &ChannelSpec) -> bool {
        device.is_iwarp() || spec.message_bytes <= SHORT_BYTES
    }
}

impl Checking for Always {
    fn is_checked(_device: &Device, _spec: &ChannelSpec) -> bool {
        true
    }
}

impl Checking for Never {
    fn is_checked(_device: &Device, _spec: &ChannelSpec) -> bool {
        false
    }
}

/// A landing place without a sender.
pub(super) enum Prepared {
    /// Of its own.
    Own(Box<PreparedPlace>),
    /// The register of a port.
    Register(Box<PreparedRegister>),
    /// The queue of a port.
    Ring(Box<PreparedRing>),
}

/// Memory of its own without a sender.
pub(super) struct PreparedPlace {
    region: Region,
    place: LandingMemory,
    parts: Parts,
    keep: Keep,
    lane: Arc<Lane>,
}

/// A landing place to which a sender may connect.
#[derive(Clone)]
pub(super) enum CheckedLanding {
    /// Of its own.
    Own(CheckedPlace),
    /// The register of a port.
    Register(CheckedRegister),
    /// The queue of a port.
    Ring(CheckedRing),
}

/// Memory of its own to which a sender may connect.
#[derive(Clone)]
pub(super) struct CheckedPlace {
    place: LandingMemory,
    parts: Parts,
    lane: Arc<Lane>,
}

impl<C: Checking> ChannelKind for WriteChannels<C> {
    const NAME: &'static str = <super::RdmaWrite as crate::contract::Bus>::NAME;
    type Prepared = Prepared;
    type CheckedLanding = CheckedLanding;

    fn prepare(
        device: &Arc<Device>,
        spec: &ChannelSpec,
        lane: &Arc<Lane>,
    ) -> Result<(Prepared, Vec<u8>), RdmaError> {
        let is_checked = C::is_checked(device, spec);
        let widest_bytes = if is_checked { ONE_WRITE_BYTES } else { WIDE_BYTES };
        let mut place = LandingMemory {
            tag: crate::session::token::draw_token().max(1),
            shape: Shape::plan_wide(spec, BUDGET_BYTES, widest_bytes),
            is_checked,
            address: 0,
            key: 0,
        };
        let parts = place.parts().ok_or(RdmaError::Registration {
            len_bytes: BUDGET_BYTES,
            error: std::io::ErrorKind::InvalidInput.into(),
        })?;
        let region = Region::new(device, parts.total_bytes, Access::RemoteReadWrite)?;
        place.address = region.address();
        place.key = region.remote_key();
        if let Some((layout, at)) = parts.register {
            let register = part(&window_of(&region), at, layout.required_bytes());
            // Inside: the region was made for the parts.
            let _ = register.map(|mut register| layout.prepare(&mut register, place.tag));
        }
        let prepared = PreparedPlace {
            region,
            place,
            parts,
            keep: spec.keep,
            lane: Arc::clone(lane),
        };
        Ok((Prepared::Own(Box::new(prepared)), place.encode()))
    }

    fn prepare_register(
        device: &Arc<Device>,
        register: LandingRegister,
    ) -> Result<(Prepared, Vec<u8>), OpenError> {
        let (prepared, description) = register::prepare(device, register)?;
        Ok((Prepared::Register(Box::new(prepared)), description))
    }

    fn prepare_ring(
        device: &Arc<Device>,
        ring: LandingRing,
        lane: &Arc<Lane>,
    ) -> Result<(Prepared, Vec<u8>), OpenError> {
        let (prepared, description) = ring::prepare(device, ring, lane)?;
        Ok((Prepared::Ring(Box::new(prepared)), description))
    }

    fn accept(
        prepared: Prepared,
        device: &Arc<Device>,
        id: CmId,
        request: &[u8],
    ) -> Result<Accepted, String> {
        let prepared = match prepared {
            Prepared::Own(prepared) => *prepared,
            Prepared::Register(prepared) => return register::accept(*prepared, device, id, request),
            Prepared::Ring(prepared) => return ring::accept(*prepared, device, id, request),
        };
        let far = decode_request(request)?;
        let PreparedPlace {
            region,
            place,
            parts,
            keep,
            lane,
        } = prepared;
        let pair = Arc::new(QueuePair::new(id, device, CAPACITY).map_err(text)?);
        let staging = Region::new(device, LEAST_STAGING_BYTES, Access::Local).map_err(text)?;
        let window = window_of(&region);
        let line = part(&window, 0, ENTRY_BYTES)?;
        let rest = WakeState::new(
            line.clone(),
            RECEIVER_BELL_AT,
            SENDER_BELL_AT,
            place.tag,
            Arc::clone(&lane),
        )
        .greeted();
        let pipe = Pipe::new(Arc::clone(&pair), far, region, staging, rest).map_err(refused)?;
        lane.watch(pipe.fd()).map_err(text)?;
        let handle = Handle::new(pipe, None);
        let credit = || Far::new(&handle, 0, ENTRY_BYTES);
        let base: ReceiverBase<OverRdma> = ReceiverBase {
            tag: place.tag,
            permission: handle.clone(),
            line,
            credit: credit(),
            waker: handle.clone(),
            wait_for: WaitFor::Doorbell,
            empty_polls: 0,
            _keep: (),
        };
        let bank = CreditWriter {
            permission: handle.clone(),
            credit: credit(),
            waker: handle.clone(),
            given: place.tag,
        };
        let ring = part(&window, parts.ring_at, parts.ring.required_bytes())?;
        let ring = RingConsumer::new(ring, parts.ring, place.tag, bank).map_err(text)?;
        let receiver: Box<dyn Receiver> = match keep {
            Keep::All { .. } => Box::new(QueueReceiver::new(base, ring)),
            Keep::Latest => {
                let register = parts.register.map(|(layout, at)| {
                    let window = part(&window, at, layout.required_bytes())?;
                    RegisterReader::new(window, layout, place.tag).map_err(text)
                });
                let patience_bytes = if place.is_checked { PATIENCE_BYTES } else { 0 };
                let register = register.transpose()?;
                let register = register.map(|register| register.with_patience_bytes(patience_bytes));
                Box::new(LatestReceiver::new(base, ring, register))
            }
        };
        Ok(Accepted {
            receiver,
            pair,
            answer: Vec::new(),
            outlives_conversation: false,
        })
    }

    fn judge(
        description: &[u8],
        _settings: &LinkSettings,
        lane: &Arc<Lane>,
        source: Option<SourceNumbers>,
    ) -> Result<CheckedLanding, String> {
        if let Some(source) = source {
            return register::judge(description, source, lane).map(CheckedLanding::Register);
        }
        let (place, parts) = LandingMemory::decode(description)?;
        Ok(CheckedLanding::Own(CheckedPlace {
            place,
            parts,
            lane: Arc::clone(lane),
        }))
    }

    fn judge_ring(
        description: &[u8],
        lane: &Arc<Lane>,
        source: QueueNumbers,
    ) -> Result<CheckedLanding, String> {
        ring::judge(description, source, lane).map(CheckedLanding::Ring)
    }

    fn connect<M: Message>(
        judged: CheckedLanding,
        device: &Arc<Device>,
        id: CmId,
        spec: &ChannelSpec,
        dropped: &Arc<DroppedSenders>,
    ) -> Result<Asking<M>, String> {
        let CheckedPlace { place, parts, lane } = match judged {
            CheckedLanding::Own(judged) => judged,
            CheckedLanding::Register(checked) => return register::connect(checked, device, id),
            CheckedLanding::Ring(checked) => return ring::connect(checked, device, id, spec, dropped),
        };
        let pair = Arc::new(QueuePair::new(id, device, CAPACITY).map_err(text)?);
        let own = Region::new(device, SENDER_BYTES, Access::RemoteReadWrite).map_err(text)?;
        let request = encode_request(own.address(), own.remote_key());
        let staging = Region::new(device, staging_bytes(&parts) + RECV_BYTES, Access::Local).map_err(text)?;
        let window = window_of(&own);
        let mut credit = part(&window, 0, ENTRY_BYTES)?;
        parts.ring.prepare_credits(&mut credit, place.tag).map_err(text)?;
        let rest = WakeState::new(
            part(&window, SENDER_BELL_AT, ENTRY_BYTES)?,
            SENDER_BELL_AT,
            RECEIVER_BELL_AT,
            place.tag,
            Arc::clone(&lane),
        );
        let far = super::pipe::FarMemory {
            address: place.address,
            key: place.key,
            len_bytes: parts.total_bytes,
        };
        let pipe = Pipe::new(Arc::clone(&pair), far, own, staging, rest).map_err(refused)?;
        lane.watch(pipe.fd()).map_err(text)?;
        let handle = Handle::new(pipe, Some(Arc::clone(dropped)));
        let ring = RingProducer::new(
            Far::new(&handle, parts.ring_at, parts.ring.required_bytes()),
            parts.ring,
            place.tag,
            credit.clone(),
        )
        .map_err(text)?;
        let base: SenderBase<OverRdma> = SenderBase {
            permission: handle.clone(),
            tag: place.tag,
            line: Far::new(&handle, 0, ENTRY_BYTES),
            credit,
            waker: handle.clone(),
            wait_for: WaitFor::Doorbell,
            keep: (),
        };
        let sender: Box<dyn Sender<M>> = match spec.keep {
            Keep::All { depth } => Box::new(QueueSender::new(base, ring, depth)),
            Keep::Latest => {
                let register = parts.register.map(|(layout, at)| {
                    let far = Far::new(&handle, at, layout.required_bytes());
                    RegisterWriter::new(far, layout, place.tag).map_err(text)
                });
                Box::new(LatestSender::new(base, ring, register.transpose()?))
            }
        };
        Ok(Asking {
            finish: Box::new(move |_answer| {
                handle.with(Pipe::greet);
                Ok(sender)
            }),
            pair,
            request,
            outlives_conversation: false,
        })
    }
}

/// The window onto a region, for an end whose pipe holds the region.
pub(super) fn window_of(region: &Region) -> Window {
    // SAFETY: parts of the window are used in this module while it has the region, and by the ends
    // made here, each of which has a share of the pipe that holds the region. The fields of an end
    // that is dropped may outlive that share by some instructions, in which no window is used:
    // windows have no `drop`, and the ends' own come first.
    unsafe { region.window() }
}

/// A staging area in which four of the longest writes find room.
fn staging_bytes(parts: &Parts) -> usize {
    let register_bytes = parts.register.map_or(0, |(layout, _)| layout.max_size_bytes());
    staging_for(register_bytes.max(parts.ring.max_size_bytes()))
}

/// A staging area in which four messages of this length find room.
pub(super) fn staging_for(max_size_bytes: usize) -> usize {
    (4 * (max_size_bytes + ENTRY_BYTES)).max(LEAST_STAGING_BYTES)
}

/// The part of `window` at `at`.
pub(super) fn part(window: &Window, at: usize, bytes: usize) -> Result<Window, String> {
    window.sub(at, bytes).map_err(text)
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(super) fn refused(error: PostError) -> String {
    match error {
        PostError::Full => "the device takes fewer RECVs than it was asked for".into(),
        PostError::Failed(error) => error.to_string(),
    }
}
