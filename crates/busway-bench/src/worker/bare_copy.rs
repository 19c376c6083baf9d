//! The floor of the memory bus: two processes and a shared window, a copy in and a copy out, every byte filled and checked.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::control::Control;
use super::figures::{Figures, Tally, WarmUp};
use super::wait::Patience;
use super::window::{LONGEST_SLEEP, Ring, slots_for};
use super::{Bare, Part, Report, Wait, WorkerResult, report};
use crate::pattern::{Header, PROBE, check, fill, now_ns};
use crate::record::Recorder;

/// Runs one of the four parts. Echo and receive make the windows, so they are started first.
pub(super) fn run(spec: &Bare<PathBuf>, control: &Control) -> WorkerResult<Figures> {
    let create = matches!(spec.part, Part::Echo | Part::Receive);
    let open = |suffix| {
        let bytes = spec.payload_bytes;
        Ring::open(&with_suffix(&spec.place, suffix), bytes, slots_for(bytes), create)
    };
    let (there, back) = (open("there")?, open("back")?);
    let side = |ring| Side {
        ring,
        wait: spec.wait,
        message: vec![0; spec.payload_bytes / 8],
        patience: Patience::new(spec.wait, None),
    };
    let (mut there, mut back) = (side(there), side(back));
    report(&Report::Ready(None));
    match spec.part {
        Part::Ping => ping(&mut there, &mut back, spec.seconds, control),
        Part::Echo => echo(&mut there, &mut back, control),
        Part::Send => send(&mut there, spec.seconds, control),
        Part::Receive => receive(&mut there, control),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    path.with_extension(suffix)
}

/// One direction, a buffer outside the window, and a way to wait.
struct Side {
    ring: Ring,
    wait: Wait,
    message: Vec<u64>,
    patience: Patience,
}

impl Side {
    /// False when `give_up` said so while the ring was full.
    fn send(&mut self, header: Header, give_up: impl Fn() -> bool) -> bool {
        fill(&mut self.message, header);
        while !self.ring.try_send(&self.message, self.wait) {
            if give_up() {
                return false;
            }
            self.pause(Ring::sleep_until_room);
        }
        self.patience.reset();
        true
    }

    /// `None` when `give_up` said so while nothing came.
    fn receive(&mut self, give_up: impl Fn() -> bool) -> Option<Option<Header>> {
        while !self.ring.try_receive(&mut self.message, self.wait) {
            if give_up() {
                return None;
            }
            self.pause(|ring| ring.sleep_until_message(LONGEST_SLEEP));
        }
        self.patience.reset();
        Some(check(&self.message))
    }

    fn pause(&mut self, sleep: impl Fn(&Ring)) {
        match self.wait {
            Wait::Event => sleep(&self.ring),
            _ => self.patience.pause(),
        }
    }
}

fn ping(there: &mut Side, back: &mut Side, seconds: f64, control: &Control) -> WorkerResult<Figures> {
    report(&Report::Arrived);
    let mut figures = Figures::default();
    if !control.wait_for_go() {
        return Ok(figures);
    }
    let mut trips = Recorder::default();
    let warm_up = WarmUp::new(seconds);
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    for sequence in 0.. {
        if control.ended() || Instant::now() >= deadline {
            break;
        }
        let started_ns = now_ns();
        there.send(Header { sequence, sent_ns: 0 }, || control.ended());
        let Some(answer) = back.receive(|| control.ended()) else {
            break;
        };
        let ended_ns = now_ns();
        if warm_up.is_over(sequence, started_ns) {
            figures.sent += 1;
            figures.received += 1;
            figures.corrupt += u64::from(answer.is_none_or(|header| header.sequence != sequence));
            trips.record(ended_ns - started_ns);
        }
    }
    report(&Report::Times(trips.encode()));
    Ok(figures)
}

fn echo(there: &mut Side, back: &mut Side, control: &Control) -> WorkerResult<Figures> {
    let mut figures = Figures::default();
    while let Some(header) = there.receive(|| control.ended()) {
        match header {
            Some(header) => {
                back.send(header, || control.ended());
            }
            None => figures.corrupt += 1,
        }
        figures.received += 1;
    }
    Ok(figures)
}

fn send(there: &mut Side, seconds: f64, control: &Control) -> WorkerResult<Figures> {
    there.send(
        Header {
            sequence: PROBE,
            sent_ns: 0,
        },
        || control.ended(),
    );
    let mut figures = Figures::default();
    if !control.wait_for_go() {
        return Ok(figures);
    }
    figures.first_ns = now_ns();
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    while figures.sent & 15 != 0 || Instant::now() < deadline {
        if !there.send(
            Header {
                sequence: figures.sent,
                sent_ns: 0,
            },
            || control.ended(),
        ) {
            break;
        }
        figures.sent += 1;
    }
    figures.last_ns = now_ns();
    report(&Report::Sent(figures));
    while !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(figures)
}

fn receive(there: &mut Side, control: &Control) -> WorkerResult<Figures> {
    let mut tally = Tally::new(false);
    let mut seen = 0;
    loop {
        let finished = || control.ended() || control.total().is_some_and(|total| tally.has_last_of(total));
        let Some(header) = there.receive(finished) else {
            break;
        };
        if tally.count(header) {
            report(&Report::Arrived);
        }
        if there.ring.is_drained() {
            tally.note_pause(seen);
            seen = tally.received();
        }
    }
    Ok(tally.figures())
}
