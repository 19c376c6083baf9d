//! Figures of interference and timeliness.

use super::block::{Block, fill, paper, sweep};
use super::round_trips::{cumulative, pair};
use crate::record::Row;
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::{Figure, Line};
use crate::views::report::lines::Choice;
use crate::views::report::palette::Style;
use crate::views::series::{Series, Set};
use crate::views::units;

pub(super) fn interference(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let of_interval = |interval_ns: Option<u64>| {
        let what = interval_ns.map_or_else(
            || "no messages".to_owned(),
            |ns| format!("a message every {}", units::time(ns as f64)),
        );
        let chosen = |row: &Row| row.interval_ns.is_none() || row.interval_ns == interval_ns;
        let [function, mut histogram] = pair(set, lines, &what, "Execution time", chosen);
        histogram.published = None;
        let without_longest = without_longest(lines, &what, chosen);
        Block::open(
            format!("Execution time of the task, {what}"),
            vec![without_longest, function, histogram],
        )
    };
    set.intervals_ns().into_iter().map(of_interval).collect()
}

/// Figure 3 of the RDMA paper: linear, without the longest 1 % that would squeeze the rest.
fn without_longest(lines: &[Choice<'_>], what: &str, chosen: impl Fn(&Row) -> bool) -> Figure {
    let figure = Figure {
        published: Some("RDMA sampling port, Fig. 3: execution time of the computing partition"),
        marked: false,
        ..Figure::new(
            format!("Distribution without the longest 1 %: {what}"),
            Axis::around("Execution time", Unit::Time),
            Axis::linear("Share that took no longer", Unit::Percent),
        )
    };
    fill(lines, figure, |series| {
        let row = series.rows.iter().find(|row| chosen(row));
        let recorder = row.and_then(|row| row.execution_ns.as_ref()?.recorder());
        let mut points = recorder.map_or_else(Vec::new, |it| cumulative(&it, 1.0));
        points.retain(|(_, percent)| *percent <= 99.0);
        points
    })
}

/// Intervals seen by intervals sent, and where they would be the same; for each size.
pub(super) fn timeliness(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let of_size = |bytes: &u64| {
        let figure = Figure {
            published: Some("RDMA sampling port, Fig. 4: transmission intervals and observed intervals"),
            ..Figure::new(
                format!("{} messages", units::size(*bytes)),
                Axis::log("Transmission interval", Unit::Time),
                Axis::log("Observed interval (median)", Unit::Time),
            )
        };
        let points = |series: &Series<'_>| {
            sweep(series, |row| {
                // A mean would show a single pause of the machine; losses are in the table.
                let observed = row.observed_interval_ns.as_ref()?.p50 as f64;
                let asked = row.interval_ns.filter(|_| row.payload_bytes == *bytes)?;
                // As published, by the interval that the sender kept.
                let kept = row.transmitted_interval_ns.as_ref().filter(|_| row.off_pace);
                Some((kept.map_or(asked, |it| it.p50) as f64, observed))
            })
        };
        let figures = paper(lines, figure.clone(), points).into_iter();
        figures.chain([fill(lines, figure, points)]).map(with_reference)
    };
    let figures = set.sizes().iter().flat_map(of_size).collect();
    vec![Block::open("Observed by transmission interval", figures)]
}

fn with_reference(mut figure: Figure) -> Figure {
    let points = figure.lines.iter().flat_map(|line| &line.points);
    let (low, high) = points.fold((f64::INFINITY, 0.0_f64), |(low, high), at| {
        (low.min(at.0), high.max(at.0))
    });
    figure.lines.push(Line {
        name: "observed as sent".into(),
        style: Style::Reference,
        choice: None,
        points: vec![(low, low), (high, high)],
    });
    figure
}
