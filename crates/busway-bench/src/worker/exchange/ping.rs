//! Round trips over a [`Path`].

use std::time::{Duration, Instant};

use super::{Exchange, Path, clock_ns, number, number_of};
use crate::pattern::{PROBE, now_ns};
use crate::worker::control::Control;
use crate::worker::figures::{Figures, Latency, WarmUp, cpu_s};
use crate::worker::wait::Patience;
use crate::worker::{Report, WorkerResult, report};

/// An answer that takes longer counts as lost.
const TIMEOUT: Duration = Duration::from_secs(1);
/// While the path comes up, a probe is repeated after this long.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// Set in the number of an answer to a message that was not the one announced: torn, or an older one once more. Only a register whose
/// readers can be deceived gives such messages.
const DECEIVED: u64 = 1 << 62;
/// Looks between which the clock is asked whether it is too late.
const LOOKS: u32 = 256;

/// Asks and measures. Half round trips are without the reading of the clock that each contains.
pub(super) fn ping(path: &mut impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Figures> {
    let mut asker = Asker {
        path,
        patience: Patience::new(spec.wait, None),
        question: vec![0; spec.payload_bytes],
        answer: vec![0; spec.payload_bytes],
        has_given_up: false,
        torn: 0,
    };
    report(&Report::Ready(None));
    let mut probe = spec.base | PROBE;
    while !asker.ask(probe, PROBE_TIMEOUT, control)? {
        if control.ended() {
            return Ok(Figures::default());
        }
        probe += 1;
    }
    report(&Report::Arrived);
    if !control.wait_for_go() {
        return Ok(Figures::default());
    }
    let clock_ns = clock_ns();
    let (mut figures, mut latency) = (Figures::default(), Latency::new());
    let warm_up = WarmUp::new(spec.seconds);
    let begun_cpu_s = cpu_s();
    let begun_ns = now_ns();
    let end_ns = begun_ns + (spec.seconds * 1e9) as u64;
    let mut ended_ns = begun_ns;
    for trip in 0.. {
        if control.ended() || ended_ns >= end_ns {
            break;
        }
        let started_ns = now_ns();
        let answered = asker.ask(spec.base + trip, TIMEOUT, control)?;
        ended_ns = now_ns();
        if warm_up.is_over(trip, started_ns) {
            figures.sent += 1;
            if answered {
                figures.received += 1;
                latency.record((ended_ns - started_ns).saturating_sub(clock_ns) / 2);
            }
        }
    }
    (figures.first_ns, figures.last_ns) = (begun_ns, ended_ns);
    figures.cpu_s = cpu_s() - begun_cpu_s;
    figures.corrupt = asker.torn;
    figures.latency_ns = latency.percentiles();
    Ok(figures)
}

struct Asker<'p, P> {
    path: &'p mut P,
    patience: Patience,
    question: Vec<u8>,
    answer: Vec<u8>,
    /// Whether a late answer may still come.
    has_given_up: bool,
    /// Torn or old messages that were given as new ones, at either end.
    torn: u64,
}

impl<P: Path> Asker<'_, P> {
    /// One round trip; false if the answer did not come in time, or something else came for it.
    fn ask(&mut self, asked: u64, timeout: Duration, control: &Control) -> WorkerResult<bool> {
        number(&mut self.question, asked);
        self.path.write(&self.question)?;
        let mut looks = 0_u32;
        let mut since = None;
        loop {
            if self.path.look(&mut self.answer)? {
                self.patience.reset();
                match number_of(&self.answer) {
                    Some(answered) if answered == asked => return Ok(true),
                    // The answer to a probe, or to a question given up.
                    Some(answered) if answered & PROBE != 0 || self.has_given_up => {}
                    _ => {
                        self.torn += 1;
                        return Ok(false);
                    }
                }
            }
            self.patience.pause();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) {
                let is_late = since.get_or_insert_with(Instant::now).elapsed() > timeout;
                if is_late || control.ended() {
                    self.has_given_up = asked & PROBE == 0;
                    return Ok(false);
                }
            }
        }
    }
}

/// Answers until the parent goes.
pub(super) fn echo(path: &mut impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Figures> {
    let mut message = vec![0; spec.payload_bytes];
    let mut patience = Patience::new(spec.wait, None);
    let mut figures = Figures::default();
    let mut newest = None;
    report(&Report::Ready(None));
    while !control.ended() {
        if !path.look(&mut message)? {
            patience.pause();
            continue;
        }
        patience.reset();
        match number_of(&message) {
            Some(asked) if !spec.is_ours(asked) => {}
            Some(asked) if asked & PROBE != 0 || newest.is_none_or(|newest| asked > newest) => {
                if asked & PROBE == 0 {
                    newest = Some(asked);
                }
                path.write(&message)?;
                figures.received += 1;
            }
            // At once, so that nobody waits for an answer that can't come.
            _ => {
                number(&mut message, spec.base | DECEIVED);
                path.write(&message)?;
                figures.corrupt += 1;
            }
        }
    }
    Ok(figures)
}
