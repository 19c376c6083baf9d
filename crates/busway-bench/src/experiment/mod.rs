//! The experiments, and what they have in common: options, two sides, rounds, results.
//!
//! Contract: every experiment lists tasks, measures each of them once a round, in rounds that
//! interleave all technologies, so that a disturbance of the machine meets all alike, and makes one
//! [`Row`](crate::record::Row) of a task's rounds. What goes wrong in a single measurement is a
//! note in the result. Ctrl-C ends a run with what was measured so far. Called by the command line.

pub mod all;
mod budget;
pub mod calls;
mod floors;
pub mod gateway;
pub mod interference;
pub mod jitter;
pub mod latency;
mod loads;
mod options;
mod rounds;
pub mod self_test;
mod session;
mod site;
mod stage;
mod staged;
mod task;
pub mod throughput;
pub mod timeliness;

pub use options::Common;
pub(crate) use session::{Pair, Session};
pub(crate) use staged::Staged;
pub use task::Context;
pub(crate) use task::Task;
