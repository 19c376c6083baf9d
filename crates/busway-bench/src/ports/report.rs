//! The results as tables for people.

use std::collections::BTreeSet;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::plan::Part;
use super::results::{Report, Row};
use crate::gateway::size;
use crate::worker::Wait;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.environment)?;
        self.round_trips(f)?;
        self.intervals(f)?;
        for row in &self.results {
            if let Some(costs) = row.costs {
                writeln!(
                    f,
                    "\nWith nobody else at the channel, {}: write {:.1} ns, read {:.1} ns, write and read {:.1} ns; reading the clock {:.1} ns",
                    size(row.payload_bytes),
                    costs.write_ns,
                    costs.read_ns,
                    costs.write_and_read_ns,
                    costs.clock_ns
                )?;
            }
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Report {
    fn rows(&self, part: Part) -> Vec<&Row> {
        self.results.iter().filter(|row| row.part == part).collect()
    }

    /// A line for each medium and wait strategy, a column for each size.
    fn round_trips(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows(Part::PingPong);
        let sizes: BTreeSet<usize> = rows.iter().map(|row| row.payload_bytes).collect();
        let mut table = table(
            ["over", "wait"]
                .map(str::to_owned)
                .into_iter()
                .chain(sizes.iter().map(|bytes| size(*bytes)))
                .chain(["warning".to_owned()]),
        );
        let mut seen = BTreeSet::new();
        for row in &rows {
            if !seen.insert((row.medium, row.wait)) {
                continue;
            }
            let like = |other: &&&Row| other.medium == row.medium && other.wait == row.wait;
            let cells = sizes.iter().map(|bytes| {
                let found = rows
                    .iter()
                    .filter(like)
                    .find(|other| other.payload_bytes == *bytes);
                found.map_or_else(String::new, |row| round_trip(row))
            });
            let warning = rows.iter().filter(like).find_map(|row| row.warning.clone());
            let heads = [row.medium.to_owned(), waiting(row)];
            table.add_row(heads.into_iter().chain(cells).chain(warning));
        }
        print(
            f,
            &rows,
            "Half round trip over two sampling ports, median (99 %), µs",
            &mut table,
            2..2 + sizes.len(),
        )
    }

    /// A line for each medium, wait strategy and interval.
    fn intervals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows(Part::Interval);
        let heads = [
            "over",
            "wait",
            "told",
            "written",
            "observed",
            "observed / written",
            "of the means",
            "overwritten",
            "warning",
        ];
        let mut table = table(heads.map(str::to_owned).into_iter());
        table.load_preset(presets::UTF8_BORDERS_ONLY);
        for row in &rows {
            let Some(intervals) = &row.intervals else { continue };
            let us = |ns: Option<&u64>| ns.map_or_else(|| "none".to_owned(), |ns| micros(*ns));
            let both = |of: &std::collections::BTreeMap<&'static str, u64>| {
                format!("{} ({})", us(of.get("p50")), us(of.get("p99")))
            };
            let ratio = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
            let percent = intervals.overwritten as f64 / intervals.written.max(1) as f64 * 100.0;
            table.add_row([
                row.medium.to_owned(),
                waiting(row),
                micros(intervals.interval_ns),
                both(&intervals.transmitted_ns),
                both(&intervals.observed_ns),
                ratio(intervals.observed_to_transmitted),
                ratio(intervals.mean_observed_to_transmitted),
                format!("{percent:.2} %"),
                row.warning.clone().unwrap_or_default(),
            ]);
        }
        print(
            f,
            &rows,
            "Intervals between messages, median (99 %), µs",
            &mut table,
            2..8,
        )
    }
}

fn table(heads: impl Iterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(heads);
    table
}

/// Prints the table unless it has no rows; `numbers` are the columns to align right.
fn print(
    f: &mut fmt::Formatter<'_>,
    rows: &[&Row],
    title: &str,
    table: &mut Table,
    numbers: std::ops::Range<usize>,
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    for index in numbers {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(f, "\n{title}\n{table}")
}

fn round_trip(row: &Row) -> String {
    let us = |name: &str| row.half_rtt_ns.get(name).map(|ns| micros(*ns));
    let Some(p50) = us("p50") else {
        return String::new();
    };
    let mut text = format!("{p50} ({})", us("p99").unwrap_or_default());
    let lines = [
        (row.ratio_to_two_lines, "× two lines"),
        (row.ratio_to_flags, "× flags"),
    ];
    for (ratio, of) in lines {
        if let Some(ratio) = ratio {
            text += &format!("\n{ratio:.2} {of}");
        }
    }
    let sockets = [
        (row.percent_below_blocking_sockets, "blocking"),
        (row.percent_below_polled_sockets, "polled"),
    ];
    for (percent, which) in sockets {
        match percent {
            Some(percent) if percent >= 0.0 => text += &format!("\n{percent:.0} % below {which} sockets"),
            Some(percent) => text += &format!("\n{:.0} % above {which} sockets", -percent),
            None => {}
        }
    }
    for (count, what) in [(row.lost.unwrap_or(0), "lost"), (row.torn, "torn or old")] {
        if count > 0 {
            text += &format!("\n{count} {what} of {}", row.samples + row.lost.unwrap_or(0));
        }
    }
    text
}

fn waiting(row: &Row) -> String {
    match (row.medium, row.wait, row.lanes_wait) {
        ("sockets", Wait::Spin, _) => "polled".to_owned(),
        ("sockets", ..) => "blocking".to_owned(),
        (_, wait, Some(lanes)) if lanes != wait => format!("{}, lanes {}", wait.word(), lanes.word()),
        (_, wait, _) => wait.word().to_owned(),
    }
}

fn micros(ns: u64) -> String {
    match ns {
        0..100_000 => format!("{:.2}", ns as f64 / 1e3),
        _ => format!("{:.0}", ns as f64 / 1e3),
    }
}
