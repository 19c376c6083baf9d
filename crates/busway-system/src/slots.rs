//! How many slots a sampling channel needs so that no read ever retries, and how long a read may
//! take.
//!
//! A reader loads `latest`, copies the slot, loads `latest` again and accepts if it advanced by at
//! most `N - 2` (`busway_core::register`). Let a read attempt take `R` from load to load, let
//! writes begin at least `W` apart, and let a write take at most `C` from its beginning to the
//! store of `latest`. The stores of `latest` that fall into the attempt belong to writes that began
//! in a span of `R + C`, so there are at most `floor((R + C) / W) + 1` of them. No retry can happen
//! if that is at most `N - 2`:
//!
//! ```text
//! N = floor((R + C) / W) + 3
//! ```
//!
//! It holds while writes arrive as they were made: inside a host, and where a partition writes into
//! the other host's memory. What gateways move may arrive several at once; there, and where a
//! reader is interrupted, a read ends after [`READ_RETRIES`] retries with the last good copy.
//! Called by the parser for the default, and by `busway check` with measured times.

/// Least number of slots of a register.
pub const MIN_SLOTS: u32 = 3;

/// Largest number of slots of a register.
pub const MAX_SLOTS: u32 = 4096;

/// Slots of a channel whose source says nothing of its write interval.
pub const DEFAULT_SLOTS: u32 = 4;

/// Most slots that a channel gets by default: beyond, the memory should be asked for.
pub const MAX_DEFAULT_SLOTS: u32 = 64;

/// Retries after which a read returns the last good copy.
pub const READ_RETRIES: u32 = 16;

/// Slots with which no read retries; `None` if that would be more than [`MAX_SLOTS`]. All times in
/// nanoseconds.
///
/// `read_ns` is the longest read attempt, `write_ns` the longest write, `min_write_interval_ns` the
/// least time between the beginnings of two writes.
pub fn slots_without_retry(read_ns: u64, write_ns: u64, min_write_interval_ns: u64) -> Option<u32> {
    let writes = read_ns
        .saturating_add(write_ns)
        .checked_div(min_write_interval_ns)?;
    u32::try_from(writes)
        .ok()
        .and_then(|writes| writes.checked_add(3))
        .filter(|slots| *slots <= MAX_SLOTS)
}

/// What read and write together may take with `slots` slots so that no read retries, in
/// nanoseconds: they must take less.
pub fn span_without_retry_ns(slots: u32, min_write_interval_ns: u64) -> u64 {
    u64::from(slots.saturating_sub(2)).saturating_mul(min_write_interval_ns)
}

/// The longest that a read can take, in nanoseconds, if an attempt takes `attempt_ns` and nothing
/// interrupts the reader.
pub fn longest_read_ns(attempt_ns: u64) -> u64 {
    attempt_ns.saturating_mul(u64::from(READ_RETRIES) + 1)
}

/// The slots of a channel whose file gives no number. Depends on the file alone, so that all hosts
/// come to the same; takes a copy for slower than it is on most machines (2 µs and 1 ns a byte).
pub fn default_slots(max_size_bytes: u32, min_write_interval_ns: Option<u64>) -> u32 {
    let Some(interval_ns) = min_write_interval_ns else {
        return DEFAULT_SLOTS;
    };
    let copy_ns = 2_000 + u64::from(max_size_bytes);
    slots_without_retry(copy_ns, copy_ns, interval_ns)
        .unwrap_or(MAX_SLOTS)
        .min(MAX_DEFAULT_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most writes whose store of `latest` can fall into a read attempt from 0 to `read`: those
    /// that begin from `-write` to `read`, for every phase of the writer.
    fn most_advances(read: u64, write: u64, interval: u64) -> u64 {
        let counted = |phase: u64| {
            (0..)
                .map(|k| phase + k * interval)
                .take_while(|begins_after_minus_write| *begins_after_minus_write <= write + read)
                .count() as u64
        };
        (0..interval).map(counted).max().unwrap_or(0)
    }

    #[test]
    fn with_the_computed_slots_no_schedule_of_writes_makes_a_reader_retry() {
        for read in 0..12 {
            for write in 0..6 {
                for interval in 1..10 {
                    let slots = slots_without_retry(read, write, interval).expect("few");
                    let advances = most_advances(read, write, interval);
                    assert!(
                        advances <= u64::from(slots) - 2,
                        "read {read}, write {write}, interval {interval}: {advances} advances with {slots} slots"
                    );
                }
            }
        }
    }

    #[test]
    fn the_span_of_a_number_of_slots_is_the_inverse() {
        for slots in MIN_SLOTS..40 {
            let span = span_without_retry_ns(slots, 1000);
            assert!(slots_without_retry(span - 1, 0, 1000).expect("few") <= slots);
            assert!(slots_without_retry(span, 0, 1000).expect("few") > slots);
        }
    }

    #[test]
    fn what_needs_more_slots_than_there_can_be_has_none() {
        assert_eq!(slots_without_retry(4_093_000, 0, 1000), Some(4096));
        assert_eq!(slots_without_retry(4_094_000, 0, 1000), None);
        assert_eq!(slots_without_retry(u64::MAX, u64::MAX, 1), None);
        assert_eq!(slots_without_retry(1, 1, 0), None);
    }

    #[test]
    fn the_default_grows_with_size_and_rate_within_bounds() {
        assert_eq!(default_slots(64, None), DEFAULT_SLOTS);
        assert_eq!(default_slots(64, Some(1_000_000)), 3);
        assert_eq!(default_slots(64, Some(1_000)), 7);
        assert_eq!(default_slots(1 << 20, Some(1_000)), MAX_DEFAULT_SLOTS);
        assert_eq!(default_slots(1 << 20, Some(1)), MAX_DEFAULT_SLOTS);
    }
}
