//! What a Linux machine is like for real-time messages: the record of its environment, what spoils
//! latency and how to mend it, and what a program may ask of the scheduler.
//!
//! [`examine`] is `busway doctor`; [`environment::Environment`] goes into every result of `busway
//! bench`; [`conditions`] are what a measured program asks for itself. All of it reads `/proc` and
//! `/sys` below a [`tree::Tree`], so that a captured machine is judged like this one. Called by the
//! command line and `busway-bench`.
//!
//! The files are read by hand, field by field, since a record needs every field that a kernel has,
//! and from a made-up tree in tests (decision 016 weighs the `procfs` crate).

mod checks;
pub mod conditions;
pub mod environment;
pub mod facts;
pub mod tree;

pub use checks::{Diagnosis, Finding, Group, Probes, SCHEMA, State, diagnose, examine};
