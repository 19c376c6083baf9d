//! What a bus is: the traits that its users call and the plain data that both sides exchange.
//!
//! Contract: imports no bus. A bus implements [`Link`], [`Sender`] and [`Receiver`]; its users (the
//! gateway, the ports, the benchmark) implement [`Message`] and [`Sink`]. `tests/contract/` checks
//! every bus against what stands here.

mod channel;
mod link;
mod message;
mod sender_group;

pub use channel::{
    ChannelEnd, ChannelError, Flushed, Landing, Receiver, Refused, Sender, Sink, Verdict, WaitFor,
};
pub use link::{
    ChannelId, ChannelSpec, Direction, Doorbell, Keep, LINGER, Link, LinkEvent, LinkIdentity, OpenError,
    PeerHello,
};
pub use message::{HEAD_BYTES, Head, Kind, Message, SegmentId};
pub use sender_group::SenderGroup;
