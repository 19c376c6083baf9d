//! The tables of each experiment, made once for the terminal and for the report page.
//!
//! Contract: a row is one technology in one way of waiting and one mode, of one run. Key columns
//! come first and are aligned left, figures are aligned right. No table has an empty column or row.
//! Each column has a name for `--columns` ([`NAMES`]) and a rank, by which narrow terminals drop
//! columns. [`Table::published`] names the published table that one repeats.

mod build;
mod intervals;
mod others;
mod round_trips;
mod throughput;

use build::{SHORT_SWEEP, sizes};

pub(super) use build::{Detail, Head, NAMES, Table, plain};

use super::series::Set;
use crate::record::Experiment;

pub(super) fn of(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let mut tables = match set.experiment() {
        Experiment::Latency => round_trips::latency(set, detail),
        Experiment::Throughput => throughput::throughput(set, detail),
        Experiment::Stream => throughput::stream(set),
        Experiment::Interference => intervals::interference(set),
        Experiment::Timeliness => intervals::timeliness(set, detail),
        Experiment::Jitter => others::jitter(set, detail),
        Experiment::Gateway => others::gateway(set, detail),
        Experiment::Calls => others::calls(set),
        Experiment::SelfTest => others::self_test(set),
    };
    tables.retain(|table| !table.rows.is_empty());
    let all = set.sizes().len();
    let is_cut = matches!(
        set.experiment(),
        Experiment::Latency | Experiment::Throughput | Experiment::Gateway
    ) && all > sizes(set, detail).len();
    if let Some(last) = tables.last_mut().filter(|_| is_cut) {
        last.footnotes.push(format!(
            "{SHORT_SWEEP} of {all} sizes have tables of their own; `--columns` and the files \
             (--csv, --json, --report) have all"
        ));
    }
    tables
}
