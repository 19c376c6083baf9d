//! Figures of interference and timeliness.

use super::latency::{cumulative, pair, plain};
use super::{Block, Crew, for_each_crew, paper_crew, sweep, unmarked};
use crate::record::Row;
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::{Figure, Line};
use crate::views::report::palette::Style;
use crate::views::series::Set;
use crate::views::units;

/// Execution times for each interval.
pub(super) fn interference(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let of_interval = |interval_ns: Option<u64>| {
        let what = interval_ns.map_or_else(
            || "no messages".to_owned(),
            |ns| format!("a message every {}", units::time(ns as f64)),
        );
        let mut figures = pair(set.experiment(), crews, &what, "Execution time", |row| {
            row.interval_ns.is_none() || row.interval_ns == interval_ns
        });
        figures.insert(0, paper(crews, &what, interval_ns));
        for histogram in &mut figures[2] {
            histogram.published = None;
        }
        Block::open(format!("Execution time of the task, {what}"), figures)
    };
    set.intervals_ns().into_iter().map(of_interval).collect()
}

/// Figure 3 of the RDMA paper: linear, without the longest 1 % that would squeeze the rest.
fn paper(crews: &[Crew<'_>], what: &str, interval_ns: Option<u64>) -> Vec<Figure> {
    let figure = Figure {
        published: Some("RDMA sampling port, Fig. 3: execution time of the computing partition"),
        ..plain(
            format!("Distribution without the longest 1 %: {what}"),
            Axis::around("Execution time", Unit::Time),
            Axis::linear("Share that took no longer", Unit::Percent),
        )
    };
    for_each_crew(crews, &unmarked(figure), |series| {
        let of_interval = |row: &&&Row| row.interval_ns.is_none() || row.interval_ns == interval_ns;
        let times = series
            .rows
            .iter()
            .find(of_interval)
            .and_then(|row| row.execution_ns.as_ref());
        let mut points = times.map(|it| cumulative(it, 1.0)).unwrap_or_default();
        points.retain(|(_, percent)| *percent <= 99.0);
        points
    })
}

/// Intervals seen by intervals sent, one figure for each size, and where they would be the same.
pub(super) fn timeliness(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let paper = paper_crew(set);
    let of_size = |bytes: &u64| {
        let figure = Figure {
            published: Some("RDMA sampling port, Fig. 4: transmission intervals and observed intervals"),
            ..plain(
                format!("{} messages", units::size(*bytes)),
                Axis::log("Transmission interval", Unit::Time),
                Axis::log("Observed interval (median)", Unit::Time),
            )
        };
        let mut figures = for_each_crew(paper.iter().chain(crews), &figure, |series| {
            sweep(series, |row| {
                (row.payload_bytes == *bytes).then_some(())?;
                // A mean would show a single pause of the machine; what is overwritten is in the table.
                let observed = row.observed_interval_ns.as_ref()?.p50;
                Some((row.interval_ns? as f64, observed as f64))
            })
        });
        let sent: Vec<f64> = figures
            .iter()
            .flat_map(|figure| {
                figure
                    .lines
                    .iter()
                    .flat_map(|line| line.points.iter().map(|at| at.0))
            })
            .collect();
        let (low, high) = (
            sent.iter().copied().fold(f64::INFINITY, f64::min),
            sent.iter().copied().fold(0.0, f64::max),
        );
        for figure in &mut figures {
            figure.lines.push(Line {
                name: "observed as sent".into(),
                style: Style::Reference,
                points: vec![(low, low), (high, high)],
                marked: false,
            });
        }
        figures
    };
    vec![Block::open(
        "Observed by transmission interval",
        set.sizes().iter().map(of_size).collect(),
    )]
}
