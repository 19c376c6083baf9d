//! What the demonstration found: as JSON for programs, as a table for people.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::record::{Measured, Recorder};

#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    pub bus: &'static str,
    pub streams: Vec<StreamReport>,
    pub gateways: Vec<GatewayReport>,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    pub service: String,
    pub payload_bytes: usize,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub out_of_order: u64,
    pub corrupt: u64,
    /// From just before `send` to just after `receive`, with all bytes written before and checked
    /// after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<LatencyReport>,
    pub bytes_per_s: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyReport {
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct GatewayReport {
    pub host: String,
    /// CPU time while counting, user and system, in s.
    pub cpu_s: f64,
}

impl StreamReport {
    pub(super) fn new(service: &str, payload_bytes: usize, sent: u64, found: &Measured) -> Self {
        let corrupt = found.corrupt - found.out_of_order;
        let received = found.received + found.out_of_order;
        let span_s = found.last_ns.saturating_sub(found.first_ns) as f64 / 1e9;
        let behind_first = found.received.saturating_sub(1) as f64 * payload_bytes as f64;
        Self {
            service: service.to_owned(),
            payload_bytes,
            sent,
            received,
            lost: sent.saturating_sub(received + corrupt),
            out_of_order: found.out_of_order,
            corrupt,
            latency_ns: latency(found),
            bytes_per_s: if span_s > 0.0 {
                (behind_first / span_s).round()
            } else {
                0.0
            },
        }
    }
}

fn latency(found: &Measured) -> Option<LatencyReport> {
    let times = Recorder::decode(found.times.as_deref()?)?.distribution()?;
    Some(LatencyReport {
        p50: times.p50,
        p99: times.p99,
        p99_9: times.p99_9,
        max: times.max,
    })
}

pub(super) fn live_line(publisher: &Measured, subscriber: &Measured) -> String {
    let latency = latency(subscriber).map_or_else(String::new, |p| {
        format!(
            ", latency {} (99 %: {})",
            microseconds(p.p50),
            microseconds(p.p99)
        )
    });
    format!(
        "sent {:>6}  received {:>6}  corrupt {}{latency}",
        publisher.sent.max(subscriber.received),
        subscriber.received,
        subscriber.corrupt
    )
}

impl fmt::Display for DemoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "service",
            "bytes",
            "sent",
            "received",
            "lost",
            "out of order",
            "corrupt",
            "p50",
            "p99",
            "p99.9",
            "max",
            "MB/s",
        ]);
        for stream in &self.streams {
            let percentile = |pick: fn(&LatencyReport) -> u64| {
                stream
                    .latency_ns
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |latency| microseconds(pick(latency)))
            };
            table.add_row([
                stream.service.clone(),
                stream.payload_bytes.to_string(),
                stream.sent.to_string(),
                stream.received.to_string(),
                stream.lost.to_string(),
                stream.out_of_order.to_string(),
                stream.corrupt.to_string(),
                percentile(|l| l.p50),
                percentile(|l| l.p99),
                percentile(|l| l.p99_9),
                percentile(|l| l.max),
                format!("{:.2}", stream.bytes_per_s / 1e6),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        for gateway in &self.gateways {
            let percent = gateway.cpu_s / self.seconds * 100.0;
            writeln!(
                f,
                "gateway {:8} {:.2} s of CPU time ({percent:.1} % of a core)",
                gateway.host, gateway.cpu_s
            )?;
        }
        write!(f, "bus {}, {} s, latency one way", self.bus, self.seconds)
    }
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}
