//! The results as tables for people.

use std::collections::BTreeSet;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::plan::Mode;
use super::results::{Report, Row};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.environment)?;
        self.section(
            f,
            "Half round trip, median (99 %), µs",
            &[Mode::PingPong],
            latency,
            "× sum of hops",
        )?;
        let streams = [Mode::Lossless, Mode::Overwriting];
        self.section(f, "Throughput, MB/s", &streams, throughput, "× bare bus")?;
        self.section(
            f,
            "Messages a second, thousands (lost in percent of those sent)",
            &streams,
            messages,
            "",
        )?;
        self.section(f, "CPU time of both gateways, s a GiB", &streams, cpu, "")?;
        for row in self.results.iter().filter(|row| row.mode == Mode::Idle) {
            let each: Vec<String> = row
                .gateway_cpu_percent_each
                .iter()
                .map(|p| format!("{p:.2} %"))
                .collect();
            let wait = row.wait.word();
            writeln!(
                f,
                "idle, 100 services, {} {wait}: {} of a core",
                row.transport,
                each.join(" and ")
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Report {
    /// One table: a line for each transport, mode and wait strategy, a column for each size.
    fn section(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        modes: &[Mode],
        cell: fn(&Row) -> Option<String>,
        floor: &str,
    ) -> fmt::Result {
        let rows: Vec<&Row> = self
            .results
            .iter()
            .filter(|row| modes.contains(&row.mode) && cell(row).is_some())
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let sizes: BTreeSet<usize> = rows.iter().map(|row| row.payload_bytes).collect();
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        let heads = ["transport", "mode", "wait"].map(str::to_owned).into_iter();
        table.set_header(heads.chain(sizes.iter().map(|bytes| size(*bytes))));
        let mut seen = BTreeSet::new();
        for row in &rows {
            if !seen.insert((&row.transport, row.mode.word(), row.wait)) {
                continue;
            }
            let cells = sizes.iter().map(|bytes| {
                let same = |other: &&&Row| {
                    other.transport == row.transport
                        && other.mode == row.mode
                        && other.wait == row.wait
                        && other.payload_bytes == *bytes
                };
                rows.iter()
                    .find(same)
                    .map_or_else(String::new, |row| with_ratios(row, cell, floor))
            });
            let heads = [
                row.transport.clone(),
                row.mode.word().to_owned(),
                row.wait.word().to_owned(),
            ];
            table.add_row(heads.into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "\n{title}\n{table}")
    }
}

fn with_ratios(row: &Row, cell: fn(&Row) -> Option<String>, floor: &str) -> String {
    let mut text = cell(row).unwrap_or_default();
    if floor.is_empty() {
        return text;
    }
    if let Some(ratio) = row.ratio_to_floor {
        text += &format!("\n{ratio:.2} {floor}");
    }
    if let Some(ratio) = row.ratio_to_tunnel {
        text += &match ratio {
            0.0..0.1 => format!("\n1/{:.0} × tunnel", 1.0 / ratio),
            0.1..10.0 => format!("\n{ratio:.2} × tunnel"),
            _ => format!("\n{ratio:.0} × tunnel"),
        };
    }
    text
}

fn latency(row: &Row) -> Option<String> {
    let us = |name: &str| {
        row.half_rtt_ns
            .get(name)
            .map(|ns| format!("{:.1}", *ns as f64 / 1e3))
    };
    let p50 = us("p50")?;
    Some(match us("p99") {
        Some(p99) => format!("{p50} ({p99})"),
        None => p50,
    })
}

fn throughput(row: &Row) -> Option<String> {
    row.bytes_per_s.map(|rate| format!("{:.1}", rate / 1e6))
}

fn messages(row: &Row) -> Option<String> {
    let (lost, received) = (row.lost? as f64, row.samples? as f64);
    let percent = if lost > 0.0 {
        format!(" ({:.1} %)", lost / (lost + received) * 100.0)
    } else {
        String::new()
    };
    row.messages_per_s
        .map(|rate| format!("{:.1}{percent}", rate / 1e3))
}

fn cpu(row: &Row) -> Option<String> {
    row.gateway_cpu_s_per_gib.map(|cpu_s| format!("{cpu_s:.2}"))
}

pub(crate) fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else if bytes.is_multiple_of(1 << 10) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{bytes} B")
    }
}
