//! Which rows belong together: a line of a figure, or a row of a table, is one technology in one
//! way of waiting and one mode, of one run.
//!
//! Contract: the order is that of the rows in the file, so that a technology has the same place and
//! colour in every view. Called by tables and figures.

use crate::record::{Distribution, Experiment, Load, Row, Run};

/// Marks figures of rows with more busy threads than cores; its footnote is [`CROWDED`].
pub(super) const CROWDED_MARK: &str = "†";
/// What the mark means.
pub(super) const CROWDED: &str =
    "† more busy threads than cores: these figures show the scheduler as much as the mechanism";

/// Marks figures of rows whose sender did not keep its pace; its footnote is [`OFF_PACE`].
pub(super) const OFF_PACE_MARK: &str = "‡";
/// What that mark means.
pub(super) const OFF_PACE: &str =
    "‡ the sender did not keep the interval asked for: left out of sentences and ratios";

#[derive(Clone, Copy)]
pub(super) struct Set<'a> {
    runs: &'a [(String, &'a Run)],
    differences: &'a [String],
}

#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub run: usize,
    pub label: &'a str,
    pub row: &'a Row,
}

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
    pub name: String,
    pub rows: Vec<&'a Row>,
}

impl<'a> Set<'a> {
    /// All of one experiment, at least one; `differences`: what makes them hard to compare.
    pub fn new(runs: &'a [(String, &'a Run)], differences: &'a [String]) -> Self {
        Self { runs, differences }
    }

    pub fn differences(&self) -> &'a [String] {
        self.differences
    }

    pub fn experiment(&self) -> Experiment {
        self.runs[0].1.experiment
    }

    pub fn runs(&self) -> impl Iterator<Item = (&'a str, &'a Run)> {
        self.runs.iter().map(|(label, run)| (label.as_str(), *run))
    }

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

    pub fn entry(&self, series: &Series<'a>) -> Entry<'a> {
        let run = series.key.run;
        let label = if self.runs.len() > 1 {
            &self.runs[run].0
        } else {
            ""
        };
        let crowded = series.rows.iter().find(|row| row.crowded);
        let row = crowded.unwrap_or(&series.rows[0]);
        Entry { run, label, row }
    }

    pub fn streams(&self) -> Vec<(u64, Option<u64>)> {
        let streams = self
            .entries()
            .map(|it| (it.row.payload_bytes, it.row.interval_ns));
        let sorted: std::collections::BTreeSet<_> = streams.collect();
        sorted.into_iter().collect()
    }

    pub fn sizes(&self) -> Vec<u64> {
        distinct(self.entries().map(|entry| entry.row.payload_bytes))
    }

    pub fn intervals_ns(&self) -> Vec<Option<u64>> {
        let all = distinct(self.entries().filter_map(|entry| entry.row.interval_ns));
        if all.is_empty() {
            vec![None]
        } else {
            all.into_iter().map(Some).collect()
        }
    }

    pub fn ratio_to_first_run(&self, entry: &Entry<'_>) -> Option<f64> {
        if entry.run == 0 {
            return None;
        }
        fn place(row: &Row) -> (Key<'_>, u64, Option<u64>) {
            (key(0, row), row.payload_bytes, row.interval_ns)
        }
        let of_first = self.runs[0].1.rows.iter();
        let mut same = of_first.filter(|row| place(row) == place(entry.row));
        let first = headline(self.experiment(), same.next()?)?;
        let ratio = headline(self.experiment(), entry.row)? / first;
        ratio.is_finite().then_some(ratio)
    }
}

impl<'a> Entry<'a> {
    pub fn key(&self) -> Key<'a> {
        key(self.run, self.row)
    }

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

fn key(run: usize, row: &Row) -> Key<'_> {
    Key {
        run,
        technology: &row.technology,
        wait: &row.wait,
        mode: row.mode.as_deref(),
    }
}

pub(super) fn marked(text: &str, row: &Row) -> String {
    match row.crowded {
        true => format!("{text} {CROWDED_MARK}"),
        false => text.to_owned(),
    }
}

/// A figure of a row about whose pace it says something.
pub(super) fn paced(text: String, row: &Row) -> String {
    match row.off_pace {
        true => format!("{text} {OFF_PACE_MARK}"),
        false => text,
    }
}

pub(super) fn sender(row: &Row) -> Option<&Load> {
    row.sender.as_ref()
}

pub(super) fn receiver(row: &Row) -> Option<&Load> {
    row.receiver.as_ref()
}

/// The figure by which rows of an experiment are compared: that of [`Row::by_round`], over all
/// rounds.
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

pub(super) fn load_percent(row: &Row) -> Option<f64> {
    let [sent, received] = [sender(row), receiver(row)].map(|side| side.map(Load::total_percent));
    Some(sent.unwrap_or(0.0) + received.unwrap_or(0.0)).filter(|_| sent.or(received).is_some())
}

pub(super) fn half(row: &Row) -> Option<Distribution> {
    let of_whole = || row.rtt_ns.as_ref().map(Distribution::halved);
    row.half_rtt_ns.clone().or_else(of_whole)
}

fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let sorted: std::collections::BTreeSet<u64> = values.collect();
    sorted.into_iter().collect()
}
