use std::time::{Duration, Instant};

use super::*;

/// A counter of 2 GHz.
const RATE: u64 = 1 << (RATE_BITS - 1);

fn reading(before: u64, ns: i64, after: u64) -> Reading {
    Reading { before, ns, after }
}

/// Read at 1 s within 100 ns of counter 1000 .. 1200.
fn anchor() -> Anchor {
    Anchor::new(reading(1000, 1_000_000_000, 1200), RATE)
}

/// Counts of this many ns.
fn counts(ns: u64) -> u64 {
    ns * 2
}

#[test]
fn the_answer_is_that_of_every_clock_that_the_bound_allows() {
    let anchor = anchor();
    for elapsed_ns in [0, 1, 1_000, 100_000, RENEW_NS - 1] {
        let now_ns = anchor.ns + elapsed_ns as i64;
        for period_ns in [1, 1_000, 1_000_000, i64::MAX as u64] {
            for off_ns in [
                -2_000_000_i64,
                -130_000,
                -5_000,
                -1_101,
                -1_100,
                -1,
                0,
                1,
                1_100,
                1_101,
                5_000,
                130_000,
            ] {
                let time_ns = now_ns.saturating_sub(period_ns as i64).saturating_add(off_ns);
                let Some(answer) = anchor.answer(counts(elapsed_ns), time_ns, period_ns) else {
                    continue;
                };
                let error_ns = (elapsed_ns / 4 + 100 + DISORDER_NS) as i64;
                for real_ns in [now_ns - error_ns, now_ns, now_ns + error_ns] {
                    assert_eq!(
                        real_ns.abs_diff(time_ns) <= period_ns,
                        answer,
                        "elapsed {elapsed_ns}, period {period_ns}, off {off_ns}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_the_clock_knows_near_the_period() {
    let (anchor, period_ns) = (anchor(), 1_000_000);
    for (age_ns, expected) in [
        (0, Some(true)),
        (period_ns - 1_101, Some(true)),
        (period_ns - 1_100, None),
        (period_ns, None),
        (period_ns + 1_100, None),
        (period_ns + 1_101, Some(false)),
    ] {
        assert_eq!(
            anchor.answer(0, anchor.ns - age_ns, period_ns as u64),
            expected,
            "age {age_ns}"
        );
    }
    // A quarter of 100 us more, half of it past.
    let late = |age_ns: i64| anchor.answer(counts(100_000), anchor.ns + 100_000 - age_ns, period_ns as u64);
    assert_eq!(late(period_ns - 26_100), None);
    assert_eq!(late(period_ns - 26_101), Some(true));
}

#[test]
fn a_stamp_from_any_time_is_judged_without_overflow() {
    let anchor = anchor();
    for time_ns in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(anchor.answer(0, time_ns, 1_000), Some(false), "{time_ns}");
        assert_eq!(anchor.answer(0, time_ns, u64::MAX), Some(true), "{time_ns}");
    }
}

#[test]
fn a_reading_that_was_interrupted_widens_the_error_by_as_much() {
    let interrupted = Anchor::new(reading(0, 0, counts(5_000_000)), RATE);
    assert_eq!(interrupted.answer(0, 0, 5_001_000), None);
    assert_eq!(interrupted.answer(0, 0, 5_001_001), Some(true));
    let backwards = Anchor::new(reading(10, 0, 9), RATE);
    assert_eq!(backwards.answer(0, 0, 1 << 62), None, "as good as no reading");
}

#[test]
fn a_rate_is_taken_only_from_readings_that_leave_less_than_one_percent_of_doubt() {
    let first = reading(0, 0, 200);
    let last = |gap| reading(200 + counts(100_000) - gap, 100_000, 200 + counts(100_000));
    assert_eq!(rate_between(first, last(200)), Some(RATE));
    assert_eq!(rate_between(first, last(1_900)), None, "2100 of 200,000 counts");
    assert_eq!(rate_between(last(200), first), None, "the counter went back");
    let stopped = reading(200, 100_000, 200);
    assert_eq!(rate_between(first, stopped), None, "the counter stands still");
}

#[test]
fn no_thread_has_an_anchor_before_it_needs_one_and_none_without_a_counter() {
    std::thread::spawn(|| {
        assert_eq!(ANCHOR.get().lifetime, 0);
        let now_ns = Clock::Monotonic.now_ns();
        assert!(is_within(Clock::Monotonic, now_ns, 3_600_000_000_000));
        prepare();
        assert!(is_within(Clock::Monotonic, now_ns, 3_600_000_000_000));
        assert_eq!(ANCHOR.get().lifetime != 0, is_clock_source());
    })
    .join()
    .expect("the assertions hold");
}

/// With the real counter and the real clock, over many anchors: an answer lies between the clock's
/// before and after it.
#[test]
fn answers_agree_with_the_clock_before_and_after() {
    prepare();
    let end = Instant::now() + Duration::from_millis(200);
    let mut checked = 0_u32;
    let mut step = 0_u64;
    while Instant::now() < end {
        // Ages sweep over the period, through what is near it.
        step = (step + 7_919) % 400_000;
        let (before_ns, period_ns) = (Clock::Monotonic.now_ns(), 200_000);
        let time_ns = before_ns - step as i64;
        let answer = is_within(Clock::Monotonic, time_ns, period_ns);
        let after_ns = Clock::Monotonic.now_ns();
        let (early, late) = (
            before_ns.abs_diff(time_ns) <= period_ns,
            after_ns.abs_diff(time_ns) <= period_ns,
        );
        assert!(
            answer == early || answer == late,
            "age {step}, {} ns",
            after_ns - before_ns
        );
        checked += u32::from(early == late);
    }
    assert!(checked > 0);
}

#[test]
fn tai_is_asked_itself() {
    let now_ns = Clock::Tai.now_ns();
    assert!(is_within(Clock::Tai, now_ns, 60_000_000_000));
    assert!(!is_within(Clock::Tai, now_ns - 61_000_000_000, 60_000_000_000));
}
