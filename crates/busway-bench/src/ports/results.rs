//! From samples of single rounds to the rows of the result file: medians and ratios.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Sample;
use super::plan::{Measurement, Medium, Part};
use crate::environment::Environment;
use crate::rounds::{median, milli, percentiles};
use crate::worker::{Costs, Figures, Wait};

/// Everything that a run found; as JSON the result file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where and under which circumstances.
    pub environment: Environment,
    /// How long each single measurement counted, in s.
    pub seconds: f64,
    /// What was skipped, failed or interrupted.
    pub notes: Vec<String>,
    /// One entry for each part, medium, wait strategy, size and interval.
    pub results: Vec<Row>,
}

/// One result. A field that was not measured is absent.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub part: Part,
    /// `two-lines`, `begin-end-flags`, `sockets`; `local` for ports inside one host, the name of the bus for ports of two.
    pub medium: &'static str,
    /// How programs waited. Sockets with `spin` are polled, with `event` they block.
    pub wait: Wait,
    /// How the lanes of the gateways waited, where there are gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes_wait: Option<Wait>,
    /// Size of a message in bytes.
    pub payload_bytes: usize,
    /// What makes the figures of this row worth less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Half of the round trip, without the reading of the clock in it: least and greatest of all rounds, the percentiles as medians
    /// over rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub half_rtt_ns: BTreeMap<&'static str, u64>,
    /// Half round trip over that of two cache lines (median, as in the ratios that follow).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_two_lines: Option<f64>,
    /// Half round trip over that of the one-slot register with flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_flags: Option<f64>,
    /// By how much the round trip is shorter than that over blocking sockets, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_below_blocking_sockets: Option<f64>,
    /// By how much the round trip is shorter than that over polled sockets, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_below_polled_sockets: Option<f64>,
    /// Intervals, in the part of that name.
    #[serde(flatten)]
    pub intervals: Option<Intervals>,
    /// Costs of calls, in the part of that name; medians over rounds.
    #[serde(flatten)]
    pub costs: Option<Costs>,
    /// Round trips counted, or messages seen, all rounds together.
    pub samples: u64,
    /// Round trips without an answer, all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Messages given as new that were put together from two, or were older ones; all rounds together.
    pub torn: u64,
    /// Messages that came after a later one, or twice, all rounds together.
    pub out_of_order: u64,
    /// CPU time of the asking or writing program and of the answering or reading one while counting, in s, median over rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub program_cpu_s_each: Vec<f64>,
    /// The same of the gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway_cpu_s_each: Vec<f64>,
    /// Rounds counted.
    pub rounds: usize,
}

/// How the intervals between messages seen compare with those between messages written.
#[derive(Clone, Debug, Serialize)]
pub struct Intervals {
    /// What the writer was told, in ns.
    pub interval_ns: u64,
    /// Intervals between writes: as [`Row::half_rtt_ns`].
    pub transmitted_ns: BTreeMap<&'static str, u64>,
    /// Intervals between the write times of messages seen one after the other.
    pub observed_ns: BTreeMap<&'static str, u64>,
    /// Median observed over median transmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_to_transmitted: Option<f64>,
    /// The same of the means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_observed_to_transmitted: Option<f64>,
    /// Messages written, all rounds together.
    pub written: u64,
    /// Messages overwritten before the reader had seen them, all rounds together.
    pub overwritten: u64,
}

impl Report {
    pub(super) fn new(
        environment: Environment,
        samples: &[Sample],
        notes: Vec<String>,
        seconds: f64,
    ) -> Self {
        let mut groups: BTreeMap<Measurement, Vec<&Sample>> = BTreeMap::new();
        for sample in samples {
            groups.entry(sample.measurement).or_default().push(sample);
        }
        let mut results: Vec<Row> = groups
            .iter()
            .map(|(measurement, rounds)| row(measurement, rounds, environment.cores))
            .collect();
        add_ratios(&mut results);
        Self {
            environment,
            seconds,
            notes,
            results,
        }
    }
}

