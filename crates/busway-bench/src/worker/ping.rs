//! Round trips: one service there, one back, every byte written and checked on both sides.

use std::time::{Duration, Instant};

use super::control::Control;
use super::endpoint::{Endpoint, Sender};
use super::figures::{Figures, WarmUp};
use super::wait::Patience;
use super::{Ping, Report, Service, Wait, WorkerResult, report};
use crate::pattern::{Header, PROBE, check, now_ns};
use crate::record::Recorder;

/// An answer that takes longer counts as lost.
const TIMEOUT: Duration = Duration::from_secs(2);
/// While the path comes up, a probe is repeated after this long.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);

const THERE: &str = "/there";
const BACK: &str = "/back";

/// Asks and measures.
pub(super) fn ping(spec: &Ping, control: &Control) -> WorkerResult<Figures> {
    let there = Endpoint::open(&spec.service, THERE)?;
    let back = Endpoint::open(&spec.service, BACK)?;
    let (subscriber, listener) = back.receiver()?;
    let mut asker = Asker {
        sender: there.sender()?,
        subscriber,
        patience: Patience::new(spec.service.wait, listener),
    };
    report(&Report::Ready(None));
    let mut probe = PROBE;
    loop {
        if control.ended() {
            return Ok(Figures::default());
        }
        if there.subscribers() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        } else if asker.ask(probe, PROBE_TIMEOUT)?.is_ok() {
            break;
        }
        probe += 1;
    }
    report(&Report::Arrived);
    if !control.wait_for_go() {
        return Ok(Figures::default());
    }
    let mut figures = Figures {
        first_ns: now_ns(),
        ..Figures::default()
    };
    let mut trips = Recorder::default();
    let warm_up = WarmUp::new(spec.seconds);
    let deadline = Instant::now() + Duration::from_secs_f64(spec.seconds);
    let mut sequence = 0;
    while !control.ended() && Instant::now() < deadline {
        let started_ns = now_ns();
        let answer = asker.ask(sequence, TIMEOUT)?;
        let ended_ns = now_ns();
        if warm_up.is_over(sequence, started_ns) {
            figures.sent += 1;
            if let Ok(corrupt) = answer {
                figures.received += 1;
                figures.corrupt += u64::from(corrupt);
                trips.record(ended_ns - started_ns);
            }
        }
        sequence += 1;
    }
    figures.last_ns = now_ns();
    report(&Report::Times(trips.encode()));
    Ok(figures)
}

/// No answer in time.
struct Lost;

struct Asker {
    sender: Sender,
    subscriber: iceoryx2::port::subscriber::Subscriber<iceoryx2::prelude::ipc::Service, [u64], ()>,
    patience: Patience,
}

impl Asker {
    /// One round trip; `Ok(true)` if something corrupt came in between.
    fn ask(&mut self, sequence: u64, timeout: Duration) -> WorkerResult<Result<bool, Lost>> {
        self.sender.send(Header { sequence, sent_ns: 0 })?;
        let mut corrupt = false;
        let mut looks = 0u32;
        let started = Instant::now();
        loop {
            while let Some(sample) = self.subscriber.receive().map_err(|e| format!("receive: {e}"))? {
                match check(sample.payload()) {
                    // An older number is the answer to a probe or a question given up.
                    Some(header) if header.sequence != sequence => {}
                    Some(_) => {
                        self.patience.reset();
                        return Ok(Ok(corrupt));
                    }
                    None => corrupt = true,
                }
            }
            self.patience.pause();
            looks = looks.wrapping_add(1);
            // A clock reading costs more than a look.
            let due = looks.is_multiple_of(64) || self.patience.strategy() != Wait::Spin;
            if due && started.elapsed() > timeout {
                return Ok(Err(Lost));
            }
        }
    }
}

/// Answers until the parent goes.
pub(super) fn echo(spec: &Service, control: &Control) -> WorkerResult<Figures> {
    let there = Endpoint::open(spec, THERE)?;
    let back = Endpoint::open(spec, BACK)?;
    let sender = back.sender()?;
    let (subscriber, listener) = there.receiver()?;
    let mut patience = Patience::new(spec.wait, listener);
    report(&Report::Ready(None));
    let mut figures = Figures::default();
    while !control.ended() {
        match subscriber.receive().map_err(|e| format!("receive: {e}"))? {
            Some(sample) => {
                patience.reset();
                let header = check(sample.payload());
                drop(sample);
                match header {
                    Some(header) => {
                        sender.send(header)?;
                        figures.received += 1;
                    }
                    None => figures.corrupt += 1,
                }
            }
            None => patience.pause(),
        }
    }
    Ok(figures)
}
