//! The long run, gateways, calls, and the self-test.

use super::build::{Column, Detail, Table, column, footnotes, listing, payload_column, plain, sizes};
use super::round_trips::{self, columns};
use super::throughput::{self, loads};
use crate::record::{Calls, Row};
use crate::views::series::{Entry, Set, half, marked};
use crate::views::units;

const LATEST_MAXIMA: usize = 12;

pub(super) fn jitter(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let trips = trips(set, "Half round trip over the whole run, µs");
    let mut tables = vec![
        Table {
            published: Some(
                "Dolphin, PCI Express with VxWorks: best, average and worst half round trip of 24 hours",
            ),
            ..trips
        },
        interruptions(set),
    ];
    tables.extend(set.entries().map(|entry| maxima(&entry, detail)));
    tables
}

fn trips(set: &Set<'_>, title: &str) -> Table {
    let entries: Vec<Entry<'_>> = set.entries().filter(|entry| half(entry.row).is_some()).collect();
    let columns = [payload_column()].into_iter().chain(columns());
    listing(set, title, &entries, columns)
}

fn interruptions(set: &Set<'_>) -> Table {
    let rows = set.entries().flat_map(|entry| {
        entry.row.interruptions.iter().map(move |it| {
            [
                entry.name(),
                it.reason.clone(),
                units::duration(it.at_s),
                units::duration(it.lasted_s),
            ]
        })
    });
    let heads = ["technology", "what happened", "at", "lasted"];
    plain("Times in which nothing was measured", heads, 2, rows)
}

fn maxima(entry: &Entry<'_>, detail: Detail) -> Table {
    let all = &entry.row.maxima;
    let first = match detail {
        Detail::Brief => all.len().saturating_sub(LATEST_MAXIMA),
        Detail::Full => 0,
    };
    let rows = all[first..]
        .iter()
        .map(|it| [units::duration(it.at_s), units::micros(it.rtt_ns as f64 / 2.0)]);
    let of = marked(&entry.name(), entry.row);
    let title = format!("New maxima of the half round trip, {of}");
    let mut table = plain(title, ["at", "half round trip, µs"], 0, rows);
    if first > 0 {
        table.footnotes.push(format!(
            "the last {LATEST_MAXIMA} of {}; all are in --json and --report",
            all.len()
        ));
    }
    table
}

pub(super) fn gateway(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let mut tables = vec![throughput::p3com(set)];
    for bytes in sizes(set, detail) {
        tables.push(Table {
            published: None,
            ..round_trips::of_size(set, bytes)
        });
        tables.push(Table {
            published: None,
            ..throughput::of_size(set, bytes)
        });
    }
    let is_idle =
        |row: &Row| half(row).is_none() && row.bytes_per_s.is_none() && row.messages_per_s.is_none();
    let idle: Vec<Entry<'_>> = set.entries().filter(|entry| is_idle(entry.row)).collect();
    let title = "Without messages; loads in % of one core";
    tables.push(listing(set, title, &idle, loads()));
    tables
}

pub(super) fn calls(set: &Set<'_>) -> Vec<Table> {
    let entries: Vec<Entry<'_>> = set.entries().filter(|entry| entry.row.calls.is_some()).collect();
    fn cost<'a>(name: &str, head: &str, pick: fn(&Calls) -> f64) -> Column<'a> {
        let mut column = column(0, head, move |row: &Row| {
            row.calls.as_ref().map(|calls| format!("{:.1}", pick(calls)))
        });
        column.head.name = name.to_owned();
        column
    }
    let columns = [
        payload_column(),
        cost("write", "write", |it| it.write_ns),
        cost("read", "read again", |it| it.read_ns),
        cost("write", "write and read", |it| it.write_and_read_ns),
        cost("clock", "reading the clock", |it| it.clock_ns),
    ];
    let title = "A call of a port with nobody else at the channel, ns";
    vec![listing(set, title, &entries, columns)]
}

pub(super) fn self_test(set: &Set<'_>) -> Vec<Table> {
    let rows = set.entries().flat_map(|entry| {
        entry.row.verdicts.iter().map(move |it| {
            [
                marked(&entry.name(), entry.row),
                it.figure.clone(),
                if it.passed { "passed" } else { "FAILED" }.to_owned(),
                units::digits(it.expected),
                units::digits(it.measured),
                units::digits(it.tolerance),
            ]
        })
    });
    let heads = [
        "technology",
        "figure",
        "verdict",
        "injected",
        "measured",
        "may differ by",
    ];
    let title = "What the instrument should have found, and what it found";
    let verdicts = Table {
        footnotes: footnotes(set.entries().map(|entry| entry.row)),
        ..plain(title, heads, 3, rows)
    };
    vec![verdicts, trips(set, "Half round trip, µs")]
}
