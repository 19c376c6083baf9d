//! Round trips for hours: what [`super::ping`] does, with a report now and then.
//!
//! Memory is constant: a report hands over what was found since the one before, and forgets it.
//! Reports are made between two round trips, never within one. With an interval, each round trip
//! counts from the instant at which it was due, so that a standstill is charged with all that it
//! delayed (no coordinated omission).

use super::pace::wait_until;
use super::ping::{Asker, TIMEOUT};
use super::spec::{End, Exchange};
use crate::clock::{self, now_ns};
use crate::control::{Control, WorkerResult};
use crate::record::{Interruption, Maximum, Measured, Recorder};
use crate::technology::Path;
use crate::worker::report::{Report, report, stay};
use crate::worker::waiter::Waiter;

const MAXIMA: usize = 256;
const INTERRUPTIONS: usize = 256;

/// Asks for as long as [`Exchange::extent`] says. `paces`: between reports, and between the
/// instants at which round trips are due, if they have any, in ns. In reports, times in s count
/// from `go`.
pub(super) fn watch(
    path: &mut dyn Path,
    spec: &Exchange,
    paces: (u64, Option<u64>),
    control: &Control,
) -> WorkerResult<Measured> {
    let mut asker = Asker::new(path, Waiter::new(spec.wait));
    if !asker.come_up(spec, control)? {
        return Ok(Measured::default());
    }
    let (report_ns, interval_ns) = paces;
    let begun_ns = now_ns();
    let clock_ns = clock::read_ns() as u64;
    let mut number = asker.warm_up(spec, control)?;
    let mut found = Found::new(begun_ns);
    let end = End::of(spec.extent);
    let mut ended_ns = now_ns();
    let mut report_at_ns = ended_ns + report_ns;
    let mut corrupt = 0;
    let mut due_ns = ended_ns;
    while !control.ended() && !end.has_come(ended_ns, number - spec.base) {
        let started_ns = match interval_ns {
            Some(interval_ns) => {
                due_ns += interval_ns;
                wait_until(due_ns, spec.wait);
                due_ns
            }
            None => now_ns(),
        };
        let answered = asker.ask(number, TIMEOUT, control);
        ended_ns = now_ns();
        number += 1;
        let failed = answered.as_ref().err().cloned();
        if answered == Ok(true) {
            found.answered(started_ns, (ended_ns - started_ns).saturating_sub(clock_ns));
        } else if failed.is_none() && !control.ended() {
            found.unanswered(started_ns);
            // The interruption is told as such; nothing that it delayed counts once more.
            due_ns = ended_ns;
        }
        // What was measured until a path fails counts: by it the parent knows that the path has
        // worked.
        if ended_ns >= report_at_ns || failed.is_some() {
            found.measured.corrupt = asker.corrupt() - corrupt;
            corrupt = asker.corrupt();
            report(&Report::Interim(Box::new(found.take())));
            report_at_ns = now_ns() + report_ns;
        }
        if let Some(why) = failed {
            return Err(why);
        }
    }
    found.measured.corrupt = asker.corrupt() - corrupt;
    let measured = found.take();
    stay(&measured, control);
    Ok(measured)
}

struct Found {
    begun_ns: u64,
    trips: Recorder,
    measured: Measured,
    longest_ns: u64,
    silent_since_ns: Option<u64>,
}

impl Found {
    fn new(begun_ns: u64) -> Self {
        Self {
            begun_ns,
            trips: Recorder::default(),
            measured: Measured::default(),
            longest_ns: 0,
            silent_since_ns: None,
        }
    }

    fn since_begin_s(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.begun_ns) as f64 / 1e9
    }

    fn answered(&mut self, started_ns: u64, rtt_ns: u64) {
        self.measured.sent += 1;
        self.measured.received += 1;
        self.trips.record(rtt_ns);
        if let Some(since_ns) = self.silent_since_ns.take() {
            if self.measured.interruptions.len() == INTERRUPTIONS {
                self.measured.interruptions.pop();
            }
            self.measured.interruptions.push(Interruption {
                at_s: self.since_begin_s(since_ns),
                lasted_s: started_ns.saturating_sub(since_ns) as f64 / 1e9,
                reason: "no answer came".into(),
            });
        }
        if rtt_ns > self.longest_ns {
            self.longest_ns = rtt_ns;
            if self.measured.maxima.len() == MAXIMA {
                self.measured.maxima.pop();
            }
            self.measured.maxima.push(Maximum {
                at_s: self.since_begin_s(started_ns),
                rtt_ns,
            });
        }
    }

    fn unanswered(&mut self, started_ns: u64) {
        self.measured.sent += 1;
        self.measured.lost += 1;
        self.silent_since_ns.get_or_insert(started_ns);
    }

    fn take(&mut self) -> Measured {
        let mut measured = std::mem::take(&mut self.measured);
        measured.times = Some(self.trips.encode());
        self.trips.clear();
        measured
    }
}
