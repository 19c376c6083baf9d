//! What ports cost: a read and a write alone; and a ping-pong over two ports, beside two cache
//! lines, which is the least that any exchange between two cores costs, and beside a register of
//! one slot between two equal flags, as published for RDMA sampling ports (Lee, Kim, Kim, Jin).
//!
//! Run: `cargo bench -p busway-port`. The ping-pongs need two free cores.
#![allow(missing_docs)] // The macros of criterion.
#![cfg(not(loom))]

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use busway_port::{
    ChannelConfig, Direction, Module, Partition, PartitionConfig, PortConfig, PortKind, PortRef, Store,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const HOUR_NS: i64 = 3_600_000_000_000;
const SIZES: [usize; 4] = [16, 64, 1024, 4096];

/// Partitions `a` and `b` with a sampling channel each way, and a queuing channel from `a` to `b`.
fn partitions(size_bytes: usize) -> (tempfile::TempDir, Partition, Partition) {
    let port = |name: &str, direction, kind| PortConfig::new(name, direction, size_bytes as u32, kind);
    let queuing = PortKind::queuing(16);
    let ports = || {
        vec![
            port("OUT", Direction::Source, PortKind::SAMPLING),
            port("IN", Direction::Destination, PortKind::SAMPLING),
        ]
    };
    let (mut a, mut b) = (ports(), ports());
    a.push(port("SEND", Direction::Source, queuing));
    b.push(port("RECEIVE", Direction::Destination, queuing));
    let partition = |name: &str, ports| PartitionConfig {
        name: name.into(),
        identifier: 0,
        ports,
    };
    let channel = |name: &str, from: (&str, &str), to: (&str, &str)| {
        ChannelConfig::new(name, PortRef::new(from.0, from.1), vec![PortRef::new(to.0, to.1)])
    };
    let module = Module {
        partitions: vec![partition("a", a), partition("b", b)],
        channels: vec![
            channel("ping", ("a", "OUT"), ("b", "IN")),
            channel("pong", ("b", "OUT"), ("a", "IN")),
            channel("queue", ("a", "SEND"), ("b", "RECEIVE")),
        ],
    };
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let store = Store::open(directory.path(), module).unwrap();
    let (a, b) = (store.join("a").unwrap(), store.join("b").unwrap());
    (directory, a, b)
}

fn uncontended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one-thread");
    for size in SIZES {
        let (_directory, a, b) = partitions(size);
        let (out, into) = (
            a.sampling_source("OUT").unwrap(),
            b.sampling_destination("IN", HOUR_NS).unwrap(),
        );
        let (message, mut buffer) = (vec![7; size], vec![0; size]);
        out.write(&message).unwrap();
        group.bench_function(BenchmarkId::new("write", size), |bencher| {
            bencher.iter(|| out.write(black_box(&message)).unwrap());
        });
        group.bench_function(BenchmarkId::new("read", size), |bencher| {
            bencher.iter(|| into.read(black_box(&mut buffer)).unwrap());
        });
        group.bench_function(BenchmarkId::new("write and read new", size), |bencher| {
            bencher.iter(|| {
                out.write(black_box(&message)).unwrap();
                into.read(black_box(&mut buffer)).unwrap()
            });
        });
        let send = a.queuing_source("SEND", busway_port::Discipline::Fifo).unwrap();
        let receive = b
            .queuing_destination("RECEIVE", busway_port::Discipline::Fifo)
            .unwrap();
        group.bench_function(BenchmarkId::new("send and receive", size), |bencher| {
            bencher.iter(|| {
                send.send(black_box(&message), 0).unwrap();
                receive.receive(black_box(&mut buffer), 0).unwrap()
            });
        });
    }
    group.bench_function("clock", |bencher| {
        bencher.iter(|| busway_port::Clock::Monotonic.now_ns())
    });
}

/// Time of `rounds` round trips: `ours` sends and waits here, `theirs` answers what has come, in a
/// thread of its own.
fn round_trips(rounds: u64, mut ours: impl FnMut(u64), mut theirs: impl FnMut() + Send) -> Duration {
    let stop = AtomicBool::new(false);
    let before = sched_getaffinity(None);
    let elapsed = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    theirs();
                }
            }
        });
        pin(0);
        (1..=1000).for_each(&mut ours);
        let begin = Instant::now();
        (1001..=1000 + rounds).for_each(&mut ours);
        let elapsed = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        elapsed
    });
    if let Ok(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    elapsed
}

