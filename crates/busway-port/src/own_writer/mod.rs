//! A partition's own writers: its process has a queue pair of its own, by which it writes the
//! registers of its sampling channels into the port stores of other hosts.
//!
//! Contract: who writes such a register is the sending host's matter, its gateway or a process of
//! the source's partition; the receiving host accepts one connection and notices no difference. A
//! process with a source port of such a channel has a thread, [`worker`], which opens the RDMA
//! device, tells the gateway so, and connects when the gateway passes on what the receiving host
//! said of its register. From then on WRITE_SAMPLING_MESSAGE writes the store's register, as
//! always, and then posts the WRITEs of the far one ([`far_end`]); the gateway moves nothing.
//!
//! | module | what it is | runs on |
//! |---|---|---|
//! | `message` | what a process and the gateway tell each other | both |
//! | `socket` | the socket between them, a file of the store | both |
//! | `desk` | the gateway's side of all these sockets | the gateway's control thread |
//! | `worker` | the process's side, its devices and connections | a thread of the process |
//! | `joining` | makes both when a process joins | the process's start |
//! | `far_end` | one register in another host's store | the writing thread, and `worker` |
//!
//! **Nobody waits.** The thread that writes takes the end's mutex only if it is free. If it is not,
//! or the queue pair has no room, or another process of the partition has the queue pair, it rings
//! the source port's doorbell ([`crate::doorbell`]), and the worker that has the queue pair offers
//! the newest message of the store. So the newest message always leaves, and older ones may not.
//!
//! **One writer.** A register is written through one connection, which the receiving host accepts
//! once, by a token, and destroys before it lets anybody else write.
//!
//! The reasons are in decision 009.

mod desk;
mod far_end;
mod joining;
mod message;
mod socket;
mod worker;

pub use desk::{WriterDesk, WriterEvent};
pub(crate) use far_end::{FarEnds, Source};
pub(crate) use joining::{far_ends, mark, start};
pub(crate) use worker::Worker;
