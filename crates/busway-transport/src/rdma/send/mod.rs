//! The bus `rdma-send`: a channel is a queue pair, a message one or more SENDs into RECVs that the
//! receiver has posted.
//!
//! The receiver posts a RECV for each of its slots and describes how many there are. The sender
//! never has more SENDs under way than slots that credits have freed, so a RECV is always posted:
//! over iWARP one SEND too many breaks the connection (RFC 5040, 7.1 leaves no retry), over
//! InfiniBand it costs a retry. Credits are SENDs, too, and need no counting: each frees at least
//! one slot, so at most as many of them as there are slots are under way, and the sender has posted
//! that many RECVs. It posts a RECV again *before* it uses what that credit freed, so the argument
//! holds at every moment.
//!
//! Long payload crosses without a copy: it is announced, the receiver grants the place where it
//! shall land, and one WRITE goes from the sender's sample into it.
//!
//! Used by `super::link`; the pieces of a message and credits are in `wire`, sizes in `layout`.

mod announcing;
pub(crate) mod layout;
mod receiver;
mod sender;
mod stream;
pub(crate) mod wire;

use std::sync::Arc;

use super::channel_kind::{Accepted, Asking, ChannelKind};
use super::cm::CmId;
use super::device::{Access, Device, Region};
use super::error::RdmaError;
use super::lane::Lane;
use super::queue_pair::{Capacity, QueuePair};
use super::settings::{HostSettings, LinkSettings};
use crate::contract::{self, ChannelSpec, Keep, Link, LinkIdentity, Message, OpenError, Site, SourceNumbers};
use crate::session::mailbox::DroppedSenders;
use layout::Layout;
use receiver::SendReceiver;
use sender::SendSender;

/// The bus.
pub struct RdmaSend;

impl contract::Bus for RdmaSend {
    const NAME: &'static str = "rdma-send";

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = super::link::Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    fn link_lines(site: &Site<'_>) -> String {
        site.listen_lines(Self::NAME)
    }

    fn missing() -> Option<String> {
        super::missing()
    }

    fn open<M: Message>(
        shared: &super::link::Shared,
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        super::link::open::<SendChannels, M>(shared, identity, settings, peer_host)
    }
}

/// Channels by SEND and RECV.
struct SendChannels;

/// A receiver's description, and what this host's settings say of sending to it.
#[derive(Clone)]
struct CheckedLanding {
    layout: Layout,
    zero_copy_from_bytes: usize,
    lane: Arc<Lane>,
}

/// The memory of a receiver whose sender has not connected.
struct Prepared {
    layout: Layout,
    keep: Keep,
    slots: Region,
    lane: Arc<Lane>,
}

impl ChannelKind for SendChannels {
    const NAME: &'static str = <RdmaSend as contract::Bus>::NAME;
    type Prepared = Prepared;
    type CheckedLanding = CheckedLanding;

    fn prepare(
        device: &Arc<Device>,
        spec: &ChannelSpec,
        lane: &Arc<Lane>,
    ) -> Result<(Prepared, Vec<u8>), RdmaError> {
        let layout = Layout::of(spec).within(device.max_work() / 2);
        let prepared = Prepared {
            layout,
            keep: spec.keep,
            slots: Region::new(device, layout.bytes(), Access::Local)?,
            lane: Arc::clone(lane),
        };
        Ok((prepared, layout.encode().to_vec()))
    }

    fn accept(
        prepared: Prepared,
        device: &Arc<Device>,
        id: CmId,
        _request: &[u8],
    ) -> Result<Accepted, String> {
        let Prepared {
            layout,
            keep,
            slots,
            lane,
        } = prepared;
        let pair = pair(id, device, layout, &lane)?;
        let receiver =
            SendReceiver::new(pair.clone(), layout, keep, slots, lane).map_err(|error| error.to_string())?;
        Ok(Accepted {
            receiver: Box::new(receiver),
            pair,
            answer: Vec::new(),
            outlives_conversation: false,
        })
    }

    fn judge(
        description: &[u8],
        settings: &LinkSettings,
        lane: &Arc<Lane>,
        source: Option<SourceNumbers>,
    ) -> Result<CheckedLanding, String> {
        if source.is_some() {
            return Err(format!(
                "a register, which a sender over {} can't write",
                Self::NAME
            ));
        }
        Ok(CheckedLanding {
            layout: Layout::decode(description)?,
            zero_copy_from_bytes: usize::try_from(settings.local.zero_copy_from).unwrap_or(usize::MAX),
            lane: Arc::clone(lane),
        })
    }

    fn connect<M: Message>(
        judged: CheckedLanding,
        device: &Arc<Device>,
        id: CmId,
        spec: &ChannelSpec,
        dropped: &Arc<DroppedSenders>,
    ) -> Result<Asking<M>, String> {
        let CheckedLanding {
            layout,
            zero_copy_from_bytes,
            lane,
        } = judged;
        let pair = pair(id, device, layout, &lane)?;
        let sender = SendSender::<M>::new(
            pair.clone(),
            layout,
            spec.keep,
            zero_copy_from_bytes,
            lane,
            dropped.clone(),
        )
        .map_err(|error| error.to_string())?;
        Ok(Asking {
            finish: Box::new(|_| Ok(Box::new(sender))),
            pair,
            request: Vec::new(),
            outlives_conversation: false,
        })
    }
}

/// Both ends post as many SENDs and RECVs as the receiver has slots, and a sender a WRITE before
/// some of its SENDs. What completes wakes the lane, where the end asks for that.
fn pair(id: CmId, device: &Arc<Device>, layout: Layout, lane: &Lane) -> Result<Arc<QueuePair>, String> {
    let capacity = Capacity {
        sends: 2 * layout.slots,
        recvs: layout.slots,
    };
    let pair = QueuePair::new(id, device, capacity).map_err(|error| error.to_string())?;
    lane.watch(pair.completion_queue())
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(pair))
}
