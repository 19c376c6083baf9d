//! Figures of one direction: rates, loads, packets; of calls, which are bars too.

use super::latency::plain;
use super::{Block, Crew, for_each_crew, sweep};
use crate::record::{Load, Row};
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::{Categories, Figure};
use crate::views::series::Set;
use crate::views::units;

/// The TIPC evaluation's largest message in bytes.
const TIPC_BYTES: u64 = 40_448;

/// All of a throughput run.
pub(super) fn blocks(_set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let mut blocks = sweeps(crews);
    let by_size = |title: &str, published, unit_axis: Axis, figure: &dyn Fn(&Row) -> Option<f64>| {
        let of = Figure {
            published: Some(published),
            ..plain(title, Axis::linear("Payload", Unit::Bytes), unit_axis)
        };
        for_each_crew(crews, &of, |series| {
            sweep(series, |row| {
                (row.payload_bytes <= TIPC_BYTES).then_some(())?;
                Some((row.payload_bytes as f64, figure(row)?))
            })
        })
    };
    let load = |title: &str, side: fn(&Row) -> Option<&Load>| {
        let axis = Axis::linear("CPU load, % of one core", Unit::Percent);
        by_size(title, "TIPC evaluation, “(1) CPU load”", axis, &|row| {
            side(row).map(Load::total_percent)
        })
    };
    let packets = |title: &str, side: fn(&Row) -> Option<&Load>, pick: fn(&Load) -> Option<f64>| {
        let axis = Axis::linear("Packets for each message", Unit::Count);
        by_size(title, "TIPC evaluation, “Packets observance”", axis, &|row| {
            side(row).and_then(pick)
        })
    };
    let rate = by_size(
        "Throughput up to 40,448 B",
        "TIPC evaluation, “(1) Max throughput”",
        Axis::linear("Received", Unit::Rate),
        &|row| row.bytes_per_s,
    );
    blocks.push(Block::open(
        "As in the TIPC evaluation",
        vec![
            rate,
            load("CPU load of the sender", sender),
            load("CPU load of the receiver", receiver),
            packets("Packets sent by the sender", sender, |it| {
                it.packets_sent_per_message
            }),
            packets(
                "Packets received by the sender (acknowledgements)",
                sender,
                |it| it.packets_received_per_message,
            ),
        ],
    ));
    blocks.extend(losses(crews));
    blocks
}

/// Shares of messages lost, if any was.
fn losses(crews: &[Crew<'_>]) -> Option<Block> {
    let any = |crew: &Crew<'_>| {
        crew.series
            .iter()
            .any(|(_, series)| series.rows.iter().any(|row| row.lost > 0))
    };
    if !crews.iter().any(any) {
        return None;
    }
    let lost = plain(
        "Lost",
        Axis::log("Payload", Unit::Bytes),
        Axis::linear("Lost, % of messages sent", Unit::Percent),
    );
    let lost = for_each_crew(crews, &lost, |series| {
        sweep(series, |row| {
            let percent = row.lost as f64 / row.sent.max(1) as f64 * 100.0;
            (row.sent > 0).then_some((row.payload_bytes as f64, percent))
        })
    });
    Some(Block::open("Losses by size", vec![lost]))
}

fn sender(row: &Row) -> Option<&Load> {
    row.sender.as_ref()
}

fn receiver(row: &Row) -> Option<&Load> {
    row.receiver.as_ref()
}

/// Bytes and messages a second by size.
pub(super) fn sweeps(crews: &[Crew<'_>]) -> Vec<Block> {
    let by_size = |title: &str, published, y: Axis, figure: fn(&Row) -> Option<f64>| {
        let of = Figure {
            published,
            ..plain(title, Axis::log("Payload", Unit::Bytes), y)
        };
        for_each_crew(crews, &of, |series| {
            sweep(series, |row| Some((row.payload_bytes as f64, figure(row)?)))
        })
    };
    vec![Block::open(
        "Throughput by size",
        vec![
            by_size(
                "Throughput",
                Some("p3com, “Initial benchmarking results”"),
                Axis::log("Received", Unit::Rate),
                |row| row.bytes_per_s,
            ),
            by_size(
                "Messages a second",
                None,
                Axis::log("Messages received in a second", Unit::Count),
                |row| row.messages_per_s,
            ),
        ],
    )]
}

/// Loads at a constant rate as bars.
pub(super) fn stream(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let mut streams: Vec<(u64, Option<u64>)> = set
        .entries()
        .map(|entry| (entry.row.payload_bytes, entry.row.interval_ns))
        .collect();
    streams.sort_unstable();
    streams.dedup();
    let of_stream = |(bytes, interval_ns): (u64, Option<u64>)| {
        let what = match interval_ns {
            Some(ns) => format!("{} every {}", units::size(bytes), units::time(ns as f64)),
            None => units::size(bytes),
        };
        let bars = Figure {
            published: Some("TIPC evaluation, “(3) CPU load in sending streaming data”"),
            bars: Some(Categories(vec!["sender", "receiver"])),
            ..plain(
                format!("CPU load, {what}"),
                Axis::linear("Side", Unit::Count),
                Axis::linear("CPU load, % of one core", Unit::Percent),
            )
        };
        let figures = for_each_crew(crews, &bars, |series| {
            let row = series
                .rows
                .iter()
                .find(|row| (row.payload_bytes, row.interval_ns) == (bytes, interval_ns));
            let load = |at: f64, side: Option<&Load>| side.map(|load| (at, load.total_percent()));
            row.map(|row| {
                [load(0.0, row.sender.as_ref()), load(1.0, row.receiver.as_ref())]
                    .into_iter()
                    .flatten()
                    .collect()
            })
            .unwrap_or_default()
        });
        Block::open(format!("Stream of {what}"), vec![figures])
    };
    streams.into_iter().map(of_stream).collect()
}

/// Costs of calls as bars.
pub(super) fn calls(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let of_size = |bytes: &u64| {
        let bars = Figure {
            bars: Some(Categories(vec!["write", "read again", "write + read", "clock"])),
            ..plain(
                format!("Calls with {}", units::size(*bytes)),
                Axis::linear("Call", Unit::Count),
                Axis::linear("Time of a call", Unit::Time),
            )
        };
        for_each_crew(crews, &bars, |series| {
            let calls = series
                .rows
                .iter()
                .find(|row| row.payload_bytes == *bytes)
                .and_then(|row| row.calls);
            calls.map_or_else(Vec::new, |it| {
                vec![
                    (0.0, it.write_ns),
                    (1.0, it.read_ns),
                    (2.0, it.write_and_read_ns),
                    (3.0, it.clock_ns),
                ]
            })
        })
    };
    vec![Block::open("Calls", set.sizes().iter().map(of_size).collect())]
}
