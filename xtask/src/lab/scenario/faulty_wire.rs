//! A faulty wire between two guests: what of a steady stream of messages is delivered, lost or late
//! over each bus, and how long gateways take to notice a cut and to recover from it. With every
//! fault, no message may come twice, out of order or changed, and each lost one is counted.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::Stage;
use crate::lab::gateways::{
    Gateways, Programs, Stream, end, flows, report, says_down, seen, sent, with_logs,
};
use crate::lab::guest::Program;
use crate::lab::pair::{Between, Pair};
use crate::lab::preset::Preset;
use crate::lab::wire::{Faults, Frames};

/// How long the wire is faulty.
const WINDOW: Duration = Duration::from_secs(4);
/// A message that takes longer is late: several times what emulated guests take, and the 20 ms
/// between two reports of the programs at either end.
const LATE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(60);

/// What is done to the wire, in this order, and whether that is among what a run of all scenarios
/// has time for.
const CASES: [(&str, Faults, bool); 7] = [
    ("none", Faults::NONE, false),
    ("delay of 20 ms", Faults::delay_ms(20), false),
    ("1 % of frames lost", Faults::loss(0.01), false),
    ("5 % of frames lost", Faults::loss(0.05), true),
    ("10 % of frames twice", Faults::duplication(0.1), false),
    ("10 % of frames overtaken", Faults::reordering(0.1), false),
    ("cut for 4 s", Faults::CUT, true),
];

/// Buses, and the devices that guests have for them: two RDMA devices on one interface would be in
/// each other's way.
const BUSES: [(&[Preset], &[&str]); 3] = [
    (&[Preset::Tipc], &["tcp", "udp", "tipc"]),
    (&[Preset::Roce], &["rdma-send", "rdma-write"]),
    (&[Preset::Iwarp], &["rdma-send", "rdma-write"]),
];

/// 64 B a millisecond; what a subscriber has room for is more than any outage here leaves behind.
const STREAM: Stream = Stream {
    service: "lab/stream",
    buffer: 4_096,
    ..Stream::STEADY
};

#[derive(Clone, Debug, Serialize)]
struct Row {
    bus: String,
    fault: &'static str,
    offered: u64,
    delivered: u64,
    lost: u64,
    /// Of those delivered, those that took longer than [`LATE`].
    late: u64,
    worst_ms: u64,
    /// From the beginning of the fault until a gateway said that the link is down, if one did.
    detection_ms: Option<u64>,
    /// From the end of the fault until a message arrived that was sent after it.
    recovery_ms: u64,
    frames: Frames,
}

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    let mut rows = Vec::new();
    for (presets, buses) in BUSES {
        let has_cases = |bus: &&&str| cases(stage, &presets[0].shown(bus)).next().is_some();
        if !buses.iter().any(|bus| has_cases(&bus)) {
            continue;
        }
        stage.says("starts two guests");
        let logs = stage.logs.join(format!("{:?}", presets[0]).to_lowercase());
        let pair = Pair::start(stage.store, &logs, presets, Between::Relay(stage.seed), |plan| {
            programs.place(plan)
        })?;
        for bus in buses.iter().filter(has_cases) {
            let shown = presets[0].shown(bus);
            let before = rows.len();
            let outcome = over(stage, &pair, bus, &shown, &mut rows);
            stage.part(&shown, outcome.map(|()| Value::Null));
            stage.notes(format!("seed {}\n{}", stage.seed, table(&rows[before..])));
        }
    }
    Ok(json!({ "seed": stage.seed, "rows": rows, "markdown": table(&rows) }))
}

fn cases(stage: &Stage<'_>, shown: &str) -> impl Iterator<Item = (&'static str, Faults)> {
    CASES
        .iter()
        .filter(move |(fault, _, is_short)| {
            (*is_short || stage.is_named) && format!("{shown}: {fault}").contains(stage.only)
        })
        .map(|(fault, faults, _)| (*fault, *faults))
}

fn over(stage: &Stage<'_>, pair: &Pair, bus: &str, shown: &str, rows: &mut Vec<Row>) -> Result<()> {
    let gateways = Gateways::start(pair.both(), &[bus], "")?;
    let subscriber = STREAM.subscriber(&pair.guests[1])?;
    let publisher = STREAM.publisher(&pair.guests[0])?;
    with_logs(flows(&publisher, &subscriber, "at first"), &gateways)?;
    for (fault, faults) in cases(stage, shown) {
        stage.says(format!("{shown}: {fault}"));
        let watched = Watched {
            pair,
            gateways: &gateways,
            publisher: &publisher,
            subscriber: &subscriber,
        };
        let row = with_logs(watched.suffer(shown, fault, faults).context(fault), &gateways)?;
        rows.push(row);
    }
    end(&[&publisher, &subscriber])?;
    gateways.finish()
}

struct Watched<'a> {
    pair: &'a Pair,
    gateways: &'a Gateways<'a>,
    publisher: &'a Program<'a>,
    subscriber: &'a Program<'a>,
}

