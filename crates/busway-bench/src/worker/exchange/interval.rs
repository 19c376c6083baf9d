//! Message timeliness: how the intervals at which messages are seen compare with those at which they were written.
//!
//! A message says when it was written; the reader takes down the differences between the messages that it sees, as Lee, Kim,
//! Kim and Jin do ("RDMA-based Sampling Port of ARINC-653", section IV-C). They are the writer's own intervals as long as no message
//! is overwritten before it is seen.

use std::time::Duration;

use super::{Exchange, Path, number, word};
use crate::pattern::{PROBE, now_ns};
use crate::worker::control::Control;
use crate::worker::figures::{Figures, Latency, cpu_s};
use crate::worker::wait::Patience;
use crate::worker::{Report, Wait, WorkerResult, report};

/// Between the messages that only test the path.
const PROBE_INTERVAL_NS: u64 = 1_000_000;
/// The reader stops looking for the last messages after this long without any.
const SILENCE_NS: u64 = 300_000_000;
/// A program that does not spin sleeps through all but the last of a pause.
const AWAKE_NS: u64 = 150_000;
/// Where in a message its time lies: behind its number, and in the shortest instead of the number's second copy.
const TIME_AT: usize = 8;

/// Writes a message each `interval_ns`. One that is late by an interval or more shifts those behind it: none is written in a burst.
pub(super) fn write(
    path: &mut impl Path,
    spec: &Exchange,
    interval_ns: u64,
    control: &Control,
) -> WorkerResult<Figures> {
    let mut message = vec![0; spec.payload_bytes];
    let mut put = |counted: u64| -> WorkerResult<u64> {
        number(&mut message, counted);
        let time_ns = now_ns();
        message[TIME_AT..TIME_AT + 8].copy_from_slice(&time_ns.to_ne_bytes());
        path.write(&message)?;
        Ok(time_ns)
    };
    report(&Report::Ready(None));
    let mut probe = spec.base | PROBE;
    while !control.gone() {
        if control.ended() {
            return Ok(Figures::default());
        }
        put(probe)?;
        probe += 1;
        std::thread::sleep(Duration::from_nanos(PROBE_INTERVAL_NS));
    }
    let (mut figures, mut intervals) = (Figures::default(), Latency::new());
    let begun_cpu_s = cpu_s();
    figures.first_ns = put(spec.base)?;
    figures.last_ns = figures.first_ns;
    figures.sent = 1;
    let end_ns = figures.first_ns + (spec.seconds * 1e9) as u64;
    let mut due_ns = figures.first_ns + interval_ns;
    while due_ns < end_ns && !control.ended() {
        wait_until(due_ns, spec.wait);
        let time_ns = put(spec.base + figures.sent)?;
        intervals.record(time_ns - figures.last_ns);
        figures.last_ns = time_ns;
        figures.sent += 1;
        let is_late = time_ns - due_ns >= interval_ns;
        due_ns = if is_late { time_ns } else { due_ns } + interval_ns;
    }
    figures.cpu_s = cpu_s() - begun_cpu_s;
    figures.latency_ns = intervals.percentiles();
    report(&Report::Sent(figures));
    while !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(figures)
}

fn wait_until(due_ns: u64, wait: Wait) {
    loop {
        let now_ns = now_ns();
        let Some(left_ns) = due_ns.checked_sub(now_ns).filter(|left_ns| *left_ns > 0) else {
            return;
        };
        match wait {
            Wait::Spin => std::hint::spin_loop(),
            _ if left_ns > AWAKE_NS => std::thread::sleep(Duration::from_nanos(left_ns - AWAKE_NS)),
            _ => std::thread::yield_now(),
        }
    }
}

/// Looks for new messages until the last one has come. In the figures, `latency_ns` are the intervals, and `first_ns` and
/// `last_ns` the times of the first and last message seen.
pub(super) fn read(path: &mut impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Figures> {
    let mut message = vec![0; spec.payload_bytes];
    let mut patience = Patience::new(spec.wait, None);
    let (mut figures, mut intervals) = (Figures::default(), Latency::new());
    let (mut has_arrived, mut next, mut looks) = (false, spec.base, 0_u32);
    let mut seen_ns = now_ns();
    report(&Report::Ready(None));
    loop {
        if !path.look(&mut message)? {
            patience.pause();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(64) && is_over(control, next - spec.base, seen_ns) {
                break;
            }
            continue;
        }
        patience.reset();
        let (counted, time_ns) = (word(&message, 0), word(&message, TIME_AT));
        if !spec.is_ours(counted) {
            continue;
        }
        if counted & PROBE != 0 {
            if !std::mem::replace(&mut has_arrived, true) {
                report(&Report::Arrived);
            }
            continue;
        }
        let is_whole = spec.payload_bytes < TIME_AT + 16 || word(&message, spec.payload_bytes - 8) == counted;
        figures.corrupt += u64::from(!is_whole);
        figures.out_of_order += u64::from(counted < next);
        if figures.received == 0 {
            figures.first_ns = time_ns;
        } else {
            intervals.record(time_ns.saturating_sub(figures.last_ns));
        }
        figures.last_ns = time_ns;
        figures.received += 1;
        next = next.max(counted + 1);
        seen_ns = now_ns();
    }
    figures.latency_ns = intervals.percentiles();
    Ok(figures)
}

/// Whether all of the messages that the parent knows of, or the last of them, have come, or none will.
fn is_over(control: &Control, seen: u64, seen_ns: u64) -> bool {
    let is_last = |total: u64| seen >= total || now_ns().saturating_sub(seen_ns) > SILENCE_NS;
    control.ended() || control.total().is_some_and(is_last)
}
