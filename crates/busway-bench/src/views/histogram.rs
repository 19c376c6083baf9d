//! A histogram in characters, as `scipp -hist` shows it: a line for each range of times, as long as
//! the logarithm of its count.
//!
//! Contract: ranges are equally wide on a logarithmic scale and cover every time from the shortest
//! to the longest, so that a single outlier is seen. Called by the terminal view.

use std::fmt::Write;

use crate::record::{Experiment, Recorder, Row};

use super::series::{Entry, Set};
use super::units;

const RANGES: usize = 24;
const BAR: usize = 50;
const LABEL: usize = 36;

pub(super) fn text(set: &Set<'_>, width: Option<usize>) -> String {
    let bar = width.map_or(BAR, |width| width.saturating_sub(LABEL).min(BAR));
    let of_entry = |entry: Entry<'_>| {
        let (what, recorder, divisor) = times(set.experiment(), entry.row)?;
        let title = format!(
            "{what}, {}, {}",
            entry.name(),
            units::size(entry.row.payload_bytes)
        );
        Some(drawn(&title, &recorder, divisor, bar))
    };
    set.entries().filter_map(of_entry).collect()
}

pub(super) fn times(experiment: Experiment, row: &Row) -> Option<(&'static str, Recorder, f64)> {
    let (what, times, divisor) = match experiment {
        Experiment::Interference => ("Execution time", &row.execution_ns, 1.0),
        Experiment::Timeliness => ("Observed interval", &row.observed_interval_ns, 1.0),
        _ => ("Half round trip", &row.rtt_ns, 2.0),
    };
    Some((what, times.as_ref()?.recorder()?, divisor))
}

/// Counts in ranges that are equally wide on a logarithmic scale: `(from, to, count)`, in ns.
pub(super) fn log_ranges(recorder: &Recorder, ranges: usize, divisor: f64) -> Vec<(f64, f64, u64)> {
    let histogram = recorder.histogram();
    if histogram.is_empty() {
        return Vec::new();
    }
    let from = histogram.min_nz().min(histogram.max()).max(1) as f64 * 0.999;
    let to = (histogram.max().max(1) as f64 * 1.001).max(from * 1.05);
    let step = (to / from).ln() / ranges as f64;
    let mut counts = vec![0; ranges];
    for value in histogram.iter_recorded() {
        let at = (value.value_iterated_to().max(1) as f64 / from).ln() / step;
        counts[(at.max(0.0) as usize).min(ranges - 1)] += value.count_at_value();
    }
    let edge = |index: usize| from * (step * index as f64).exp() / divisor;
    counts
        .into_iter()
        .enumerate()
        .map(|(index, count)| (edge(index), edge(index + 1), count))
        .collect()
}

fn drawn(title: &str, recorder: &Recorder, divisor: f64, bar: usize) -> String {
    let ranges = log_ranges(recorder, RANGES, divisor);
    let most = ranges.iter().map(|(_, _, count)| *count).max().unwrap_or(0);
    let mut out = format!("\n{title} (bars: logarithm of the count)\n");
    for (from, to, count) in ranges {
        let length = match (count, most) {
            (0, _) => 0.0,
            (_, 1) => bar as f64,
            _ => ((count as f64).ln() / (most as f64).ln() * bar as f64).max(1.0),
        };
        let _ = writeln!(
            out,
            "{:>9} – {:>9} {:>12} {}",
            units::time(from),
            units::time(to),
            units::grouped(count as f64),
            "█".repeat(length.round() as usize)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_range_and_single_outlier_is_drawn() {
        let mut recorder = Recorder::default();
        (0..10_000).for_each(|at| recorder.record(1_000 + at % 100));
        recorder.record(5_000_000);
        let ranges = log_ranges(&recorder, RANGES, 1.0);
        assert_eq!(ranges.iter().map(|it| it.2).sum::<u64>(), 10_001);
        assert_eq!(ranges[RANGES - 1].2, 1);
        assert_eq!(ranges[0].2, 10_000);
        let text = drawn("t", &recorder, 1.0, BAR);
        assert!(text.lines().last().unwrap().ends_with("1 █"), "{text}");
    }

    #[test]
    fn empty_and_single_value_histograms_are_drawn() {
        let mut recorder = Recorder::default();
        assert!(log_ranges(&recorder, RANGES, 1.0).is_empty());
        recorder.record(0);
        assert_eq!(
            log_ranges(&recorder, 4, 1.0).iter().map(|it| it.2).sum::<u64>(),
            1
        );
    }
}
