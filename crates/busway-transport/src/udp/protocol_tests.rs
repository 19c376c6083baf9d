//! An oracle for both sides of the protocol, over a simulated path that loses, repeats, delays and
//! reorders, with a receiver that takes its time. The value of a byte follows from its offset, so
//! that every byte used can be checked.

use std::collections::BTreeMap;

use super::receiving::{Assembler, Placement, ReceivedPackets};
use super::sending::{Cut, Sending, TimerAction};
use super::settings::Delivery;
use super::wire::{Ack, SEEN_WORDS};

const WINDOW: u64 = 20_000;
const STEP_NS: u64 = 50_000;
/// More simulated time than any test needs.
const LIMIT_NS: u64 = 600_000_000_000;

/// Marsaglia's xorshift64: the same numbers for the same seed.
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

/// What the path does, in percent of datagrams in either direction.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u64,
    repeated: u64,
    delayed: u64,
    /// First transmissions take another path, which is longer by this many nanoseconds and loses
    /// this percentage.
    multicast: Option<(u64, u64)>,
}

#[derive(Clone, Copy)]
enum Carried {
    Data { packet: u64, offset: u64, bytes: u64 },
    Ack(Ack),
}

impl Carried {
    fn cut(cut: Cut) -> Carried {
        Carried::Data {
            packet: cut.packet,
            offset: cut.offset,
            bytes: cut.bytes,
        }
    }
}

struct Path {
    random: Random,
    faults: Faults,
    /// By the time of arrival, and by a number for equal times.
    in_flight: BTreeMap<(u64, u64), Carried>,
    count: u64,
}

impl Path {
    fn new(seed: u64, faults: Faults) -> Path {
        Path {
            random: Random(seed),
            faults,
            in_flight: BTreeMap::new(),
            count: 0,
        }
    }

    fn carry(&mut self, now_ns: u64, carried: Carried) {
        if self.random.percent(self.faults.lost) {
            return;
        }
        let copies = 1 + u64::from(self.random.percent(self.faults.repeated));
        for _ in 0..copies {
            let is_late = self.random.percent(self.faults.delayed);
            let late_ns = if is_late { self.random.below(3_000_000) } else { 0 };
            self.count += 1;
            self.in_flight
                .insert((now_ns + 100_000 + late_ns, self.count), carried);
        }
    }

    fn arrived(&mut self, now_ns: u64) -> Option<Carried> {
        let first = self.in_flight.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }
}

struct TestReceiver {
    assembler: Assembler,
    received: ReceivedPackets,
    /// The offset of the byte in each place of the ring.
    ring: Vec<u64>,
}

impl TestReceiver {
    /// Handles a datagram, of which the user takes at most `appetite` bytes now.
    fn take(&mut self, packet: u64, offset: u64, bytes: u64, appetite: u64) {
        let is_kept = match self.assembler.classify(offset, bytes) {
            Placement::NoRoom => false,
            Placement::Old => true,
            Placement::Early => self.keep(offset, offset + bytes),
            Placement::Next(skip) => {
                let begin = offset + skip as u64;
                assert_eq!(begin, self.assembler.consumed());
                let has_kept = self.assembler.ready_bytes() > 0;
                let used = if has_kept {
                    0
                } else {
                    appetite.min(bytes - skip as u64)
                };
                self.assembler.consume(used);
                begin + used == offset + bytes || self.keep(begin + used, offset + bytes)
            }
        };
        if is_kept {
            self.received.insert(packet);
        }
        self.use_kept(appetite);
    }

    fn keep(&mut self, from: u64, to: u64) -> bool {
        let is_kept = self.assembler.keep(from, to);
        if is_kept {
            (from..to).for_each(|offset| self.ring[(offset % WINDOW) as usize] = offset);
        }
        is_kept
    }