/// Binds this thread to the `index`-th processor: the scheduler likes to put threads that share
/// memory on one.
fn pin(index: usize) {
    let mut one = CpuSet::new();
    one.set(index);
    let _ = sched_setaffinity(None, &one);
}

fn ports(rounds: u64, size: usize) -> Duration {
    let (_directory, a, b) = partitions(size);
    let (ping, pong_end) = (
        a.sampling_source("OUT").unwrap(),
        a.sampling_destination("IN", HOUR_NS).unwrap(),
    );
    let (pong, ping_end) = (
        b.sampling_source("OUT").unwrap(),
        b.sampling_destination("IN", HOUR_NS).unwrap(),
    );
    let (message, mut here, mut there) = (vec![7; size], vec![0; size], vec![0; size]);
    round_trips(
        rounds,
        |_| {
            ping.write(&message).unwrap();
            while pong_end.read_updated(&mut here).unwrap().length == 0 {
                spin_loop();
            }
            black_box(&here);
        },
        || {
            let length = ping_end.read_updated(&mut there).unwrap().length;
            if length > 0 {
                pong.write(&there[..length]).unwrap();
            } else {
                spin_loop();
            }
        },
    )
}

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

fn lines(rounds: u64) -> Duration {
    let lines = Arc::new([Line::default(), Line::default()]);
    let far = lines.clone();
    let mut last = 0;
    round_trips(
        rounds,
        |round| {
            lines[0].0.store(round, Ordering::Release);
            while lines[1].0.load(Ordering::Acquire) != round {
                spin_loop();
            }
        },
        move || {
            let value = far[0].0.load(Ordering::Acquire);
            if value == last {
                spin_loop();
            } else {
                last = value;
                far[1].0.store(value, Ordering::Release);
            }
        },
    )
}

/// One slot between two flags: equal flags around an ascending copy are taken for a whole message.
struct Flagged {
    begin: Line,
    payload: Vec<AtomicU64>,
    end: Line,
}

impl Flagged {
    fn new(size: usize) -> Self {
        Self {
            begin: Line::default(),
            payload: (0..size / 8).map(|_| AtomicU64::new(0)).collect(),
            end: Line::default(),
        }
    }

    fn write(&self, number: u64, message: &[u64]) {
        self.begin.0.store(number, Ordering::Release);
        fence(Ordering::Release);
        for (word, value) in self.payload.iter().zip(message) {
            word.store(*value, Ordering::Relaxed);
        }
        self.end.0.store(number, Ordering::Release);
    }

    /// Whether a message other than number `last` was read whole.
    fn read(&self, last: &mut u64, message: &mut [u64]) -> bool {
        let begin = self.begin.0.load(Ordering::Acquire);
        if begin == *last {
            return false;
        }
        for (word, value) in self.payload.iter().zip(message) {
            *value = word.load(Ordering::Relaxed);
        }
        let is_whole = self.end.0.load(Ordering::Acquire) == begin;
        if is_whole {
            *last = begin;
        }
        is_whole
    }
}

fn flagged(rounds: u64, size: usize) -> Duration {
    let (ping, pong) = (Flagged::new(size), Flagged::new(size));
    let words = size / 8;
    let (message, mut here, mut there) = (vec![7; words], vec![0; words], vec![0; words]);
    let (mut last_here, mut last_there) = (0, 0);
    round_trips(
        rounds,
        |round| {
            ping.write(round, &message);
            while !pong.read(&mut last_here, &mut here) {
                spin_loop();
            }
            black_box(&here);
        },
        || {
            if ping.read(&mut last_there, &mut there) {
                pong.write(last_there, &there);
            } else {
                spin_loop();
            }
        },
    )
}

fn ping_pong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ping-pong");
    group.bench_function("two cache lines", |bencher| bencher.iter_custom(lines));
    for size in SIZES {
        group.bench_function(BenchmarkId::new("ports", size), |bencher| {
            bencher.iter_custom(|rounds| ports(rounds, size));
        });
        group.bench_function(BenchmarkId::new("one slot and flags", size), |bencher| {
            bencher.iter_custom(|rounds| flagged(rounds, size));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = uncontended, ping_pong
}
criterion_main!(benches);
