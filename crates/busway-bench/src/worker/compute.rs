//! The computing partition: the same calculation once in each frame, and how long it took.

use serde::{Deserialize, Serialize};

use super::frames::{next_frame_ns, sleep_until};
use super::schedule::Seat;
use crate::clock::now_ns;
use crate::conditions::{self, Wanted};
use crate::control::{Control, WorkerResult};
use crate::record::{Measured, Recorder};
use crate::worker::report::{Report, report, stay};

/// Executions that are not counted, because they touch code and clock for the first time.
const WARM_UP: u64 = 10;
/// Steps by which the calculation is calibrated, and how often.
const CALIBRATION_STEPS: u64 = 50_000;
const CALIBRATIONS: u32 = 50;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compute {
    pub wanted: Wanted,
    pub steps: u64,
    pub frame_ns: u64,
    /// How long to continue after `go`, in s.
    pub seconds: f64,
    /// Its place in the time table; `None`: its priority stands in for one.
    #[serde(default)]
    pub seat: Option<Seat>,
}

pub(super) fn run(spec: &Compute, control: &Control) -> WorkerResult<Measured> {
    let (_granted, conditions) = conditions::apply(&spec.wanted);
    report(&Report::Conditions(conditions));
    if let Some(seat) = &spec.seat {
        seat.take()?;
    }
    report(&Report::Ready(None));
    if !control.wait_for_go() {
        return Ok(Measured::default());
    }
    let mut times = Recorder::default();
    let mut measured = Measured::default();
    let mut frame_ns = next_frame_ns(now_ns(), spec.frame_ns);
    for _ in 0..WARM_UP {
        sleep_until(frame_ns);
        calculate(spec.steps);
        frame_ns = next_frame_ns(now_ns(), spec.frame_ns);
    }
    measured.first_ns = now_ns();
    let end_ns = measured.first_ns + (spec.seconds * 1e9) as u64;
    while frame_ns < end_ns && !control.ended() {
        sleep_until(frame_ns);
        let begun_ns = now_ns();
        calculate(spec.steps);
        let ended_ns = now_ns();
        times.record(ended_ns - begun_ns);
        measured.sent += 1;
        measured.last_ns = ended_ns;
        let next_ns = next_frame_ns(ended_ns, spec.frame_ns);
        measured.lost += (next_ns - frame_ns) / spec.frame_ns - 1;
        frame_ns = next_ns;
    }
    measured.times = Some(times.encode());
    stay(&measured, control);
    Ok(measured)
}

/// A row of steps, each of which needs the one before: no memory, and nothing that a compiler or a
/// CPU could do at once (Marsaglia's xorshift).
fn calculate(steps: u64) -> u64 {
    let mut x = std::hint::black_box(0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x)
}

/// Steps that take this many µs on this machine where nothing disturbs them.
pub(crate) fn steps_for(us: u64) -> u64 {
    let time_ns = |_| {
        let begun_ns = now_ns();
        calculate(CALIBRATION_STEPS);
        now_ns() - begun_ns
    };
    // The shortest is the one that nothing disturbed.
    let shortest_ns = (0..CALIBRATIONS).map(time_ns).min().unwrap_or(1).max(1);
    (us * 1000 * CALIBRATION_STEPS / shortest_ns).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_is_more_steps() {
        let (short, long) = (steps_for(10), steps_for(1000));
        assert!(short > 10 && long > short * 10, "{short} {long}");
    }

    #[test]
    fn every_step_counts() {
        assert_ne!(calculate(1000), calculate(1001));
    }
}
