//! Experiments with a sending interval: interference and timeliness.

use super::{Table, column, distribution_columns, fault_columns, listing, percent};
use crate::record::{Distribution, Row};
use crate::views::series::{Entry, Set};
use crate::views::units;

/// How long the task took beside each kind of communication; a table for each interval.
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
        let mut columns = distribution_columns(|row: &Row| row.execution_ns.clone());
        columns.push(column("received", |row: &Row| {
            (row.received > 0).then(|| units::grouped(row.received as f64))
        }));
        columns.extend(fault_columns());
        Table {
            published: Some("RDMA sampling port, Fig. 3: execution time of the computing partition"),
            ..listing(
                set,
                format!(
                    "Execution time of the task on the same core{}, µs",
                    messages.unwrap_or_default()
                ),
                &entries,
                columns,
            )
        }
    };
    set.intervals_ns().into_iter().map(table).collect()
}

/// Intervals sent and seen; a table for each size.
pub(super) fn timeliness(set: &Set<'_>) -> Vec<Table> {
    let table = |bytes: &u64| {
        let entries = by_series(set, *bytes);
        let both = |head: &'static str, of: fn(&Row) -> &Option<Distribution>| {
            let figure = |head: String, pick: fn(&Distribution) -> f64| {
                column(head, move |row: &Row| {
                    of(row).as_ref().map(|it| units::micros(pick(it)))
                })
            };
            [
                figure(format!("{head} mean"), |it| it.mean),
                figure(format!("{head} p50"), |it| it.p50 as f64),
                figure(format!("{head} p99"), |it| it.p99 as f64),
                figure(format!("{head} max"), |it| it.max as f64),
            ]
        };
        let mut columns = vec![column("told", |row: &Row| {
            row.interval_ns.map(|ns| units::micros(ns as f64))
        })];
        columns.extend(both("sent", |row| &row.transmitted_interval_ns));
        columns.extend(both("seen", |row| &row.observed_interval_ns));
        columns.push(column("seen/sent", |row: &Row| {
            let (seen, sent) = (
                row.observed_interval_ns.as_ref()?,
                row.transmitted_interval_ns.as_ref()?,
            );
            (sent.mean > 0.0).then(|| format!("{:.2}", seen.mean / sent.mean))
        }));
        columns.push(column("not seen %", |row: &Row| {
            (row.sent > 0).then(|| percent(row.lost as f64 / row.sent as f64 * 100.0))
        }));
        columns.push(column("corrupt", |row: &Row| {
            (row.corrupt > 0).then(|| units::grouped(row.corrupt as f64))
        }));
        Table {
            published: Some("RDMA sampling port, Fig. 4: transmission intervals and observed intervals"),
            ..listing(
                set,
                format!("Intervals between messages of {}, µs", units::size(*bytes)),
                &entries,
                columns,
            )
        }
    };
    set.sizes().iter().map(table).collect()
}

/// Rows of a size, those of a series beside each other, by interval.
fn by_series<'a>(set: &Set<'a>, bytes: u64) -> Vec<Entry<'a>> {
    let labels: Vec<&str> = set.runs().map(|(label, _)| label).collect();
    let mut entries = Vec::new();
    for series in set.series() {
        let (run, label) = (series.key.run, labels[series.key.run]);
        let mut rows: Vec<&Row> = series
            .rows
            .into_iter()
            .filter(|row| row.payload_bytes == bytes)
            .collect();
        rows.sort_by_key(|row| row.interval_ns);
        entries.extend(rows.into_iter().map(|row| Entry { run, label, row }));
    }
    entries
}
