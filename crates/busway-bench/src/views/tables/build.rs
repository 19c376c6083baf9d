//! What a table consists of, and how its rows and columns are made from the rows of a run.
//!
//! Contract: no table has an empty column or row; key columns come first. Called by the tables of
//! each experiment.

use crate::record::{Distribution, Ratio, Row};
use crate::views::series::{CROWDED, Entry, OFF_PACE, Series, Set, marked};
use crate::views::units;

#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::views) struct Table {
    pub title: String,
    pub published: Option<&'static str>,
    pub heads: Vec<Head>,
    /// How many columns at the left say what the row is about.
    pub keys: usize,
    pub rows: Vec<Vec<String>>,
    pub footnotes: Vec<String>,
}

/// The heading of a column, and when it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::views) struct Head {
    pub text: String,
    /// The word for `--columns`; empty for keys and sizes, which are no matter of choice.
    pub name: String,
    /// Narrow terminals drop the column with the highest rank first.
    pub rank: u32,
    /// Shown by `--columns` and in the report page only.
    pub extra: bool,
}

/// What `--columns` knows beside `all`.
pub(in crate::views) const NAMES: &str = "samples min mean p50 p90 p99 p99.9 p99.99 max ratio floor tunnel run-ratio rate messages/s \
    lost lost-% corrupt received sent-p50 sent-mean sent-p99 sent-max seen-p50 seen-mean \
    seen-p99 seen-max seen/sent not-seen-% saved send recv usr+sys gateway host-usr host-sys \
    host-irq pkt-out/msg pkt-in/msg write read clock";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::views) enum Detail {
    /// What answers the question of the experiment: of a long sweep its ends and its middle.
    Brief,
    Full,
}

/// More sizes are a long sweep.
pub(super) const SHORT_SWEEP: usize = 3;

/// The sizes that get a table each.
pub(super) fn sizes(set: &Set<'_>, detail: Detail) -> Vec<u64> {
    let all = set.sizes();
    if detail == Detail::Full || all.len() <= SHORT_SWEEP {
        return all;
    }
    [0, all.len() / 2, all.len() - 1].map(|at| all[at]).to_vec()
}

pub(super) type Cell<'a> = Box<dyn Fn(&Row) -> Option<String> + 'a>;

pub(super) struct Column<'a> {
    pub head: Head,
    pub cell: Cell<'a>,
}

impl Column<'_> {
    pub fn extra(mut self) -> Self {
        self.head.extra = true;
        self
    }
}

pub(super) fn column<'a>(
    rank: u32,
    text: impl Into<String>,
    cell: impl Fn(&Row) -> Option<String> + 'a,
) -> Column<'a> {
    let text = text.into();
    let head = Head {
        name: text.replace(' ', "-"),
        text,
        rank,
        extra: false,
    };
    Column {
        head,
        cell: Box::new(cell),
    }
}

pub(super) fn distribution_columns<'a>(
    of: impl Fn(&Row) -> Option<Distribution> + Copy + 'a,
) -> Vec<Column<'a>> {
    let time = |rank, head: &'static str, pick: fn(&Distribution) -> f64| {
        column(rank, head, move |row: &Row| {
            of(row).map(|it| units::micros(pick(&it)))
        })
    };
    let samples = move |row: &Row| of(row).map(|it| units::grouped(it.samples as f64));
    vec![
        column(9, "samples", samples).extra(),
        time(5, "min", |it| it.min as f64).extra(),
        time(4, "mean", |it| it.mean),
        time(0, "p50", |it| it.p50 as f64),
        time(6, "p90", |it| it.p90 as f64).extra(),
        time(1, "p99", |it| it.p99 as f64),
        time(7, "p99.9", |it| it.p99_9 as f64).extra(),
        time(8, "p99.99", |it| it.p99_99 as f64).extra(),
        time(2, "max", |it| it.max as f64),
    ]
}

pub(super) fn fault_columns<'a>() -> [Column<'a>; 2] {
    let count = |of: u64| (of > 0).then(|| units::grouped(of as f64));
    [
        column(1, "lost", move |row: &Row| count(row.lost)),
        column(0, "corrupt", move |row: &Row| count(row.corrupt)),
    ]
}

/// The size of the messages, where rows of several stand together.
pub(super) fn payload_column<'a>() -> Column<'a> {
    column(0, "payload", |row: &Row| Some(units::size(row.payload_bytes)))
}

type Cells = (Head, Vec<String>);

/// A table of columns, without those that are empty.
fn table(title: impl Into<String>, keys: usize, columns: Vec<Cells>, rows: usize) -> Table {
    let is_full = |(_, cells): &Cells| cells.iter().any(|cell| !cell.is_empty());
    let keys = columns[..keys].iter().filter(|it| is_full(it)).count();
    let columns: Vec<Cells> = columns.into_iter().filter(is_full).collect();
    let row = |at: usize| columns.iter().map(|(_, cells)| cells[at].clone()).collect();
    let rows = (0..rows).map(row).collect::<Vec<Vec<String>>>().into_iter();
    let has_figures = |row: &Vec<String>| row.iter().skip(keys).any(|cell| !cell.is_empty());
    Table {
        title: title.into(),
        keys,
        rows: rows.filter(|row| keys == row.len() || has_figures(row)).collect(),
        heads: columns.into_iter().map(|(head, _)| head).collect(),
        ..Table::default()
    }
}

