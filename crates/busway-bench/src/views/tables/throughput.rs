//! One direction: what crosses, and what it costs.

use super::{Column, Detail, Table, by_size, column, fault_columns, listing, percent};
use crate::record::{Load, Row};
use crate::views::series::{Entry, Series, Set};
use crate::views::units;

const TIPC: &str = "TIPC evaluation, “(1) Max throughput”, “(1) CPU load”, “Packets observance”";
/// From this many sizes on, the terminal shows those that are powers of two.
const LONG_SWEEP: usize = 24;

/// Rates, losses, loads and packets by size; the p3com table.
pub(super) fn throughput(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let mut sizes = set.sizes();
    let all = sizes.len();
    if detail == Detail::Brief && all > LONG_SWEEP {
        let (first, last) = (sizes.first().copied(), sizes.last().copied());
        sizes.retain(|bytes| bytes.is_power_of_two() || Some(*bytes) == first || Some(*bytes) == last);
    }
    if detail == Detail::Full && all > LONG_SWEEP {
        let mut tables: Vec<Table> = set.series().iter().map(|series| of_series(set, series)).collect();
        tables.push(p3com(set, &sizes));
        return tables;
    }
    let left_out = (sizes.len() < all).then(|| {
        format!(
            "{} of {all} sizes; all of them are in --csv, --json and --report",
            sizes.len()
        )
    });
    let mut tables: Vec<Table> = sizes.iter().map(|bytes| of_size(set, *bytes)).collect();
    tables.push(p3com(set, &sizes));
    if let Some(last) = tables.last_mut() {
        last.footnotes.extend(left_out);
    }
    tables
}

/// A table of all sizes for a series of a long sweep.
fn of_series(set: &Set<'_>, series: &Series<'_>) -> Table {
    let mut entries: Vec<Entry<'_>> = set.entries().filter(|entry| entry.key() == series.key).collect();
    entries.sort_by_key(|entry| entry.row.payload_bytes);
    let mut columns = vec![column("payload", |row: &Row| {
        Some(units::size(row.payload_bytes))
    })];
    columns.extend(rates());
    columns.extend(loads());
    let mut table = listing(
        set,
        format!("Throughput of {} by size; loads in % of one core", series.name),
        &entries,
        columns,
    );
    table.footnotes.extend(explained(&entries));
    table.published = Some(TIPC);
    table
}

fn of_size(set: &Set<'_>, bytes: u64) -> Table {
    let entries: Vec<Entry<'_>> = set
        .entries()
        .filter(|entry| {
            entry.row.payload_bytes == bytes && entry.row.messages_per_s.or(entry.row.bytes_per_s).is_some()
        })
        .collect();
    let mut columns = rates();
    columns.extend(loads());
    let mut table = listing(
        set,
        format!(
            "Throughput of messages of {}; loads in % of one core",
            units::size(bytes)
        ),
        &entries,
        columns,
    );
    table.footnotes.extend(explained(&entries));
    table.published = Some(TIPC);
    table
}

/// What crossed.
pub(super) fn rates<'a>() -> Vec<Column<'a>> {
    let mut columns = vec![
        column("rate", |row: &Row| row.bytes_per_s.map(units::rate)),
        column("messages/s", |row: &Row| row.messages_per_s.map(units::digits)),
        column("lost %", |row: &Row| {
            (row.lost > 0).then(|| percent(row.lost as f64 / row.sent.max(1) as f64 * 100.0))
        }),
    ];
    columns.extend(fault_columns());
    columns
}

fn of_load<'a>(
    head: &str,
    side: fn(&Row) -> Option<&Load>,
    figure: impl Fn(&Load) -> Option<f64> + 'a,
) -> Column<'a> {
    column(head, move |row: &Row| side(row).and_then(&figure).map(percent))
}

fn sender(row: &Row) -> Option<&Load> {
    row.sender.as_ref()
}

fn receiver(row: &Row) -> Option<&Load> {
    row.receiver.as_ref()
}

