//! The tables of each experiment, made once for the terminal and for the report.
//!
//! Contract: [`of`] gives every table that the experiment's readers look for, of one run or of several beside each other; text columns
//! come first and are aligned left, figures are aligned right, a column without any figure is left out. [`Table::published`] names the
//! published table that one repeats. Called by the terminal view and the report.

mod intervals;
mod latency;
mod others;
mod throughput;

use crate::record::{Experiment, Ratio, Row};

use super::series::{CROWDED, CROWDED_MARK, Entry, Series, Set};
use super::units;

/// A table before it is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub title: String,
    /// Which published table it repeats.
    pub published: Option<&'static str>,
    pub heads: Vec<String>,
    /// How many columns at the left say what the row is about.
    pub keys: usize,
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub footnotes: Vec<String>,
}

/// How much of a long sweep is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Powers of two among the sizes of a long sweep.
    Brief,
    /// All that was measured.
    Full,
}

/// All tables of runs of one experiment.
pub(super) fn of(set: &Set<'_>, detail: Detail) -> Vec<Table> {
    let mut tables = match set.experiment() {
        Experiment::Latency => latency::tables(set),
        Experiment::Throughput => throughput::throughput(set, detail),
        Experiment::Stream => throughput::stream(set),
        Experiment::Interference => intervals::interference(set),
        Experiment::Timeliness => intervals::timeliness(set),
        Experiment::Jitter => others::jitter(set, detail),
        Experiment::Gateway => others::gateway(set),
        Experiment::Calls => others::calls(set),
        Experiment::SelfTest => others::self_test(set),
    };
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// The figure of a row, in words.
type Figure<'a> = Box<dyn Fn(&Row) -> Option<String> + 'a>;

/// A column of figures.
struct Column<'a> {
    head: String,
    cell: Figure<'a>,
}

fn column<'a>(head: impl Into<String>, cell: impl Fn(&Row) -> Option<String> + 'a) -> Column<'a> {
    Column {
        head: head.into(),
        cell: Box::new(cell),
    }
}

/// Times of a distribution, in µs.
fn distribution_columns<'a>(
    of: impl Fn(&Row) -> Option<crate::record::Distribution> + Copy + 'a,
) -> Vec<Column<'a>> {
    let time = |head: &'static str, pick: fn(&crate::record::Distribution) -> f64| {
        column(head, move |row: &Row| of(row).map(|it| units::micros(pick(&it))))
    };
    vec![
        column("samples", move |row: &Row| {
            of(row).map(|it| units::grouped(it.samples as f64))
        }),
        time("min", |it| it.min as f64),
        time("mean", |it| it.mean),
        time("p50", |it| it.p50 as f64),
        time("p90", |it| it.p90 as f64),
        time("p99", |it| it.p99 as f64),
        time("p99.9", |it| it.p99_9 as f64),
        time("p99.99", |it| it.p99_99 as f64),
        time("max", |it| it.max as f64),
    ]
}

/// What went wrong, where anything did.
fn fault_columns<'a>() -> Vec<Column<'a>> {
    let count = |of: u64| (of > 0).then(|| units::grouped(of as f64));
    vec![
        column("lost", move |row: &Row| count(row.lost)),
        column("corrupt", move |row: &Row| count(row.corrupt)),
    ]
}

/// A heading and a cell for each row.
type Cells = (String, Vec<String>);

