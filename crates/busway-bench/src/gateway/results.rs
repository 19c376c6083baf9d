//! From samples of single rounds to rows: times of all rounds together, medians of rates, sums of hops, ratios.

use std::collections::BTreeMap;

use super::Sample;
use super::measure::{DEFAULT_QUEUE_DEPTH, queue_depth};
use super::plan::{Measurement, Mode, Transport};
use crate::record::{Load, Ratio, Recorder, Row, median};
use crate::worker::{Wait, slots_for};

/// Two programs, and two gateways between them.
const PROGRAMS: u32 = 2;

/// A row for each transport, way of waiting, mode and size; `rounds` were begun on `cores` cores.
pub(super) fn rows(samples: &[Sample], rounds: u32, cores: usize) -> Vec<Row> {
    let mut groups: BTreeMap<Measurement, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        groups.entry(sample.measurement).or_default().push(sample);
    }
    let mut rows: Vec<Row> = groups
        .iter()
        .map(|(measurement, samples)| row(measurement, samples, rounds, cores))
        .collect();
    let sums = sums_of_hops(&rows);
    rows.extend(sums);
    add_ratios(&mut rows);
    rows
}

fn row(measurement: &Measurement, samples: &[&Sample], rounds: u32, cores: usize) -> Row {
    let mode = measurement.mode;
    let streams = matches!(mode, Mode::Lossless | Mode::Overwriting);
    let gateways = samples
        .iter()
        .map(|s| s.outcome.gateway_cpu_s.len())
        .max()
        .unwrap_or(0);
    let threads = PROGRAMS + gateways as u32;
    let sum = |pick: fn(&Sample) -> u64| samples.iter().map(|s| pick(s)).sum::<u64>();
    let by_round = (0..rounds).map(|round| {
        let sample = samples.iter().find(|sample| sample.round == round)?;
        figure(sample)
    });
    let rates: Vec<f64> = samples.iter().map(|s| s.outcome.figures.rate()).collect();
    let messages_per_s = streams.then(|| median(&rates)).flatten();
    let mut trips = Recorder::default();
    for times in samples
        .iter()
        .filter_map(|s| Recorder::decode(s.outcome.times.as_deref()?))
    {
        trips.add(&times);
    }
    let (sent, received) = (sum(|s| s.outcome.sent), sum(|s| s.outcome.figures.received));
    let corrupt = sum(|s| s.outcome.figures.corrupt);
    let out_of_order = sum(|s| s.outcome.figures.out_of_order);
    Row {
        technology: measurement.transport.technology().to_owned(),
        wait: measurement.wait.word().to_owned(),
        mode: Some(mode.word().to_owned()),
        payload_bytes: measurement.payload_bytes as u64,
        queue_depth: queue(measurement).map(|depth| depth as u64),
        threads,
        crowded: threads as usize > cores && mode != Mode::Idle,
        rounds: samples.len() as u32,
        sent,
        received,
        lost: sent.saturating_sub(received + corrupt),
        corrupt: corrupt + out_of_order,
        rtt_ns: trips.distribution(),
        half_rtt_ns: trips.halves(),
        messages_per_s,
        bytes_per_s: messages_per_s.map(|rate| rate * measurement.payload_bytes as f64),
        sender: gateway_load(samples, 0),
        receiver: gateway_load(samples, 1),
        by_round: by_round.collect(),
        ..Row::default()
    }
}

/// By what a round is compared.
fn figure(sample: &Sample) -> Option<f64> {
    match sample.measurement.mode {
        Mode::PingPong => {
            let times = Recorder::decode(sample.outcome.times.as_deref()?)?;
            Some(times.distribution()?.p50 as f64)
        }
        Mode::Idle => Some(100.0 * sample.outcome.gateway_cpu_s.iter().sum::<f64>() / sample.seconds),
        Mode::Lossless | Mode::Overwriting => {
            Some(sample.outcome.figures.rate() * sample.measurement.payload_bytes as f64)
        }
    }
}

/// What the gateway (or tunnel) of one side cost, median over rounds: 0 publishes, 1 subscribes.
fn gateway_load(samples: &[&Sample], side: usize) -> Option<Load> {
    let percent: Vec<f64> = samples
        .iter()
        .filter_map(|s| Some(100.0 * s.outcome.gateway_cpu_s.get(side)? / s.seconds))
        .collect();
    Some(Load {
        gateway_percent: Some(median(&percent)?),
        ..Load::default()
    })
}

fn queue(measurement: &Measurement) -> Option<usize> {
    match (measurement.transport, measurement.mode) {
        (Transport::BareTcp, _) | (_, Mode::Idle) => None,
        (Transport::BareCopy, _) => Some(slots_for(measurement.payload_bytes)),
        (_, Mode::Lossless) => Some(queue_depth(measurement.payload_bytes)),
        _ => Some(DEFAULT_QUEUE_DEPTH),
    }
}

