//! A run as text: warnings, tables, on request histograms, and a few sentences.
//!
//! Contract: everything that takes away from the figures stands before them, refused conditions
//! first. No table is wider than the terminal: columns are dropped by rank, and a line below the
//! table names them; if those that must stay are too wide, their cells wrap. Called by
//! [`super::text`] and `compare`.

use std::fmt::Write;
use std::str::FromStr;

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use crate::record::Run;

use super::caveats::{self, Caveat, Weight};
use super::series::Set;
use super::tables::{self, Detail, Head, NAMES, Table};
use super::{headline, histogram, units};

/// What the terminal shows.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Show a histogram of each measurement on the terminal
    #[arg(long)]
    pub histogram: bool,
    /// Columns of the tables on the terminal: `all`, or names such as p50,p99.9,lost
    /// [default: those that answer the question of the experiment]
    #[arg(long, value_name = "all|NAME,…")]
    pub columns: Option<Columns>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    All,
    Only(Vec<String>),
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !is_known(name)) {
            None => Ok(Self::Only(names)),
            Some(unknown) => Err(format!(
                "there is no column {unknown:?}; give `all`, or some of {}",
                NAMES.replace(' ', ", ")
            )),
        }
    }
}

fn is_known(name: &str) -> bool {
    NAMES.split(' ').any(|known| known == name)
}

pub(super) fn text(set: &Set<'_>, show: &Show, width: Option<usize>) -> String {
    let mut out = String::new();
    for difference in set.differences() {
        let _ = writeln!(out, "warning: {difference}");
    }
    for (label, run) in set.runs() {
        out += &head(&prefix(label), run);
    }
    let detail = match show.columns {
        None => Detail::Brief,
        Some(_) => Detail::Full,
    };
    for table in tables::of(set, detail) {
        out += &drawn(table, show.columns.as_ref(), width);
    }
    if show.histogram {
        out += &histogram::text(set, width);
    }
    for (at, sentence) in headline::sentences(set).into_iter().enumerate() {
        out += &format!("{}{sentence}\n", if at == 0 { "\nIn short:\n" } else { "" });
    }
    for (label, run) in set.runs() {
        for note in of_weight(&caveats::of(run), Weight::Note) {
            out += &format!("\n{}note: {}", prefix(label), note.text);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn prefix(label: &str) -> String {
    match label {
        "" => String::new(),
        _ => format!("{label}: "),
    }
}

fn of_weight(all: &[Caveat], weight: Weight) -> impl Iterator<Item = &Caveat> {
    all.iter().filter(move |caveat| caveat.weight == weight)
}

fn head(prefix: &str, run: &Run) -> String {
    let caveats = caveats::of(run);
    let line = |caveat: &Caveat| format!("{}: {}", caveat.weight.word(), caveat.text);
    let mut lines: Vec<String> = of_weight(&caveats, Weight::Refused).map(line).collect();
    lines.push(format!(
        "{}, {}: {}",
        run.experiment.word(),
        units::date(run.started_unix_s),
        caveats::how(&run.settings)
    ));
    let follower = run.follower.as_ref().map(|it| (it, "follower: "));
    for (machine, place) in [(&run.environment, "")].into_iter().chain(follower) {
        let text = machine.to_string();
        // Its warnings are among the caveats.
        let facts = text.lines().filter(|line| !line.starts_with("warning:"));
        lines.extend(facts.map(|line| format!("{place}{line}")));
    }
    let granted = run.conditions.iter().filter(|condition| condition.granted);
    lines.extend(granted.map(|it| format!("granted: {} ({})", it.name, it.asked)));
    lines.extend(of_weight(&caveats, Weight::Warning).map(line));
    lines.extend(run.rows.is_empty().then(|| "no figures".to_owned()));
    lines.iter().map(|line| format!("{prefix}{line}\n")).collect()
}

fn drawn(table: Table, columns: Option<&Columns>, width: Option<usize>) -> String {
    let mut out = format!("\n{}\n", table.title);
    if let Some(published) = table.published {
        let _ = writeln!(out, "(as published: {published})");
    }
    let mut shown = asked(&table, columns);
    if shown.len() == table.keys {
        return String::new();
    }
    let mut dropped = Vec::new();
    while let Some(at) = width.and_then(|width| too_wide(&table, &shown, width)) {
        dropped.insert(0, table.heads[shown.remove(at)].text.as_str());
    }
    let mut grid = comfy_table::Table::new();
    grid.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    for line in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        grid.remove_style(line);
    }
    match width {
        None => grid.set_content_arrangement(ContentArrangement::Disabled),
        Some(width) => grid
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX)),
    };
    grid.set_header(shown.iter().map(|at| &table.heads[*at].text));
    for row in &table.rows {
        grid.add_row(shown.iter().map(|at| &row[*at]));
    }
    for (column, at) in grid.column_iter_mut().zip(&shown) {
        if *at >= table.keys {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(out, "{grid}");
    if !dropped.is_empty() {
        let _ = writeln!(out, "no room for: {}", dropped.join(", "));
    }
    table.footnotes.iter().for_each(|it| out += &format!("{it}\n"));
    out
}

fn asked(table: &Table, columns: Option<&Columns>) -> Vec<usize> {
    let is_asked = |head: &Head| match columns {
        None => !head.extra,
        Some(Columns::All) => true,
        Some(Columns::Only(names)) => names.contains(&head.name) || !is_known(&head.name),
    };
    let all = 0..table.heads.len();
    all.filter(|at| is_asked(&table.heads[*at])).collect()
}

/// Which of the shown columns is dropped next, if they are too wide: the last of the highest rank.
fn too_wide(table: &Table, shown: &[usize], width: usize) -> Option<usize> {
    let wide = |at: &usize| {
        let cells = table.rows.iter().map(|row| row[*at].chars().count());
        cells
            .chain([table.heads[*at].text.chars().count()])
            .max()
            .unwrap_or(0)
            + 3
    };
    let is_too_wide = shown.iter().map(wide).sum::<usize>() > width;
    let (at, rank) = (0..shown.len())
        .map(|at| (at, table.heads[shown[at]].rank))
        .max_by_key(|(_, rank)| *rank)?;
    (is_too_wide && rank > 0).then_some(at)
}

pub(super) fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