fn row(measurement: &Measurement, rounds: &[&Sample], cores: usize) -> Row {
    let sum = |pick: fn(&Figures) -> u64| rounds.iter().map(|s| pick(&s.outcome.figures)).sum::<u64>();
    let is_ping_pong = measurement.part == Part::PingPong;
    let bus = measurement.medium.bus();
    Row {
        part: measurement.part,
        medium: measurement.medium.word(),
        wait: measurement.wait,
        lanes_wait: bus.map(|_| measurement.medium.lanes_wait(measurement.wait, cores)),
        payload_bytes: measurement.payload_bytes,
        warning: warning(measurement, rounds, cores),
        half_rtt_ns: if is_ping_pong {
            percentiles(rounds.iter().filter_map(|s| s.outcome.figures.latency_ns))
        } else {
            BTreeMap::new()
        },
        ratio_to_two_lines: None,
        ratio_to_flags: None,
        percent_below_blocking_sockets: None,
        percent_below_polled_sockets: None,
        intervals: (measurement.part == Part::Interval).then(|| intervals(measurement, rounds)),
        costs: costs(rounds),
        samples: sum(|f| f.received),
        lost: is_ping_pong.then(|| sum(|f| f.sent - f.received.min(f.sent))),
        torn: sum(|f| f.corrupt),
        out_of_order: sum(|f| f.out_of_order),
        program_cpu_s_each: medians(rounds, |s| &s.outcome.program_cpu_s),
        gateway_cpu_s_each: medians(rounds, |s| &s.outcome.gateway_cpu_s),
        rounds: rounds.len(),
    }
}

/// Medians over rounds, place by place.
fn medians(rounds: &[&Sample], pick: impl Fn(&Sample) -> &Vec<f64>) -> Vec<f64> {
    let at = |place: usize| {
        let column: Vec<f64> = rounds
            .iter()
            .filter_map(|s| pick(s).get(place).copied())
            .collect();
        median(&column).map(milli)
    };
    (0..).map_while(at).collect()
}

/// More busy threads than cores: what a reader waits for may not run because the reader does.
fn warning(measurement: &Measurement, rounds: &[&Sample], cores: usize) -> Option<String> {
    if measurement.part == Part::Costs {
        return None;
    }
    let threads = if rounds.iter().any(|s| s.outcome.gateways_carry) {
        measurement.medium.threads()
    } else {
        // Two programs, and gateways that have nothing to do with it.
        Medium::Local.threads()
    };
    (threads > cores).then(|| format!("{threads} busy threads share {cores} cores"))
}

