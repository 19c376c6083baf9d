//! Figures as inline SVG with an HTML legend below.
//!
//! Contract: each figure has a title, axes with units, a legend with a sample of each line, and a description for screen readers. The drawing is small
//! (460 by 300), so that its text stays legible when a phone shrinks it. Text goes through maud or the SVG writer, which both
//! escape. Called by the page.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, Scale};
use super::palette::{self, Style};
use crate::views::units;

const WIDTH: u32 = 460;
const HEIGHT: u32 = 300;
/// Pixels of text.
const TEXT_PX: i32 = 17;
/// So many labels have room below and beside the drawing.
const LABELS_ACROSS: usize = 5;
const LABELS_UP: usize = 7;
/// More markers on a line hide it.
const MOST_MARKERS: usize = 20;
/// Pixels of text for numbers at bars.
const SMALL_PX: i32 = 13;
/// So many bars have room for their numbers.
const MOST_NUMBERED_BARS: usize = 16;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub name: String,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
    /// Whether each point is marked.
    pub marked: bool,
}

/// Groups of bars: one bar for each line in each category; its points are (category, height).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Categories(pub Vec<&'static str>);

/// A figure before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub title: String,
    /// Which published figure or table it corresponds to.
    pub published: Option<&'static str>,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Bars instead of lines.
    pub bars: Option<Categories>,
    /// Below the legend.
    pub footnote: Option<String>,
}

/// The ranges of figures that are beside each other, so that they can be compared by eye.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    x: Option<Scale>,
    y: Option<Scale>,
}

impl Ranges {
    /// Of all figures, which have the same axes.
    pub fn of(figures: &[Figure]) -> Option<Self> {
        let first = figures.first()?;
        let shown = || figures.iter().flat_map(Figure::points);
        Some(Self {
            x: first.x.scale(shown().map(|at| at.0), LABELS_ACROSS),
            y: first.y.scale(shown().map(|at| at.1), LABELS_UP),
        })
    }
}

