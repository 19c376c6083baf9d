//! From samples of single rounds to the rows of the result file: medians, sums of hops, ratios.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Sample;
use super::measure::{DEFAULT_QUEUE_DEPTH, queue_depth};
use super::plan::{Measurement, Mode, Transport};
use crate::environment::Environment;
use crate::rounds::{median, milli, percentiles};
use crate::worker::{Wait, slots_for};

/// Everything that a run found; as JSON the result file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where and under which circumstances.
    pub environment: Environment,
    /// How long each single measurement counted, in s.
    pub seconds: f64,
    /// What was skipped, failed or interrupted.
    pub notes: Vec<String>,
    /// One entry for each transport, mode, wait strategy and size.
    pub results: Vec<Row>,
}

/// One result. A field that was not measured is absent.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// [`Transport`], or `sum-of-hops-memory` and `sum-of-hops-tcp`: the medians of two iceoryx2 hops and the bare bus, added.
    pub transport: String,
    /// What was done.
    pub mode: Mode,
    /// How programs and lanes waited.
    pub wait: Wait,
    /// Size of a message in bytes.
    pub payload_bytes: usize,
    /// Messages that a subscriber's queue holds, where there is one: iceoryx2's default 2 with overwriting, 1 MiB or 8 to 256
    /// messages without loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<usize>,
    /// Half of the round trip: least and greatest of all rounds, the percentiles as medians over rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub half_rtt_ns: BTreeMap<&'static str, u64>,
    /// Messages received a second, median over rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_s: Option<f64>,
    /// Least and greatest of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_s_range: Option<[f64; 2]>,
    /// Payload received in bytes a second, median over rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Messages sent and never received, all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Messages with a wrong byte, all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<u64>,
    /// Messages out of order, all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    /// CPU time of both gateways (or tunnels) while counting, in s, median over rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_cpu_s: Option<f64>,
    /// The same for each, publisher's side first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway_cpu_s_each: Vec<f64>,
    /// CPU time of each in percent of a core ([`Mode::Idle`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway_cpu_percent_each: Vec<f64>,
    /// CPU time of both gateways for each GiB of payload received, in s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_cpu_s_per_gib: Option<f64>,
    /// Messages or round trips counted, all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Rounds counted.
    pub rounds: usize,
    /// Ping-pong: half round trip over the sum of the hops (1 is the floor, more is slower). Lossless: throughput over the
    /// bare bus (1 is the floor, less is slower).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<f64>,
    /// Half round trip over the tunnel's, or throughput over the tunnel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_tunnel: Option<f64>,
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
            .map(|(measurement, rounds)| row(measurement, rounds))
            .collect();
        let sums = sums_of_hops(&results);
        results.extend(sums);
        add_ratios(&mut results);
        Self {
            environment,
            seconds,
            notes,
            results,
        }
    }
}

