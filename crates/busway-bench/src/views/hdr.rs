//! The histograms of a run as an HdrHistogram interval log (`.hlog`), which HistogramLogProcessor,
//! HdrHistogram's plotter and hdr-plot read.
//!
//! Contract: one tagged histogram for each row and kind of time that has one, in ns; the tag is
//! technology, wait, mode, size, interval and kind, joined by `-`, in letters, digits, `.`, `_` and
//! `-`. All intervals begin with the run and last as long as it did, because rounds alternate. The
//! column of maxima is in µs. Called by `--hdr`.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::record::{Row, Run};

/// ns in the unit of the column of maxima.
const MAX_DIVISOR: f64 = 1e3;

pub(super) fn write(run: &Run, mut to: impl io::Write) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let began = UNIX_EPOCH + Duration::from_secs(run.started_unix_s);
    let lasted = Duration::try_from_secs_f64(run.duration_s).unwrap_or_default();
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment(&format!(
            "busway bench {}; histograms in ns, maxima in us",
            run.experiment.word()
        ))
        .with_start_time(began)
        .with_base_time(began)
        .with_max_value_divisor(MAX_DIVISOR)
        .begin_log_with(&mut to, &mut serializer)?;
    for row in &run.rows {
        for (kind, times) in kinds(row) {
            let Some(recorder) = times.as_ref().and_then(crate::record::Distribution::recorder) else {
                continue;
            };
            let tag = tag(row, kind);
            writer
                .write_histogram(recorder.histogram(), Duration::ZERO, lasted, Tag::new(&tag))
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
        }
    }
    to.flush()
}

pub(super) fn kinds(row: &Row) -> [(&'static str, &Option<crate::record::Distribution>); 4] {
    [
        ("rtt_ns", &row.rtt_ns),
        ("execution_ns", &row.execution_ns),
        ("transmitted_interval_ns", &row.transmitted_interval_ns),
        ("observed_interval_ns", &row.observed_interval_ns),
    ]
}

fn tag(row: &Row, kind: &str) -> String {
    let mut parts = vec![row.technology.clone(), row.wait.clone()];
    parts.extend(row.mode.clone());
    parts.push(row.payload_bytes.to_string());
    parts.extend(row.interval_ns.map(|ns| format!("{ns}ns")));
    parts.push(kind.to_owned());
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    parts.join("-").chars().map(allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_replaces_characters_that_would_break_the_log() {
        let row = Row {
            technology: "a,b\nc d".into(),
            wait: "spin".into(),
            ..Row::default()
        };
        assert_eq!(tag(&row, "rtt_ns"), "a_b_c_d-spin-0-rtt_ns");
    }
}
