//! Two guests joined by a link with two buses, TCP and another one. The scenario cuts each under
//! load where it is the preferred one, and restores it. Messages move to the other bus and return,
//! in order, none twice, and the gateways account for each missing one. The time without a message
//! is measured, and has no bound.

mod cut;
pub(super) mod hosts;
mod table;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Stage;
use crate::lab::gateways::{Gateways, Programs, Stream, flows, report, says_down, seen, sent, with_logs};
use crate::lab::guest::{Guest, Program};
use crate::lab::preset::Preset;

use cut::Cut;
use hosts::{Hosts, TCP_WIRE};
use table::Row;

const LIMIT: Duration = Duration::from_secs(60);
const TCP: &str = "tcp";
/// Of either bus in each order, where nobody says otherwise: what a run of all scenarios has time
/// for.
const CUTS: usize = 3;

const PAIRS: [&[(&str, Preset)]; 3] = [
    &[("tipc", Preset::Tipc), ("pci", Preset::Pci)],
    &[("rdma-send", Preset::Roce), ("rdma-write", Preset::Roce)],
    &[("rdma-send", Preset::Iwarp), ("rdma-write", Preset::Iwarp)],
];

/// The services: one for which the other bus comes before TCP, and one for which it comes after.
const SERVICES: [&str; 2] = ["lab/tcp-second", "lab/tcp-first"];

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let cuts = std::env::var("BUSWAY_CUTS").map_or(Ok(CUTS), |cuts| {
        cuts.parse()
            .with_context(|| format!("BUSWAY_CUTS is {cuts:?}, no number"))
    })?;
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    let mut rows = Vec::new();
    for buses in PAIRS {
        let is_chosen = |&&(bus, preset): &&(&str, Preset)| preset.shown(bus).contains(stage.only);
        if !buses.iter().any(|bus| is_chosen(&bus)) {
            continue;
        }
        stage.says("starts two guests");
        let hosts = Hosts::start(stage, &programs, buses[0].1)?;
        for (bus, preset) in buses.iter().filter(is_chosen) {
            let shown = preset.shown(bus);
            let outcome = between(stage, &hosts, (bus, &shown, *preset), cuts, &mut rows);
            stage.part(&shown, outcome.map(|()| Value::Null));
        }
    }
    let markdown = table::of(&rows);
    stage.notes(format!("{cuts} cuts of either bus in each order\n{markdown}"));
    Ok(json!({ "cuts": rows, "markdown": markdown }))
}

fn between(
    stage: &Stage<'_>,
    hosts: &Hosts,
    (bus, shown, preset): (&str, &str, Preset),
    cuts: usize,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let orders = [[bus, TCP], [TCP, bus]];
    let rules = format!("[[service]]\nname = {:?}\nbuses = {:?}\n", SERVICES[1], orders[1]);
    let gateways = Gateways::start(hosts.pair.both(), &orders[0], &(Hosts::lines(bus) + &rules))?;
    let session = Session {
        hosts,
        gateways: &gateways,
        shown,
        orders,
        ways: [Cut::of(Some(preset)), Cut::of(None)],
    };
    let outcome = session.cuts(stage, cuts, rows);
    // Explains a figure to its reader.
    for (gateway, host) in gateways.running.iter().zip(["a", "b"]) {
        let file = stage.logs.join(format!("{}-{host}.log", shown.replace(' ', "-")));
        std::fs::write(&file, gateway.error_so_far())
            .with_context(|| format!("{} can't be written", file.display()))?;
    }
    with_logs(outcome, &gateways)?;
    gateways.finish()
}

