//! Blocks of figures, and how a figure gets the points of its lines.

use maud::{Markup, html};

use crate::record::Row;
use crate::views::report::chart::{Figure, Line};
use crate::views::report::lines::{self, Choice, SHOWN};
use crate::views::report::palette::Style;
use crate::views::series::{CROWDED, Series, marked};

pub(in crate::views::report) struct Block {
    /// Heading; readers click it where the block is folded.
    pub heading: String,
    pub figures: Vec<Figure>,
    pub folded: bool,
}

pub(super) fn fill(
    lines: &[Choice<'_>],
    figure: Figure,
    points: impl Fn(&Series<'_>) -> Vec<(f64, f64)>,
) -> Figure {
    let series = lines.iter().enumerate().map(|(at, line)| {
        let name = line.series.name.clone();
        (&line.series, name, line.style, Some(at))
    });
    filled(series, figure, points)
}

/// The same of the lines that the RDMA paper compares, which are always shown; `None` where those
/// are all lines.
pub(super) fn paper(
    lines: &[Choice<'_>],
    figure: Figure,
    points: impl Fn(&Series<'_>) -> Vec<(f64, f64)>,
) -> Option<Figure> {
    let compared = lines::paper(lines);
    if lines.len() <= SHOWN || compared.is_empty() {
        return None;
    }
    let title = format!("{}: one-sided, two-sided, sockets", figure.title);
    let series = compared.into_iter().enumerate().map(|(at, (kind, series))| {
        let name = format!("{} ({kind})", series.name);
        (series, name, Style::Line(at), None)
    });
    Some(filled(series, Figure { title, ..figure }, points))
}

fn filled<'a, 's: 'a>(
    series: impl Iterator<Item = (&'a Series<'s>, String, Style, Option<usize>)>,
    mut figure: Figure,
    points: impl Fn(&Series<'_>) -> Vec<(f64, f64)>,
) -> Figure {
    for (series, name, style, choice) in series {
        let points = points(series);
        if points.is_empty() {
            continue;
        }
        let crowded = series.rows.iter().find(|row| row.crowded);
        if crowded.is_some() {
            figure.footnote = Some(CROWDED.to_owned());
        }
        let row = crowded.unwrap_or(&series.rows[0]);
        figure.lines.push(Line {
            name: marked(&name, row),
            style,
            choice,
            points,
        });
    }
    figure
}

pub(super) fn sweep(series: &Series<'_>, at: impl Fn(&Row) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = series.rows.iter().filter_map(|row| at(row)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

pub(super) fn sized(row: &Row, figure: Option<f64>) -> Option<(f64, f64)> {
    Some((row.payload_bytes as f64, figure?))
}

impl Block {
    pub fn open(heading: impl Into<String>, figures: Vec<Figure>) -> Self {
        Self {
            heading: heading.into(),
            figures,
            folded: false,
        }
    }

    pub fn draw(&self) -> Markup {
        let drawn: Vec<Markup> = self.figures.iter().filter_map(Figure::draw).collect();
        let grid = html! { div.figures { @for figure in &drawn { (figure) } } };
        html! {
            @if drawn.is_empty() {
            } @else if self.folded {
                details { summary { h3 { (self.heading) } } (grid) }
            } @else {
                section { h3 { (self.heading) } (grid) }
            }
        }
    }
}