fn row(measurement: &Measurement, rounds: &[&Sample]) -> Row {
    let streams = matches!(measurement.mode, Mode::Lossless | Mode::Overwriting);
    let counts = measurement.mode != Mode::Idle;
    let rates: Vec<f64> = rounds.iter().map(|s| s.outcome.figures.rate()).collect();
    let messages_per_s = streams.then(|| median(&rates)).flatten().map(f64::round);
    let sum = |pick: fn(&Sample) -> u64| counts.then(|| rounds.iter().map(|s| pick(s)).sum());
    let each = |i: usize| {
        let column: Vec<f64> = rounds
            .iter()
            .filter_map(|s| s.outcome.gateway_cpu_s.get(i).copied())
            .collect();
        median(&column).map(milli)
    };
    let gateway_cpu_s_each: Vec<f64> = (0..2).filter_map(each).collect();
    let gateway_cpu_s = (!gateway_cpu_s_each.is_empty()).then(|| milli(gateway_cpu_s_each.iter().sum()));
    let per_gib: Vec<f64> = rounds
        .iter()
        .filter(|s| s.outcome.figures.received > 0 && !s.outcome.gateway_cpu_s.is_empty())
        .map(|s| {
            let bytes = s.outcome.figures.received as f64 * measurement.payload_bytes as f64;
            s.outcome.gateway_cpu_s.iter().sum::<f64>() / (bytes / (1u64 << 30) as f64)
        })
        .collect();
    let percent = |cpu_s: &f64| milli(cpu_s / rounds[0].seconds * 100.0);
    Row {
        transport: measurement.transport.word().to_owned(),
        mode: measurement.mode,
        wait: measurement.wait,
        payload_bytes: measurement.payload_bytes,
        queue_depth: queue(measurement),
        half_rtt_ns: half_rtt(rounds),
        messages_per_s,
        messages_per_s_range: streams.then(|| {
            rates.iter().fold([f64::MAX, 0.0], |[low, high], rate| {
                [low.min(rate.round()), high.max(rate.round())]
            })
        }),
        bytes_per_s: messages_per_s.map(|rate| rate * measurement.payload_bytes as f64),
        lost: sum(|s| {
            s.outcome
                .sent
                .saturating_sub(s.outcome.figures.received + s.outcome.figures.corrupt)
        }),
        corrupt: sum(|s| s.outcome.figures.corrupt),
        out_of_order: sum(|s| s.outcome.figures.out_of_order),
        gateway_cpu_s,
        gateway_cpu_percent_each: if counts {
            Vec::new()
        } else {
            gateway_cpu_s_each.iter().map(percent).collect()
        },
        gateway_cpu_s_each,
        gateway_cpu_s_per_gib: streams.then(|| median(&per_gib)).flatten().map(milli),
        samples: sum(|s| s.outcome.figures.received),
        rounds: rounds.len(),
        ratio_to_floor: None,
        ratio_to_tunnel: None,
    }
}

fn queue(measurement: &Measurement) -> Option<usize> {
    match (measurement.transport, measurement.mode) {
        (Transport::BareTcp, _) | (_, Mode::Idle) => None,
        (Transport::BareCopy, _) => Some(slots_for(measurement.payload_bytes)),
        (_, Mode::Lossless) => Some(queue_depth(measurement.payload_bytes)),
        _ => Some(DEFAULT_QUEUE_DEPTH),
    }
}

fn half_rtt(rounds: &[&Sample]) -> BTreeMap<&'static str, u64> {
    percentiles(rounds.iter().filter_map(|s| s.outcome.figures.latency_ns))
}

/// For each bus, wait strategy and size: a hop on this host, the bare bus, a hop on that host.
fn sums_of_hops(rows: &[Row]) -> Vec<Row> {
    let mut sums = Vec::new();
    for bus in [Transport::Memory, Transport::Tcp] {
        let Some(floor) = bus.floor() else { continue };
        for hop in rows
            .iter()
            .filter(|row| row.transport == Transport::Iceoryx2Hop.word())
        {
            let same = |row: &&Row| {
                row.transport == floor.word()
                    && row.mode == hop.mode
                    && row.wait == hop.wait
                    && row.payload_bytes == hop.payload_bytes
            };
            // An adaptive program's sleep would be counted three times; a bare TCP socket has no such strategy at all.
            let comparable = hop.mode == Mode::PingPong && hop.wait != Wait::Adaptive;
            if let Some(bare) = rows.iter().find(same)
                && comparable
                && let (Some(hop_ns), Some(bare_ns)) =
                    (hop.half_rtt_ns.get("p50"), bare.half_rtt_ns.get("p50"))
            {
                sums.push(Row {
                    transport: format!("sum-of-hops-{}", bus.word()),
                    half_rtt_ns: BTreeMap::from([("p50", 2 * hop_ns + bare_ns)]),
                    queue_depth: None,
                    lost: None,
                    corrupt: None,
                    out_of_order: None,
                    samples: None,
                    ..hop.clone()
                });
            }
        }
    }
    sums
}

