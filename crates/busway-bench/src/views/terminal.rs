//! A run as text: what to know first, the tables, and on request a histogram of each row.
//!
//! Contract: everything that takes away from the figures stands before them, refused conditions first; the marks of rows are explained below
//! each table. Tables that are too wide are split, with the columns that say what a row is about in each part. Called by
//! [`super::text`] and `compare`.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use crate::record::Run;

use super::series::Set;
use super::tables::{self, Detail, Table};
use super::{caveats, headline, histogram, units};

/// Columns of a terminal that tables are split for.
const WIDTH: usize = 150;

/// One run, or several of the same experiment beside each other.
pub(super) fn text(set: &Set<'_>, with_histograms: bool) -> String {
    let mut out = String::new();
    for difference in set.differences() {
        let _ = writeln!(out, "warning: {difference}");
    }
    for (label, run) in set.runs() {
        out += &head(label, run);
    }
    for table in tables::of(set, Detail::Brief) {
        out += &drawn(&table);
    }
    if with_histograms {
        out += &histogram::text(set);
    }
    for (at, sentence) in headline::sentences(set).into_iter().enumerate() {
        out += &format!("{}{sentence}\n", if at == 0 { "\nIn short:\n" } else { "" });
    }
    for (label, run) in set.runs() {
        let notes = caveats::of(run)
            .into_iter()
            .filter(|caveat| caveat.weight == caveats::Weight::Note);
        notes.for_each(|note| out += &format!("\n{}note: {}", prefix(label), note.text));
    }
    out.truncate(out.trim_end().len());
    out
}

fn prefix(label: &str) -> String {
    if label.is_empty() {
        String::new()
    } else {
        format!("{label}: ")
    }
}

fn head(label: &str, run: &Run) -> String {
    let mut out = String::new();
    let refused_first = caveats::of(run);
    for caveat in refused_first
        .iter()
        .filter(|caveat| caveat.weight == caveats::Weight::Refused)
    {
        let _ = writeln!(out, "{}{}: {}", prefix(label), caveat.weight.word(), caveat.text);
    }
    let _ = writeln!(
        out,
        "{}{}, {}: {}",
        prefix(label),
        run.experiment.word(),
        units::date(run.started_unix_s),
        caveats::how(&run.settings)
    );
    for (machine, place) in [
        (Some(&run.environment), ""),
        (run.follower.as_ref(), "follower: "),
    ] {
        let said = machine.map(ToString::to_string).unwrap_or_default();
        // Its warnings are among the caveats.
        for line in said.lines().filter(|line| !line.starts_with("warning:")) {
            let _ = writeln!(out, "{}{place}{line}", prefix(label));
        }
    }
    for condition in run.conditions.iter().filter(|condition| condition.granted) {
        let _ = writeln!(
            out,
            "{}granted: {} ({})",
            prefix(label),
            condition.name,
            condition.asked
        );
    }
    for caveat in refused_first
        .iter()
        .filter(|caveat| caveat.weight == caveats::Weight::Warning)
    {
        let _ = writeln!(out, "{}warning: {}", prefix(label), caveat.text);
    }
    if run.rows.is_empty() {
        let _ = writeln!(out, "{}no figures", prefix(label));
    }
    out
}

fn drawn(table: &Table) -> String {
    let mut out = format!("\n{}\n", table.title);
    if let Some(published) = table.published {
        let _ = writeln!(out, "(as published: {published})");
    }
    for columns in parts(table) {
        let mut grid = comfy_table::Table::new();
        grid.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        grid.remove_style(TableComponent::HorizontalLines);
        grid.remove_style(TableComponent::MiddleIntersections);
        grid.remove_style(TableComponent::LeftBorderIntersections);
        grid.remove_style(TableComponent::RightBorderIntersections);
        grid.set_content_arrangement(ContentArrangement::Disabled);
        let of = |cells: &[String]| -> Vec<String> { columns.iter().map(|at| cells[*at].clone()).collect() };
        grid.set_header(of(&table.heads));
        table.rows.iter().for_each(|row| {
            grid.add_row(of(row));
        });
        for (column, at) in grid.column_iter_mut().zip(&columns) {
            if *at >= table.keys {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let _ = writeln!(out, "{grid}");
    }
    for footnote in &table.footnotes {
        let _ = writeln!(out, "{footnote}");
    }
    out
}

/// Which columns go into each part, so that none is wider than the terminal unless a single column is.
fn parts(table: &Table) -> Vec<Vec<usize>> {
    let width = |at: usize| {
        let cells = table.rows.iter().map(|row| row[at].chars().count());
        cells.chain([table.heads[at].chars().count()]).max().unwrap_or(0) + 3
    };
    let keys: Vec<usize> = (0..table.keys).collect();
    let taken: usize = keys.iter().map(|at| width(*at)).sum();
    let mut parts = vec![keys.clone()];
    let mut used = taken;
    for at in table.keys..table.heads.len() {
        let last = parts.last_mut().expect("there is always a part");
        if used + width(at) > WIDTH && last.len() > keys.len() {
            parts.push([keys.as_slice(), &[at]].concat());
            used = taken + width(at);
        } else {
            last.push(at);
            used += width(at);
        }
    }
    parts
}
