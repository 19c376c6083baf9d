//! An oracle for the two sides of the protocol: over a simulated path that loses, repeats, delays and reorders, with a receiver that takes
//! its time. What a byte is can be told from its offset, so that whatever is used can be checked.

use std::collections::BTreeMap;

use super::receiving::{Gaps, Placed, Seen};
use super::sending::{Cut, Due, Sending};
use super::settings::Delivery;
use super::wire::{Answer, SEEN_WORDS};

/// A generator of numbers that are the same for the same seed (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What the path does, in percent of datagrams, either way.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: u64,
    repeated: u64,
    delayed: u64,
    /// What is sent first goes another way, which is longer by so much and loses so many.
    shared: Option<(u64, u64)>,
}

enum Carried {
    Run { packet: u64, offset: u64, bytes: u64 },
    Answer(Answer),
}

struct Path {
    random: Random,
    faults: Faults,
    /// By the time of arrival, and by a number where that is the same.
    on_way: BTreeMap<(u64, u64), Carried>,
    count: u64,
}

impl Path {
    fn carry(&mut self, now_ns: u64, make: impl Fn() -> Carried) {
        if self.random.percent(self.faults.lost) {
            return;
        }
        let copies = 1 + u64::from(self.random.percent(self.faults.repeated));
        for _ in 0..copies {
            let late_ns = if self.random.percent(self.faults.delayed) {
                self.random.below(3_000_000)
            } else {
                0
            };
            self.count += 1;
            self.on_way
                .insert((now_ns + 100_000 + late_ns, self.count), make());
        }
    }

    fn arrived(&mut self, now_ns: u64) -> Option<Carried> {
        let first = self.on_way.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }
}

const WINDOW: u64 = 20_000;
const STEP_NS: u64 = 50_000;
/// So much simulated time is more than any of these needs.
const LIMIT_NS: u64 = 600_000_000_000;

struct Far {
    gaps: Gaps,
    seen: Seen,
    /// The offset of the byte that is kept in each place.
    ring: Vec<u64>,
}

impl Far {
    /// A datagram has come, of which the user takes at most so many bytes now.
    fn take(&mut self, packet: u64, offset: u64, bytes: u64, appetite: u64) {
        let is_kept = match self.gaps.place(offset, bytes) {
            Placed::NoRoom => false,
            Placed::Old => true,
            Placed::Early => self.keep(offset, offset + bytes),
            Placed::Due(skip) => {
                let begin = offset + skip as u64;
                assert_eq!(begin, self.gaps.used(), "what is due is what comes next");
                let used = if self.gaps.due() == 0 {
                    appetite.min(bytes - skip as u64)
                } else {
                    0
                };
                self.gaps.use_bytes(used);
                begin + used == offset + bytes || self.keep(begin + used, offset + bytes)
            }
        };
        if is_kept {
            self.seen.note(packet);
        }
        self.use_kept(appetite);
    }

    fn keep(&mut self, from: u64, to: u64) -> bool {
        let is_kept = self.gaps.keep(from, to);
        if is_kept {
            (from..to).for_each(|offset| self.ring[(offset % WINDOW) as usize] = offset);
        }
        is_kept
    }

    fn use_kept(&mut self, appetite: u64) {
        let bytes = self.gaps.due().min(appetite);
        for offset in self.gaps.used()..self.gaps.used() + bytes {
            assert_eq!(
                self.ring[(offset % WINDOW) as usize],
                offset,
                "the byte that was sent"
            );
        }
        self.gaps.use_bytes(bytes);
    }

    fn answer(&self) -> Answer {
        self.seen
            .answer(self.gaps.received(), self.gaps.limit(), self.gaps.used(), false)
    }
}

/// Sends everything that may leave.
fn send(near: &mut Sending, path: &mut Path, now_ns: u64) -> Vec<Cut> {
    let most_bytes = 1 + path.random.below(1400);
    let mut cuts = Vec::new();
    while let Some(cut) = near.next(most_bytes, now_ns) {
        if path.random.percent(2) {
            // The socket is full.
            near.take_back(cut);
            break;
        }
        path.carry(now_ns, || Carried::Run {
            packet: cut.packet,
            offset: cut.offset,
            bytes: cut.bytes,
        });
        cuts.push(cut);
    }
    let Some((longer_ns, lost)) = path.faults.shared else {
        return cuts;
    };
    near.hold_at(near.cut());
    loop {
        let bytes = near.allowance(most_bytes);
        if bytes == 0 {
            return cuts;
        }
        let cut = near.next_shared(bytes, now_ns);
        if path.random.percent(2) {
            near.take_back(cut);
            return cuts;
        }
        if !path.random.percent(lost) {
            path.carry(now_ns + longer_ns, || Carried::Run {
                packet: cut.packet,
                offset: cut.offset,
                bytes: cut.bytes,
            });
        }
        cuts.push(cut);
    }
}

