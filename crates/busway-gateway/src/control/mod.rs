//! Decides what crosses between hosts and over which bus: the gateway without its effects.
//!
//! Contract: [`Core`] takes [`Fact`]s (a link went down, programs came or went, a peer or a lane
//! sent something, a lane or bus finished what it was asked for) and the time, and asks for
//! [`Action`]s (open, close, move, send this control message, count this loss). It has no socket,
//! thread, clock, file or iceoryx2 call, so the [simulation](self::simulation) runs whole systems
//! of it in virtual time. The shell, [`crate::gateway`], delivers facts and carries out actions in
//! their order.
//!
//! ```text
//!  links, programs, lanes ─ Fact ─> Core::handle ─> Core::decide ─ Action ─> shell
//! ```
//!
//! * [`fact`]: facts and actions.
//! * [`core`]: which flow a fact concerns.
//! * [`flow`]: one flow, the state machine of its channels; [`inbound`] and [`outbound`] are its
//!   two sides.
//! * [`endpoint`]: what a flow joins, a [`service`] (iceoryx2) or a [`port`] (ARINC 653); what
//!   should be of each is in [`service_flow`] and [`port_flow`]. A new messaging pattern is one
//!   more kind of endpoint.
//! * [`shared`]: what all flows share.
//! * [`routes`]: which bus of which link a flow takes; [`backoff`]: which links it avoids for a
//!   while.
//! * [`link`]: what is known of a link; [`unacknowledged`]: messages of moved channels whose
//!   delivery is unknown if the link fails.
//! * [`plan`]: how a service is carried, from its settings and the system file.

pub mod backoff;
pub mod core;
pub mod endpoint;
pub mod fact;
pub mod flow;
mod inbound;
pub mod link;
mod outbound;
pub mod plan;
pub mod port;
mod port_flow;
pub mod routes;
pub mod service;
mod service_flow;
pub mod shared;
mod unacknowledged;

#[cfg(test)]
mod simulation;

pub use self::core::Core;
pub use fact::{Action, Fact, LocalService};
