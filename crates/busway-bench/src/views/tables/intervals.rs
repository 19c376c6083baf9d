//! Experiments with a sending interval: interference and timeliness.

use super::build::{Detail, Table, column, distribution_columns, fault_columns, listing, matrix, percent};
use crate::record::{Distribution, Row};
use crate::views::series::{Entry, Set, paced};
use crate::views::units;

pub(super) fn interference(set: &Set<'_>) -> Vec<Table> {
    let table = |interval_ns: Option<u64>| {
        let entries: Vec<Entry<'_>> = set
            .entries()
            .filter(|entry| {
                let of_interval = entry.row.interval_ns.is_none() || entry.row.interval_ns == interval_ns;
                of_interval && entry.row.execution_ns.is_some()
            })
            .collect();
        let messages = interval_ns.map(|ns| format!(", a message every {}", units::time(ns as f64)));
        let messages = messages.unwrap_or_default();
        let mut columns = distribution_columns(|row: &Row| row.execution_ns.clone());
        let received = |row: &Row| (row.received > 0).then(|| units::grouped(row.received as f64));
        columns.push(column(5, "received", received));
        columns.extend(fault_columns());
        let title = format!("Execution time of the task on the same core{messages}, µs");
        Table {
            published: Some("RDMA sampling port, Fig. 3: execution time of the computing partition"),
            ..listing(set, title, &entries, columns)
        }
    };
    set.intervals_ns().into_iter().map(table).collect()
}

pub(super) fn timeliness(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let steps: Vec<(u64, String)> = set
        .intervals_ns()
        .into_iter()
        .flatten()
        .map(|ns| (ns, units::time(ns as f64)))
        .collect();
    let table = |bytes: &u64| {
        let seen = |row: &Row, ns| {
            let is_it = row.payload_bytes == *bytes && row.interval_ns == Some(ns);
            let times = row.observed_interval_ns.as_ref().filter(|_| is_it)?;
            Some(paced(units::micros(times.p50 as f64), row))
        };
        let title = format!(
            "Median interval seen, µs, by the interval sent, messages of {}",
            units::size(*bytes)
        );
        Table {
            published: Some("RDMA sampling port, Fig. 4: transmission intervals and observed intervals"),
            ..matrix(set, title, &steps, seen)
        }
    };
    let sizes = set.sizes();
    let mut tables: Vec<Table> = sizes.iter().map(table).collect();
    if detail == Detail::Full {
        tables.extend(sizes.iter().map(|bytes| in_detail(set, *bytes)));
    }
    tables
}

fn in_detail(set: &Set<'_>, bytes: u64) -> Table {
    let both = |head: &'static str, of: fn(&Row) -> &Option<Distribution>| {
        let figure = |rank, word: &str, pick: fn(&Distribution) -> f64| {
            column(rank, format!("{head} {word}"), move |row: &Row| {
                of(row).as_ref().map(|it| units::micros(pick(it)))
            })
        };
        [
            figure(4, "mean", |it| it.mean),
            figure(1, "p50", |it| it.p50 as f64),
            figure(5, "p99", |it| it.p99 as f64),
            figure(6, "max", |it| it.max as f64),
        ]
    };
    let asked = |row: &Row| row.interval_ns.map(|ns| paced(units::micros(ns as f64), row));
    let seen_by_sent = |row: &Row| {
        let (seen, sent) = (
            row.observed_interval_ns.as_ref()?.mean,
            row.transmitted_interval_ns.as_ref()?.mean,
        );
        (sent > 0.0).then(|| format!("{:.2}", seen / sent))
    };
    let unseen = |row: &Row| {
        let share = row.lost as f64 / row.sent.max(1) as f64;
        (row.sent > 0).then(|| percent(share * 100.0))
    };
    let mut columns = vec![column(0, "asked", asked)];
    columns.extend(both("sent", |row| &row.transmitted_interval_ns));
    columns.extend(both("seen", |row| &row.observed_interval_ns));
    columns.push(column(2, "seen/sent", seen_by_sent));
    columns.push(column(1, "not seen %", unseen));
    let [_, corrupt] = fault_columns();
    columns.push(corrupt);
    let title = format!("Intervals between messages of {}, µs", units::size(bytes));
    listing(set, title, &by_series(set, bytes), columns)
}

/// Rows of a size, those of a series beside each other, by interval.
fn by_series<'a>(set: &Set<'a>, bytes: u64) -> Vec<Entry<'a>> {
    let order: Vec<_> = set.series().into_iter().map(|series| series.key).collect();
    let mut entries: Vec<Entry<'a>> = set
        .entries()
        .filter(|entry| entry.row.payload_bytes == bytes)
        .collect();
    entries.sort_by_key(|entry| {
        let series = order.iter().position(|key| *key == entry.key());
        (series, entry.row.interval_ns)
    });
    entries
}