/// For each bus, way of waiting and size: a hop on this host, the bare bus, a hop on that host. Only the medians can be added.
fn sums_of_hops(rows: &[Row]) -> Vec<Row> {
    let mut sums = Vec::new();
    for bus in [Transport::Memory, Transport::Tcp] {
        let Some(floor) = bus.floor() else { continue };
        for hop in rows
            .iter()
            .filter(|row| row.technology == Transport::Iceoryx2Hop.technology())
        {
            // An adaptive program's sleep would be counted three times; a bare TCP socket has no such strategy at all.
            let comparable =
                hop.mode.as_deref() == Some(Mode::PingPong.word()) && hop.wait != Wait::Adaptive.word();
            let Some(bare) = find(rows, floor.technology(), hop).filter(|_| comparable) else {
                continue;
            };
            let by_round: Vec<Option<f64>> = hop
                .by_round
                .iter()
                .zip(&bare.by_round)
                .map(|(hop, bare)| Some(2.0 * (*hop)? + (*bare)?))
                .collect();
            sums.push(Row {
                technology: sum_of_hops(bus),
                mode: hop.mode.clone(),
                wait: hop.wait.clone(),
                payload_bytes: hop.payload_bytes,
                threads: hop.threads,
                rounds: hop.rounds,
                by_round,
                ..Row::default()
            });
        }
    }
    sums
}

/// What the row of the added medians is called.
fn sum_of_hops(bus: Transport) -> String {
    format!("sum-of-hops-{}", bus.word())
}

/// The row of `technology` that was measured like `row`.
fn find<'r>(rows: &'r [Row], technology: &str, row: &Row) -> Option<&'r Row> {
    rows.iter().find(|other| {
        other.technology == technology
            && (&other.mode, &other.wait, other.payload_bytes) == (&row.mode, &row.wait, row.payload_bytes)
    })
}

fn add_ratios(rows: &mut [Row]) {
    let all = rows.to_vec();
    for row in rows {
        let ours = [Transport::Memory, Transport::Tcp]
            .into_iter()
            .find(|bus| bus.technology() == row.technology);
        let Some(bus) = ours else { continue };
        let mode = row.mode.as_deref();
        let floor = if mode == Some(Mode::PingPong.word()) {
            Some(sum_of_hops(bus))
        } else if mode == Some(Mode::Lossless.word()) {
            bus.floor().map(|floor| floor.technology().to_owned())
        } else {
            None
        };
        let ratio = |other: &str| Ratio::of(&row.by_round, &find(&all, other, row)?.by_round);
        let to_tunnel = ratio(Transport::ZenohTunnel.technology());
        row.ratio_to_floor = floor.and_then(|floor| ratio(&floor));
        row.ratio_to_tunnel = to_tunnel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::measure::Outcome;
    use crate::worker::Figures;

    fn sample(transport: Transport, mode: Mode, trip_ns: u64, received: u64, round: u32) -> Sample {
        let mut trips = Recorder::default();
        trips.record(trip_ns);
        Sample {
            measurement: Measurement {
                transport,
                wait: Wait::Event,
                mode,
                payload_bytes: 64,
            },
            outcome: Outcome {
                figures: Figures {
                    received,
                    first_ns: 0,
                    last_ns: 1_000_000_000,
                    ..Figures::default()
                },
                sent: received + 3,
                times: (mode == Mode::PingPong).then(|| trips.encode()),
                gateway_cpu_s: vec![0.25, 0.5],
            },
            seconds: 1.0,
            round,
        }
    }

    fn row_of<'r>(rows: &'r [Row], technology: &str) -> &'r Row {
        rows.iter().find(|row| row.technology == technology).expect("row")
    }

    #[test]
    fn the_floor_of_a_round_trip_is_two_hops_and_the_bare_bus() {
        let samples = [
            sample(Transport::Iceoryx2Hop, Mode::PingPong, 1000, 10, 0),
            sample(Transport::BareTcp, Mode::PingPong, 3000, 10, 0),
            sample(Transport::Tcp, Mode::PingPong, 6000, 10, 0),
        ];
        let rows = rows(&samples, 1, 2);
        let sum = row_of(&rows, "sum-of-hops-tcp").by_round[0].unwrap();
        assert!((sum - 5000.0).abs() < 10.0, "{sum}");
        let ratio = row_of(&rows, "gateway-tcp").ratio_to_floor.unwrap();
        assert!((ratio.value - 1.2).abs() < 0.01, "{ratio:?}");
    }

    #[test]
    fn the_floor_of_a_stream_is_the_bare_bus() {
        let samples = [
            sample(Transport::BareCopy, Mode::Lossless, 0, 1001, 0),
            sample(Transport::Memory, Mode::Lossless, 0, 801, 0),
        ];
        let rows = rows(&samples, 1, 2);
        let row = row_of(&rows, "gateway-memory");
        assert_eq!(row.messages_per_s, Some(800.0));
        assert!((row.ratio_to_floor.unwrap().value - 0.8).abs() < 1e-9);
        let percent = |load: &Option<Load>| load.as_ref().unwrap().gateway_percent;
        assert_eq!(
            (row.lost, percent(&row.sender), percent(&row.receiver)),
            (3, Some(25.0), Some(50.0))
        );
        assert!(row.crowded);
    }

    #[test]
    fn a_round_that_failed_is_missing_where_rounds_are_compared() {
        let samples = [0, 2].map(|round| sample(Transport::Tcp, Mode::PingPong, 1000, 10, round));
        let rows = rows(&samples, 3, 8);
        let row = row_of(&rows, "gateway-tcp");
        assert_eq!((row.rounds, row.received, row.lost), (2, 20, 6));
        let present: Vec<bool> = row.by_round.iter().map(Option::is_some).collect();
        assert_eq!(present, [true, false, true]);
    }
}
