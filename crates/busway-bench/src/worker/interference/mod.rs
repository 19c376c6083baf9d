//! The programs of the interference experiment: a computing and a receiving partition that share a
//! core.

mod compute;
mod frames;
mod partition;
mod steer;

pub use compute::Compute;
pub(super) use compute::run as compute;
pub(crate) use compute::steps_for;
pub use partition::Partition;
pub(super) use partition::run as receive;
pub(super) use steer::run as steer;
