//! The clock that measures everything, measured itself.

use serde::{Deserialize, Serialize};

/// Readings for the resolution: some milliseconds.
const READINGS: u32 = 50_000;
/// Readings in a row for the cost, and how often.
const BATCH: u64 = 1000;
const BATCHES: u32 = 20;

/// `CLOCK_MONOTONIC` in ns, as the measured programs read it: the same for all processes of a
/// machine, in every namespace used here.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The resolution of the clock (`CLOCK_MONOTONIC`), and the cost of reading it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Shortest time between two readings that differ, in ns. At least the cost of a reading.
    pub resolution_ns: u64,
    /// What a reading costs in ns.
    pub read_ns: f64,
}

/// What reading the clock costs in ns: the least mean of several rows of readings.
pub fn read_ns() -> f64 {
    let mean_ns = |_| {
        let begun_ns = now_ns();
        for _ in 1..BATCH {
            std::hint::black_box(now_ns());
        }
        (now_ns() - begun_ns) as f64 / BATCH as f64
    };
    (0..BATCHES).map(mean_ns).fold(f64::INFINITY, f64::min)
}

/// Measures for a few milliseconds.
pub fn measure() -> Clock {
    let mut resolution_ns = u64::MAX;
    let mut last_ns = now_ns();
    for _ in 0..READINGS {
        let ns = now_ns();
        if ns > last_ns {
            resolution_ns = resolution_ns.min(ns - last_ns);
        }
        last_ns = ns;
    }
    Clock {
        // A clock that stood still for all readings is coarser than they took.
        resolution_ns: if resolution_ns == u64::MAX {
            0
        } else {
            resolution_ns
        },
        // Further digits say nothing.
        read_ns: (read_ns() * 10.0).round() / 10.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_has_resolution_and_cost() {
        let clock = measure();
        assert!(clock.resolution_ns > 0, "{clock:?}");
        assert!(clock.read_ns > 0.0 && clock.read_ns.is_finite(), "{clock:?}");
    }
}
