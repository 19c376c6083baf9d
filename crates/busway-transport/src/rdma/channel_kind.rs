//! What distinguishes the buses over RDMA: how a channel's bytes travel once its connection is
//! asked for.
//!
//! Contract: [`super::link`] finds the device, listens, connects and watches; a [`ChannelKind`]
//! lays out memory and makes the two ends. The receiver comes first ([`ChannelKind::prepare`]); its
//! description goes to the sender over the conversation, the sender's request to the receiver with
//! the connection, the receiver's answer back with its acceptance. A queue pair is made, and every
//! RECV that the peer may use is posted, before [`ChannelKind::accept`] or [`ChannelKind::connect`]
//! returns: from then on the peer may send. Called on the control thread.

use std::sync::Arc;

use super::cm::CmId;
use super::device::Device;
use super::error::RdmaError;
use super::lane::Lane;
use super::queue_pair::QueuePair;
use super::settings::LinkSettings;
use crate::contract::{
    ChannelSpec, LandingRegister, LandingRing, Message, OpenError, QueueNumbers, Receiver, Sender,
    SourceNumbers,
};
use crate::session::mailbox::DroppedSenders;

/// A receiver whose connection can be accepted.
pub struct Accepted {
    /// The end, ready for the peer's first byte.
    pub receiver: Box<dyn Receiver>,
    /// Its queue pair, which the link ends when the conversation does.
    pub pair: Arc<QueuePair>,
    /// For the sender, at most [`super::cm::PRIVATE_BYTES`] bytes.
    pub answer: Vec<u8>,
    /// The end of the conversation does not end it.
    pub outlives_conversation: bool,
}

/// Makes a sending end of the receiver's answer.
pub type Finish<M> = Box<dyn FnOnce(&[u8]) -> Result<Box<dyn Sender<M>>, String> + Send>;

/// A sender whose connection can be asked for.
pub struct Asking<M: Message> {
    /// Makes the end of the receiver's answer (hostile, and padded with zeros by some transports).
    pub finish: Finish<M>,
    /// Its queue pair, which the link ends when the conversation does.
    pub pair: Arc<QueuePair>,
    /// For the receiver, at most [`super::landing::REQUEST_BYTES`] bytes.
    pub request: Vec<u8>,
    /// The end of the conversation does not end it.
    pub outlives_conversation: bool,
}

/// See the module.
pub trait ChannelKind: Sized + Send + 'static {
    /// The bus's name in the system file.
    const NAME: &'static str;
    /// A receiver without a connection.
    type Prepared: Send;
    /// A receiver's description, checked.
    type CheckedLanding: Clone + Send;

    /// Lays out the landing place of a channel whose end `lane` will poll; returns its description
    /// for the sender.
    ///
    /// # Errors
    /// No memory, or none that can be registered.
    fn prepare(
        device: &Arc<Device>,
        spec: &ChannelSpec,
        lane: &Arc<Lane>,
    ) -> Result<(Self::Prepared, Vec<u8>), RdmaError>;

    /// Registers a register of the port store for a sender that writes it itself; returns its
    /// description for the sender.
    ///
    /// # Errors
    /// The kind has no such channels, or the memory can't be registered.
    fn prepare_register(
        device: &Arc<Device>,
        register: LandingRegister,
    ) -> Result<(Self::Prepared, Vec<u8>), OpenError> {
        let _ = (device, register);
        Err(OpenError::NoRegister { bus: Self::NAME })
    }

    /// Registers a queue of the port store for a sender that writes it itself, and makes room for
    /// what the receiving end on `lane` needs; returns its description for the sender.
    ///
    /// # Errors
    /// As [`prepare_register`](Self::prepare_register).
    fn prepare_ring(
        device: &Arc<Device>,
        ring: LandingRing,
        lane: &Arc<Lane>,
    ) -> Result<(Self::Prepared, Vec<u8>), OpenError> {
        let _ = (device, ring, lane);
        Err(OpenError::NoRegister { bus: Self::NAME })
    }

    /// Makes the receiving end for a sender that connects with this (hostile) request.
    ///
    /// # Errors
    /// In words: the request makes no sense, or the device has no room.
    fn accept(
        prepared: Self::Prepared,
        device: &Arc<Device>,
        id: CmId,
        request: &[u8],
    ) -> Result<Accepted, String>;

    /// Checks the description that a peer gave of its landing place, for a sender that `lane` will
    /// poll and that follows `settings`. With a `source` it is a register of the peer's port store
    /// ([`prepare_register`](Self::prepare_register)).
    ///
    /// # Errors
    /// In words: what is wrong with it.
    fn judge(
        description: &[u8],
        settings: &LinkSettings,
        lane: &Arc<Lane>,
        source: Option<SourceNumbers>,
    ) -> Result<Self::CheckedLanding, String>;

    /// As [`judge`](Self::judge), for a queue of the peer's port store
    /// ([`prepare_ring`](Self::prepare_ring)) and the messages of `source`.
    ///
    /// # Errors
    /// In words: the kind has no such channels, or what is wrong with it.
    fn judge_ring(
        description: &[u8],
        lane: &Arc<Lane>,
        source: QueueNumbers,
    ) -> Result<Self::CheckedLanding, String> {
        let _ = (description, lane, source);
        Err(OpenError::NoRegister { bus: Self::NAME }.to_string())
    }

    /// Makes the sending end towards that place, over an id whose route is resolved.
    ///
    /// # Errors
    /// In words: the device has no room, or is another one than the way to the peer leads over.
    fn connect<M: Message>(
        place: Self::CheckedLanding,
        device: &Arc<Device>,
        id: CmId,
        spec: &ChannelSpec,
        dropped: &Arc<DroppedSenders>,
    ) -> Result<Asking<M>, String>;
}
