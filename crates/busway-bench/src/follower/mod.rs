//! The other machine of a measurement between two: `busway bench follower` there, `--follower HOST`
//! here.
//!
//! Contract: the follower serves one run at a time. It starts what the run asks for in a directory
//! of its own, and ends it when the connection of that run closes, whatever happened to the other
//! machine. It starts only workers of technologies that reach another machine, and gateways, and
//! maps only the window on its command line. There is no authentication, and a gateway opens what
//! the system file names: anyone who reaches the follower's port can load this machine and make it
//! open windows. So run it on a network of your own, and not as root.
//!
//! A connection carries one request as a line of JSON, and is answered by one reply. Then it is
//! what was asked for: the run itself (which ends with it), standard input and output of a worker,
//! or the leash of a gateway.

mod client;
mod protocol;
mod server;

pub use client::Follower;
pub(crate) use client::RemoteGateway;
pub use protocol::PORT;
pub use server::{Args, serve};