/// One stream over a path, reliably; the time it took.
fn deliver(seed: u64, faults: Faults, bytes: u64) -> u64 {
    let mut path = Path {
        random: Random(seed * 2 + 1),
        faults,
        on_way: BTreeMap::new(),
        count: 0,
    };
    let mut near = Sending::new(Delivery::Reliable, 1400);
    let mut far = Far {
        gaps: Gaps::new(WINDOW),
        seen: Seen::default(),
        ring: vec![u64::MAX; WINDOW as usize],
    };
    near.answered(&far.answer(), 0, 0)
        .expect("the first answer is good");
    let mut now_ns = 0;
    while near.released() < bytes || far.gaps.used() < bytes {
        now_ns += STEP_NS;
        assert!(now_ns < LIMIT_NS, "seed {seed}, {faults:?}: stuck at {near:?}");
        let more = path.random.below(4000).min(bytes - near.accepted());
        near.accept(more);
        let wants = near.taken() < near.accepted();
        if near.due(wants, now_ns) == Due::Ping
            && let Some((packet, offset)) = near.ping(false, now_ns)
        {
            path.carry(now_ns, || Carried::Run {
                packet,
                offset,
                bytes: 0,
            });
        }
        send(&mut near, &mut path, now_ns);
        let mut is_asked = false;
        // The user is away now and then.
        let appetite = if path.random.percent(20) {
            0
        } else {
            path.random.below(6000)
        };
        far.use_kept(appetite);
        while let Some(carried) = path.arrived(now_ns) {
            match carried {
                Carried::Run {
                    packet,
                    offset,
                    bytes,
                } => {
                    far.take(packet, offset, bytes, appetite);
                    is_asked = true;
                }
                Carried::Answer(answer) => {
                    near.answered(&answer, u64::MAX, now_ns)
                        .expect("true answers are possible");
                    assert!(
                        near.released() <= far.gaps.received(),
                        "only what has come is released"
                    );
                }
            }
        }
        if is_asked {
            let answer = far.answer();
            path.carry(now_ns, || Carried::Answer(answer));
        }
    }
    now_ns
}

#[test]
fn whatever_the_path_does_every_byte_is_used_once_and_in_order() {
    for seed in 1..200 {
        let mut random = Random(seed * 7919);
        let faults = Faults {
            lost: random.below(30),
            repeated: random.below(20),
            delayed: random.below(40),
            shared: None,
        };
        deliver(seed, faults, 200_000);
    }
}

#[test]
fn every_byte_is_used_once_though_it_comes_two_ways_that_overtake_each_other() {
    for seed in 1..200 {
        let mut random = Random(seed * 104_729);
        let faults = Faults {
            lost: random.below(20),
            repeated: random.below(20),
            delayed: random.below(40),
            shared: Some((random.below(2_000_000), [0, 5, 50, 100][seed as usize % 4])),
        };
        deliver(seed, faults, 200_000);
    }
}

#[test]
fn a_path_that_loses_one_datagram_in_a_hundred_is_hardly_slower_than_one_that_loses_none() {
    let with = |lost| {
        let faults = Faults {
            lost,
            repeated: 0,
            delayed: 0,
            shared: None,
        };
        (1..20).map(|seed| deliver(seed, faults, 2_000_000)).sum::<u64>()
    };
    // Simulated time, which no machine's load changes.
    let (clean_ns, lossy_ns) = (with(0), with(1));
    assert!(
        lossy_ns * 7 < clean_ns * 10,
        "{lossy_ns} ns with loss, {clean_ns} ns without"
    );
}

#[test]
fn best_effort_sends_every_byte_once_and_never_stands_still() {
    for seed in 1..100 {
        let mut path = Path {
            random: Random(seed * 31 + 1),
            faults: Faults {
                lost: seed % 50,
                repeated: 5,
                delayed: seed % 30,
                shared: None,
            },
            on_way: BTreeMap::new(),
            count: 0,
        };
        let mut near = Sending::new(Delivery::BestEffort, 1400);
        let mut seen = Seen::default();
        let (mut due, mut now_ns, mut expected, bytes) = (0, 0, 0, 200_000);
        near.answered(&seen.answer(0, WINDOW, 0, false), 0, 0)
            .expect("the first answer is good");
        near.accept(bytes);
        while near.cut() < bytes || near.is_unconfirmed() {
            now_ns += STEP_NS;
            assert!(now_ns < LIMIT_NS, "seed {seed}: stuck at {near:?}");
            if near.due(true, now_ns) == Due::Ping
                && let Some((packet, offset)) = near.ping(false, now_ns)
            {
                path.carry(now_ns, || Carried::Run {
                    packet,
                    offset,
                    bytes: 0,
                });
            }
            for cut in send(&mut near, &mut path, now_ns) {
                assert_eq!(cut.offset, expected);
                expected += cut.bytes;
            }
            while let Some(carried) = path.arrived(now_ns) {
                match carried {
                    Carried::Run {
                        packet,
                        offset,
                        bytes,
                    } => {
                        seen.note(packet);
                        due = due.max(offset + bytes);
                        let answer = seen.answer(due, due + WINDOW, 0, false);
                        path.carry(now_ns, || Carried::Answer(answer));
                    }
                    Carried::Answer(answer) => {
                        near.answered(&answer, 0, now_ns)
                            .expect("true answers are possible");
                    }
                }
            }
        }
    }
}

#[test]
fn answers_that_lie_are_refused_or_harmless() {
    let mut random = Random(99);
    for _ in 0..2000 {
        let mut near = Sending::new(Delivery::Reliable, 1400);
        near.accept(100_000);
        near.answered(&Seen::default().answer(0, 50_000, 0, false), 0, 0)
            .expect("the first answer is good");
        for now_ns in 1..20 {
            while near.next(1400, now_ns).is_some() {}
            let mut seen = [0; SEEN_WORDS];
            seen.iter_mut().for_each(|bits| *bits = random.below(u64::MAX));
            let wild = [random.below(200_000), random.below(u64::MAX), random.below(60)];
            let mut pick = || wild[random.below(3) as usize];
            let answer = Answer {
                is_ended: pick() % 2 == 0,
                is_listening: false,
                heard: 0,
                largest: pick(),
                received: pick(),
                limit: pick(),
                taken: pick(),
                seen,
            };
            let _ = near.answered(&answer, 5, now_ns);
            near.due(true, now_ns);
            assert!(near.released() <= near.cut() && near.cut() <= near.accepted() && near.taken() <= 5);
        }
    }
}
