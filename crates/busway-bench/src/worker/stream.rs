//! Publisher and subscriber of a one-way stream.

use std::time::{Duration, Instant};

use super::control::Control;
use super::endpoint::Endpoint;
use super::figures::{Figures, Tally};
use super::wait::Patience;
use super::{Publish, Report, Service, WorkerResult, report};
use crate::pattern::{Header, PROBE, check, now_ns};

/// Between two probes: often enough to start soon, seldom enough to leave nothing queued.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// A subscriber that was told to finish gives up on what is missing after this long without a message.
const DRAIN: Duration = Duration::from_millis(500);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Probes until `go`, then counts for `seconds`.
pub(super) fn publish(spec: &Publish, control: &Control) -> WorkerResult<Figures> {
    let endpoint = Endpoint::open(&spec.service, "")?;
    let sender = endpoint.sender()?;
    report(&Report::Ready(None));
    let mut probe = PROBE;
    while !control.gone() {
        if control.ended() {
            return Ok(Figures::default());
        }
        // Nothing is sent before somebody subscribes: what a full queue does would otherwise depend on who starts first.
        if endpoint.subscribers() > 0 {
            sender.send(Header {
                sequence: probe,
                sent_ns: now_ns(),
            })?;
            probe += 1;
        }
        std::thread::sleep(PROBE_INTERVAL);
    }
    let mut figures = Figures {
        first_ns: now_ns(),
        ..Figures::default()
    };
    let deadline = Instant::now() + Duration::from_secs_f64(spec.seconds);
    let mut pace = spec.rate_hz.map(Pace::new);
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    // Unpaced publishers look at the clock every 16th message only.
    while figures.sent & 15 != 0 && pace.is_none() || Instant::now() < deadline {
        if control.ended() {
            break;
        }
        let sent_ns = if spec.service.latency { now_ns() } else { 0 };
        sender.send(Header {
            sequence: figures.sent,
            sent_ns,
        })?;
        figures.sent += 1;
        if let Some(pace) = &mut pace {
            pace.wait();
            if spec.service.progress && Instant::now() >= next_progress {
                next_progress += PROGRESS_INTERVAL;
                report(&Report::Progress(figures));
            }
        }
    }
    figures.last_ns = now_ns();
    // The port stays until all readers are done, so that what is counted is the path and not the end of a program.
    report(&Report::Sent(figures));
    while !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(figures)
}

/// Counts until `finish` and all has arrived, or nothing more comes.
pub(super) fn subscribe(spec: &Service, control: &Control) -> WorkerResult<Figures> {
    let endpoint = Endpoint::open(spec, "")?;
    let (subscriber, listener) = endpoint.receiver()?;
    let mut patience = Patience::new(spec.wait, listener);
    let mut tally = Tally::new(spec.latency);
    report(&Report::Ready(None));
    let mut last = Silence::new();
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    while !control.ended() {
        let mut found = false;
        while let Some(sample) = subscriber.receive().map_err(|e| format!("receive: {e}"))? {
            found = true;
            if tally.count(check(sample.payload())) {
                report(&Report::Arrived);
            }
        }
        if found {
            tally.note_pause(last.received);
            patience.reset();
        } else {
            patience.pause();
        }
        if spec.progress && Instant::now() >= next_progress {
            next_progress += PROGRESS_INTERVAL;
            report(&Report::Progress(tally.figures()));
        }
        if let Some(total) = control.total()
            && (tally.has_last_of(total) || last.is_long(tally.received()))
        {
            break;
        }
        last.received = tally.received();
    }
    Ok(tally.figures())
}

/// Notices that a stream has dried up.
struct Silence {
    received: u64,
    since: Option<(u64, Instant)>,
}

impl Silence {
    fn new() -> Self {
        Self {
            received: 0,
            since: None,
        }
    }

    fn is_long(&mut self, received: u64) -> bool {
        match self.since {
            Some((seen, since)) if seen == received => since.elapsed() > DRAIN,
            _ => {
                self.since = Some((received, Instant::now()));
                false
            }
        }
    }
}

/// Sends at equal distances; a delay is not made up for by a burst.
struct Pace {
    period: Duration,
    next: Instant,
}

impl Pace {
    fn new(rate_hz: f64) -> Self {
        let period = Duration::from_secs_f64(1.0 / rate_hz);
        Self {
            period,
            next: Instant::now() + period,
        }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        if self.next > now {
            std::thread::sleep(self.next - now);
            self.next += self.period;
        } else {
            self.next = now + self.period;
        }
    }
}