/// A line for each row: who it is, the columns that have figures, and ratios.
fn listing(
    set: &Set<'_>,
    title: impl Into<String>,
    entries: &[Entry<'_>],
    columns: Vec<Column<'_>>,
) -> Table {
    let keys = whose(entries);
    let mut figures: Vec<Cells> = columns
        .into_iter()
        .map(|it| {
            let cells = entries
                .iter()
                .map(|entry| (it.cell)(entry.row).unwrap_or_default());
            (it.head, cells.collect())
        })
        .collect();
    figures.extend(ratios(set, entries));
    figures.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let all = || keys.iter().chain(&figures);
    let rows = (0..entries.len()).map(|index| all().map(|(_, cells)| cells[index].clone()).collect());
    Table {
        title: title.into(),
        published: None,
        keys: keys.len(),
        rows: rows.collect(),
        footnotes: footnotes(entries.iter().map(|entry| entry.row)),
        heads: all().map(|(head, _)| head.clone()).collect(),
    }
}

/// The columns that say what a row is about.
fn whose(entries: &[Entry<'_>]) -> Vec<Cells> {
    type Said = fn(&Entry<'_>) -> String;
    let columns: [(&str, Said); 4] = [
        ("technology", |entry| marked(&entry.row.technology, entry.row)),
        ("wait", |entry| entry.row.wait.clone()),
        ("mode", |entry| entry.row.mode.clone().unwrap_or_default()),
        ("run", |entry| entry.label.to_owned()),
    ];
    columns
        .into_iter()
        .map(|(head, of)| (head.to_owned(), entries.iter().map(of).collect::<Vec<_>>()))
        .filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()))
        .collect()
}

/// What rows are compared with: technologies of the same run, and the first run.
fn ratios(set: &Set<'_>, entries: &[Entry<'_>]) -> Vec<Cells> {
    type Compared = fn(&Row) -> Option<&Ratio>;
    let compared: [(&str, Compared); 3] = [
        (set.baseline().unwrap_or("baseline"), |row| row.ratio.as_ref()),
        ("floor", |row| row.ratio_to_floor.as_ref()),
        ("tunnel", |row| row.ratio_to_tunnel.as_ref()),
    ];
    let mut all: Vec<Cells> = compared
        .into_iter()
        .map(|(with, of)| {
            let cells = entries
                .iter()
                .map(|entry| of(entry.row).map(ratio).unwrap_or_default());
            (format!("× {with} (95 %)"), cells.collect())
        })
        .collect();
    let to_first = entries.iter().map(|entry| {
        let ratio = set.ratio_to_first_run(entry);
        ratio.map(|value| format!("{value:.3}")).unwrap_or_default()
    });
    let first = set.runs().next().map_or("", |(label, _)| label);
    all.push((format!("× {first}"), to_first.collect()));
    all
}

/// A line for each size, a column for each series.
fn by_size(
    set: &Set<'_>,
    title: impl Into<String>,
    (corner, size): (&str, impl Fn(u64) -> String),
    sizes: &[u64],
    cell: impl Fn(&Row) -> Option<String>,
) -> Table {
    let series: Vec<Series<'_>> = set
        .series()
        .into_iter()
        .filter(|it| {
            it.rows
                .iter()
                .any(|row| sizes.contains(&row.payload_bytes) && cell(row).is_some())
        })
        .collect();
    let rows = sizes.iter().map(|bytes| {
        let cells = series.iter().map(|it| {
            let found = it.rows.iter().find(|row| row.payload_bytes == *bytes);
            found
                .and_then(|row| Some(marked(&cell(row)?, row)))
                .unwrap_or_default()
        });
        [size(*bytes)].into_iter().chain(cells).collect::<Vec<_>>()
    });
    Table {
        title: title.into(),
        published: None,
        keys: 1,
        rows: rows
            .filter(|row| row[1..].iter().any(|cell| !cell.is_empty()))
            .collect(),
        footnotes: footnotes(series.iter().flat_map(|it| it.rows.iter().copied())),
        heads: [corner.to_owned()]
            .into_iter()
            .chain(series.iter().map(|it| it.name.clone()))
            .collect(),
    }
}

fn marked(text: &str, row: &Row) -> String {
    if row.crowded {
        format!("{text} {CROWDED_MARK}")
    } else {
        text.to_owned()
    }
}

fn footnotes<'a>(mut rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    if rows.any(|row| row.crowded) {
        vec![CROWDED.to_owned()]
    } else {
        Vec::new()
    }
}

/// A ratio and its interval.
fn ratio(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            format!(
                "{} ({} to {})",
                units::digits(ratio.value),
                units::digits(low),
                units::digits(high)
            )
        }
        _ => units::digits(ratio.value),
    }
}

fn percent(value: f64) -> String {
    format!("{value:.2}")
}