    fn use_kept(&mut self, appetite: u64) {
        let bytes = self.assembler.ready_bytes().min(appetite);
        for offset in self.assembler.consumed()..self.assembler.consumed() + bytes {
            assert_eq!(
                self.ring[(offset % WINDOW) as usize],
                offset,
                "the byte that was sent"
            );
        }
        self.assembler.consume(bytes);
    }

    fn ack(&self) -> Ack {
        let assembler = &self.assembler;
        self.received.ack(
            assembler.received(),
            assembler.limit(),
            assembler.consumed(),
            false,
        )
    }
}

/// Sends a ping if the sender's timer asks for one, and everything that may leave.
fn send(sender: &mut Sending, path: &mut Path, awaits_credit: bool, now_ns: u64) -> Vec<Cut> {
    if sender.on_timer(awaits_credit, now_ns) == TimerAction::Ping
        && let Some((packet, offset)) = sender.ping(false, now_ns)
    {
        let bytes = 0;
        path.carry(
            now_ns,
            Carried::Data {
                packet,
                offset,
                bytes,
            },
        );
    }
    let most_bytes = 1 + path.random.below(1400);
    let mut cuts = Vec::new();
    while let Some(cut) = sender.next(most_bytes, now_ns) {
        if path.random.percent(2) {
            sender.take_back(cut);
            break;
        }
        path.carry(now_ns, Carried::cut(cut));
        cuts.push(cut);
    }
    let Some((longer_ns, lost)) = path.faults.multicast else {
        return cuts;
    };
    sender.set_unicast_limit(sender.cut());
    loop {
        let bytes = sender.multicast_allowance(most_bytes);
        if bytes == 0 {
            return cuts;
        }
        let cut = sender.next_multicast(bytes, now_ns);
        if path.random.percent(2) {
            sender.take_back(cut);
            return cuts;
        }
        if !path.random.percent(lost) {
            path.carry(now_ns + longer_ns, Carried::cut(cut));
        }
        cuts.push(cut);
    }
}

/// Sends one reliable stream over a path; returns the time it took.
fn deliver(seed: u64, faults: Faults, bytes: u64) -> u64 {
    let mut path = Path::new(seed * 2 + 1, faults);
    let mut sender = Sending::new(Delivery::Reliable, 1400);
    let mut receiver = TestReceiver {
        assembler: Assembler::new(WINDOW),
        received: ReceivedPackets::default(),
        ring: vec![u64::MAX; WINDOW as usize],
    };
    sender
        .on_ack(&receiver.ack(), 0, 0)
        .expect("the first acknowledgement is good");
    let mut now_ns = 0;
    while sender.released() < bytes || receiver.assembler.consumed() < bytes {
        now_ns += STEP_NS;
        assert!(now_ns < LIMIT_NS, "seed {seed}, {faults:?}: stuck at {sender:?}");
        let more = path.random.below(4000).min(bytes - sender.accepted());
        sender.accept(more);
        let awaits_credit = sender.taken() < sender.accepted();
        send(&mut sender, &mut path, awaits_credit, now_ns);
        let mut must_ack = false;
        // The user takes nothing now and then.
        let is_away = path.random.percent(20);
        let appetite = if is_away { 0 } else { path.random.below(6000) };
        receiver.use_kept(appetite);
        while let Some(carried) = path.arrived(now_ns) {
            match carried {
                Carried::Data {
                    packet,
                    offset,
                    bytes,
                } => {
                    receiver.take(packet, offset, bytes, appetite);
                    must_ack = true;
                }
                Carried::Ack(ack) => {
                    sender.on_ack(&ack, u64::MAX, now_ns).expect("it is true");
                    assert!(sender.released() <= receiver.assembler.received());
                }
            }
        }
        if must_ack {
            path.carry(now_ns, Carried::Ack(receiver.ack()));
        }
    }
    now_ns
}

#[test]
fn lossy_path_delivers_every_byte_once_in_order() {
    for seed in 1..200 {
        let mut random = Random(seed * 7919);
        let faults = Faults {
            lost: random.below(30),
            repeated: random.below(20),
            delayed: random.below(40),
            multicast: None,
        };
        deliver(seed, faults, 200_000);
    }
}

