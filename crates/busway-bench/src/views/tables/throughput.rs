//! One direction: what crosses, and what it costs.

use super::build::{
    Column, Detail, Head, Table, column, fault_columns, listing, matrix, payload_column, percent, size_steps,
    sizes,
};
use crate::record::{Load, Row};
use crate::views::series::{Entry, Series, Set, receiver, sender};
use crate::views::units;

const TIPC: &str = "TIPC evaluation, “(1) Max throughput”, “(1) CPU load”, “Packets observance”";
/// From this many sizes on, the page has a table for each series instead of one for each size.
const LONG_SWEEP: usize = 24;

/// p3com's table of rates by size, and rates, losses, loads and packets.
pub(super) fn throughput(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let sizes = sizes(set, detail);
    let mut tables = vec![p3com(set)];
    if sizes.len() > LONG_SWEEP {
        tables.extend(set.series().iter().map(|series| of_series(set, series)));
        return tables;
    }
    tables.extend(sizes.iter().map(|bytes| of_size(set, *bytes)));
    tables
}

fn of_series(set: &Set<'_>, series: &Series<'_>) -> Table {
    let mut entries: Vec<Entry<'_>> = set.entries().filter(|entry| entry.key() == series.key).collect();
    entries.sort_by_key(|entry| entry.row.payload_bytes);
    let columns = [payload_column()].into_iter().chain(columns());
    let title = format!("Throughput of {} by size; loads in % of one core", series.name);
    explained(listing(set, title, &entries, columns))
}

pub(super) fn of_size(set: &Set<'_>, bytes: u64) -> Table {
    let has_rate = |row: &Row| row.messages_per_s.or(row.bytes_per_s).is_some();
    let entries: Vec<Entry<'_>> = set
        .entries()
        .filter(|entry| entry.row.payload_bytes == bytes && has_rate(entry.row))
        .collect();
    let title = format!(
        "Throughput of messages of {}; loads in % of one core",
        units::size(bytes)
    );
    explained(listing(set, title, &entries, columns()))
}

fn columns<'a>() -> impl Iterator<Item = Column<'a>> {
    rates().into_iter().chain(loads())
}

fn rates<'a>() -> Vec<Column<'a>> {
    let lost = |row: &Row| {
        let share = row.lost as f64 / row.sent.max(1) as f64;
        (row.lost > 0).then(|| percent(share * 100.0))
    };
    let mut columns = vec![
        column(0, "rate", |row: &Row| row.bytes_per_s.map(units::rate)),
        column(3, "messages/s", |row: &Row| row.messages_per_s.map(units::digits)),
        column(1, "lost %", lost),
    ];
    columns.extend(fault_columns());
    columns
}

/// What it cost on both sides. `--columns usr+sys` is about both.
pub(super) fn loads<'a>() -> Vec<Column<'a>> {
    type Side = (&'static str, fn(&Row) -> Option<&Load>);
    type Part = (u32, &'static str, fn(&Load) -> Option<f64>);
    let parts: [Part; 7] = [
        (4, "usr+sys", |it| {
            Some(it.process_user_percent + it.process_system_percent)
        }),
        (5, "gateway", |it| it.gateway_percent),
        (7, "host usr", |it| Some(it.host_user_percent)),
        (7, "host sys", |it| Some(it.host_system_percent)),
        (7, "host irq", |it| Some(it.host_interrupt_percent)),
        (6, "pkt out/msg", |it| it.packets_sent_per_message),
        (6, "pkt in/msg", |it| it.packets_received_per_message),
    ];
    let sides: [Side; 2] = [("send", sender), ("recv", receiver)];
    let mut columns = Vec::new();
    for (side, of) in sides {
        for (rank, part, pick) in parts {
            let mut column = column(rank, format!("{side} {part}"), move |row: &Row| {
                of(row).and_then(pick).map(percent)
            });
            column.head.name = part.replace(' ', "-");
            column.head.extra = rank > 5;
            columns.push(column);
        }
    }
    columns
}

fn explained(mut table: Table) -> Table {
    table.published = Some(TIPC);
    if table.heads.iter().any(|head| head.name == "usr+sys") {
        let words = "usr+sys: the program's own user and system time; host: everything on that host, \
                     interrupts apart; pkt: packets of the network interface for each message";
        table.footnotes.push(words.to_owned());
    }
    table
}

pub(super) fn p3com(set: &Set<'_>) -> Table {
    let megabits = |row: &Row, bytes| {
        let rate = row.bytes_per_s.filter(|_| row.payload_bytes == bytes)?;
        Some(units::digits(rate * 8.0 / 1e6))
    };
    let steps = size_steps(set, units::size);
    Table {
        published: Some("p3com, “Initial benchmarking results”: Mbit/s by payload size"),
        ..matrix(set, "Payload received, Mbit/s, by payload", &steps, megabits)
    }
}

pub(super) fn stream(set: &Set<'_>) -> Vec<Table> {
    let of_stream = |stream: (u64, Option<u64>)| {
        let entries: Vec<Entry<'_>> = set
            .entries()
            .filter(|entry| (entry.row.payload_bytes, entry.row.interval_ns) == stream)
            .collect();
        let (bytes, interval_ns) = stream;
        let mut what = units::size(bytes);
        if let Some(ns) = interval_ns.filter(|ns| *ns > 0) {
            let megabits = units::digits(bytes as f64 * 8e3 / ns as f64);
            what += &format!(" every {} ({megabits} Mbit/s)", units::time(ns as f64));
        }
        let title = format!("CPU load of a stream of {what}, % of one core, gateway included");
        let columns = totals(set, &entries).into_iter().chain(columns());
        let mut table = explained(listing(set, title, &entries, columns));
        table.published = Some("TIPC evaluation, “(3) CPU load in sending streaming data”");
        table
    };
    set.streams().into_iter().map(of_stream).collect()
}

fn totals<'a>(set: &Set<'a>, entries: &[Entry<'a>]) -> Vec<Column<'a>> {
    type Side = (&'static str, &'static str, fn(&Row) -> Option<&Load>);
    let sides: [Side; 2] = [("send", "sender", sender), ("recv", "receiver", receiver)];
    let baseline = set.baseline().and_then(|name| {
        let mut all = entries.iter();
        Some((name, all.find(|entry| entry.row.technology == name)?.row))
    });
    let mut columns = Vec::new();
    for (name, side, of) in sides {
        let mut total = column(0, side, move |row: &Row| {
            of(row).map(Load::total_percent).map(percent)
        });
        total.head.name = name.to_owned();
        columns.push(total);
        columns.extend(baseline.map(|(than, row)| {
            let most = of(row).map(Load::total_percent);
            let cell = move |row: &Row| Some(percent(most? - of(row)?.total_percent()));
            let head = Head {
                text: format!("{side}: {than} − it"),
                name: "saved".to_owned(),
                rank: 2,
                extra: false,
            };
            Column {
                head,
                cell: Box::new(cell),
            }
        }));
    }
    columns
}
