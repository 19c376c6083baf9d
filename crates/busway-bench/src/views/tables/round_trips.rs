//! Round trips: iceperf's table of mean times by size, and the distribution for each size.

use crate::record::Row;

use super::build::{
    Column, Detail, Table, distribution_columns, fault_columns, listing, matrix, size_steps, sizes,
};
use crate::views::series::{Entry, Set, half};
use crate::views::units;

pub(super) fn latency(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let sizes = sizes(set, detail);
    let mut tables = vec![iceperf(set)];
    tables.extend(sizes.iter().map(|bytes| of_size(set, *bytes)));
    tables
}

pub(super) fn of_size(set: &Set<'_>, bytes: u64) -> Table {
    let entries: Vec<Entry<'_>> = set
        .entries()
        .filter(|entry| entry.row.payload_bytes == bytes && half(entry.row).is_some())
        .collect();
    let title = format!("Half round trip of {}, µs", units::size(bytes));
    Table {
        published: Some("Dolphin, PCI Express with VxWorks (scipp): best / average / worst (min, mean, max)"),
        ..listing(set, title, &entries, columns())
    }
}

pub(super) fn columns<'a>() -> Vec<Column<'a>> {
    let mut columns = distribution_columns(half);
    columns.extend(fault_columns());
    columns
}

/// Sizes below 1 KiB are not in iceperf's table; they are shown as the fractions that they are.
fn iceperf(set: &Set<'_>) -> Table {
    let kilobytes = |bytes: u64| match bytes {
        _ if bytes.is_multiple_of(1024) => format!("{}", bytes / 1024),
        _ => units::digits(bytes as f64 / 1024.0),
    };
    let mean = |row: &Row, bytes| {
        let of_size = half(row).filter(|_| row.payload_bytes == bytes)?;
        Some(units::micros(of_size.mean))
    };
    let title = "Average latency (mean half round trip), µs, by payload [kB] of 1,024 bytes";
    Table {
        published: Some("iceperf, “Measurement Result”: average latency by payload"),
        ..matrix(set, title, &size_steps(set, kilobytes), mean)
    }
}
