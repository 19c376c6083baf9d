//! Channels of ARINC 653 ports between this host and others, as far as one lane serves them.
//!
//! [`channels`] gives them their turns. A channel that leaves is an [`OutboundPort`]; those of one
//! source that can share memory are in one [`fan_out`], with messages in its [`buffer_pool`]. A
//! channel that arrives is an [`InboundPort`].

mod buffer_pool;
mod channels;
mod fan_out;
mod head;
mod inbound;
mod outbound;
mod shared_receiver;

pub(super) use channels::PortChannels;
pub use inbound::InboundPort;
pub use outbound::OutboundPort;
pub use shared_receiver::{Revoker, SharedReceiver};
