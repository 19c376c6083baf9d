//! Whether a time stamp is within a period of now, mostly without asking the clock.
//!
//! Contract: [`is_within`] returns exactly what a comparison with [`Clock::now_ns`] would, for less
//! time: a read of a sampling port needs the time only to distinguish a fresh message from a stale
//! one, and the clock's own reading of the CPU's counter, its lock-free loop and its arithmetic
//! cost as much as all the rest of the read. No lock, no system call beyond the clock's own, no
//! allocation. Called by the reading services of [`crate::apex`]; joining a partition calls
//! [`prepare`].
//!
//! How: each thread keeps an *anchor*, the clock's time at one value of the CPU's counter. Until
//! the anchor is [`RENEW_NS`] old, now is estimated from the counter. Where the estimate's error
//! could change the answer, and wherever anything is odd, the clock is read.
//!
//! # The bound
//!
//! Let the clock have said `n` between the counter's values `c0` and `c1`, let the counter be `c`
//! now, and let `r` be the nanoseconds of a count that [`prepare`] measured. The estimate is
//! `n + e` with `e = (c - c1) r`. The clock would say `n + t`, and `|t - e|` is at most the sum of
//!
//! - `(c1 - c0) r`, the *gap*: `n` may belong to any counter value in it;
//! - `e / 4`: the clock may be slewed while the counter runs on. Linux takes at most 10 %
//!   (`ADJ_TICK`) and 500 ppm (`ADJ_FREQUENCY`, see adjtimex(2)), so between one extreme, while `r`
//!   was measured, and the other, now, lie less than 23 %; the measurement of `r` itself is kept
//!   below 1 %;
//! - [`DISORDER_NS`]: the CPU may read the counter before what stands before it in the program, as
//!   far as it looks ahead (some hundred instructions), and the counters of two CPUs may differ by
//!   less than Linux notices when it makes this counter its clock.
//!
//! Only if the age differs from the period by more than this sum is the estimate's answer taken,
//! and then the clock's would be the same.
//!
//! A counter that is no clock source of this kernel (unstable, stopped in sleep, another for each
//! CPU) is not used at all. If it becomes so later, an anchor's use still ends after [`RENEW_NS`]
//! of it, and a counter that went back ends it at once.
#![allow(unsafe_code)] // Reads the CPU's counter.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::config::Clock;

/// How long an anchor is used, in ns of the counter. Short, so that the error in it is: an eighth
/// of a millisecond. A renewal each half millisecond costs a fifth of a thousandth of a CPU.
const RENEW_NS: u64 = 500_000;

/// See the module's documentation, in ns.
const DISORDER_NS: u64 = 1_000;

/// How long the rate of the counter is measured, in ns: a hundred times the gaps of both readings,
/// on any machine that this is for.
const MEASURE_NS: i64 = 100_000;

/// Tries to measure it; a thread that is interrupted between clock and counter has to try again.
const MEASUREMENTS: u32 = 5;

/// Bits behind the point of a rate.
const RATE_BITS: u32 = 32;

/// The clock source of a kernel that lets programs read time from this counter.
const CLOCK_SOURCE: &str = if cfg!(target_arch = "x86_64") {
    "tsc"
} else {
    "arch_sys_counter"
};

/// What the clock said at one value of the counter, and how far that goes.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    /// The counter after the clock was read.
    counter: u64,
    /// For how many counts the anchor may be used; 0 if there is none.
    lifetime: u64,
    /// What the clock said in ns.
    ns: i64,
    /// Nanoseconds of a count times 2^[`RATE_BITS`].
    rate: u64,
    /// Gap and [`DISORDER_NS`] together, in ns.
    slack_ns: u64,
}

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor::NONE) };
}

/// Nanoseconds of a count times 2^[`RATE_BITS`], once measured; `None` if the counter is not to be
/// used.
static RATE: OnceLock<Option<u64>> = OnceLock::new();

/// Finds out whether the CPU's counter can stand in for the clock. The first call in a process
/// takes a tenth of a millisecond.
pub(crate) fn prepare() {
    RATE.get_or_init(|| {
        let rate = is_clock_source().then(measure).flatten();
        tracing::debug!(counts_per_us = ?rate.map(|rate| (1000 << RATE_BITS) / rate), "counter of the CPU");
        rate
    });
}

