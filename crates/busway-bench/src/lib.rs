//! Demonstration and measurement of Busway: ordinary iceoryx2 programs in processes of their own,
//! on two hosts, with a gateway each.
//!
//! Called by the command line (`busway demo`, `busway bench`, for [`copy_time`] `busway check`)
//! and, for [`hosts`] and [`processes`], by end-to-end tests. The programs under test are this same
//! binary, started again with the hidden subcommand `bench-worker`, which ends in [`worker::main`];
//! they use nothing but iceoryx2's user API and know nothing of Busway.
//!
//! Linux only: namespaces, `/proc` and futexes.

// Used by this workspace only; `docs/bench-results.md` describes the fields of results.
#![allow(missing_docs)]

mod control;
pub mod copy_time;
pub mod demo;
pub mod error;
pub mod experiment;
pub mod follower;
pub mod hosts;
pub mod processes;
pub mod record;
mod reports;
mod sizes;
pub mod system;
pub mod technology;
pub mod views;
pub mod window;
pub mod worker;

pub use busway_doctor::{conditions, environment};
pub use error::BenchError;

use busway_doctor::environment::clock;
