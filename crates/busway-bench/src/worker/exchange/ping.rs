//! Round trips over a [`Path`], each begun when the one before has ended.

use std::time::{Duration, Instant};

use super::spec::{End, Exchange};
use crate::clock::{self, now_ns};
use crate::control::{Control, WorkerResult};
use crate::record::{Measured, Recorder};
use crate::technology::{Message, PROBE, Path, Received, Wait};
use crate::worker::report::{Report, report, stay};
use crate::worker::usage::Usage;
use crate::worker::waiter::Waiter;

/// An answer that takes longer counts as lost.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// While the path comes up, a probe is repeated after this long.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// Round trips that are not counted, because they touch pages and caches for the first time: so
/// many, or a tenth of the time where that is less.
const WARM_UP_TRIPS: u64 = 50;
const WARM_UP_SHARE: f64 = 0.1;
/// Set in the number of an answer to a message that was not the one announced: torn, or an older
/// one once more. Only a register whose readers can be deceived gives such messages.
const DECEIVED: u64 = 1 << 62;
/// Polls between two readings of the clock.
const LOOKS: u32 = 256;
/// Most that is charged to an answer between two such looks: a program that did not run, because
/// the machine stood still, has not waited.
const CHARGED_AT_MOST: Duration = Duration::from_millis(100);

/// Asks and measures. Round trips are without the reading of the clock that each contains.
pub(super) fn ping(path: &mut impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Measured> {
    let mut asker = Asker::new(path, Waiter::new(spec.wait));
    if !asker.come_up(spec, control)? {
        return Ok(Measured::default());
    }
    let clock_ns = clock::read_ns() as u64;
    let mut trips = Recorder::default();
    let mut number = asker.warm_up(spec, control)?;
    let mut measured = Measured::default();
    let mut ended_ns = now_ns();
    let usage = Usage::begin(spec.place.address.ip());
    let end = End::of(spec.extent);
    measured.first_ns = now_ns();
    while !control.ended() && !end.has_come(ended_ns, measured.sent) {
        let started_ns = now_ns();
        let answered = asker.ask(number, TIMEOUT, control)?;
        ended_ns = now_ns();
        number += 1;
        measured.sent += 1;
        if answered {
            measured.received += 1;
            trips.record((ended_ns - started_ns).saturating_sub(clock_ns));
        }
    }
    measured.last_ns = ended_ns;
    measured.usage = usage.end();
    measured.corrupt = asker.corrupt();
    measured.times = Some(trips.encode());
    stay(&measured, control);
    Ok(measured)
}

struct WarmUp {
    until_ns: u64,
}

impl WarmUp {
    fn new(spec: &Exchange) -> Self {
        let seconds = match spec.extent {
            super::spec::Extent::Seconds(seconds) => seconds * WARM_UP_SHARE,
            super::spec::Extent::Messages(_) => TIMEOUT.as_secs_f64(),
        };
        Self {
            until_ns: now_ns() + (seconds * 1e9) as u64,
        }
    }

    fn is_over(&self, trips: u64, now_ns: u64) -> bool {
        trips >= WARM_UP_TRIPS || now_ns >= self.until_ns
    }
}

pub(super) struct Asker<'p, P: ?Sized> {
    path: &'p mut P,
    waiter: Waiter,
    /// Whether a late answer may still come.
    has_abandoned: bool,
    /// Torn or old messages that were given as new ones, at either end.
    corrupt: u64,
}

impl<'p, P: Path + ?Sized> Asker<'p, P> {
    pub(super) fn new(path: &'p mut P, waiter: Waiter) -> Self {
        Self {
            path,
            waiter,
            has_abandoned: false,
            corrupt: 0,
        }
    }

    /// Probes until an answer comes, says so, and waits for `go`; false if the parent went instead.
    pub(super) fn come_up(&mut self, spec: &Exchange, control: &Control) -> WorkerResult<bool> {
        report(&Report::Ready(None));
        let mut probe = spec.base | PROBE;
        // A long one is not repeated while it is under way: both programs would wait for room.
        let timeout = PROBE_TIMEOUT + Duration::from_micros(spec.payload_bytes as u64);
        while !self.ask(probe, timeout, control)? {
            if control.ended() {
                return Ok(false);
            }
            probe += 1;
        }
        report(&Report::Arrived);
        Ok(control.wait_for_go())
    }

    /// Round trips that do not count, from [`Exchange::base`]; the next number.
    pub(super) fn warm_up(&mut self, spec: &Exchange, control: &Control) -> WorkerResult<u64> {
        let warm_up = WarmUp::new(spec);
        let mut trips = 0;
        while !warm_up.is_over(trips, now_ns()) && !control.ended() {
            self.ask(spec.base + trips, TIMEOUT, control)?;
            trips += 1;
        }
        self.corrupt = 0;
        Ok(spec.base + trips)
    }

    pub(super) fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// One round trip; false if the answer did not come in time, or something else came for it.
    pub(super) fn ask(&mut self, asked: u64, timeout: Duration, control: &Control) -> WorkerResult<bool> {
        if !self.path.send(Message::numbered(asked))? && control.ended() {
            return Ok(false);
        }
        let mut looks = 0_u32;
        let (mut looked_at, mut waited) = (None, Duration::ZERO);
        loop {
            if let Some(Received { message, intact }) = self.path.receive()? {
                self.waiter.reset();
                let answered = message.number;
                if answered == asked && intact && message == Message::numbered(asked) {
                    return Ok(true);
                }
                // The answer to a probe, or to an abandoned question.
                let is_late = answered & PROBE != 0 || self.has_abandoned;
                if !(intact && is_late) {
                    self.corrupt += 1;
                    return Ok(false);
                }
            }
            self.waiter.pause();
            looks = looks.wrapping_add(1);
            // A look that blocks takes so long itself that the clock costs nothing beside it.
            if self.waiter.strategy() == Wait::Event || looks.is_multiple_of(LOOKS) {
                let now = Instant::now();
                let before = looked_at.replace(now).unwrap_or(now);
                waited += (now - before).min(CHARGED_AT_MOST);
                if waited > timeout || control.ended() {
                    self.has_abandoned = asked & PROBE == 0;
                    return Ok(false);
                }
            }
        }
    }
}

/// Answers until the parent goes.
pub(super) fn echo(path: &mut impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Measured> {
    let mut waiter = Waiter::new(spec.wait);
    let mut measured = Measured::default();
    let mut newest = None;
    report(&Report::Ready(None));
    while !control.ended() {
        let Some(Received { message, intact }) = path.receive()? else {
            waiter.pause();
            continue;
        };
        waiter.reset();
        let asked = message.number;
        if intact && !spec.is_ours(asked) {
            continue;
        }
        let is_new = asked & PROBE != 0 || newest.is_none_or(|newest| asked > newest);
        if intact && is_new && message == Message::numbered(asked) {
            if asked & PROBE == 0 {
                newest = Some(asked);
            }
            path.send(message)?;
            measured.received += 1;
        } else {
            // At once, so that nobody waits for an answer that can't come.
            path.send(Message::numbered(spec.base | DECEIVED))?;
            measured.corrupt += 1;
        }
    }
    Ok(measured)
}
