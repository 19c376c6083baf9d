//! The figures of each experiment, with the published ones that they repeat.
//!
//! Contract: a figure holds every line that has points for it, however many there are; the reader
//! chooses among them. Called by the page.

mod block;
mod intervals;
mod round_trips;
mod throughput;

use block::Block;

use super::lines::Choice;
use crate::record::Experiment;
use crate::views::series::Set;

pub(super) fn of(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    match set.experiment() {
        Experiment::Latency => round_trips::latency(set, lines),
        Experiment::Throughput => throughput::throughput(lines),
        Experiment::Stream => throughput::stream(set, lines),
        Experiment::Interference => intervals::interference(set, lines),
        Experiment::Timeliness => intervals::timeliness(set, lines),
        Experiment::Jitter => round_trips::jitter(set, lines),
        Experiment::Gateway => vec![round_trips::by_size(lines), throughput::by_size(lines)],
        Experiment::Calls => throughput::calls(set, lines),
        Experiment::SelfTest => round_trips::distributions(set, lines),
    }
}