impl Watched<'_> {
    /// Makes the wire faulty for [`WINDOW`], waits until the stream has recovered, and says what
    /// happened.
    fn suffer(&self, bus: &str, fault: &'static str, faults: Faults) -> Result<Row> {
        let relay = self.pair.relay.as_ref().context("the wire has a relay")?;
        let (before, frames_before) = (self.received(), relay.frames());
        let begin = Instant::now();
        relay.set(faults);
        sleep(WINDOW);
        relay.set(Faults::NONE);
        let end = Instant::now();
        self.gateways.linked()?;
        flows(self.publisher, self.subscriber, "after the fault")?;
        let after = self.received();

        let count = |what| seen(&after, what) - seen(&before, what);
        ensure!(
            after["corrupt"] == 0 && count("backwards") == 0,
            "messages came changed or twice: {after}"
        );
        self.gateways
            .counts_losses(1, STREAM.service, seen(&after, "missing"))?;
        let (sending, arriving, recovery_ms) = self.recovered(end)?;
        let (late, worst) = lateness(&sending, &arriving, seen(&before, "last"), seen(&after, "last"));
        Ok(Row {
            bus: bus.to_owned(),
            fault,
            offered: count("received") + count("missing"),
            delivered: count("received"),
            lost: count("missing"),
            late,
            worst_ms: worst.as_millis() as u64,
            detection_ms: self.detection(begin),
            recovery_ms,
            frames: difference(relay.frames(), frames_before),
        })
    }

    fn received(&self) -> Value {
        report(&self.subscriber.output_so_far())
    }

    /// What was sent and what arrived so far, and how long after `end` a message arrived that was
    /// sent after it. The stream may be known to flow again before the reports arrive.
    fn recovered(&self, end: Instant) -> Result<(Curve, Arrivals, u64)> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let sending = curve(&self.publisher.output_lines(), sent);
            let arriving = arrivals(&self.subscriber.output_lines());
            if let Some(recovery_ms) = recovery(&sending, &arriving, end) {
                return Ok((sending, arriving, recovery_ms));
            }
            ensure!(
                Instant::now() < deadline,
                "the stream recovered, but no report says when"
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// From `begin` until a gateway said that the link is down.
    fn detection(&self, begin: Instant) -> Option<u64> {
        let said = self.gateways.running.iter().flat_map(Program::error_lines);
        let first = said
            .filter(|(instant, line)| *instant >= begin && says_down(line))
            .map(|(instant, _)| instant)
            .min()?;
        Some((first - begin).as_millis() as u64)
    }
}

type Curve = Vec<(Instant, u64)>;

fn curve(lines: &[(Instant, String)], number: impl Fn(&Value) -> u64) -> Curve {
    let parsed = lines
        .iter()
        .filter_map(|(instant, line)| Some((*instant, serde_json::from_str::<Value>(line).ok()?)));
    parsed
        .map(|(instant, report)| (instant, number(&report)))
        .collect()
}

type Arrivals = Vec<(Instant, u64, u64)>;

fn arrivals(lines: &[(Instant, String)]) -> Arrivals {
    let last = curve(lines, |report| seen(report, "last"));
    let received = curve(lines, |report| seen(report, "received"));
    last.into_iter()
        .zip(received)
        .map(|((instant, last), (_, received))| (instant, last, received))
        .collect()
}

/// How many messages with numbers above `from` up to `to` were late, and how late the worst was.
/// Between two reports the newest numbers are taken for those that arrived, where some are missing;
/// both ends report each 20 ms, so a time may be that much too long or too short.
fn lateness(sending: &Curve, arriving: &Arrivals, from: u64, to: u64) -> (u64, Duration) {
    let (mut late, mut worst) = (0, Duration::ZERO);
    for pair in arriving.windows(2) {
        let [(_, _, received_before), (arrived, last, received)] = pair else {
            continue;
        };
        for number in last.saturating_sub(received - received_before) + 1..=*last {
            if number <= from || number > to {
                continue;
            }
            let at = sending.partition_point(|(_, sent)| *sent < number);
            let Some((sent, _)) = sending.get(at) else {
                continue;
            };
            let took = arrived.saturating_duration_since(*sent);
            late += u64::from(took > LATE);
            worst = worst.max(took);
        }
    }
    (late, worst)
}

fn recovery(sending: &Curve, arriving: &Arrivals, end: Instant) -> Option<u64> {
    let (_, sent) = sending.iter().find(|(instant, _)| *instant >= end)?;
    let (arrived, ..) = arriving
        .iter()
        .find(|(instant, last, _)| *instant >= end && last > sent)?;
    Some((*arrived - end).as_millis() as u64)
}

fn difference(after: Frames, before: Frames) -> Frames {
    Frames {
        seen: after.seen - before.seen,
        lost: after.lost - before.lost,
        duplicated: after.duplicated - before.duplicated,
        reordered: after.reordered - before.reordered,
        dropped: after.dropped - before.dropped,
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "| bus | fault | messages | delivered | lost | late | slowest, ms | noticed after, ms | recovered after, ms |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let noticed = row
            .detection_ms
            .map_or_else(|| "not as an outage".to_owned(), |ms| ms.to_string());
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {noticed} | {} |",
            row.bus, row.fault, row.offered, row.delivered, row.lost, row.late, row.worst_ms, row.recovery_ms
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_messages_follow_from_both_reports_without_lost_ones() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let sending = vec![(at(0), 10), (at(20), 20), (at(40), 30), (at(400), 40)];
        // Of 11 to 30 only the newest 15 arrive, 380 ms after the first of them was sent; 31 to 40
        // arrive soon.
        let arriving = vec![(at(10), 10, 10), (at(400), 30, 25), (at(410), 40, 35)];
        let (late, worst) = lateness(&sending, &arriving, 10, 40);
        assert_eq!((late, worst), (15, Duration::from_millis(380)));
        assert_eq!(
            lateness(&sending, &arriving, 30, 40),
            (0, Duration::from_millis(10))
        );
        assert_eq!(recovery(&sending, &arriving, at(30)), Some(380));
        assert_eq!(recovery(&sending, &arriving, at(500)), None);
    }
}
