//! Figures of round trips.

use super::block::{Block, fill, paper, sized, sweep};
use crate::record::{Distribution, Maximum, Recorder, Row};
use crate::views::histogram::{log_ranges, times};
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::{Figure, Line};
use crate::views::report::lines::Choice;
use crate::views::report::palette::Style;
use crate::views::series::{CROWDED, Series, Set, half};
use crate::views::units;

/// Points of a distribution function; more cannot be told apart at its size.
const CDF_POINTS: usize = 140;
const RANGES: usize = 60;
/// The RDMA paper's figure ends here, in bytes.
const PAPER_BYTES: u64 = 4096;

pub(super) fn latency(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let mut blocks = vec![by_size(lines), published(set, lines), extremes(lines)];
    blocks.extend(distributions(set, lines));
    blocks
}

pub(super) fn by_size(lines: &[Choice<'_>]) -> Block {
    let figure = |title: &str, pick: fn(&Distribution) -> u64| {
        let figure = Figure::new(
            title,
            Axis::log("Payload", Unit::Bytes),
            Axis::log("Half round trip", Unit::Time),
        );
        fill(lines, figure, |series| {
            sweep(series, |row| sized(row, half(row).map(|it| pick(&it) as f64)))
        })
    };
    let figures = vec![
        figure("Median by size", |it| it.p50),
        figure("99 % by size", |it| it.p99),
    ];
    Block::open("Half round trip by size", figures)
}

/// Figure 2 of the RDMA paper.
fn published(set: &Set<'_>, lines: &[Choice<'_>]) -> Block {
    let small = Figure {
        published: Some("RDMA sampling port, Fig. 2(a): round-trip time"),
        ..Figure::new(
            "Median round trip up to 4 KiB",
            Axis::linear("Payload", Unit::Bytes),
            Axis::log("Round trip", Unit::Time),
        )
    };
    let of_small = |series: &Series<'_>| {
        sweep(series, |row| {
            let times = row.rtt_ns.as_ref().filter(|_| row.payload_bytes <= PAPER_BYTES);
            sized(row, times.map(|it| it.p50 as f64))
        })
    };
    let smallest = set.sizes().first().copied().unwrap_or(0);
    let cdf = Figure {
        published: Some("RDMA sampling port, Fig. 2(b): CDF of RTT of 16-byte message"),
        ..cdf(&format!("Round trips of {}", units::size(smallest)), "Round trip")
    };
    let of_smallest = |series: &Series<'_>| {
        let row = series.rows.iter().find(|row| row.payload_bytes == smallest);
        let recorder = row.and_then(|row| row.rtt_ns.as_ref()?.recorder());
        recorder.map_or_else(Vec::new, |it| cumulative(&it, 1.0))
    };
    let figures = [
        paper(lines, small.clone(), of_small),
        paper(lines, cdf.clone(), of_smallest),
        Some(fill(lines, small, of_small)),
        Some(fill(lines, cdf, of_smallest)),
    ];
    Block::open(
        "Round trips as in the RDMA paper",
        figures.into_iter().flatten().collect(),
    )
}

