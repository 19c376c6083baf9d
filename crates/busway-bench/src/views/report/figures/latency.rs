//! Figures of round trips.

use super::{Block, Crew, for_each_crew, paper_crew, sweep, unmarked};
use crate::record::{Distribution, Experiment, Maximum, Row};
use crate::views::histogram::{log_ranges, times};
use crate::views::report::axis::{Axis, Unit};
use crate::views::report::chart::{Figure, Line};
use crate::views::report::palette::Style;
use crate::views::series::{Series, Set, half};
use crate::views::units;

/// Points of a distribution function; more cannot be told apart at its size.
const CDF_POINTS: usize = 140;
/// Ranges of a histogram.
const RANGES: usize = 60;
/// The RDMA paper's figure ends here, in bytes.
const PAPER_BYTES: u64 = 4096;

pub(super) fn plain(title: impl Into<String>, x: Axis, y: Axis) -> Figure {
    Figure {
        title: title.into(),
        published: None,
        x,
        y,
        lines: Vec::new(),
        bars: None,
        footnote: None,
    }
}

/// All of a latency run.
pub(super) fn blocks(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let mut blocks = sweeps(crews);
    blocks.push(published(set, crews));
    blocks.push(extremes(crews));
    blocks.extend(distributions(set, crews));
    blocks
}

/// Median and 99 % by size.
pub(super) fn sweeps(crews: &[Crew<'_>]) -> Vec<Block> {
    let by_size = |title: &str, pick: fn(&Distribution) -> u64| {
        let figure = plain(
            title,
            Axis::log("Payload", Unit::Bytes),
            Axis::log("Half round trip", Unit::Time),
        );
        for_each_crew(crews, &figure, |series| {
            sweep(series, |row| {
                Some((row.payload_bytes as f64, pick(&half(row)?) as f64))
            })
        })
    };
    let figures = vec![
        by_size("Median by size", |it| it.p50),
        by_size("99 % by size", |it| it.p99),
    ];
    vec![Block::open("Half round trip by size", figures)]
}

/// Figure 2 of the RDMA paper.
fn published(set: &Set<'_>, crews: &[Crew<'_>]) -> Block {
    let small = Figure {
        published: Some("RDMA sampling port, Fig. 2(a): round-trip time"),
        ..plain(
            "Median round trip up to 4 KiB",
            Axis::linear("Payload", Unit::Bytes),
            Axis::linear("Round trip", Unit::Time),
        )
    };
    // Beside each other on one scale, so that they can be compared wherever they are.
    let paper = paper_crew(set);
    let together = Figure {
        y: Axis::log("Round trip", Unit::Time),
        ..small.clone()
    };
    let together = for_each_crew(paper.as_slice(), &together, |series| {
        sweep(series, |row| {
            let median = row.rtt_ns.as_ref()?.p50 as f64;
            (row.payload_bytes <= PAPER_BYTES).then_some((row.payload_bytes as f64, median))
        })
    });
    // The scheduler's pauses would be all that an axis from 0 shows of crowded figures, so those are in the other sweeps only.
    let of_small = |series: &Series<'_>| {
        sweep(series, |row| {
            let median = row.rtt_ns.as_ref()?.p50 as f64;
            (row.payload_bytes <= PAPER_BYTES && !row.crowded).then_some((row.payload_bytes as f64, median))
        })
    };
    let small = crews
        .iter()
        .map(|crew| for_each_crew(std::slice::from_ref(crew), &small, of_small));
    let smallest = set.sizes().first().copied().unwrap_or(0);
    let cdf = Figure {
        published: Some("RDMA sampling port, Fig. 2(b): CDF of RTT of 16-byte message"),
        ..cdf(format!("Round trips of {}", units::size(smallest)), "Round trip")
    };
    let cdf = unmarked(cdf);
    let of_smallest = |series: &Series<'_>| {
        let row = series.rows.iter().find(|row| row.payload_bytes == smallest);
        row.and_then(|row| row.rtt_ns.as_ref())
            .map(|it| cumulative(it, 1.0))
            .unwrap_or_default()
    };
    let together_cdf = for_each_crew(paper.as_slice(), &cdf, of_smallest);
    let cdf = for_each_crew(crews, &cdf, of_smallest);
    // Each on its own scale.
    let figures = [together, together_cdf]
        .into_iter()
        .chain(small)
        .chain([cdf])
        .collect();
    Block::open("Round trips as in the RDMA paper", figures)
}

/// Best, average and worst by size; a figure for each technology.
fn extremes(crews: &[Crew<'_>]) -> Block {
    let of_series = |series: &Series<'_>| {
        let line = |name: &str, style, pick: fn(&Distribution) -> f64| Line {
            name: name.to_owned(),
            style: Style::Line(style),
            points: sweep(series, |row| Some((row.payload_bytes as f64, pick(&half(row)?)))),
            marked: true,
        };
        Figure {
            published: Some(
                "Dolphin, VxWorks real-time performance: minimum, average and maximum latency by size",
            ),
            lines: vec![
                line("worst", 1, |it| it.max as f64),
                line("average", 0, |it| it.mean),
                line("best", 2, |it| it.min as f64),
            ],
            footnote: series
                .rows
                .iter()
                .any(|row| row.crowded)
                .then(|| crate::views::series::CROWDED.to_owned()),
            ..plain(
                series.name.clone(),
                Axis::log("Payload", Unit::Bytes),
                Axis::log("Half round trip", Unit::Time),
            )
        }
    };
    let all: Vec<Figure> = crews
        .iter()
        .flat_map(|crew| crew.series.iter().map(|(_, series)| of_series(series)))
        .collect();
    let all = all
        .into_iter()
        .filter(|figure| figure.lines.iter().any(|line| !line.points.is_empty()))
        .collect();
    Block {
        folded: true,
        ..Block::open("Best, average and worst of each technology", vec![all])
    }
}

