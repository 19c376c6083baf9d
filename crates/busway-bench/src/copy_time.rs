//! How long a message takes into a sampling register and out of it, on this machine.
//!
//! Contract: the times are those of one call when the register is in nobody's first caches, as
//! when another core has written it: registers of one size fill 16 MiB and are visited in turn. The
//! result is the 99th percentile, clock included: slower calls are interruptions, which no number
//! of slots prevents. Takes about 10 ms. Called by `busway check`.

// A window onto memory of our own, for which there is no mapping to open.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use busway_core::register::{Layout, RegisterReader, RegisterWriter};
use busway_core::{Medium, Window};
use serde::Serialize;

const MEMORY_BYTES: usize = 16 << 20;

const LARGEST_BYTES: usize = 4 << 20;

/// Fewest calls of which there is a 99th percentile; few large registers are visited again.
const CALLS: usize = 200;

/// The measurement ends after this time, with what it has.
const TIME_LIMIT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CopyTime {
    pub read_ns: u64,
    pub write_ns: u64,
}

pub fn measure(max_size_bytes: u32) -> Option<CopyTime> {
    let asked_bytes = max_size_bytes as usize;
    let size_bytes = asked_bytes.min(LARGEST_BYTES);
    let layout = Layout::new(3, size_bytes).ok()?;
    let each_bytes = layout.required_bytes();
    let registers = (MEMORY_BYTES / each_bytes).max(1);
    let mut memory = vec![0_u64; registers * each_bytes / 8];
    // SAFETY: the vector is aligned for words, outlives all windows below, since it is declared
    // before them, and is reached through windows only: it is not named again.
    let window = unsafe {
        Window::from_raw_parts(
            memory.as_mut_ptr().cast(),
            registers * each_bytes,
            Medium::Coherent,
        )
    };
    let mut pairs = Vec::with_capacity(registers);
    for index in 0..registers {
        let part = window.sub(index * each_bytes, each_bytes).ok()?;
        let writer = RegisterWriter::new(part.clone(), layout, 0).ok()?;
        pairs.push((writer, RegisterReader::new(part, layout, 0).ok()?));
    }
    let message = vec![0x5a_u8; size_bytes];
    let mut buffer = vec![0_u8; size_bytes];
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let end = Instant::now() + TIME_LIMIT;
    for round in 0..1 + CALLS.div_ceil(registers) {
        let counts = round > 0;
        for (writer, _) in &mut pairs {
            let begin = Instant::now();
            writer.write(&[&message], 0).ok()?;
            if counts {
                writes.push(begin.elapsed());
            }
        }
        for (_, reader) in &mut pairs {
            let begin = Instant::now();
            reader.read(&mut buffer).ok()?;
            std::hint::black_box(&buffer);
            if counts {
                reads.push(begin.elapsed());
            }
        }
        if counts && Instant::now() > end {
            break;
        }
    }
    let scaled = |times: Vec<Duration>| {
        let ns = percentile_99_ns(times)?;
        Some((u128::from(ns) * asked_bytes as u128).div_ceil(size_bytes.max(1) as u128) as u64)
    };
    Some(CopyTime {
        read_ns: scaled(reads)?,
        write_ns: scaled(writes)?,
    })
}

fn percentile_99_ns(mut times: Vec<Duration>) -> Option<u64> {
    let at = times.len().checked_sub(1)? * 99 / 100;
    let (_, time, _) = times.select_nth_unstable(at);
    u64::try_from(time.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_of_many_is_the_time_that_99_of_100_keep() {
        let times = (1..=200).rev().map(Duration::from_nanos).collect();
        assert_eq!(percentile_99_ns(times), Some(198));
        assert_eq!(percentile_99_ns(vec![Duration::from_nanos(7)]), Some(7));
        assert_eq!(percentile_99_ns(Vec::new()), None);
    }

    #[test]
    fn every_size_of_a_port_has_a_time_and_beyond_the_largest_it_goes_by_the_size() {
        for size_bytes in [1, 64, 4096] {
            let time = measure(size_bytes).expect("there is memory");
            assert!(time.read_ns > 0 && time.write_ns > 0, "{size_bytes}: {time:?}");
        }
        let huge = measure(i32::MAX as u32).expect("only the largest is measured");
        assert!(huge.read_ns > i32::MAX as u64 / 1024, "{huge:?}");
    }
}
