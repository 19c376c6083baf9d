//! The clock by which all programs of one machine measure.

/// `CLOCK_MONOTONIC` in ns: the same for all processes of one machine, in every namespace used here.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