#[test]
fn two_paths_deliver_every_byte_once_in_order() {
    for seed in 1..200 {
        let mut random = Random(seed * 104_729);
        let faults = Faults {
            lost: random.below(20),
            repeated: random.below(20),
            delayed: random.below(40),
            multicast: Some((random.below(2_000_000), [0, 5, 50, 100][seed as usize % 4])),
        };
        deliver(seed, faults, 200_000);
    }
}

#[test]
fn one_percent_loss_takes_at_most_ten_sevenths_of_the_time() {
    let with = |lost| {
        let faults = Faults {
            lost,
            ..Faults::default()
        };
        (1..20).map(|seed| deliver(seed, faults, 2_000_000)).sum::<u64>()
    };
    // Simulated time, which no machine's load changes.
    let (clean_ns, lossy_ns) = (with(0), with(1));
    assert!(
        lossy_ns * 7 < clean_ns * 10,
        "{lossy_ns} ns, {clean_ns} ns without loss"
    );
}

#[test]
fn best_effort_sends_every_byte_once_and_never_stalls() {
    for seed in 1..100 {
        let faults = Faults {
            lost: seed % 50,
            repeated: 5,
            delayed: seed % 30,
            multicast: None,
        };
        let mut path = Path::new(seed * 31 + 1, faults);
        let mut sender = Sending::new(Delivery::BestEffort, 1400);
        let mut received = ReceivedPackets::default();
        let (mut end, mut now_ns, mut expected, bytes) = (0, 0, 0, 200_000);
        sender
            .on_ack(&received.ack(0, WINDOW, 0, false), 0, 0)
            .expect("the first acknowledgement is good");
        sender.accept(bytes);
        while sender.cut() < bytes || sender.is_unacknowledged() {
            now_ns += STEP_NS;
            assert!(now_ns < LIMIT_NS, "seed {seed}: stuck at {sender:?}");
            for cut in send(&mut sender, &mut path, true, now_ns) {
                assert_eq!(cut.offset, expected);
                expected += cut.bytes;
            }
            while let Some(carried) = path.arrived(now_ns) {
                match carried {
                    Carried::Data {
                        packet,
                        offset,
                        bytes,
                    } => {
                        received.insert(packet);
                        end = end.max(offset + bytes);
                        let ack = received.ack(end, end + WINDOW, 0, false);
                        path.carry(now_ns, Carried::Ack(ack));
                    }
                    Carried::Ack(ack) => sender.on_ack(&ack, 0, now_ns).expect("it is true"),
                }
            }
        }
    }
}

#[test]
fn false_acknowledgements_are_refused_or_harmless() {
    let mut random = Random(99);
    for _ in 0..2000 {
        let mut sender = Sending::new(Delivery::Reliable, 1400);
        sender.accept(100_000);
        sender
            .on_ack(&ReceivedPackets::default().ack(0, 50_000, 0, false), 0, 0)
            .expect("the first acknowledgement is good");
        for now_ns in 1..20 {
            while sender.next(1400, now_ns).is_some() {}
            let mut seen = [0; SEEN_WORDS];
            seen.iter_mut().for_each(|bits| *bits = random.below(u64::MAX));
            let wild = [random.below(200_000), random.below(u64::MAX), random.below(60)];
            let mut pick = || wild[random.below(3) as usize];
            let ack = Ack {
                is_ended: pick() % 2 == 0,
                has_joined: false,
                probe: 0,
                largest: pick(),
                received: pick(),
                limit: pick(),
                taken: pick(),
                seen,
            };
            let _ = sender.on_ack(&ack, 5, now_ns);
            sender.on_timer(true, now_ns);
            assert!(sender.released() <= sender.cut() && sender.cut() <= sender.accepted());
            assert!(sender.taken() <= 5);
        }
    }
}
