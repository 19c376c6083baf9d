//! What both sides of a measurement cost.

use super::rounds::Gathered;
use super::session::Exchanged;
use crate::record::{Load, Row, Used};
use crate::technology::Reach;

pub(crate) fn blank_row(gathered: &Gathered<Exchanged>, cores: usize) -> Row {
    let threads = gathered.found().map(|found| found.threads).max().unwrap_or(0);
    gathered.task.row(threads, cores, gathered.found().count())
}

pub(super) fn percent(seconds: f64, span_s: f64) -> f64 {
    if span_s > 0.0 {
        100.0 * seconds / span_s
    } else {
        0.0
    }
}

pub(super) fn load(gathered: &Gathered<Exchanged>, side: usize) -> Option<Load> {
    let mut load = Load::default();
    let (mut span_s, mut gateway_s, mut messages) = (0.0, None, 0);
    let (mut packets_sent, mut packets_received) = (None, None);
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0) + more);
        }
    };
    for found in gathered.found() {
        let (used, counted) = match (side, &found.answering) {
            (0, _) => (found.asking.usage, found.asking.sent),
            (_, Some(answering)) => (answering.usage, answering.received),
            (_, None) if found.gateways_s.is_empty() => return None,
            // A program that answers reports nothing; only its gateway's load is known.
            (_, None) => {
                let span_s = found.asking.usage.span_s;
                (
                    Used {
                        span_s,
                        ..Used::default()
                    },
                    0,
                )
            }
        };
        span_s += used.span_s;
        load.process_user_percent += used.user_s;
        load.process_system_percent += used.system_s;
        load.host_user_percent += used.host_user_s;
        load.host_system_percent += used.host_system_s;
        load.host_interrupt_percent += used.host_interrupt_s;
        messages += counted;
        if let Some(seconds) = found.gateways_s.get(side) {
            gateway_s = Some(gateway_s.unwrap_or(0.0) + seconds);
        }
        add(&mut packets_sent, used.packets_sent);
        add(&mut packets_received, used.packets_received);
    }
    // Only seconds so far.
    for seconds in [
        &mut load.process_user_percent,
        &mut load.process_system_percent,
        &mut load.host_user_percent,
        &mut load.host_system_percent,
        &mut load.host_interrupt_percent,
    ] {
        *seconds = percent(*seconds, span_s);
    }
    let uses_network = gathered.task.technology.reach == Reach::Network;
    let per_message = |packets: Option<u64>| {
        let packets = packets.filter(|_| uses_network && messages > 0)?;
        Some(packets as f64 / messages as f64)
    };
    load.gateway_percent = gateway_s.map(|seconds| percent(seconds, span_s));
    load.packets_sent_per_message = per_message(packets_sent);
    load.packets_received_per_message = per_message(packets_received);
    Some(load)
}