/// Whether now, by `clock`, and `time_ns` are no more than `period_ns` apart.
#[inline]
pub(crate) fn is_within(clock: Clock, time_ns: i64, period_ns: u64) -> bool {
    // TAI may be set, by any amount, at any time.
    if clock == Clock::Monotonic {
        let anchor = ANCHOR.get();
        let counts = counter().wrapping_sub(anchor.counter);
        if counts >= anchor.lifetime {
            return renew().abs_diff(time_ns) <= period_ns;
        }
        if let Some(answer) = anchor.answer(counts, time_ns, period_ns) {
            return answer;
        }
    }
    ask(clock, time_ns, period_ns)
}

#[cold]
fn ask(clock: Clock, time_ns: i64, period_ns: u64) -> bool {
    clock.now_ns().abs_diff(time_ns) <= period_ns
}

/// Asks `CLOCK_MONOTONIC`, and makes a new anchor of the answer if the counter is good for one.
#[cold]
fn renew() -> i64 {
    let Some(rate) = RATE.get().copied().flatten() else {
        return Clock::Monotonic.now_ns();
    };
    let reading = Reading::take();
    ANCHOR.set(Anchor::new(reading, rate));
    reading.ns
}

impl Anchor {
    const NONE: Self = Self {
        counter: 0,
        lifetime: 0,
        ns: 0,
        rate: 0,
        slack_ns: 0,
    };

    fn new(reading: Reading, rate: u64) -> Self {
        Self {
            counter: reading.after,
            lifetime: (RENEW_NS << RATE_BITS) / rate,
            ns: reading.ns,
            rate,
            slack_ns: reading.gap_ns(rate).saturating_add(DISORDER_NS),
        }
    }

    /// The answer `counts`, fewer than the lifetime, behind the anchor; `None` if only the clock
    /// knows.
    #[inline]
    fn answer(&self, counts: u64, time_ns: i64, period_ns: u64) -> Option<bool> {
        // Below RENEW_NS * 2^RATE_BITS, by the lifetime.
        let elapsed_ns = (counts * self.rate) >> RATE_BITS;
        let error_ns = (elapsed_ns / 4).saturating_add(self.slack_ns);
        let age_ns = (self.ns + elapsed_ns as i64).abs_diff(time_ns);
        (age_ns.abs_diff(period_ns) > error_ns).then_some(age_ns <= period_ns)
    }
}

/// The clock, and the counter before and after.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: u64,
    ns: i64,
    after: u64,
}

impl Reading {
    fn take() -> Self {
        Self {
            before: counter(),
            ns: Clock::Monotonic.now_ns(),
            after: counter(),
        }
    }

    /// How long the reading took, in ns, at `rate`; the largest number if the counter went back.
    fn gap_ns(&self, rate: u64) -> u64 {
        let scaled = (u128::from(self.after.wrapping_sub(self.before)) * u128::from(rate)) >> RATE_BITS;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

fn is_clock_source() -> bool {
    const SAID_BY: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
        && std::fs::read_to_string(SAID_BY).is_ok_and(|source| source.trim() == CLOCK_SOURCE)
}

fn measure() -> Option<u64> {
    (0..MEASUREMENTS).find_map(|_| {
        let first = Reading::take();
        let mut last = first;
        while last.ns - first.ns < MEASURE_NS {
            last = Reading::take();
        }
        rate_between(first, last)
    })
}

/// Nanoseconds of a count times 2^[`RATE_BITS`]; `None` if the gaps leave an error of 1 % or more,
/// or the numbers are impossible.
fn rate_between(first: Reading, last: Reading) -> Option<u64> {
    let counts = last.after.checked_sub(first.after)?;
    let gaps = (first.after.checked_sub(first.before)?).checked_add(last.after.checked_sub(last.before)?)?;
    let elapsed_ns = u64::try_from(last.ns - first.ns).ok()?;
    if gaps.checked_mul(100)? >= counts {
        return None;
    }
    let rate = (u128::from(elapsed_ns) << RATE_BITS) / u128::from(counts);
    // From a thousandth of a nanosecond to a microsecond for a count: what counters have.
    u64::try_from(rate)
        .ok()
        .filter(|rate| ((1 << RATE_BITS) / 1000..=1000 << RATE_BITS).contains(rate))
}

/// The counter of the CPU that Linux takes its time from; 0 where there is none.
#[inline]
fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction. A process that has forbidden it to itself
    // (PR_SET_TSC) could not have read the clock either.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: Linux lets programs read this register; it has no effect on memory or on other
        // registers.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags))
        };
        return value;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

#[cfg(test)]
#[path = "fast_clock_tests.rs"]
mod tests;
