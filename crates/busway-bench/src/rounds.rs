//! From the figures of single rounds to one result. Called by all measurements.

use std::collections::BTreeMap;

use crate::worker::Percentiles;

/// Least and greatest of all rounds, the percentiles as medians over rounds; in the unit of the rounds.
pub(crate) fn percentiles(rounds: impl Iterator<Item = Percentiles>) -> BTreeMap<&'static str, u64> {
    let all: Vec<Percentiles> = rounds.collect();
    let median_of = |pick: fn(&Percentiles) -> u64| {
        let column: Vec<f64> = all.iter().map(|p| pick(p) as f64).collect();
        median(&column).map(|ns| ns as u64)
    };
    let values = [
        ("min", all.iter().map(|p| p.min).min()),
        ("p50", median_of(|p| p.p50)),
        ("p99", median_of(|p| p.p99)),
        ("p99_9", median_of(|p| p.p99_9)),
        ("max", all.iter().map(|p| p.max).max()),
    ];
    values
        .into_iter()
        .filter_map(|(name, ns)| Some((name, ns?)))
        .collect()
}

/// The value in the middle, or between the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (
        sorted.get(sorted.len().checked_sub(1)? / 2)?,
        sorted.get(sorted.len() / 2)?,
    );
    Some((low + high) / 2.0)
}

/// Rounded to 0.001 for people who read the file, coarser only below that.
pub(crate) fn milli(value: f64) -> f64 {
    if value.abs() < 0.1 {
        (value * 1e5).round() / 1e5
    } else {
        (value * 1e3).round() / 1e3
    }
}
