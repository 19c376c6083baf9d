//! Placeholder
use crate::record::Condition;
use serde::{Deserialize, Serialize};
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub processor: Option<usize>,
    pub fifo_priority: Option<u8>,
    pub lock_memory: bool,
    pub cpu_dma_latency_us: Option<u32>,
}
pub fn apply(_w: &Wanted) -> ((), Vec<Condition>) {
    ((), Vec::new())
}
