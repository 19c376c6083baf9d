//! What the scenario of speed has found, and its text.
//!
//! Contract: holds figures and prints them; measures nothing. Called by [`mod@super::speed`].

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) kernel: String,
    pub(super) measured: &'static str,
    pub(super) payload_bytes: u64,
    pub(super) what: &'static str,
    pub(super) value: f64,
    pub(super) beside: &'static str,
    pub(super) beside_value: f64,
    pub(super) ratio: f64,
}

/// Half round trips as `scipp` shows them, µs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Worst {
    pub(super) kernel: String,
    pub(super) load: &'static str,
    pub(super) what: &'static str,
    pub(super) best_us: f64,
    pub(super) average_us: f64,
    pub(super) p99_9_us: f64,
    pub(super) worst_us: f64,
    pub(super) samples: u64,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) worst: Vec<Worst>,
    pub(super) unanswered: Vec<String>,
    pub(super) histograms: Map<String, Value>,
}

/// The part of what `busway bench` printed that is histograms: from the line of the first one's
/// title.
pub(super) fn histograms(text: &str) -> String {
    let mark = text.find("(bars: ").unwrap_or(0);
    let begin = text[..mark].rfind('\n').map_or(0, |end| end + 1);
    let rest = &text[begin..];
    rest.split("\nIn short:").next().unwrap_or(rest).to_owned()
}

impl Found {
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from(
            "| kernel | measured | payload, B | over the window | | beside | | ratio |\n|---|---|---:|---|---:|---|---:|---:|\n",
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.2} | {} | {:.2} | {:.2} |",
                row.kernel,
                row.measured,
                row.payload_bytes,
                row.what,
                row.value,
                row.beside,
                row.beside_value,
                row.ratio
            );
        }
        text.push_str(
            "\n| kernel | load | half round trip of | best, µs | average, µs | 99.9 %, µs | worst, µs | round trips |\n|---|---|---|---:|---:|---:|---:|---:|\n",
        );
        for worst in &self.worst {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.1} | {} |",
                worst.kernel,
                worst.load,
                worst.what,
                worst.best_us,
                worst.average_us,
                worst.p99_9_us,
                worst.worst_us,
                worst.samples
            );
        }
        for what in &self.unanswered {
            let _ = writeln!(text, "\nNo round trip was answered: {what}.");
        }
        for (of, histogram) in &self.histograms {
            let _ = write!(
                text,
                "\nKernel {of}:\n\n```\n{}\n```\n",
                histogram.as_str().unwrap_or_default().trim_end()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn found_text_has_ratios_worst_cases_and_histograms() {
        let mut found = Found::default();
        found.rows.push(Row {
            kernel: "stock".to_owned(),
            measured: "half round trip, µs",
            payload_bytes: 64,
            what: "channel-pci",
            value: 1.5,
            beside: "copy",
            beside_value: 1.0,
            ratio: 1.5,
        });
        found.histograms.insert(
            "rt, idle".to_owned(),
            json!(histograms(
                "a table\nHalf round trip, two-lines (bars: …)\n1 µs ####\n\nIn short:\nfast\n"
            )),
        );
        let text = found.markdown();
        assert!(
            text.contains("| channel-pci | 1.50 | copy | 1.00 | 1.50 |"),
            "{text}"
        );
        assert!(
            text.contains("Kernel rt, idle:\n\n```\nHalf round trip, two-lines (bars: …)\n1 µs ####\n```"),
            "{text}"
        );
    }
}
