//! Round trips begun at instants of their own: the time of each counts from the instant at which it
//! was meant to begin, so that a path that stands still for a while is charged with every message
//! that it kept waiting (no coordinated omission).

use std::time::Duration;

use super::ping::Asker;
use super::spec::Exchange;
use crate::clock::{self, now_ns};
use crate::control::{Control, WorkerResult};
use crate::record::{Measured, Recorder};
use crate::technology::{Message, NUMBERS, PROBE, Path, Received, Wait};
use crate::worker::report::stay;
use crate::worker::usage::Usage;
use crate::worker::waiter::Waiter;

/// After the last message, answers are waited for this long.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// A program that sleeps wakes this long before its next instant and watches for the rest of the
/// time.
const AWAKE_NS: u64 = 60_000;
/// From `go` to the first instant.
const LEAD_NS: u64 = 2_000_000;
/// The share of the time that is not counted, at its beginning.
const WARM_UP_SHARE: f64 = 0.1;

/// Asks every `interval_ns`. In [`Measured::lost`] are the answers that never came.
pub(super) fn ping(
    path: &mut dyn Path,
    spec: &Exchange,
    interval_ns: u64,
    control: &Control,
) -> WorkerResult<Measured> {
    if !Asker::new(path, Waiter::new(spec.wait)).come_up(spec, control)? {
        return Ok(Measured::default());
    }
    let clock_ns = clock::read_ns() as u64;
    let mut instants = Instants::new(spec, interval_ns);
    let mut trips = Recorder::default();
    let mut measured = Measured {
        first_ns: instants.due_ns(instants.warm_up),
        ..Measured::default()
    };
    let usage = Usage::begin(spec.place.address.ip());
    let mut answered_below = 0;
    while !control.ended() {
        let now = now_ns();
        let is_sending = !instants.are_over();
        if is_sending && now >= instants.due_ns(instants.next) {
            // If there is no room it stays due, and its time runs.
            if path.send(Message::numbered(spec.base + instants.next))? {
                instants.next += 1;
            }
        }
        match path.receive()? {
            Some(received) => {
                if let Some(index) = index_of(&received, spec, answered_below) {
                    answered_below = index + 1;
                    if index >= instants.warm_up {
                        measured.received += 1;
                        measured.last_ns = now_ns();
                        trips.record(measured.last_ns.saturating_sub(instants.due_ns(index) + clock_ns));
                    }
                } else if received.message.number & PROBE == 0 {
                    measured.corrupt += 1;
                }
            }
            None if is_sending => sleep(
                path,
                spec.wait,
                instants.due_ns(instants.next).saturating_sub(now),
            ),
            None => {
                let is_late = now > instants.due_ns(instants.next) + TIMEOUT_NS;
                if answered_below == instants.next || is_late {
                    break;
                }
            }
        }
    }
    measured.usage = usage.end();
    measured.sent = instants.next.saturating_sub(instants.warm_up);
    measured.lost = measured.sent.saturating_sub(measured.received);
    measured.times = Some(trips.encode());
    stay(&measured, control);
    Ok(measured)
}

/// Which of our messages this answers; `None` if none that is new.
fn index_of(received: &Received, spec: &Exchange, answered_below: u64) -> Option<u64> {
    let number = received.message.number;
    let is_answer = received.intact && number & PROBE == 0 && received.message == Message::numbered(number);
    let index = number.checked_sub(spec.base)?;
    (is_answer && index >= answered_below && index < NUMBERS).then_some(index)
}

/// Waits for an answer or the next instant, `left_ns` from now.
fn sleep(path: &mut dyn Path, wait: Wait, left_ns: u64) {
    if wait != Wait::Spin && left_ns > AWAKE_NS {
        path.wait(Duration::from_nanos(left_ns - AWAKE_NS));
    } else {
        std::hint::spin_loop();
    }
}

struct Instants {
    begun_ns: u64,
    interval_ns: u64,
    warm_up: u64,
    /// Behind the last one.
    end: u64,
    next: u64,
}

impl Instants {
    fn new(spec: &Exchange, interval_ns: u64) -> Self {
        let begun_ns = now_ns() + LEAD_NS;
        let counted = match spec.extent {
            super::spec::Extent::Seconds(seconds) => (seconds * 1e9) as u64 / interval_ns,
            super::spec::Extent::Messages(messages) => messages,
        }
        .max(1);
        let warm_up = (counted as f64 * WARM_UP_SHARE) as u64;
        Self {
            begun_ns,
            interval_ns,
            warm_up,
            end: counted + warm_up,
            next: 0,
        }
    }

    fn due_ns(&self, index: u64) -> u64 {
        self.begun_ns + index * self.interval_ns
    }

    fn are_over(&self) -> bool {
        self.next >= self.end
    }
}
