//! What a bus is: the traits that its users call and the plain data that both sides exchange.
//!
//! Contract: imports no bus. A bus implements [`Bus`], [`LinkSettings`], [`Link`], [`Sender`] and
//! [`Receiver`]; its users (the gateway, the ports, the benchmark) implement [`Message`] and
//! [`Sink`]. `tests/contract/` checks every bus against what stands here.

#[cfg(not(loom))]
mod addresses;
#[cfg(not(loom))]
mod bus;
mod channel;
mod link;
mod message;
#[cfg(not(loom))]
mod needs;
#[cfg(not(loom))]
mod one_sided;
#[cfg(not(loom))]
mod register;
#[cfg(not(loom))]
mod register_writer;
#[cfg(not(loom))]
mod ring;
mod sender_group;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod size;

#[cfg(not(loom))]
pub use addresses::{Addresses, Role};
#[cfg(not(loom))]
pub(crate) use addresses::{is_link_local, refuse_link_local};
#[cfg(not(loom))]
pub use bus::{Bus, LinkSettings};
pub use channel::{
    ChannelEnd, ChannelError, Flushed, Landing, Receiver, Refused, Sender, Sink, Verdict, WaitFor,
};
pub use link::{
    ChannelId, ChannelSpec, Direction, Doorbell, Keep, LINGER, Link, LinkEvent, LinkIdentity, OpenError,
    PeerHello,
};
pub use message::{HEAD_BYTES, Head, Kind, Message, SegmentId};
#[cfg(not(loom))]
pub use needs::{FileUse, Finding, WindowUse};
#[cfg(not(loom))]
pub use one_sided::{Access, MapError, PortMemory, PortPlace};
#[cfg(not(loom))]
pub use register::{BeginWriting, LandingRegister, SourceNumbers};
#[cfg(not(loom))]
pub use register_writer::{
    Dialled, NoMessage, RegisterDevice, RegisterDevicePlace, RegisterEnd, RegisterTicket,
};
#[cfg(not(loom))]
pub use ring::{LandingRing, QueueNumbers, RingOwner};
pub use sender_group::SenderGroup;
#[cfg(not(loom))]
pub use settings::{SettingError, Site, Tables, duration, optional_duration, validate_heartbeat};
#[cfg(not(loom))]
pub use size::Size;
