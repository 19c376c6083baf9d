//! Messages in one direction: as fast as the path takes them, or at equal intervals.
//!
//! At equal intervals a message says when it was sent, and the receiver takes down the differences
//! between the messages that it sees, as Lee, Kim, Kim and Jin do ("RDMA-based Sampling Port of
//! ARINC-653", section IV-C). They are the sender's own intervals as long as no message is
//! overwritten before it is seen.

use std::time::Duration;

use super::pace::wait_until;
use super::spec::{End, Exchange, ExchangePart};
use crate::clock::now_ns;
use crate::control::{Control, WorkerResult};
use crate::record::{Measured, Recorder};
use crate::technology::{Message, PROBE, Path, Received, SHORT_BYTES};
use crate::worker::report::{Report, report, stay};
use crate::worker::usage::Usage;
use crate::worker::waiter::Waiter;

/// Between the messages that only test the path.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// The receiver stops looking for the last messages after this long without any.
const SILENCE_NS: u64 = 300_000_000;
/// Messages between which an unpaced sender looks at the clock.
const BATCH: u64 = 16;
/// The time in the last message of an unpaced sender, which ends the receiver's counting. If that
/// message is lost, the parent ends it, and the time until then counts too.
const LAST: u64 = u64::MAX;

/// Sends. A message that is late by an interval or more shifts those behind it: none is sent in a
/// burst.
pub(super) fn send(
    path: &mut dyn Path,
    spec: &Exchange,
    interval_ns: Option<u64>,
    control: &Control,
) -> WorkerResult<Measured> {
    report(&Report::Ready(None));
    let mut probe = spec.base | PROBE;
    while !control.gone() {
        if control.ended() {
            return Ok(Measured::default());
        }
        path.send(Message {
            number: probe,
            time_ns: now_ns(),
        })?;
        path.flush()?;
        probe += 1;
        std::thread::sleep(PROBE_INTERVAL);
    }
    let usage = Usage::begin(spec.place.address.ip());
    let mut measured = Measured {
        first_ns: now_ns(),
        ..Measured::default()
    };
    let end = End::of(spec.extent);
    match interval_ns {
        Some(interval_ns) => send_paced(path, spec, interval_ns, &end, control, &mut measured)?,
        None => send_unpaced(path, spec, &end, control, &mut measured)?,
    }
    measured.usage = usage.end();
    stay(&measured, control);
    Ok(measured)
}

fn send_unpaced(
    path: &mut dyn Path,
    spec: &Exchange,
    end: &End,
    control: &Control,
    measured: &mut Measured,
) -> WorkerResult<()> {
    let mut now = measured.first_ns;
    let mut is_last = false;
    while !is_last && !control.ended() {
        is_last = end.has_come(now, measured.sent + 1);
        let message = Message {
            number: spec.base + measured.sent,
            time_ns: if is_last { LAST } else { 0 },
        };
        if !path.send(message)? {
            break;
        }
        measured.sent += 1;
        if measured.sent.is_multiple_of(BATCH) {
            now = now_ns();
        }
    }
    path.flush()?;
    measured.last_ns = now_ns();
    Ok(())
}

fn send_paced(
    path: &mut dyn Path,
    spec: &Exchange,
    interval_ns: u64,
    end: &End,
    control: &Control,
    measured: &mut Measured,
) -> WorkerResult<()> {
    let mut intervals = Recorder::default();
    let mut due_ns = now_ns();
    let mut progress = Progress::of(spec);
    while !end.has_come(due_ns, measured.sent) && !control.ended() {
        wait_until(due_ns, spec.wait);
        let message = Message {
            number: spec.base + measured.sent,
            time_ns: now_ns(),
        };
        if !path.send(message)? {
            break;
        }
        path.flush()?;
        if measured.sent > 0 {
            intervals.record(message.time_ns - measured.last_ns);
        }
        measured.last_ns = message.time_ns;
        measured.sent += 1;
        progress.report(message.time_ns, || measured.clone());
        let is_late = message.time_ns - due_ns >= interval_ns;
        due_ns = if is_late { message.time_ns } else { due_ns } + interval_ns;
    }
    measured.times = Some(intervals.encode());
    Ok(())
}

