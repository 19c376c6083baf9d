//! Which figures an experiment has.
//!
//! Contract: each published figure that the experiment repeats is among them and is named. A figure has at most eight lines: more are spread over
//! figures beside each other with the same axes, split into what stays on a host, networks, and Busway. A technology has the same colour in all
//! figures of a report. Called by the page.

mod intervals;
mod latency;
mod throughput;

use busway_transport::registry::is_one_sided;
use maud::{Markup, html};

use super::chart::{Figure, Line, Ranges};
use super::palette::{STYLES, Style};
use crate::record::{Experiment, Row};
use crate::views::series::{CROWDED, CROWDED_MARK, Series, Set};

/// Figures about one thing, drawn beside each other with the same axes.
pub(super) struct Block {
    /// Heading; those of blocks that are folded are what is clicked.
    pub heading: String,
    pub figures: Vec<Vec<Figure>>,
    pub folded: bool,
}

/// All figures of runs of one experiment.
pub(super) fn of(set: &Set<'_>) -> Vec<Block> {
    let crews = crews(set);
    match set.experiment() {
        Experiment::Latency => latency::blocks(set, &crews),
        Experiment::Throughput => throughput::blocks(set, &crews),
        Experiment::Stream => throughput::stream(set, &crews),
        Experiment::Interference => intervals::interference(set, &crews),
        Experiment::Timeliness => intervals::timeliness(set, &crews),
        Experiment::Jitter => latency::jitter(set, &crews),
        Experiment::Gateway => [latency::sweeps(&crews), throughput::sweeps(&crews)].concat_blocks(),
        Experiment::Calls => throughput::calls(set, &crews),
        Experiment::SelfTest => latency::distributions(set, &crews),
    }
}

trait ConcatBlocks {
    fn concat_blocks(self) -> Vec<Block>;
}

impl<const N: usize> ConcatBlocks for [Vec<Block>; N] {
    fn concat_blocks(self) -> Vec<Block> {
        self.into_iter().flatten().collect()
    }
}

/// Lines that are drawn into one figure.
pub(super) struct Crew<'a> {
    /// What they have in common, if there are several crews.
    name: String,
    series: Vec<(Style, Series<'a>)>,
}

fn crews<'a>(set: &Set<'a>) -> Vec<Crew<'a>> {
    let series = set.series();
    if series.len() <= STYLES {
        return vec![crew(String::new(), series)];
    }
    let mut groups: [(&str, Vec<Series<'a>>); 3] = [
        ("inside a host", Vec::new()),
        ("networks", Vec::new()),
        ("Busway", Vec::new()),
    ];
    for one in series {
        groups[group(one.key.technology)].1.push(one);
    }
    let mut crews = Vec::new();
    for (name, mut all) in groups {
        let parts = all.len().div_ceil(STYLES);
        let size = all.len().div_ceil(parts.max(1));
        for part in 1..=parts {
            let rest = all.split_off(size.min(all.len()));
            let name = if parts > 1 {
                format!("{name} ({part} of {parts})")
            } else {
                name.to_owned()
            };
            crews.push(crew(name, std::mem::replace(&mut all, rest)));
        }
    }
    crews
}

/// The lines of the RDMA paper's figures in one crew: sampling ports one-sided, sampling ports two-sided, and sockets, each in the first way of waiting
/// that was measured. `None` where one figure holds all lines anyway, or fewer than two of these were measured.
fn paper_crew<'a>(set: &Set<'a>) -> Option<Crew<'a>> {
    let all = set.series();
    if all.len() <= STYLES {
        return None;
    }
    let mut chosen: Vec<Series<'a>> = Vec::new();
    for mut one in all {
        let Some(kind) = paper_kind(one.key.technology) else {
            continue;
        };
        let is_another = chosen
            .iter()
            .all(|it| (it.key.run, it.key.technology) != (one.key.run, one.key.technology));
        if is_another && chosen.len() < STYLES {
            one.name = format!("{} ({kind})", one.name);
            chosen.push(one);
        }
    }
    (chosen.len() > 1).then(|| crew("one-sided, two-sided, sockets".to_owned(), chosen))
}

/// What a technology is in the words of the RDMA paper.
fn paper_kind(technology: &str) -> Option<&'static str> {
    if technology == "tcp" {
        return Some("sockets");
    }
    let bus = technology.strip_prefix("sampling-")?;
    Some(if is_one_sided(bus) {
        "one-sided"
    } else {
        "two-sided"
    })
}

fn crew(name: String, series: Vec<Series<'_>>) -> Crew<'_> {
    let styled = series
        .into_iter()
        .enumerate()
        .map(|(at, one)| (Style::Line(at), one));
    Crew {
        name,
        series: styled.collect(),
    }
}

/// What stays on a host, a network, or Busway.
fn group(technology: &str) -> usize {
    let begins = |words: &[&str]| words.iter().any(|word| technology.starts_with(word));
    if begins(&["sampling", "queuing", "channel", "gateway", "busway"]) {
        2
    } else if begins(&[
        "tcp", "udp", "tipc", "rdma", "zenoh", "bare-tcp", "tunnel", "sockets",
    ]) {
        1
    } else {
        0
    }
}

/// The same figure of each crew; those without lines are left out.
fn for_each_crew<'a: 'c, 'c>(
    crews: impl IntoIterator<Item = &'c Crew<'a>>,
    of_figure: &Figure,
    points: impl Fn(&Series<'_>) -> Vec<(f64, f64)>,
) -> Vec<Figure> {
    let figure = |crew: &'c Crew<'a>| {
        let mut crowded = false;
        let mut lines = Vec::new();
        for (style, series) in &crew.series {
            let points = points(series);
            if points.is_empty() {
                continue;
            }
            let is_crowded = series.rows.iter().any(|row| row.crowded);
            crowded |= is_crowded;
            let mark = if is_crowded {
                format!(" {CROWDED_MARK}")
            } else {
                String::new()
            };
            let marked = of_figure.lines.first().is_none_or(|pattern| pattern.marked);
            lines.push(Line {
                name: format!("{}{mark}", series.name),
                style: *style,
                points,
                marked,
            });
        }
        let title = match crew.name.as_str() {
            "" => of_figure.title.clone(),
            name => format!("{}: {name}", of_figure.title),
        };
        let footnote = crowded.then(|| CROWDED.to_owned());
        Figure {
            title,
            lines,
            footnote,
            ..of_figure.clone()
        }
    };
    crews
        .into_iter()
        .map(figure)
        .filter(|figure| !figure.lines.is_empty())
        .collect()
}

/// A figure of lines without markers, to be filled.
fn unmarked(figure: Figure) -> Figure {
    let pattern = Line {
        name: String::new(),
        style: Style::Reference,
        points: Vec::new(),
        marked: false,
    };
    Figure {
        lines: vec![pattern],
        ..figure
    }
}

/// Points of a series: one for each row.
fn sweep(series: &Series<'_>, at: impl Fn(&Row) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = series.rows.iter().filter_map(|row| at(row)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

impl Block {
    pub(super) fn open(heading: impl Into<String>, figures: Vec<Vec<Figure>>) -> Self {
        Self {
            heading: heading.into(),
            figures,
            folded: false,
        }
    }

    /// Drawn; nothing if no figure has anything to show.
    pub(super) fn draw(&self) -> Markup {
        let drawn: Vec<Markup> = self
            .figures
            .iter()
            .filter_map(|beside| Some((beside, Ranges::of(beside)?)))
            .flat_map(|(beside, ranges)| beside.iter().map(move |figure| figure.draw(&ranges)))
            .filter(|markup| !markup.0.is_empty())
            .collect();
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