fn intervals(measurement: &Measurement, rounds: &[&Sample]) -> Intervals {
    let written = |s: &&Sample| s.outcome.written.unwrap_or_default();
    let transmitted_ns = percentiles(rounds.iter().filter_map(|s| written(s).latency_ns));
    let observed_ns = percentiles(rounds.iter().filter_map(|s| s.outcome.figures.latency_ns));
    let means: Vec<f64> = rounds
        .iter()
        .filter_map(|s| Some(mean_interval_ns(&s.outcome.figures)? / mean_interval_ns(&written(s))?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    let total: u64 = rounds.iter().map(|s| written(s).sent).sum();
    let seen: u64 = rounds.iter().map(|s| s.outcome.figures.received).sum();
    Intervals {
        interval_ns: measurement.interval_us * 1000,
        observed_to_transmitted: ratio(observed_ns.get("p50"), transmitted_ns.get("p50")),
        mean_observed_to_transmitted: median(&means).map(milli),
        transmitted_ns,
        observed_ns,
        written: total,
        overwritten: total.saturating_sub(seen),
    }
}

fn mean_interval_ns(figures: &Figures) -> Option<f64> {
    let messages = figures.sent.max(figures.received);
    let span_ns = figures.last_ns.checked_sub(figures.first_ns)?;
    (messages > 1).then(|| span_ns as f64 / (messages - 1) as f64)
}

fn costs(rounds: &[&Sample]) -> Option<Costs> {
    let all: Vec<Costs> = rounds.iter().filter_map(|s| s.outcome.costs).collect();
    let median_of = |pick: fn(&Costs) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>()).map(milli);
    Some(Costs {
        write_ns: median_of(|c| c.write_ns)?,
        read_ns: median_of(|c| c.read_ns)?,
        write_and_read_ns: median_of(|c| c.write_and_read_ns)?,
        clock_ns: median_of(|c| c.clock_ns)?,
    })
}

fn ratio(one: Option<&u64>, other: Option<&u64>) -> Option<f64> {
    Some(milli(*one? as f64 / *other? as f64)).filter(|ratio| ratio.is_finite())
}

fn add_ratios(rows: &mut [Row]) {
    let all = rows.to_vec();
    let find = |medium: Medium, wait: Wait, payload_bytes: usize| {
        let row = all.iter().find(|row| {
            row.part == Part::PingPong
                && row.medium == medium.word()
                && row.wait == wait
                && (medium == Medium::TwoLines || row.payload_bytes == payload_bytes)
        });
        row?.half_rtt_ns.get("p50")
    };
    for row in rows.iter_mut().filter(|row| row.part == Part::PingPong) {
        let (own, bytes) = (row.half_rtt_ns.get("p50"), row.payload_bytes);
        let below = |other: Option<f64>| other.map(|ratio| ((1.0 - ratio) * 1000.0).round() / 10.0);
        if row.medium != Medium::TwoLines.word() {
            row.ratio_to_two_lines = ratio(own, find(Medium::TwoLines, Wait::Spin, bytes));
        }
        if Medium::of(row.medium).is_some_and(Medium::has_ports) {
            row.ratio_to_flags = ratio(own, find(Medium::Flags, Wait::Spin, bytes));
            row.percent_below_blocking_sockets = below(ratio(own, find(Medium::Sockets, Wait::Event, bytes)));
            row.percent_below_polled_sockets = below(ratio(own, find(Medium::Sockets, Wait::Spin, bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Outcome;
    use super::*;
    use crate::worker::Percentiles;

    fn measured(p50: u64, messages: u64) -> Figures {
        Figures {
            sent: messages,
            received: messages,
            first_ns: 1000,
            last_ns: 1000 + (messages - 1) * p50,
            latency_ns: Some(Percentiles {
                min: 1,
                p50,
                p99: 2 * p50,
                p99_9: 3 * p50,
                max: 4 * p50,
            }),
            ..Figures::default()
        }
    }

    fn sample(part: Part, medium: Medium, wait: Wait, outcome: Outcome) -> Sample {
        Sample {
            measurement: Measurement {
                part,
                medium,
                wait,
                payload_bytes: 64,
                interval_us: 3,
            },
            outcome,
        }
    }

    fn ping(medium: Medium, wait: Wait, p50: u64) -> Sample {
        let outcome = Outcome {
            figures: measured(p50, 10),
            gateways_carry: medium == Medium::Bus("tcp"),
            ..Outcome::default()
        };
        sample(Part::PingPong, medium, wait, outcome)
    }

    fn report(samples: &[Sample]) -> Report {
        let mut environment = Environment::record("none");
        environment.cores = 2;
        Report::new(environment, samples, Vec::new(), 1.0)
    }

    fn find<'a>(report: &'a Report, medium: &str) -> &'a Row {
        report
            .results
            .iter()
            .find(|row| row.medium == medium)
            .expect("row")
    }

    #[test]
    fn ports_are_compared_with_two_lines_of_any_size_and_the_rest_of_their_size() {
        let mut lines = ping(Medium::TwoLines, Wait::Spin, 100);
        lines.measurement.payload_bytes = 16;
        let report = report(&[
            lines,
            ping(Medium::Flags, Wait::Spin, 200),
            ping(Medium::Sockets, Wait::Spin, 500),
            ping(Medium::Sockets, Wait::Event, 1000),
            ping(Medium::Local, Wait::Spin, 300),
        ]);
        let row = find(&report, "local");
        assert_eq!(
            (row.ratio_to_two_lines, row.ratio_to_flags),
            (Some(3.0), Some(1.5))
        );
        assert_eq!(row.percent_below_blocking_sockets, Some(70.0));
        assert_eq!(row.percent_below_polled_sockets, Some(40.0));
    }

    #[test]
    fn figures_of_more_busy_threads_than_cores_carry_a_warning() {
        let report = report(&[
            ping(Medium::Local, Wait::Spin, 100),
            ping(Medium::Bus("tcp"), Wait::Spin, 100),
            ping(Medium::Bus("memory"), Wait::Spin, 100),
        ]);
        let warning = |medium| find(&report, medium).warning.as_deref();
        assert_eq!(warning("tcp"), Some("4 busy threads share 2 cores"));
        assert_eq!(warning("local"), None);
        assert_eq!(warning("memory"), None, "no gateway carries");
    }

    #[test]
    fn messages_written_and_never_seen_are_overwritten_and_lengthen_the_mean_interval() {
        let outcome = Outcome {
            figures: Figures {
                sent: 0,
                ..measured(6000, 501)
            },
            written: Some(Figures {
                received: 0,
                ..measured(3000, 1001)
            }),
            ..Outcome::default()
        };
        let report = report(&[sample(Part::Interval, Medium::Local, Wait::Spin, outcome)]);
        let intervals = report.results[0].intervals.clone().expect("measured");
        assert_eq!((intervals.written, intervals.overwritten), (1001, 500));
        assert_eq!(intervals.observed_to_transmitted, Some(2.0));
        assert_eq!(intervals.mean_observed_to_transmitted, Some(2.0));
    }

    #[test]
    fn what_was_not_measured_is_absent_from_the_file() {
        let report = report(&[ping(Medium::Local, Wait::Spin, 300)]);
        let json = serde_json::to_value(&report.results[0]).expect("serialises");
        assert_eq!(json["half_rtt_ns"]["p50"], 300);
        for absent in [
            "interval_ns",
            "write_ns",
            "warning",
            "lanes_wait",
            "ratio_to_flags",
        ] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }
}
