//! A run in a few sentences.
//!
//! Contract: every sentence repeats figures of a table; rows with more busy threads than cores keep
//! their mark. Called by the terminal view and the report page.

use std::collections::BTreeMap;

use super::series::{Entry, Set, half, load_percent, marked};
use super::{threshold, units};
use crate::record::{Experiment, Row};

/// Messages are seen in time if the median interval between those seen is at most this much longer
/// than the one asked for.
const IN_TIME: f64 = 1.1;
/// From here on others explain why the self-test fails, in percent of the processors.
const BUSY_PERCENT: f64 = 5.0;

pub(super) fn sentences(set: &Set<'_>) -> Vec<String> {
    match set.experiment() {
        Experiment::Latency | Experiment::Gateway => latency(set),
        Experiment::Throughput => ends(set, "most bytes", true, |row| row.bytes_per_s, units::rate),
        Experiment::Stream => ends(set, "least CPU load of both sides", false, load_percent, |load| {
            format!("{load:.2} % of one core")
        }),
        Experiment::Interference => interference(set),
        Experiment::Timeliness => timeliness(set),
        Experiment::Jitter => jitter(set),
        Experiment::Calls => ends(
            set,
            "cheapest write and read",
            false,
            |row| row.calls.map(|calls| calls.write_and_read_ns),
            units::time,
        ),
        Experiment::SelfTest => self_test(set),
    }
}

fn name(entry: &Entry<'_>) -> String {
    marked(&entry.name(), entry.row)
}