fn cdf(title: impl Into<String>, what: &str) -> Figure {
    let title: String = title.into();
    plain(
        format!("Distribution: {title}"),
        Axis::log(what, Unit::Time),
        Axis::linear("Share that took no longer", Unit::Percent),
    )
}

/// Distribution functions and histograms for each size.
pub(super) fn distributions(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let sizes = set.sizes();
    let of_size = |(at, bytes): (usize, &u64)| {
        let chosen = |row: &Row| row.payload_bytes == *bytes;
        let figures = pair(
            set.experiment(),
            crews,
            &units::size(*bytes),
            "Half round trip",
            chosen,
        );
        Block {
            folded: at > 0,
            ..Block::open(
                format!("Distribution of {} messages", units::size(*bytes)),
                figures,
            )
        }
    };
    sizes.iter().enumerate().map(of_size).collect()
}

/// The distribution function and the histogram of the rows chosen.
pub(super) fn pair(
    experiment: Experiment,
    crews: &[Crew<'_>],
    of_what: &str,
    what: &str,
    chosen: impl Fn(&Row) -> bool,
) -> Vec<Vec<Figure>> {
    let found = |series: &Series<'_>| {
        let row = series.rows.iter().find(|row| chosen(row))?;
        times(experiment, row).map(|(_, recorder, divisor)| (recorder, divisor))
    };
    let functions = for_each_crew(crews, &unmarked(cdf(of_what, what)), |series| {
        found(series)
            .map(|(recorder, divisor)| cumulative_of(&recorder, divisor))
            .unwrap_or_default()
    });
    let histogram = Figure {
        published: Some("Dolphin's scipp -hist"),
        ..plain(
            format!("Histogram: {of_what}"),
            Axis::log(what, Unit::Time),
            Axis::log("Messages", Unit::Count),
        )
    };
    let histograms = for_each_crew(crews, &unmarked(histogram), |series| {
        found(series)
            .map(|(recorder, divisor)| stairs(&log_ranges(&recorder, RANGES, divisor)))
            .unwrap_or_default()
    });
    vec![functions, histograms]
}

pub(super) fn cumulative(times: &Distribution, divisor: f64) -> Vec<(f64, f64)> {
    times
        .recorder()
        .map(|recorder| cumulative_of(&recorder, divisor))
        .unwrap_or_default()
}

/// Percent of times that are no longer, at as many points as can be told apart.
fn cumulative_of(recorder: &crate::record::Recorder, divisor: f64) -> Vec<(f64, f64)> {
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

/// The outline of a histogram; a range without any time interrupts nothing, its outline lies below one.
fn stairs(ranges: &[(f64, f64, u64)]) -> Vec<(f64, f64)> {
    // On a logarithmic scale an empty range is drawn below a single message.
    let height = |count: u64| if count == 0 { 0.5 } else { count as f64 };
    ranges
        .iter()
        .flat_map(|(from, to, count)| [(*from, height(*count)), (*to, height(*count))])
        .collect()
}

/// Each maximum until the next one, the last until the end of the run; the first microseconds are as long as a logarithmic scale needs.
fn held(maxima: &[Maximum], end_s: f64) -> Vec<(f64, f64)> {
    let ends = maxima.iter().skip(1).map(|it| it.at_s).chain([end_s]);
    let steps = maxima.iter().zip(ends).flat_map(|(it, until_s)| {
        let (from_s, half_ns) = (it.at_s.max(1e-3), it.rtt_ns as f64 / 2.0);
        [(from_s, half_ns), (until_s.max(from_s), half_ns)]
    });
    steps.collect()
}

/// The long run: histogram and distribution, and each new maximum over time.
pub(super) fn jitter(set: &Set<'_>, crews: &[Crew<'_>]) -> Vec<Block> {
    let maxima = Figure {
        published: Some("Dolphin: worst case of a 24-hour run"),
        ..plain(
            "Longest half round trip so far",
            Axis::log("Time since the beginning", Unit::Seconds),
            Axis::log("Half round trip", Unit::Time),
        )
    };
    let end_s = set.runs().map(|(_, run)| run.duration_s).fold(0.0, f64::max);
    let maxima = for_each_crew(crews, &unmarked(maxima), |series| {
        series
            .rows
            .iter()
            .flat_map(|row| held(&row.maxima, end_s))
            .collect()
    });
    let mut blocks = vec![Block::open("Maxima over time", vec![maxima])];
    blocks.extend(distributions(set, crews));
    blocks
}
