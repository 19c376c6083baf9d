//! Round trips: a table for each size, the table that iceperf prints, Dolphin's best, average and worst.

use crate::record::Row;

use super::{Column, Table, by_size, distribution_columns, fault_columns, listing};
use crate::views::series::{Entry, Set, half};
use crate::views::units;

/// All of them.
pub(super) fn tables(set: &Set<'_>) -> Vec<Table> {
    let sizes = set.sizes();
    let mut tables: Vec<Table> = sizes.iter().map(|bytes| of_size(set, *bytes)).collect();
    tables.extend([iceperf(set, &sizes), dolphin(set, &sizes)]);
    tables
}

fn of_size(set: &Set<'_>, bytes: u64) -> Table {
    let entries: Vec<Entry<'_>> = set
        .entries()
        .filter(|entry| entry.row.payload_bytes == bytes && half(entry.row).is_some())
        .collect();
    listing(
        set,
        format!("Half round trip of {}, µs", units::size(bytes)),
        &entries,
        columns(),
    )
}

/// Half round trips and what went wrong.
pub(super) fn columns<'a>() -> Vec<Column<'a>> {
    distribution_columns(half)
        .into_iter()
        .chain(fault_columns())
        .collect()
}

/// Sizes below 1 KiB are not in iceperf's table; they are shown as the fractions that they are.
fn iceperf(set: &Set<'_>, sizes: &[u64]) -> Table {
    let kilobytes = |bytes: u64| match bytes {
        _ if bytes.is_multiple_of(1024) => format!("{}", bytes / 1024),
        _ => units::digits(bytes as f64 / 1024.0),
    };
    let mean = |row: &Row| half(row).map(|it| units::micros(it.mean));
    Table {
        published: Some("iceperf, “Measurement Result”: average latency by payload, for each technology"),
        ..by_size(
            set,
            "Average latency (mean half round trip), µs, by payload in kB of 1,024 bytes",
            ("payload [kB]", kilobytes),
            sizes,
            mean,
        )
    }
}

fn dolphin(set: &Set<'_>, sizes: &[u64]) -> Table {
    let cell = |row: &Row| {
        half(row).map(|it| {
            [it.min as f64, it.mean, it.max as f64]
                .map(units::micros)
                .join(" / ")
        })
    };
    Table {
        published: Some("Dolphin, PCI Express with VxWorks (scipp): best, average and worst half round trip"),
        ..by_size(
            set,
            "Half round trip, best / average / worst, µs",
            ("payload", units::size),
            sizes,
            cell,
        )
    }
}