fn ends(
    set: &Set<'_>,
    what: &str,
    most: bool,
    figure: impl Fn(&Row) -> Option<f64>,
    said: impl Fn(f64) -> String,
) -> Vec<String> {
    let sizes = set.sizes();
    let mut ends: Vec<u64> = [sizes.first(), sizes.last()]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    ends.dedup();
    let of_size = |bytes: &u64| {
        let mut all: Vec<(f64, Entry<'_>)> = set
            .entries()
            .filter(|entry| entry.row.payload_bytes == *bytes)
            .filter_map(|entry| Some((figure(entry.row)?, entry)))
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        if most {
            all.reverse();
        }
        let (best, last) = (all.first()?, all.last()?);
        let best_said = format!(
            "{}: {what}: {} with {}",
            units::size(*bytes),
            name(&best.1),
            said(best.0)
        );
        Some(match all.len() {
            1 => format!("{best_said}."),
            n => format!(
                "{best_said}; last of {n}: {} with {}.",
                name(&last.1),
                said(last.0)
            ),
        })
    };
    ends.iter().filter_map(of_size).collect()
}

fn latency(set: &Set<'_>) -> Vec<String> {
    let mut all = ends(
        set,
        "shortest median half round trip",
        false,
        |row| half(row).map(|it| it.p50 as f64),
        units::time,
    );
    all.extend(ends(
        set,
        "shortest worst case",
        false,
        |row| half(row).map(|it| it.max as f64),
        units::time,
    ));
    all.extend(threshold::sentences(set));
    all
}

fn interference(set: &Set<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for interval_ns in set.intervals_ns() {
        let of_interval: Vec<Entry<'_>> = set
            .entries()
            .filter(|entry| entry.row.interval_ns.is_none() || entry.row.interval_ns == interval_ns)
            .collect();
        let alone = of_interval
            .iter()
            .find(|entry| Some(entry.row.technology.as_str()) == set.baseline());
        let Some(alone) = alone.and_then(|entry| entry.row.execution_ns.as_ref()) else {
            continue;
        };
        let every = interval_ns.map_or_else(String::new, |ns| {
            format!(", a message every {}", units::time(ns as f64))
        });
        for entry in &of_interval {
            let Some(times) = entry.row.execution_ns.as_ref().filter(|times| *times != alone) else {
                continue;
            };
            all.push(format!(
                "{}{every}: the task's mean execution time is {} than beside {}, its 99 % is {}.",
                name(entry),
                percent_longer(times.mean, alone.mean),
                set.baseline().unwrap_or_default(),
                percent_longer(times.p99 as f64, alone.p99 as f64),
            ));
        }
    }
    all
}

fn percent_longer(value: f64, than: f64) -> String {
    let percent = (value / than.max(1.0) - 1.0) * 100.0;
    let word = if percent < 0.0 { "shorter" } else { "longer" };
    format!("{:.2} % {word}", percent.abs())
}

/// From which interval on messages are seen in time: a sentence for each size and interval, with
/// all to whom it applies.
fn timeliness(set: &Set<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for bytes in set.sizes() {
        let mut since: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for series in set.series() {
            let mut seen: Vec<(u64, bool)> = series
                .rows
                .iter()
                .filter(|row| row.payload_bytes == bytes && !row.off_pace)
                .filter_map(|row| {
                    let asked_ns = row.interval_ns?;
                    let observed_ns = row.observed_interval_ns.as_ref()?.p50;
                    Some((asked_ns, observed_ns as f64 <= asked_ns as f64 * IN_TIME))
                })
                .collect();
            seen.sort_unstable();
            let first_late = seen.iter().rposition(|(_, in_time)| !in_time);
            let from = seen.get(first_late.map_or(0, |at| at + 1));
            if seen.is_empty() {
                continue;
            }
            let from_ns = from.map_or(u64::MAX, |(ns, _)| *ns);
            let name = name(&set.entry(&series));
            since.entry(from_ns).or_default().push(name);
        }
        for (ns, names) in since {
            let from = if ns == u64::MAX {
                "at no interval seen as sent".to_owned()
            } else {
                format!("seen at the interval sent from {} on", units::time(ns as f64))
            };
            all.push(format!("{}, {from}: {}.", units::size(bytes), names.join(", ")));
        }
    }
    all
}

fn jitter(set: &Set<'_>) -> Vec<String> {
    let of_entry = |entry: Entry<'_>| {
        let times = half(entry.row)?;
        let lasted: f64 = entry.row.interruptions.iter().map(|it| it.lasted_s).sum();
        let interrupted = match entry.row.interruptions.len() {
            0 => String::new(),
            1 => format!("; interrupted once, for {}", units::duration(lasted)),
            n => format!("; interrupted {n} times, for {}", units::duration(lasted)),
        };
        Some(format!(
            "{}, {}: best {}, average {}, worst {} of {} half round trips{interrupted}.",
            name(&entry),
            units::size(entry.row.payload_bytes),
            units::time(times.min as f64),
            units::time(times.mean),
            units::time(times.max as f64),
            units::grouped(times.samples as f64),
        ))
    };
    set.entries().filter_map(of_entry).collect()
}

fn self_test(set: &Set<'_>) -> Vec<String> {
    let verdicts: Vec<bool> = set
        .entries()
        .flat_map(|entry| entry.row.verdicts.iter().map(|it| it.passed))
        .collect();
    let passed = verdicts.iter().filter(|passed| **passed).count();
    if verdicts.is_empty() {
        return Vec::new();
    }
    let all = verdicts.len();
    if passed == all {
        return vec![format!(
            "The instrument measured right: all {all} figures are within their tolerances."
        )];
    }
    let mut sentences = vec![format!(
        "THE INSTRUMENT MEASURED WRONG: {} of {all} figures are outside their tolerances.",
        all - passed
    )];
    let during = set.runs().filter_map(|(_, run)| run.environment.during.as_ref());
    let others = during.map(|during| during.others_percent).fold(0.0, f64::max);
    if others >= BUSY_PERCENT {
        sentences.push(format!(
            "Others used {others:.0} % of the processors meanwhile, and what they delay is not what was injected: repeat it on a quiet machine before you blame the instrument."
        ));
    }
    sentences
}
