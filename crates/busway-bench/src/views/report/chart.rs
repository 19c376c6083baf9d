//! Figures as inline SVG with an HTML legend below.
//!
//! Contract: each figure has a title, axes with units, a legend with a sample of each line, and a
//! description for screen readers. The drawing is small (460 by 300), so that its text stays
//! legible when a phone shrinks it. Each line is an element of its own with the class of its box,
//! so that a reader can choose lines; `data-` attributes tell the page's script what a pixel means.
//! All text goes through maud, which escapes. Called by the page.

use maud::{Markup, html};

use super::axis::{Axis, Scale};
use super::palette::Style;
use crate::views::units;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
/// Edges of the plot; `script.js` knows them too.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 424.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 244.0;
/// The most labels with room below and beside the drawing.
const LABELS_ACROSS: usize = 5;
const LABELS_UP: usize = 7;
const MOST_MARKERS: usize = 20;
/// Narrower bars have no room for their numbers, in pixels.
const NUMBERED_BAR: f64 = 30.0;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub name: String,
    pub style: Style,
    /// The number of the box that chooses it; `None`: always shown.
    pub choice: Option<usize>,
    pub points: Vec<(f64, f64)>,
}

impl Line {
    fn class(&self) -> String {
        let choice = self.choice.map_or_else(String::new, |at| format!("l{at} "));
        format!("{choice}{}", self.style.class())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub title: String,
    pub published: Option<&'static str>,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    pub marked: bool,
    /// Groups of bars instead of lines: a bar for each line in each category; points are (category,
    /// height).
    pub bars: Option<Vec<&'static str>>,
    pub footnote: Option<String>,
}

impl Figure {
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            published: None,
            x,
            y,
            lines: Vec::new(),
            marked: true,
            bars: None,
            footnote: None,
        }
    }

    fn shown(&self, line: &Line) -> impl Iterator<Item = (f64, f64)> {
        let all = line.points.iter().copied();
        all.filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
    }

    pub fn draw(&self) -> Option<Markup> {
        let points = || self.lines.iter().flat_map(|line| self.shown(line));
        let x = match &self.bars {
            Some(names) => Scale::of_categories(names),
            None => self.x.scale(points().map(|at| at.0), LABELS_ACROSS)?,
        };
        let y = self.y.scale(points().map(|at| at.1), LABELS_UP)?;
        let (wide, high) = (&self.x.label, &self.y.label);
        let described = format!(
            "{}. Across: {wide}. Up: {high}. {} lines.",
            self.title,
            self.lines.len()
        );
        Some(html! {
            figure {
                figcaption {
                    strong { (self.title) }
                    @if let Some(published) = self.published { span.published { " As published: " (published) "." } }
                }
                svg.chart viewBox={"0 0 " (WIDTH) " " (HEIGHT)} role="img" aria-label=(described)
                    data-x=[self.bars.is_none().then(|| meaning(&self.x, &x))] data-y=(meaning(&self.y, &y)) {
                    title { (described) }
                    (self.mesh(&x, &y))
                    @for (at, line) in self.lines.iter().enumerate() {
                        g class={"line " (line.class())} data-name=(line.name) {
                            @match &self.bars {
                                Some(names) => (self.bars(line, at, names.len(), &y)),
                                None => (self.line(line, &x, &y)),
                            }
                        }
                    }
                }
                ul.legend {
                    @for line in self.lines.iter().filter(|line| self.shown(line).next().is_some()) {
                        li class=(line.class()) {
                            label for=[line.choice.map(|at| format!("l{at}"))] {
                                (swatch(line.style, self.bars.is_some(), self.marked)) " " span { (line.name) }
                            }
                        }
                    }
                }
                @if let Some(footnote) = &self.footnote { p.footnote { (footnote) } }
            }
        })
    }

    fn mesh(&self, x: &Scale, y: &Scale) -> Markup {
        let across = x.labels.iter().map(|(at, text)| (across(x, *at), text));
        let up: Vec<(f64, &String)> = y.labels.iter().map(|(at, text)| (up(y, *at), text)).collect();
        let (middle, centre) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        html! {
            @for (at, text) in across {
                @if self.bars.is_none() { path.grid d={"M" (px(at)) "," (TOP) "V" (BOTTOM)} {} }
                text class=(if self.bars.is_none() { "across" } else { "small" }) x=(px(at)) y=(BOTTOM + 24.0) { (text) }
            }
            @for (at, text) in up {
                path.grid d={"M" (LEFT) "," (px(at)) "H" (RIGHT)} {}
                text.up x=(LEFT - 6.0) y=(px(at + 5.0)) { (text) }
            }
            path.axis d={"M" (LEFT) "," (TOP) "V" (BOTTOM) "H" (RIGHT)} {}
            text.across x=(middle) y=(HEIGHT - 8.0) { (self.x.label) }
            text.across transform={"translate(18," (centre) ") rotate(-90)"} { (self.y.label) }
        }
    }

    fn line(&self, line: &Line, x: &Scale, y: &Scale) -> Markup {
        let place = |(px, py): (f64, f64)| (across(x, x.place(px)), up(y, y.place(py)));
        let points: Vec<(f64, f64)> = self.shown(line).map(place).collect();
        let corners: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{},{}", px(*x), px(*y)))
            .collect();
        // A line of a single point is a point.
        let is_marked = self.marked || points.len() == 1;
        let step = points.len().div_ceil(MOST_MARKERS).max(1);
        let markers = points.iter().step_by(step).filter(|_| is_marked);
        html! {
            polyline points=(corners.join(" ")) {}
            @for marker in markers.filter_map(|at| line.style.marker(*at)) { polygon points=(marker) {} }
        }
    }

    fn bars(&self, line: &Line, index: usize, categories: usize, y: &Scale) -> Markup {
        let room = (RIGHT - LEFT) / categories as f64;
        let width = room * 0.84 / self.lines.len() as f64;
        let is_numbered = width >= NUMBERED_BAR;
        html! {
            @for (category, height) in self.shown(line) {
                @let (left, top) = (LEFT + room * (category + 0.08) + width * index as f64, up(y, y.place(height)));
                rect x=(px(left)) y=(px(top)) width=(px(width * 0.9)) height=(px(BOTTOM - top)) { title { (line.name) ": " (units::digits(height)) } }
                @if is_numbered { text.small x=(px(left + width * 0.45)) y=(px(top - 3.0)) { (units::digits(height)) } }
            }
        }
    }
}

pub(super) fn swatch(style: Style, is_bar: bool, is_marked: bool) -> Markup {
    html! {
        svg.swatch viewBox="0 0 34 12" aria-hidden="true" {
            g class=(style.class()) {
                @if is_bar {
                    rect x="10" y="0" width="14" height="12" {}
                } @else {
                    polyline points="0,6 34,6" {}
                    @if let Some(marker) = style.marker((17.0, 6.0)).filter(|_| is_marked) { polygon points=(marker) {} }
                }
            }
        }
    }
}

/// What the pixels along an axis mean, for the script.
fn meaning(axis: &Axis, scale: &Scale) -> String {
    let kind = if axis.log { "log" } else { "linear" };
    format!("{} {kind} {} {}", axis.unit.word(), scale.low, scale.high)
}

fn across(scale: &Scale, at: f64) -> f64 {
    LEFT + (at - scale.low) / (scale.high - scale.low) * (RIGHT - LEFT)
}

fn up(scale: &Scale, at: f64) -> f64 {
    BOTTOM - (at - scale.low) / (scale.high - scale.low) * (BOTTOM - TOP)
}

fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
