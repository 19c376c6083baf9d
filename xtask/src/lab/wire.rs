//! A wire between two guests that is not perfect: a relay of Ethernet frames that cuts, delays,
//! loses, duplicates and reorders.
//!
//! Each frame is a datagram ([`super::guest::Wire`]). What happens to a frame follows from a seed
//! and the number of the frame on its way, so the faults of a run can be had again; which frames
//! there are is the guests' affair. Scenarios change the faults while frames flow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::guest::Wire;
use super::lock;

const FRAME_BYTES: usize = 70_000;
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Faults {
    pub is_cut: bool,
    /// Each frame arrives so much later.
    pub delay_ms: u32,
    pub loss: f64,
    pub duplication: f64,
    /// Part of the frames that others overtake: they arrive another 5 ms later.
    pub reordering: f64,
}

impl Faults {
    pub const NONE: Faults = Faults {
        is_cut: false,
        delay_ms: 0,
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
    };
    pub const CUT: Faults = Faults {
        is_cut: true,
        ..Faults::NONE
    };

    pub const fn delay_ms(delay_ms: u32) -> Faults {
        Faults {
            delay_ms,
            ..Faults::NONE
        }
    }

    pub const fn loss(loss: f64) -> Faults {
        Faults { loss, ..Faults::NONE }
    }

    pub const fn duplication(duplication: f64) -> Faults {
        Faults {
            duplication,
            ..Faults::NONE
        }
    }

    pub const fn reordering(reordering: f64) -> Faults {
        Faults {
            reordering,
            ..Faults::NONE
        }
    }
}

/// How much later a frame arrives that others overtake.
const OVERTAKEN: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frames {
    pub seen: u64,
    /// Taken away by [`Faults::loss`] or a cut.
    pub lost: u64,
    pub duplicated: u64,
    /// Held back so that others overtake them.
    pub reordered: u64,
    /// Dropped since the guest took none.
    pub dropped: u64,
}

#[derive(Debug)]
pub struct Relay {
    faults: Arc<Mutex<Faults>>,
    frames: Arc<Mutex<Frames>>,
    stop: Arc<AtomicBool>,
    directions: Vec<JoinHandle<()>>,
}

impl Relay {
    pub fn start(directory: &Path, seed: u64) -> Result<(Relay, [Wire; 2])> {
        let path = |name: &str| directory.join(name);
        let ends = ["a", "b"].map(|name| Wire {
            local: path(&format!("guest-{name}")),
            remote: path(&format!("relay-{name}")),
        });
        let sockets = [bind(&ends[0].remote)?, bind(&ends[1].remote)?];
        let mut relay = Relay {
            faults: Arc::default(),
            frames: Arc::default(),
            stop: Arc::default(),
            directions: Vec::new(),
        };
        for (way, (from, to)) in [(0, 1), (1, 0)].into_iter().enumerate() {
            let direction = Direction {
                from: sockets[from].try_clone()?,
                by: sockets[to].try_clone()?,
                to: ends[to].local.clone(),
                faults: relay.faults.clone(),
                frames: relay.frames.clone(),
                stop: relay.stop.clone(),
            };
            let chance = Chance(seed.wrapping_mul(2).wrapping_add(way as u64));
            relay
                .directions
                .push(thread::spawn(move || direction.carry(chance)));
        }
        Ok((relay, ends))
    }

    pub fn set(&self, faults: Faults) {
        *lock(&self.faults) = faults;
    }

    pub fn frames(&self) -> Frames {
        *lock(&self.frames)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            let _ = direction.join();
        }
    }
}

fn bind(path: &Path) -> Result<UnixDatagram> {
    let _ = fs::remove_file(path);
    let socket = UnixDatagram::bind(path).with_context(|| format!("{} can't be bound", path.display()))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

struct Direction {
    from: UnixDatagram,
    by: UnixDatagram,
    to: PathBuf,
    faults: Arc<Mutex<Faults>>,
    frames: Arc<Mutex<Frames>>,
    stop: Arc<AtomicBool>,
}

/// A frame that has yet to arrive: when, in which order of those due together, what.
type Pending = BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>;

impl Direction {
    fn carry(&self, mut chance: Chance) {
        let mut pending = Pending::new();
        let mut buffer = vec![0; FRAME_BYTES];
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            self.deliver_due(&mut pending);
            let next = pending
                .peek()
                .map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
            // At least a little: zero would mean without end.
            let wait = next
                .unwrap_or(Duration::from_millis(50))
                .clamp(Duration::from_micros(50), Duration::from_millis(50));
            if self.from.set_read_timeout(Some(wait)).is_err() {
                return;
            }
            let Ok(length) = self.from.recv(&mut buffer) else {
                continue;
            };
            let (faults, fate) = (*lock(&self.faults), chance.fate());
            let copies = self.note(faults, fate);
            let due = Instant::now() + fate.delay(faults);
            for _ in 0..copies {
                number += 1;
                pending.push(Reverse((due, number, buffer[..length].to_vec())));
            }
        }
    }

    fn deliver_due(&self, pending: &mut Pending) {
        while let Some(Reverse((due, ..))) = pending.peek()
            && *due <= Instant::now()
            && let Some(Reverse((.., frame))) = pending.pop()
        {
            // A guest that is not there yet, or not any more, gets none.
            if self.by.send_to(&frame, &self.to).is_err() {
                lock(&self.frames).dropped += 1;
            }
        }
    }

    fn note(&self, faults: Faults, fate: Fate) -> u32 {
        let mut frames = lock(&self.frames);
        frames.seen += 1;
        let copies = fate.copies(faults);
        frames.lost += u64::from(copies == 0);
        frames.duplicated += u64::from(copies == 2);
        frames.reordered += u64::from(copies > 0 && fate.reordering < faults.reordering);
        copies
    }
}