fn extremes(lines: &[Choice<'_>]) -> Block {
    type Pick = (&'static str, fn(&Distribution) -> f64);
    let figure = |line: &Choice<'_>| {
        let series = &line.series;
        let line = |(at, (name, pick)): (usize, Pick)| Line {
            name: name.to_owned(),
            style: Style::Line(at),
            choice: None,
            points: sweep(series, |row| sized(row, half(row).map(|it| pick(&it)))),
        };
        let picks: [Pick; 3] = [
            ("average", |it| it.mean),
            ("worst", |it| it.max as f64),
            ("best", |it| it.min as f64),
        ];
        Figure {
            published: Some(
                "Dolphin, VxWorks real-time performance: minimum, average and maximum latency by size",
            ),
            lines: picks.into_iter().enumerate().map(line).collect(),
            footnote: series
                .rows
                .iter()
                .any(|row| row.crowded)
                .then(|| CROWDED.to_owned()),
            ..Figure::new(
                series.name.clone(),
                Axis::log("Payload", Unit::Bytes),
                Axis::log("Half round trip", Unit::Time),
            )
        }
    };
    Block {
        folded: true,
        ..Block::open(
            "Best, average and worst of each technology",
            lines.iter().map(figure).collect(),
        )
    }
}

fn cdf(of_what: &str, what: &str) -> Figure {
    Figure {
        marked: false,
        ..Figure::new(
            format!("Distribution: {of_what}"),
            Axis::log(what, Unit::Time),
            Axis::linear("Share that took no longer", Unit::Percent),
        )
    }
}

pub(super) fn distributions(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let of_size = |(at, bytes): (usize, &u64)| {
        let size = units::size(*bytes);
        let chosen = |row: &Row| row.payload_bytes == *bytes;
        let figures = pair(set, lines, &size, "Half round trip", chosen);
        Block {
            folded: at > 0,
            ..Block::open(format!("Distribution of {size} messages"), figures.into())
        }
    };
    set.sizes().iter().enumerate().map(of_size).collect()
}

pub(super) fn pair(
    set: &Set<'_>,
    lines: &[Choice<'_>],
    of_what: &str,
    what: &str,
    chosen: impl Fn(&Row) -> bool,
) -> [Figure; 2] {
    let found = |series: &Series<'_>| {
        let row = series.rows.iter().find(|row| chosen(row))?;
        times(set.experiment(), row)
    };
    let function = fill(lines, cdf(of_what, what), |series| {
        found(series).map_or_else(Vec::new, |(_, recorder, divisor)| cumulative(&recorder, divisor))
    });
    let histogram = Figure {
        published: Some("Dolphin's scipp -hist"),
        marked: false,
        ..Figure::new(
            format!("Histogram: {of_what}"),
            Axis::log(what, Unit::Time),
            Axis::log("Messages", Unit::Count),
        )
    };
    let histogram = fill(lines, histogram, |series| {
        found(series).map_or_else(Vec::new, |(_, recorder, divisor)| {
            stairs(&log_ranges(&recorder, RANGES, divisor))
        })
    });
    [function, histogram]
}

/// Percent of times that are no longer, at as many points as can be told apart.
pub(super) fn cumulative(recorder: &Recorder, divisor: f64) -> Vec<(f64, f64)> {
    let histogram = recorder.histogram();
    let (count, longest) = (histogram.len() as f64, histogram.max() as f64);
    let mut points: Vec<(f64, f64)> = vec![(histogram.min() as f64 / divisor, 0.0)];
    let step = ((longest.max(1.0) / histogram.min().max(1) as f64).ln() / CDF_POINTS as f64).max(1e-6);
    let mut seen = 0;
    for value in histogram.iter_recorded() {
        seen += value.count_at_value();
        let point = (
            value.value_iterated_to().min(histogram.max()) as f64 / divisor,
            seen as f64 / count * 100.0,
        );
        let last = points[points.len() - 1];
        let apart = (point.0.max(1e-3) / last.0.max(1e-3)).ln() >= step
            || point.1 - last.1 >= 100.0 / CDF_POINTS as f64;
        if apart || seen as f64 >= count {
            points.push(point);
        }
    }
    points
}

/// The outline of a histogram. On its logarithmic scale an empty range lies below a single message.
fn stairs(ranges: &[(f64, f64, u64)]) -> Vec<(f64, f64)> {
    let height = |count: u64| if count == 0 { 0.5 } else { count as f64 };
    let steps = ranges.iter();
    steps
        .flat_map(|(from, to, count)| [(*from, height(*count)), (*to, height(*count))])
        .collect()
}

/// Each maximum until the next one, the last until the end of the run, from 1 ms on.
fn held(maxima: &[Maximum], end_s: f64) -> Vec<(f64, f64)> {
    let ends = maxima.iter().skip(1).map(|it| it.at_s).chain([end_s]);
    let steps = maxima.iter().zip(ends).flat_map(|(it, until_s)| {
        let (from_s, half_ns) = (it.at_s.max(1e-3), it.rtt_ns as f64 / 2.0);
        [(from_s, half_ns), (until_s.max(from_s), half_ns)]
    });
    steps.collect()
}

pub(super) fn jitter(set: &Set<'_>, lines: &[Choice<'_>]) -> Vec<Block> {
    let figure = Figure {
        published: Some("Dolphin: worst case of a 24-hour run"),
        marked: false,
        ..Figure::new(
            "Longest half round trip so far",
            Axis::log("Time since the beginning", Unit::Seconds),
            Axis::log("Half round trip", Unit::Time),
        )
    };
    let end_s = set.runs().map(|(_, run)| run.duration_s).fold(0.0, f64::max);
    let maxima = fill(lines, figure, |series| {
        let rows = series.rows.iter();
        rows.flat_map(|row| held(&row.maxima, end_s)).collect()
    });
    let mut blocks = vec![Block::open("Maxima over time", vec![maxima])];
    blocks.extend(distributions(set, lines));
    blocks
}
