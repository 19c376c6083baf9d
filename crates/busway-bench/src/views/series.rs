//! Which rows belong together: a line of a figure or a table is one technology in one way of waiting, of one run.
//!
//! Contract: the order is that of the rows in the file, so that the same technology has the same place and colour in every view. Called by
//! tables and figures.

use crate::record::{Distribution, Experiment, Row, Run};

/// Marks figures of rows with more busy threads than cores; its footnote is [`CROWDED`].
pub(super) const CROWDED_MARK: &str = "†";
/// What the mark means.
pub(super) const CROWDED: &str =
    "† more busy threads than cores: these figures show the scheduler as much as the mechanism";

/// Runs of one experiment that are shown together. One run has no label; several are compared with the first.
#[derive(Clone, Copy)]
pub(super) struct Set<'a> {
    runs: &'a [(String, &'a Run)],
    differences: &'a [String],
}

/// A row, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Index of the run.
    pub run: usize,
    /// Name of the run; empty if there is only one.
    pub label: &'a str,
    /// Its figures.
    pub row: &'a Row,
}

/// What distinguishes one line from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key<'a> {
    pub run: usize,
    pub technology: &'a str,
    pub wait: &'a str,
    pub mode: Option<&'a str>,
}

/// A line: a name, and its rows by size and interval in the order of the file.
pub(super) struct Series<'a> {
    pub key: Key<'a>,
    /// Technology, wait, mode and run in words.
    pub name: String,
    pub rows: Vec<&'a Row>,
}

impl<'a> Set<'a> {
    /// All of one experiment, at least one; `differences`: what makes them hard to compare.
    pub fn new(runs: &'a [(String, &'a Run)], differences: &'a [String]) -> Self {
        Self { runs, differences }
    }

    /// What makes the runs hard to compare.
    pub fn differences(&self) -> &'a [String] {
        self.differences
    }

    pub fn experiment(&self) -> Experiment {
        self.runs[0].1.experiment
    }

    pub fn runs(&self) -> impl Iterator<Item = (&'a str, &'a Run)> {
        self.runs.iter().map(|(label, run)| (label.as_str(), *run))
    }

    /// The technology that ratios compare with, if all runs have the same.
    pub fn baseline(&self) -> Option<&'a str> {
        let first = self.runs[0].1.baseline.as_deref()?;
        self.runs
            .iter()
            .all(|(_, run)| run.baseline.as_deref() == Some(first))
            .then_some(first)
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let several = self.runs.len() > 1;
        self.runs.iter().enumerate().flat_map(move |(run, (label, of))| {
            let label = if several { label.as_str() } else { "" };
            of.rows.iter().map(move |row| Entry { run, label, row })
        })
    }

    /// All lines: those of the same technology beside each other, whichever run they are of.
    pub fn series(&self) -> Vec<Series<'a>> {
        let mut all: Vec<Series<'a>> = Vec::new();
        for entry in self.entries() {
            let key = entry.key();
            if let Some(found) = all.iter_mut().find(|series| series.key == key) {
                found.rows.push(entry.row);
                continue;
            }
            let like = |series: &Series<'_>| {
                (series.key.technology, series.key.wait, series.key.mode)
                    == (key.technology, key.wait, key.mode)
            };
            let place = all.iter().rposition(like).map_or(all.len(), |last| last + 1);
            let series = Series {
                name: entry.name(),
                rows: vec![entry.row],
                key,
            };
            all.insert(place, series);
        }
        all
    }

    /// All sizes, ascending.
    pub fn sizes(&self) -> Vec<u64> {
        distinct(self.entries().map(|entry| entry.row.payload_bytes))
    }

    /// All intervals of rows, ascending; one absent interval if no row has any. Rows without one belong to each of them.
    pub fn intervals_ns(&self) -> Vec<Option<u64>> {
        let all = distinct(self.entries().filter_map(|entry| entry.row.interval_ns));
        if all.is_empty() {
            vec![None]
        } else {
            all.into_iter().map(Some).collect()
        }
    }

    /// The figure by which a row is compared, over that of the same row in the first run.
    pub fn ratio_to_first_run(&self, entry: &Entry<'_>) -> Option<f64> {
        if entry.run == 0 {
            return None;
        }
        let same = |row: &&Row| {
            (
                &row.technology,
                &row.wait,
                &row.mode,
                row.payload_bytes,
                row.interval_ns,
            ) == (
                &entry.row.technology,
                &entry.row.wait,
                &entry.row.mode,
                entry.row.payload_bytes,
                entry.row.interval_ns,
            )
        };
        let first = headline(self.experiment(), self.runs[0].1.rows.iter().find(same)?)?;
        let ratio = headline(self.experiment(), entry.row)? / first;
        ratio.is_finite().then_some(ratio)
    }
}

impl<'a> Entry<'a> {
    pub fn key(&self) -> Key<'a> {
        Key {
            run: self.run,
            technology: &self.row.technology,
            wait: &self.row.wait,
            mode: self.row.mode.as_deref(),
        }
    }

    /// Technology, wait, mode and run in words.
    pub fn name(&self) -> String {
        let mut name = format!("{} {}", self.row.technology, self.row.wait)
            .trim_end()
            .to_owned();
        for more in [self.row.mode.as_deref().unwrap_or_default(), self.label] {
            if !more.is_empty() {
                name += &format!(" · {more}");
            }
        }
        name
    }
}

/// The figure by which rows of an experiment are compared: that of [`Row::by_round`], over all rounds.
pub(super) fn headline(experiment: Experiment, row: &Row) -> Option<f64> {
    let median = |times: &Option<Distribution>| times.as_ref().map(|it| it.p50 as f64);
    match experiment {
        Experiment::Throughput => row.bytes_per_s,
        Experiment::Stream => load_percent(row),
        Experiment::Interference => median(&row.execution_ns),
        Experiment::Timeliness => median(&row.observed_interval_ns),
        Experiment::Calls => row.calls.map(|calls| calls.write_and_read_ns),
        Experiment::Latency | Experiment::Jitter | Experiment::SelfTest => median(&row.rtt_ns),
        Experiment::Gateway => median(&row.rtt_ns).or(row.bytes_per_s),
    }
}

/// CPU load of both sides together.
pub(super) fn load_percent(row: &Row) -> Option<f64> {
    let sides = [row.sender.as_ref(), row.receiver.as_ref()];
    let known: Vec<f64> = sides
        .into_iter()
        .flatten()
        .map(|load| load.total_percent())
        .collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// Half round trips: as recorded, or from the round trips.
pub(super) fn half(row: &Row) -> Option<Distribution> {
    if row.half_rtt_ns.is_some() {
        return row.half_rtt_ns.clone();
    }
    row.rtt_ns.as_ref().map(|whole| Distribution {
        samples: whole.samples,
        min: whole.min / 2,
        mean: whole.mean / 2.0,
        p50: whole.p50 / 2,
        p90: whole.p90 / 2,
        p99: whole.p99 / 2,
        p99_9: whole.p99_9 / 2,
        p99_99: whole.p99_99 / 2,
        max: whole.max / 2,
        histogram: None,
    })
}

fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let sorted: std::collections::BTreeSet<u64> = values.collect();
    sorted.into_iter().collect()
}