#[derive(Clone, Copy, Debug)]
struct Fate {
    loss: f64,
    duplication: f64,
    reordering: f64,
}

impl Fate {
    fn copies(self, faults: Faults) -> u32 {
        match (
            faults.is_cut || self.loss < faults.loss,
            self.duplication < faults.duplication,
        ) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        }
    }

    fn delay(self, faults: Faults) -> Duration {
        let overtaken = if self.reordering < faults.reordering {
            OVERTAKEN
        } else {
            Duration::ZERO
        };
        Duration::from_millis(faults.delay_ms.into()) + overtaken
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct Chance(u64);

impl Chance {
    fn fate(&mut self) -> Fate {
        Fate {
            loss: self.part(),
            duplication: self.part(),
            reordering: self.part(),
        }
    }

    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After this long nothing comes that was not to come.
    const SILENCE: Duration = Duration::from_millis(300);

    fn arriving(faults: Faults, count: u16, seed: u64) -> (Vec<u16>, Frames) {
        let directory = tempfile::tempdir().unwrap();
        let (relay, ends) = Relay::start(directory.path(), seed).unwrap();
        relay.set(faults);
        let [a, b] = ends.each_ref().map(|end| UnixDatagram::bind(&end.local).unwrap());
        b.set_read_timeout(Some(SILENCE)).unwrap();
        let give_up_at = Instant::now() + Duration::from_secs(60);
        let read = || {
            let mut numbers = Vec::new();
            let mut frame = [0; 64];
            loop {
                if let Ok(2) = b.recv(&mut frame) {
                    numbers.push(u16::from_le_bytes([frame[0], frame[1]]));
                    continue;
                }
                // On a busy machine silence alone says nothing: all must have come that the relay
                // has counted.
                let frames = relay.frames();
                let due = frames.seen + frames.duplicated - frames.lost - frames.dropped;
                let is_over = frames.seen == u64::from(count) && numbers.len() as u64 >= due;
                if is_over || Instant::now() > give_up_at {
                    return numbers;
                }
            }
        };
        let numbers = thread::scope(|scope| {
            let reader = scope.spawn(read);
            for number in 0..count {
                a.send_to(&number.to_le_bytes(), &ends[0].remote).unwrap();
            }
            reader.join().unwrap()
        });
        (numbers, relay.frames())
    }

    #[test]
    fn perfect_wire_delivers_each_frame_once_in_order() {
        let (numbers, frames) = arriving(Faults::NONE, 500, 1);
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
        let seen = Frames {
            seen: 500,
            ..Frames::default()
        };
        assert_eq!(frames, seen);
    }

    #[test]
    fn wire_counts_each_frame_that_it_loses_or_duplicates() {
        let (numbers, frames) = arriving(Faults::loss(0.3), 500, 2);
        assert!((100..=200).contains(&frames.lost), "{frames:?}");
        assert_eq!(numbers.len() as u64, 500 - frames.lost);
        assert!(numbers.is_sorted_by(|a, b| a < b));
        let (numbers, frames) = arriving(Faults::duplication(0.3), 500, 3);
        assert!((100..=200).contains(&frames.duplicated), "{frames:?}");
        assert_eq!(numbers.len() as u64, 500 + frames.duplicated);
        let (numbers, frames) = arriving(Faults::CUT, 10, 6);
        assert_eq!((numbers.len(), frames.lost), (0, 10));
    }

    #[test]
    fn reordering_wire_loses_no_frame() {
        let (mut numbers, frames) = arriving(Faults::reordering(0.2), 500, 4);
        assert!(frames.reordered > 0 && !numbers.is_sorted(), "{frames:?}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn delayed_frame_arrives_after_its_delay() {
        let begin = Instant::now();
        let (numbers, _) = arriving(Faults::delay_ms(40), 3, 5);
        assert_eq!(numbers, [0, 1, 2]);
        // The reader's silence is counted from the last frame.
        assert!(begin.elapsed() >= Duration::from_millis(40) + SILENCE);
    }

    #[test]
    fn same_seed_loses_same_frames() {
        let [first, again, other] = [7, 7, 8].map(|seed| arriving(Faults::loss(0.5), 200, seed).0);
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