struct Progress {
    /// None: nobody watches.
    next_ns: Option<u64>,
}

impl Progress {
    const INTERVAL_NS: u64 = 100_000_000;

    fn of(spec: &Exchange) -> Self {
        let is_watched = matches!(spec.part, ExchangePart::Publish(_) | ExchangePart::Subscribe);
        Self {
            next_ns: is_watched.then(|| now_ns() + Self::INTERVAL_NS),
        }
    }

    fn report(&mut self, now_ns: u64, so_far: impl FnOnce() -> Measured) {
        if self.next_ns.is_some_and(|next_ns| now_ns >= next_ns) {
            self.next_ns = Some(now_ns + Self::INTERVAL_NS);
            report(&Report::Progress(Box::new(so_far())));
        }
    }
}

/// Receives messages until the last one has come. [`Measured::times`] holds the intervals between
/// the times in messages that have one, for a subscriber their latencies; `first_ns` and `last_ns`
/// are when the first and the last message came.
pub(super) fn receive(path: &mut dyn Path, spec: &Exchange, control: &Control) -> WorkerResult<Measured> {
    let mut waiter = Waiter::new(spec.wait);
    let is_subscriber = spec.part == ExchangePart::Subscribe;
    let mut times = Recorder::default();
    let mut progress = Progress::of(spec);
    let mut usage = None;
    let mut measured = Measured::default();
    let (mut has_arrived, mut next, mut sent_ns, mut seen_ns) = (false, spec.base, 0, now_ns());
    report(&Report::Ready(None));
    loop {
        let Some(Received { message, intact }) = path.receive()? else {
            // Nothing more waits: this is when the last one had come.
            if measured.received > 0 && measured.last_ns < seen_ns {
                measured.last_ns = seen_ns;
            }
            waiter.pause();
            if is_over(control, next - spec.base, seen_ns) {
                break;
            }
            continue;
        };
        waiter.reset();
        if intact && !spec.is_ours(message.number) {
            continue;
        }
        if intact && message.number & PROBE != 0 {
            if !std::mem::replace(&mut has_arrived, true) {
                report(&Report::Arrived);
            }
            continue;
        }
        seen_ns = now_ns();
        if usage.is_none() {
            measured.first_ns = seen_ns;
            usage = Some(Usage::begin(spec.place.address.ip()));
        }
        measured.last_ns = seen_ns;
        if !intact || message.number < next {
            measured.corrupt += 1;
            measured.out_of_order += u64::from(intact);
            continue;
        }
        measured.received += 1;
        next = message.number + 1;
        if message.time_ns == LAST {
            break;
        }
        if spec.payload_bytes == SHORT_BYTES {
            // It has no room for a time.
        } else if is_subscriber {
            times.record(seen_ns.saturating_sub(message.time_ns));
            progress.report(seen_ns, || Measured {
                times: Some(times.encode()),
                ..measured.clone()
            });
        } else if sent_ns > 0 {
            times.record(message.time_ns.saturating_sub(sent_ns));
        }
        sent_ns = message.time_ns;
        let is_last = |total| next - spec.base >= total;
        if measured.received.is_multiple_of(BATCH) && control.total().is_some_and(is_last) {
            break;
        }
    }
    measured.usage = usage.map(Usage::end).unwrap_or_default();
    measured.times = Some(times.encode());
    stay(&measured, control);
    Ok(measured)
}

fn is_over(control: &Control, seen: u64, seen_ns: u64) -> bool {
    let is_last = |total: u64| seen >= total || now_ns().saturating_sub(seen_ns) > SILENCE_NS;
    control.ended() || control.total().is_some_and(is_last)
}
