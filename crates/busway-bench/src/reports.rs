//! Waits for the reports of programs: until the path stands, until all is counted.

use std::time::Duration;

use crate::BenchError;
use crate::processes::Worker;
use crate::record::Measured;
use crate::worker::{Extent, Report};

/// A path that does not stand after this long never will; Zenoh's discovery takes seconds.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longer than any receiver waits for stragglers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Messages that are counted off, rather than timed, take no longer than this.
const COUNTING_TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) fn arrive(
    worker: &mut Worker,
    meanwhile: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    worker.wait_for(
        "the first message on the other side",
        ARRIVAL_TIMEOUT,
        meanwhile,
        |report| matches!(report, Report::Arrived).then_some(()),
    )
}

/// Adds the gateways' last words to an error that they may have caused.
pub(crate) fn explain(error: BenchError, last_words: impl FnOnce() -> String) -> BenchError {
    match error {
        BenchError::TimedOut { what, after, stderr } => BenchError::TimedOut {
            what,
            after,
            stderr: stderr + &last_words(),
        },
        other => other,
    }
}

pub(crate) fn counted(
    worker: &mut Worker,
    extent: Extent,
    meanwhile: impl FnMut() -> Result<(), BenchError>,
) -> Result<Measured, BenchError> {
    let longest = match extent {
        Extent::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Extent::Messages(_) => COUNTING_TIMEOUT,
    };
    let timeout = DRAIN_TIMEOUT + longest;
    worker.wait_for(
        "the end of the count",
        timeout,
        meanwhile,
        |report| match report {
            Report::Counted(measured) => Some(*measured),
            _ => None,
        },
    )
}