fn add_ratios(rows: &mut [Row]) {
    let all = rows.to_vec();
    for row in rows {
        let ours = [Transport::Memory, Transport::Tcp]
            .into_iter()
            .find(|bus| bus.word() == row.transport);
        let Some(bus) = ours else { continue };
        let floor_name = match row.mode {
            Mode::PingPong => format!("sum-of-hops-{}", bus.word()),
            Mode::Lossless => bus
                .floor()
                .map_or_else(String::new, |floor| floor.word().to_owned()),
            Mode::Overwriting | Mode::Idle => String::new(),
        };
        let value = |other: &Row| match row.mode {
            Mode::PingPong => other.half_rtt_ns.get("p50").map(|ns| *ns as f64),
            _ => other.bytes_per_s,
        };
        let ratio =
            |other: Option<&Row>| Some(milli(value(row)? / value(other?)?)).filter(|ratio| ratio.is_finite());
        let like = |other: &&Row| {
            other.mode == row.mode && other.payload_bytes == row.payload_bytes && other.wait == row.wait
        };
        let floor = ratio(
            all.iter()
                .find(|other| other.transport == floor_name && like(other)),
        );
        let tunnel = ratio(
            all.iter()
                .find(|other| other.transport == Transport::ZenohTunnel.word() && like(other)),
        );
        row.ratio_to_floor = floor;
        row.ratio_to_tunnel = tunnel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::measure::Outcome;
    use crate::worker::{Figures, Percentiles};

    fn sample(transport: Transport, mode: Mode, p50: u64, received: u64) -> Sample {
        let latency_ns = Percentiles {
            min: 1,
            p50,
            p99: p50 * 2,
            p99_9: p50 * 3,
            max: p50 * 4,
        };
        let figures = Figures {
            received,
            first_ns: 0,
            last_ns: 1_000_000_000,
            latency_ns: (mode == Mode::PingPong).then_some(latency_ns),
            ..Figures::default()
        };
        Sample {
            measurement: Measurement {
                transport,
                wait: Wait::Event,
                mode,
                payload_bytes: 64,
            },
            outcome: Outcome {
                figures,
                sent: received + 3,
                gateway_cpu_s: vec![0.25, 0.5],
            },
            seconds: 1.0,
        }
    }

    fn report(samples: &[Sample]) -> Report {
        Report::new(Environment::record("none"), samples, Vec::new(), 1.0)
    }

    fn find<'a>(report: &'a Report, transport: &str, mode: Mode) -> &'a Row {
        report
            .results
            .iter()
            .find(|row| row.transport == transport && row.mode == mode)
            .expect("row")
    }

    #[test]
    fn the_floor_of_a_round_trip_is_two_hops_and_the_bare_bus() {
        let report = report(&[
            sample(Transport::Iceoryx2Hop, Mode::PingPong, 1000, 10),
            sample(Transport::BareTcp, Mode::PingPong, 3000, 10),
            sample(Transport::Tcp, Mode::PingPong, 6000, 10),
        ]);
        assert_eq!(
            find(&report, "sum-of-hops-tcp", Mode::PingPong).half_rtt_ns["p50"],
            5000
        );
        assert_eq!(find(&report, "tcp", Mode::PingPong).ratio_to_floor, Some(1.2));
    }

    #[test]
    fn the_floor_of_a_stream_is_the_bare_bus() {
        let report = report(&[
            sample(Transport::BareCopy, Mode::Lossless, 0, 1001),
            sample(Transport::Memory, Mode::Lossless, 0, 801),
        ]);
        let row = find(&report, "memory", Mode::Lossless);
        assert_eq!((row.messages_per_s, row.ratio_to_floor), (Some(800.0), Some(0.8)));
        assert_eq!((row.lost, row.gateway_cpu_s), (Some(3), Some(0.75)));
    }

    #[test]
    fn rounds_become_a_median_and_their_losses_a_sum() {
        let rounds = [5, 1, 2].map(|p50| sample(Transport::Tcp, Mode::PingPong, p50 * 100, 10));
        let report = report(&rounds);
        let row = find(&report, "tcp", Mode::PingPong);
        assert_eq!((row.half_rtt_ns["p50"], row.half_rtt_ns["max"]), (200, 2000));
        assert_eq!((row.lost, row.samples, row.rounds), (Some(9), Some(30), 3));
    }

    #[test]
    fn what_was_not_measured_is_absent_from_the_file() {
        let report = report(&[sample(Transport::Tcp, Mode::PingPong, 100, 10)]);
        let json = serde_json::to_value(&report.results[0]).expect("serialises");
        assert_eq!(json["half_rtt_ns"]["p99_9"], 300);
        for absent in [
            "messages_per_s",
            "bytes_per_s",
            "ratio_to_floor",
            "ratio_to_tunnel",
        ] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }
}
