//! Lanes: the threads that move messages between iceoryx2, ARINC 653 ports and the buses.
//!
//! A lane owns flows. The flow of a service has two halves: [`outbound`] takes samples of local
//! programs to other hosts, [`inbound`] gives messages of other hosts to local programs. Channels
//! of ports are in [`port`]. The control thread makes and ends them by [`LaneCommand`]s and
//! receives [`Report`]s; they share nothing else but counters. After start a lane allocates, locks
//! and logs nothing on the data path.
//!
//! A service whose publisher may have to wait for slow local readers (without safe overflow) has
//! its inbound half in a lane of its own, so that it delays no other flow.

mod command;
pub mod destination;
mod flow;
mod handle;
pub mod inbound;
mod interface;
pub mod outbound;
pub mod port;
mod queues;
pub mod schedule;
pub mod wait;
mod worker;

pub use command::{InboundCommand, LaneCommand, OutboundCommand, PortCommand, PortEnd};
pub use handle::Lane;
pub use interface::{ChannelKey, Ending, FlowId, Report, WhenFull};
pub use queues::ReportSender;