impl Figure {
    /// Points that have a place on both axes.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| self.shown(line))
    }

    fn shown(&self, line: &Line) -> impl Iterator<Item = (f64, f64)> {
        line.points
            .iter()
            .copied()
            .filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
    }

    /// The figure with its caption and legend; nothing if it has no point to show.
    pub fn draw(&self, ranges: &Ranges) -> Markup {
        let (Some(x), Some(y)) = (&ranges.x, &ranges.y) else {
            return html! {};
        };
        if self.points().next().is_none() {
            return html! {};
        }
        let mut svg = String::new();
        let drawn = {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            match &self.bars {
                Some(categories) => self.draw_bars(&root, y, categories),
                None => self.draw_lines(&root, x, y),
            }
            .and_then(|()| root.present())
        };
        let inner = svg
            .find("<svg")
            .and_then(|at| Some(&svg[at + svg[at..].find('>')? + 1..]));
        html! {
            figure {
                figcaption {
                    strong { (self.title) }
                    @if let Some(published) = self.published { span.published { " As published: " (published) "." } }
                }
                @match (drawn, inner) {
                    (Ok(()), Some(inner)) => {
                        svg.chart viewBox={"0 0 " (WIDTH) " " (HEIGHT)} role="img" aria-label=(self.described()) {
                            title { (self.described()) }
                            // What plotters wrote; it escapes text, and all of it is ours.
                            (PreEscaped(inner.replacen("</svg>", "", 1)))
                        }
                    }
                    (Err(error), _) => p.warning { "This figure cannot be drawn: " (error) },
                    (_, None) => p.warning { "This figure cannot be drawn." },
                }
                ul.legend {
                    @for line in self.lines.iter().filter(|line| self.shown(line).next().is_some()) {
                        li { (self.swatch(line)) " " (line.name) }
                    }
                }
                @if let Some(footnote) = &self.footnote { p.footnote { (footnote) } }
            }
        }
    }

    fn described(&self) -> String {
        format!(
            "{}. Across: {}. Up: {}. {} lines.",
            self.title,
            self.x.label,
            self.y.label,
            self.lines.len()
        )
    }

    /// A sample of a line for the legend.
    fn swatch(&self, line: &Line) -> Markup {
        let colour = line.style.attribute();
        let corners: Vec<String> = line
            .style
            .marker()
            .iter()
            .map(|(x, y)| format!("{},{}", x + 17, y + 6))
            .collect();
        html! {
            svg.swatch viewBox="0 0 34 12" aria-hidden="true" {
                @if self.bars.is_some() {
                    rect x="10" y="0" width="14" height="12" fill=(colour) {}
                } @else {
                    polyline fill="none" stroke=(colour) stroke-width="2" points="0,6 34,6" {}
                    @if line.marked { polygon fill=(colour) points=(corners.join(" ")) {} }
                }
            }
        }
    }

    fn draw_lines(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        x: &Scale,
        y: &Scale,
    ) -> Result<(), Failure> {
        let mut chart = builder(root).build_cartesian_2d(Bound(x.clone()), Bound(y.clone()))?;
        self.mesh(&mut chart, true)?;
        for line in &self.lines {
            let points: Vec<(f64, f64)> = self
                .shown(line)
                .map(|(px, py)| (x.place(px), y.place(py)))
                .collect();
            let colour = line.style.colour();
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            // A line of a single point is a point.
            if line.marked || points.len() == 1 {
                let marker = |at: &(f64, f64)| {
                    EmptyElement::at(*at) + Polygon::new(line.style.marker().to_vec(), colour.filled())
                };
                let step = points.len().div_ceil(MOST_MARKERS).max(1);
                chart.draw_series(points.iter().step_by(step).map(marker))?;
            }
        }
        Ok(())
    }

    fn draw_bars(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        y: &Scale,
        categories: &Categories,
    ) -> Result<(), Failure> {
        let count = categories.0.len();
        let x = Scale::of_categories(&categories.0);
        let mut chart = builder(root).build_cartesian_2d(Bound(x), Bound(y.clone()))?;
        self.mesh(&mut chart, false)?;
        let width = 0.84 / self.lines.len().max(1) as f64;
        for (index, line) in self.lines.iter().enumerate() {
            let left = |category: f64| category + 0.08 + width * index as f64;
            let bar = |(category, height): (f64, f64)| {
                let corners = [
                    (left(category), y.low),
                    (left(category) + width * 0.9, y.place(height)),
                ];
                Rectangle::new(corners, line.style.colour().filled())
            };
            chart.draw_series(self.shown(line).map(bar))?;
            if count * self.lines.len() <= MOST_NUMBERED_BARS {
                let centre = HPos::Center;
                let small = ("sans-serif", SMALL_PX).into_font().color(&palette::text());
                let small = small.pos(Pos::new(centre, VPos::Bottom));
                let number = |(category, height): (f64, f64)| {
                    let place = (left(category) + width * 0.45, y.place(height));
                    Text::new(units::digits(height), place, small.clone())
                };
                chart.draw_series(self.shown(line).map(number))?;
            }
        }
        Ok(())
    }

    /// Axes with their labels, and the grid.
    fn mesh(&self, chart: &mut Chart<'_, '_>, upright: bool) -> Result<(), Failure> {
        let mut mesh = chart.configure_mesh();
        if !upright {
            mesh.disable_x_mesh();
        }
        mesh.x_desc(&self.x.label).y_desc(&self.y.label);
        mesh.bold_line_style(palette::grid())
            .light_line_style(TRANSPARENT)
            .axis_style(palette::axis());
        mesh.label_style(font()).axis_desc_style(font()).draw()
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Bound, Bound>>;
type Failure = DrawingAreaErrorKind<std::io::Error>;

fn builder<'a, 'b>(root: &'a DrawingArea<SVGBackend<'b>, Shift>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .margin(6)
        .margin_right(36)
        .margin_top(10)
        .x_label_area_size(50)
        .y_label_area_size(96);
    builder
}

fn font() -> TextStyle<'static> {
    ("sans-serif", TEXT_PX).into_font().color(&palette::text())
}

/// A [`Scale`] as plotters sees it.
#[derive(Clone)]
struct Bound(Scale);

impl Ranged for Bound {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.0.low) / (self.0.high - self.0.low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.0.labels.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.low..self.0.high
    }
}

impl ValueFormatter<f64> for Bound {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        let nearest = |label: &&(f64, String)| (label.0 - value).abs();
        let label = self
            .0
            .labels
            .iter()
            .min_by(|a, b| nearest(a).total_cmp(&nearest(b)));
        label.map_or_else(String::new, |(_, says)| says.clone())
    }
}
