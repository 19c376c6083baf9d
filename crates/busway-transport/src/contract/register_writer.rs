//! The RDMA device by which a program of this host writes a register of the other host's port store
//! itself, without the gateway.
//!
//! Contract: the receiving host opens the register for its peer's gateway, and expects one
//! connection with the token that it drew ([`Link::open_register`](super::Link::open_register)).
//! The sending gateway may let a program make that connection: it passes on what it was told, a
//! [`RegisterTicket`]. The program opens the device once ([`RegisterDevicePlace::open`]) and
//! connects with each ticket ([`RegisterDevice::dial`]). The sender that it gets takes no
//! messages over, it copies them out ([`Sender::copy_out`]). A bus offers this by
//! [`LinkSettings::register_device`](super::LinkSettings::register_device). Called by partitions,
//! on a thread of their own; only [`Sender::copy_out`] is called by the thread that writes.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Sender;
use super::link::{ChannelId, OpenError};
use super::message::{Head, Message};
use super::register::SourceNumbers;

/// A message that cannot exist: its senders only copy messages out.
#[derive(Debug)]
pub enum NoMessage {}

impl Message for NoMessage {
    fn head(&self) -> &Head {
        match *self {}
    }

    fn user_header(&self) -> &[u8] {
        match *self {}
    }

    fn payload(&self) -> &[u8] {
        match *self {}
    }
}

/// The end by which a program writes a register of the other host's port store.
pub type RegisterEnd = Box<dyn Sender<NoMessage>>;

/// What a program needs to know of a register to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterTicket {
    /// The channel, as the receiving host calls it.
    pub channel: ChannelId,
    /// Session of the sending gateway.
    pub session: u64,
    /// Session of the receiving gateway.
    pub peer_session: u64,
    /// What the receiving host says of the register; hostile.
    pub landing: Vec<u8>,
    /// Numbers of the messages to come.
    pub source: SourceNumbers,
}

/// A connection that stands, or why there is none.
pub type Dialled = (ChannelId, Result<RegisterEnd, String>);

/// An open device; see the module.
pub trait RegisterDevice: Send {
    /// Begins to connect. [`poll`](Self::poll) returns the outcome.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn dial(&mut self, ticket: &RegisterTicket) -> Result<(), OpenError>;

    /// Abandons a connection that is not made yet.
    fn abandon(&mut self, channel: ChannelId);

    /// Handles events, and returns the next connection. Call it until it returns `None`.
    fn poll(&mut self, now: Instant) -> Option<Dialled>;

    /// Readable when [`poll`](Self::poll) has work.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The longest time until the next [`poll`](Self::poll) while the descriptor is quiet.
    fn poll_within(&self, now: Instant) -> Option<Duration>;

    /// Whether the device was removed: drop this value and open the device anew.
    fn is_removed(&self) -> bool;
}

type Open = dyn Fn() -> Result<Box<dyn RegisterDevice>, OpenError> + Send + Sync;

/// Which device a program opens.
#[derive(Clone)]
pub struct RegisterDevicePlace {
    name: String,
    open: Arc<Open>,
}

impl RegisterDevicePlace {
    /// The device called `name`, which `open` opens.
    pub fn new(
        name: String,
        open: impl Fn() -> Result<Box<dyn RegisterDevice>, OpenError> + Send + Sync + 'static,
    ) -> RegisterDevicePlace {
        RegisterDevicePlace {
            name,
            open: Arc::new(open),
        }
    }

    /// The device's name, for people: its address.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the device for this process.
    ///
    /// # Errors
    /// Libraries missing, no such device, no permission, no resources.
    pub fn open(&self) -> Result<Box<dyn RegisterDevice>, OpenError> {
        (self.open)()
    }
}

impl PartialEq for RegisterDevicePlace {
    fn eq(&self, other: &RegisterDevicePlace) -> bool {
        self.name == other.name
    }
}

impl Eq for RegisterDevicePlace {}

impl fmt::Debug for RegisterDevicePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisterDevicePlace").field(&self.name).finish()
    }
}
