//! Figures of one direction: rates, loads, packets; of calls, which are bars too.

use super::block::{Block, fill, sized, sweep};
use crate::record::{Load, Row};
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::Figure;
use crate::views::report::lines::Choice;
use crate::views::series::{Set, receiver, sender};
use crate::views::units;

/// The TIPC evaluation's largest message in bytes.
const TIPC_BYTES: u64 = 40_448;

pub(super) fn throughput(lines: &[Choice<'_>]) -> Vec<Block> {
    type Pick = fn(&Row) -> Option<f64>;
    let load = || Axis::linear("CPU load, % of one core", Unit::Percent);
    let packets = || Axis::linear("Packets for each message", Unit::Count);
    let (rates, loads, observed) = (
        "TIPC evaluation, “(1) Max throughput”",
        "TIPC evaluation, “(1) CPU load”",
        "TIPC evaluation, “Packets observance”",
    );
    let figures: [(&str, &str, Axis, Pick); 5] = [
        (
            "Throughput up to 40,448 B",
            rates,
            Axis::linear("Received", Unit::Rate),
            |row| row.bytes_per_s,
        ),
        ("CPU load of the sender", loads, load(), |row| {
            sender(row).map(Load::total_percent)
        }),
        ("CPU load of the receiver", loads, load(), |row| {
            receiver(row).map(Load::total_percent)
        }),
        ("Packets sent by the sender", observed, packets(), |row| {
            sender(row)?.packets_sent_per_message
        }),
        (
            "Packets received by the sender (acknowledgements)",
            observed,
            packets(),
            |row| sender(row)?.packets_received_per_message,
        ),
    ];
    let figures = figures.map(|(title, published, y, pick)| {
        let figure = Figure {
            published: Some(published),
            ..Figure::new(title, Axis::linear("Payload", Unit::Bytes), y)
        };
        let small = |row: &Row| row.payload_bytes <= TIPC_BYTES;
        fill(lines, figure, |series| {
            sweep(series, |row| sized(row, pick(row).filter(|_| small(row))))
        })
    });
    let mut blocks = vec![
        by_size(lines),
        Block::open("As in the TIPC evaluation", figures.into()),
    ];
    blocks.extend(losses(lines));
    blocks
}

fn losses(lines: &[Choice<'_>]) -> Option<Block> {
    let mut rows = lines.iter().flat_map(|line| &line.series.rows);
    if !rows.any(|row| row.lost > 0) {
        return None;
    }
    let figure = Figure::new(
        "Lost",
        Axis::log("Payload", Unit::Bytes),
        Axis::linear("Lost, % of messages sent", Unit::Percent),
    );
    let lost = fill(lines, figure, |series| {
        sweep(series, |row| {
            let percent = row.lost as f64 / row.sent.max(1) as f64 * 100.0;
            sized(row, (row.sent > 0).then_some(percent))
        })
    });
    Some(Block::open("Losses by size", vec![lost]))
}

pub(super) fn by_size(lines: &[Choice<'_>]) -> Block {
    let figure = |title: &str, y: Axis, pick: fn(&Row) -> Option<f64>| {
        let figure = Figure::new(title, Axis::log("Payload", Unit::Bytes), y);
        fill(lines, figure, |series| sweep(series, |row| sized(row, pick(row))))
    };
    let rate = figure("Throughput", Axis::log("Received", Unit::Rate), |row| {
        row.bytes_per_s
    });
    let messages = Axis::log("Messages a second", Unit::Count);
    let messages = figure("Messages a second", messages, |row| row.messages_per_s);
    let published = Some("p3com, “Initial benchmarking results”");
    Block::open("Throughput by size", vec![Figure { published, ..rate }, messages])
}

fn bars(
    lines: &[Choice<'_>],
    figure: Figure,
    names: Vec<&'static str>,
    values: impl Fn(&Row) -> Option<Vec<Option<f64>>>,
) -> Figure {
    let figure = Figure {
        bars: Some(names),
        ..figure
    };
    fill(lines, figure, |series| {
        let values = series.rows.iter().find_map(|row| values(row));
        let at = |(at, value): (usize, Option<f64>)| Some((at as f64, value?));
        values.into_iter().flatten().enumerate().filter_map(at).collect()
    })
}

pub(super) fn stream(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let of_stream = |(bytes, interval_ns): (u64, Option<u64>)| {
        let every = interval_ns.map(|ns| format!(" every {}", units::time(ns as f64)));
        let what = units::size(bytes) + &every.unwrap_or_default();
        let figure = Figure {
            published: Some("TIPC evaluation, “(3) CPU load in sending streaming data”"),
            ..Figure::new(
                format!("CPU load, {what}"),
                Axis::linear("Side", Unit::Count),
                Axis::linear("CPU load, % of one core", Unit::Percent),
            )
        };
        let figure = bars(lines, figure, vec!["sender", "receiver"], |row| {
            let is_it = (row.payload_bytes, row.interval_ns) == (bytes, interval_ns);
            let loads = [sender(row), receiver(row)].map(|side| side.map(Load::total_percent));
            is_it.then(|| loads.into())
        });
        Block::open(format!("Stream of {what}"), vec![figure])
    };
    set.streams().into_iter().map(of_stream).collect()
}

pub(super) fn calls(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let of_size = |bytes: &u64| {
        let figure = Figure::new(
            format!("Calls with {}", units::size(*bytes)),
            Axis::linear("Call", Unit::Count),
            Axis::linear("Time of a call", Unit::Time),
        );
        let names = vec!["write", "read again", "write + read", "clock"];
        bars(lines, figure, names, |row| {
            let it = row.calls.filter(|_| row.payload_bytes == *bytes)?;
            let costs = [it.write_ns, it.read_ns, it.write_and_read_ns, it.clock_ns];
            Some(costs.map(Some).into())
        })
    };
    vec![Block::open("Calls", set.sizes().iter().map(of_size).collect())]
}
