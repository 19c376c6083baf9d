//! How results are shown: text, comma-separated values, HdrHistogram logs, a report page, and runs
//! beside each other.
//!
//! Contract: every view is made from [`Run`]s alone, so that a file read back shows what the run
//! did; what takes away from the figures (refused conditions, warnings, more busy threads than
//! cores) always stands beside them; text from files is never trusted to be harmless. Called by
//! every experiment, through [`Output`] and [`text`], and by `busway bench compare`.

mod caveats;
pub mod compare;
mod csv;
mod hdr;
mod headline;
mod histogram;
mod output;
mod report;
mod series;
mod tables;
mod terminal;
mod threshold;
mod units;

use crate::record::Run;
pub(crate) use compare::differences;
pub use output::Output;
use series::Set;
pub use terminal::{Columns, Show};

/// A run as tables for people, as wide as the terminal that this program writes to, if it does.
pub fn text(run: &Run, show: &Show) -> String {
    text_within(run, show, terminal::width())
}

/// A run as tables for people, on a terminal of this width; `None`: as wide as they are.
pub fn text_within(run: &Run, show: &Show, width: Option<usize>) -> String {
    let alone = [(String::new(), run)];
    terminal::text(&Set::new(&alone, &[]), show, width)
}