struct Session<'a> {
    hosts: &'a Hosts,
    gateways: &'a Gateways<'a>,
    /// The bus beside TCP, and what it goes over.
    shown: &'a str,
    /// Of the buses, for each of [`SERVICES`].
    orders: [[&'a str; 2]; 2],
    /// To cut the first of each order.
    ways: [Vec<Cut>; 2],
}

impl Session<'_> {
    fn cuts(&self, stage: &Stage<'_>, cuts: usize, rows: &mut Vec<Row>) -> Result<()> {
        let [a, b] = self.hosts.pair.both();
        let mut streams = Vec::new();
        for (service, order) in SERVICES.into_iter().zip(self.orders) {
            let stream = Running::start(service, a, b)?;
            stream.flows("at first")?;
            self.gateways.goes_over(service, order[0])?;
            streams.push(stream);
        }
        for cut in 0..2 * cuts {
            let (order, number) = (cut % 2, cut / 2);
            let ways = &self.ways[order];
            let way = ways[number % ways.len()];
            let guest = [b, a][number / ways.len() % 2];
            let what = format!(
                "{} is cut beside {}: {}",
                self.orders[order][0],
                self.orders[order][1],
                way.about()
            );
            stage.says(format!("{}: {what} ({})", self.shown, number + 1));
            rows.push(self.cut(&streams[order], order, way, guest).context(what)?);
        }
        streams
            .iter()
            .try_for_each(|stream| stream.conclude(self.gateways))
    }

    /// Cuts the bus that `stream` takes, at `guest` where that says something, until it has moved;
    /// gives it back, until the stream is back.
    fn cut(&self, stream: &Running<'_>, order: usize, way: Cut, guest: &Guest) -> Result<Row> {
        let [first, second] = self.orders[order];
        let wire = [0, TCP_WIRE][order];
        let moved = |bus, when: &str| {
            self.gateways.goes_over(stream.service, bus)?;
            stream.flows(when)
        };
        let is_over = AtomicBool::new(false);
        let missing = stream.missing();
        let began_at = Instant::now();
        let mended_at = std::thread::scope(|scope| {
            let outage = cut::begin((self.hosts, guest), way, wire, scope, &is_over)?;
            let moved = moved(second, "while the first bus is cut");
            let mended_at = Instant::now();
            // In every case: the thread that fills a window waits for this.
            let mended = outage.mend(self.hosts, guest, &is_over);
            moved.and(mended)?;
            Ok::<_, anyhow::Error>(mended_at)
        })?;
        moved(first, "after the first bus has come back")?;
        self.gateways.linked()?;
        Ok(Row {
            bus: [self.shown, TCP][order].to_owned(),
            other: [TCP, self.shown][order].to_owned(),
            way: way.about(),
            at: guest.plan.name.clone(),
            noticed_ms: self.noticed_ms(first, began_at, mended_at),
            silence_ms: stream.silence(began_at, mended_at).as_millis() as u64,
            back_silence_ms: stream.silence(mended_at, Instant::now()).as_millis() as u64,
            missing: stream.missing() - missing,
        })
    }

    /// From the cut until the receiving gateway, which is the one that moves, said that the link
    /// over `bus` is down.
    fn noticed_ms(&self, bus: &str, from: Instant, to: Instant) -> Option<u64> {
        let about = format!("over {bus} is ");
        let said = self.gateways.running[1].error_lines();
        let (at, _) = said
            .iter()
            .find(|(at, line)| *at >= from && *at <= to && line.contains(&about) && says_down(line))?;
        Some((*at - from).as_millis() as u64)
    }
}

struct Running<'a> {
    service: &'static str,
    publisher: Program<'a>,
    subscriber: Program<'a>,
}

impl<'a> Running<'a> {
    fn start(service: &'static str, from: &'a Guest, to: &'a Guest) -> Result<Running<'a>> {
        let stream = Stream {
            service,
            safe_overflow: Some(false),
            buffer: 64,
            lengths_bytes: &[64, 2_000],
            gap_us: 2_000,
            count: None,
        };
        Ok(Running {
            service,
            subscriber: stream.subscriber(to)?,
            publisher: stream.publisher(from)?,
        })
    }

    fn flows(&self, when: &str) -> Result<()> {
        flows(&self.publisher, &self.subscriber, when)
    }

    fn missing(&self) -> u64 {
        seen(&report(&self.subscriber.output_so_far()), "missing")
    }

    /// The longest time between two messages, of those that came between these instants, by reports
    /// every 20 ms.
    fn silence(&self, from: Instant, to: Instant) -> Duration {
        let lines = self.subscriber.output_lines();
        let within = lines.iter().filter(|(at, _)| *at >= from && *at <= to);
        let reports = within.filter_map(|(_, line)| serde_json::from_str::<Value>(line).ok());
        let longest_us = reports
            .filter_map(|report| report["longest_silence_us"].as_u64())
            .max();
        Duration::from_micros(longest_us.unwrap_or(0))
    }

    fn conclude(&self, gateways: &Gateways<'_>) -> Result<()> {
        self.publisher.end_input()?;
        self.publisher.wait(LIMIT)?;
        let published = sent(&report(&self.publisher.output_so_far()));
        let last = self
            .subscriber
            .until("the last message arrives", LIMIT, |output| {
                Some(report(output)).filter(|report| seen(report, "last") == published)
            })?;
        let missing = seen(&last, "missing");
        ensure!(
            last["corrupt"] == 0 && seen(&last, "backwards") == 0,
            "messages came changed or twice: {last}"
        );
        gateways.counts_losses(1, self.service, missing)?;
        // What came before the first one here was sent while nobody asked for it.
        let asked_for = published + 1 - seen(&last, "first");
        gateways.took(0, self.service, asked_for, missing)?;
        self.subscriber.end_input()?;
        self.subscriber.wait(LIMIT).map(drop)
    }
}
