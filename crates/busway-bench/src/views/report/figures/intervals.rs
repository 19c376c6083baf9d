//! Figures of interference and timeliness.

use super::latency::{pair, plain};
use super::{Block, Crew, for_each_crew, sweep};
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
        for function in &mut figures[0] {
            function.published =
                Some("RDMA sampling port, Fig. 3: execution time of the computing partition");
        }
        for histogram in &mut figures[1] {
            histogram.published = None;
        }
        Block::open(format!("Execution time of the task, {what}"), figures)
    };
    set.intervals_ns().into_iter().map(of_interval).collect()
}

/// Intervals seen by intervals sent, one figure for each size, and where they would be the same.
pub(super) fn timeliness(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let of_size = |bytes: &u64| {
        let figure = Figure {
            published: Some("RDMA sampling port, Fig. 4: transmission intervals and observed intervals"),
            ..plain(
                format!("{} messages", units::size(*bytes)),
                Axis::log("Transmission interval (mean)", Unit::Time),
                Axis::log("Observed interval (mean)", Unit::Time),
            )
        };
        let mut figures = for_each_crew(crews, &figure, |series| {
            sweep(series, |row| {
                (row.payload_bytes == *bytes).then_some(())?;
                let told = row.interval_ns.map(|ns| ns as f64);
                let sent = row.transmitted_interval_ns.as_ref().map(|it| it.mean).or(told)?;
                Some((sent, row.observed_interval_ns.as_ref()?.mean))
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
