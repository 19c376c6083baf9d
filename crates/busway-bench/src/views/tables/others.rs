//! The long run, gateways, calls, and the self-test.

use super::latency::columns;
use super::throughput::{loads, rates};
use super::{Detail, Table, column, listing, marked};
use crate::record::Row;
use crate::views::series::{Entry, Set, half};
use crate::views::units;

/// So many of the latest maxima does the terminal show.
const LATEST_MAXIMA: usize = 12;

/// Round trips, each new maximum, interruptions.
pub(super) fn jitter(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let entries: Vec<Entry<'_>> = set.entries().filter(|entry| half(entry.row).is_some()).collect();
    let sized = column("payload", |row: &Row| Some(units::size(row.payload_bytes)));
    let columns = [sized].into_iter().chain(columns()).collect();
    let mut tables = vec![Table {
        published: Some(
            "Dolphin, PCI Express with VxWorks: best, average and worst half round trip of 24 hours",
        ),
        ..listing(set, "Half round trip over the whole run, µs", &entries, columns)
    }];
    tables.push(interruptions(set));
    tables.extend(set.entries().map(|entry| maxima(&entry, detail)));
    tables
}

fn interruptions(set: &Set<'_>) -> Table {
    let rows = set.entries().flat_map(|entry| {
        entry.row.interruptions.iter().map(move |it| {
            vec![
                entry.name(),
                it.reason.clone(),
                units::duration(it.at_s),
                units::duration(it.lasted_s),
            ]
        })
    });
    Table {
        title: "Times in which nothing was measured".into(),
        heads: ["technology", "what happened", "at", "lasted"]
            .map(str::to_owned)
            .to_vec(),
        keys: 2,
        rows: rows.collect(),
        ..Table::default()
    }
}

fn maxima(entry: &Entry<'_>, detail: Detail) -> Table {
    let all = &entry.row.maxima;
    let first = if detail == Detail::Brief {
        all.len().saturating_sub(LATEST_MAXIMA)
    } else {
        0
    };
    let rows = all[first..]
        .iter()
        .map(|it| vec![units::duration(it.at_s), units::micros(it.rtt_ns as f64 / 2.0)]);
    Table {
        title: format!(
            "New maxima of the half round trip, {}",
            marked(&entry.name(), entry.row)
        ),
        heads: ["at", "half round trip, µs"].map(str::to_owned).to_vec(),
        keys: 0,
        rows: rows.collect(),
        footnotes: (first > 0)
            .then(|| {
                format!(
                    "the last {LATEST_MAXIMA} of {}; all are in --json and --report",
                    all.len()
                )
            })
            .into_iter()
            .collect(),
        published: None,
    }
}

/// Latency of ping-pong rows, rates and loads of streams.
pub(super) fn gateway(set: &Set<'_>) -> Vec<Table> {
    let mut tables = Vec::new();
    for bytes in set.sizes() {
        let of_size = |has: fn(&Row) -> bool| -> Vec<Entry<'_>> {
            set.entries()
                .filter(|entry| entry.row.payload_bytes == bytes && has(entry.row))
                .collect()
        };
        let trips = of_size(|row| half(row).is_some());
        tables.push(listing(
            set,
            format!("Half round trip of {}, µs", units::size(bytes)),
            &trips,
            columns(),
        ));
        let streams = of_size(|row| row.bytes_per_s.or(row.messages_per_s).is_some());
        let columns = rates().into_iter().chain(loads()).collect();
        let title = format!(
            "Throughput of messages of {}; loads in % of one core",
            units::size(bytes)
        );
        tables.push(listing(set, title, &streams, columns));
    }
    let idle: Vec<Entry<'_>> = set
        .entries()
        .filter(|entry| {
            let row = entry.row;
            half(row).is_none() && row.bytes_per_s.or(row.messages_per_s).is_none()
        })
        .collect();
    tables.push(listing(
        set,
        "Without messages; loads in % of one core",
        &idle,
        loads(),
    ));
    tables
}

/// What a call costs.
pub(super) fn calls(set: &Set<'_>) -> Vec<Table> {
    let entries: Vec<Entry<'_>> = set.entries().filter(|entry| entry.row.calls.is_some()).collect();
    let cost = |head: &str, pick: fn(&crate::record::Calls) -> f64| {
        column(head, move |row: &Row| {
            row.calls.as_ref().map(|calls| format!("{:.1}", pick(calls)))
        })
    };
    let columns = vec![
        column("payload", |row: &Row| Some(units::size(row.payload_bytes))),
        cost("write", |it| it.write_ns),
        cost("read again", |it| it.read_ns),
        cost("write and read", |it| it.write_and_read_ns),
        cost("reading the clock", |it| it.clock_ns),
    ];
    vec![listing(
        set,
        "A call of a port with nobody else at the channel, ns",
        &entries,
        columns,
    )]
}

/// What was injected and what was measured.
pub(super) fn self_test(set: &Set<'_>) -> Vec<Table> {
    let rows = set.entries().flat_map(|entry| {
        entry.row.verdicts.iter().map(move |it| {
            vec![
                marked(&entry.name(), entry.row),
                it.figure.clone(),
                if it.passed { "passed" } else { "FAILED" }.to_owned(),
                units::digits(it.expected),
                units::digits(it.measured),
                units::digits(it.tolerance),
            ]
        })
    });
    let verdicts = Table {
        title: "What the instrument should have found, and what it found".into(),
        heads: [
            "technology",
            "figure",
            "verdict",
            "injected",
            "measured",
            "may differ by",
        ]
        .map(str::to_owned)
        .to_vec(),
        keys: 3,
        rows: rows.collect(),
        footnotes: super::footnotes(set.entries().map(|entry| entry.row)),
        published: None,
    };
    let trips: Vec<Entry<'_>> = set.entries().filter(|entry| half(entry.row).is_some()).collect();
    vec![verdicts, listing(set, "Half round trip, µs", &trips, columns())]
}
