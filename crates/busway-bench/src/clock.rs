//! The clock by which all programs of one machine measure.

/// `CLOCK_MONOTONIC` in ns: the same for all processes of one machine, in every namespace used
/// here.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// What reading the clock once costs, in ns: the least of several means.
pub(crate) fn cost_ns() -> u64 {
    const CALLS: u64 = 1000;
    let mean_ns = |_| {
        let begun_ns = now_ns();
        for _ in 1..CALLS {
            std::hint::black_box(now_ns());
        }
        (now_ns() - begun_ns) / CALLS
    };
    (0..10).map(mean_ns).min().unwrap_or(0)
}