pub(in crate::views) fn plain<const N: usize>(
    title: impl Into<String>,
    heads: [&str; N],
    keys: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> Table {
    let rows: Vec<[String; N]> = rows.collect();
    let cells = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
    let columns = heads.iter().enumerate().map(|(at, head)| (key(head), cells(at)));
    table(title, keys, columns.collect(), rows.len())
}

fn key(text: &str) -> Head {
    Head {
        text: text.to_owned(),
        ..Head::default()
    }
}

pub(super) fn listing<'a>(
    set: &Set<'_>,
    title: impl Into<String>,
    entries: &[Entry<'_>],
    columns: impl IntoIterator<Item = Column<'a>>,
) -> Table {
    let mut all = whose(entries);
    let keys = all.len();
    all.extend(columns.into_iter().map(|it| {
        let cells = entries.iter().map(|entry| (it.cell)(entry.row));
        (it.head, cells.map(Option::unwrap_or_default).collect())
    }));
    all.extend(ratios(set, entries));
    Table {
        footnotes: footnotes(entries.iter().map(|entry| entry.row)),
        ..table(title, keys, all, entries.len())
    }
}

fn whose(entries: &[Entry<'_>]) -> Vec<Cells> {
    type Word = fn(&Entry<'_>) -> String;
    let columns: [(&str, Word); 4] = [
        ("technology", |entry| marked(&entry.row.technology, entry.row)),
        ("wait", |entry| entry.row.wait.clone()),
        ("mode", |entry| entry.row.mode.clone().unwrap_or_default()),
        ("run", |entry| entry.label.to_owned()),
    ];
    let columns = columns.into_iter();
    columns
        .map(|(head, of)| (key(head), entries.iter().map(of).collect()))
        .collect()
}

fn ratios(set: &Set<'_>, entries: &[Entry<'_>]) -> Vec<Cells> {
    type Compared = fn(&Row) -> Option<&Ratio>;
    let compared: [(&str, &str, Compared); 3] = [
        ("ratio", set.baseline().unwrap_or("baseline"), |row| {
            row.ratio.as_ref()
        }),
        ("floor", "floor", |row| row.ratio_to_floor.as_ref()),
        ("tunnel", "tunnel", |row| row.ratio_to_tunnel.as_ref()),
    ];
    let head = |name: &str, text: String| Head {
        text,
        name: name.to_owned(),
        rank: 3,
        extra: false,
    };
    let mut all: Vec<Cells> = compared
        .into_iter()
        .map(|(name, with, of)| {
            let cells = entries.iter().map(|entry| of(entry.row).map(ratio));
            let cells = cells.map(Option::unwrap_or_default).collect();
            (head(name, format!("× {with} (95 %)")), cells)
        })
        .collect();
    let to_first = entries.iter().map(|entry| {
        let ratio = set.ratio_to_first_run(entry);
        ratio.map(|value| format!("{value:.3}")).unwrap_or_default()
    });
    let first = set.runs().next().map_or("", |(label, _)| label);
    all.push((head("run-ratio", format!("× {first}")), to_first.collect()));
    all
}

pub(super) fn matrix<S: Copy>(
    set: &Set<'_>,
    title: impl Into<String>,
    steps: &[(S, String)],
    cell: impl Fn(&Row, S) -> Option<String>,
) -> Table {
    let series = set.series();
    let entries: Vec<Entry<'_>> = series.iter().map(|it| set.entry(it)).collect();
    let mut all = whose(&entries);
    let keys = all.len();
    all.extend(steps.iter().enumerate().map(|(at, (step, text))| {
        let is_end = at == 0 || at + 1 == steps.len();
        let head = Head {
            rank: if is_end { 0 } else { 33 - at.trailing_zeros() },
            ..key(text)
        };
        let of = |it: &Series<'_>| it.rows.iter().find_map(|row| cell(row, *step));
        (head, series.iter().map(|it| of(it).unwrap_or_default()).collect())
    }));
    Table {
        footnotes: footnotes(series.iter().flat_map(|it| it.rows.iter().copied())),
        ..table(title, keys, all, series.len())
    }
}

pub(super) fn size_steps(set: &Set<'_>, word: impl Fn(u64) -> String) -> Vec<(u64, String)> {
    let step = |bytes: u64| (bytes, word(bytes));
    set.sizes().into_iter().map(step).collect()
}

pub(super) fn footnotes<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let (mut crowded, mut off_pace) = (false, false);
    for row in rows {
        crowded |= row.crowded;
        off_pace |= row.off_pace;
    }
    let notes = [(crowded, CROWDED), (off_pace, OFF_PACE)].into_iter();
    notes
        .filter(|(is, _)| *is)
        .map(|(_, note)| note.to_owned())
        .collect()
}

fn ratio(ratio: &Ratio) -> String {
    let value = units::digits(ratio.value);
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            format!("{value} ({} to {})", units::digits(low), units::digits(high))
        }
        _ => value,
    }
}

pub(super) fn percent(value: f64) -> String {
    format!("{value:.2}")
}