/// What it cost on both sides.
pub(super) fn loads<'a>() -> Vec<Column<'a>> {
    type Side = (&'static str, fn(&Row) -> Option<&Load>);
    let sides: [Side; 2] = [("send", sender), ("recv", receiver)];
    let mut columns = Vec::new();
    for (name, side) in sides {
        columns.extend([
            of_load(&format!("{name} usr+sys"), side, |it| {
                Some(it.process_user_percent + it.process_system_percent)
            }),
            of_load(&format!("{name} gateway"), side, |it| it.gateway_percent),
            of_load(&format!("{name} host usr"), side, |it| Some(it.host_user_percent)),
            of_load(&format!("{name} host sys"), side, |it| {
                Some(it.host_system_percent)
            }),
            of_load(&format!("{name} host irq"), side, |it| {
                Some(it.host_interrupt_percent)
            }),
        ]);
        columns.extend([
            of_load(&format!("{name} pkt out/msg"), side, |it| {
                it.packets_sent_per_message
            }),
            of_load(&format!("{name} pkt in/msg"), side, |it| {
                it.packets_received_per_message
            }),
        ]);
    }
    columns
}

fn explained(entries: &[Entry<'_>]) -> Option<String> {
    let any = entries
        .iter()
        .any(|entry| entry.row.sender.is_some() || entry.row.receiver.is_some());
    any.then(|| {
        "usr+sys: the program's own user and system time; host: everything on that host, interrupts apart; pkt: packets of the network interface for each message"
            .to_owned()
    })
}

fn p3com(set: &Set<'_>, sizes: &[u64]) -> Table {
    let megabits = |row: &Row| row.bytes_per_s.map(|rate| units::digits(rate * 8.0 / 1e6));
    Table {
        published: Some("p3com, “Initial benchmarking results”: Mbit/s by payload size"),
        ..by_size(
            set,
            "Payload received, Mbit/s",
            ("payload", units::size),
            sizes,
            megabits,
        )
    }
}

/// CPU load of a constant rate, as on the slide: sides as rows, technologies as columns, and the difference to the baseline.
pub(super) fn stream(set: &Set<'_>) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut streams: Vec<(u64, Option<u64>)> = set
        .entries()
        .map(|entry| (entry.row.payload_bytes, entry.row.interval_ns))
        .collect();
    streams.sort_unstable();
    streams.dedup();
    for (bytes, interval_ns) in streams {
        let entries: Vec<Entry<'_>> = set
            .entries()
            .filter(|entry| (entry.row.payload_bytes, entry.row.interval_ns) == (bytes, interval_ns))
            .collect();
        let mut what = units::size(bytes);
        if let Some(ns) = interval_ns.filter(|ns| *ns > 0) {
            let bits = bytes as f64 * 8.0 / (ns as f64 / 1e9);
            what += &format!(
                " every {} ({} Mbit/s)",
                units::time(ns as f64),
                units::digits(bits / 1e6)
            );
        }
        tables.push(sides(set, &what, &entries));
        let mut columns = rates();
        columns.extend(loads());
        let mut detail = listing(
            set,
            format!("Stream of {what} in detail; loads in % of one core"),
            &entries,
            columns,
        );
        detail.footnotes.extend(explained(&entries));
        tables.push(detail);
    }
    tables
}

fn sides(set: &Set<'_>, what: &str, entries: &[Entry<'_>]) -> Table {
    let of_side = |side: fn(&Row) -> Option<&Load>| -> Vec<Option<f64>> {
        entries
            .iter()
            .map(|entry| side(entry.row).map(Load::total_percent))
            .collect()
    };
    let baseline = |run: usize| {
        let name = set.baseline()?;
        entries
            .iter()
            .position(|entry| entry.run == run && entry.row.technology == name)
    };
    let mut rows = Vec::new();
    let mut differences = Vec::new();
    for (name, loads) in [("sender", of_side(sender)), ("receiver", of_side(receiver))] {
        let cell = |value: &Option<f64>| value.map(percent).unwrap_or_default();
        rows.push(
            [name.to_owned()]
                .into_iter()
                .chain(loads.iter().map(cell))
                .collect(),
        );
        let difference = entries.iter().zip(&loads).map(|(entry, load)| {
            baseline(entry.run)
                .and_then(|at| Some(loads[at]? - (*load)?))
                .map(percent)
                .unwrap_or_default()
        });
        let label = format!("{name}: {} − it", set.baseline().unwrap_or_default());
        differences.push([label].into_iter().chain(difference).collect());
    }
    if set.baseline().is_some() {
        rows.extend(differences);
    }
    rows.retain(|row: &Vec<String>| row[1..].iter().any(|cell| !cell.is_empty()));
    Table {
        title: format!("CPU load of a stream of {what}, % of one core, gateway included"),
        published: Some("TIPC evaluation, “(3) CPU load in sending streaming data”"),
        keys: 1,
        heads: [String::new()]
            .into_iter()
            .chain(
                entries
                    .iter()
                    .map(|entry| super::marked(&entry.name(), entry.row)),
            )
            .collect(),
        rows,
        footnotes: super::footnotes(entries.iter().map(|entry| entry.row)),
    }
}
