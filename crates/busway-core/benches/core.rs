//! What the core costs: copies by size; one message written and read by one thread; and the same to
//! another thread and back, beside a ping-pong of two cache lines, which is the least that any
//! exchange between two cores costs.
//!
//! Run: `cargo bench -p busway-core`. The ping-pongs need two free cores.
#![allow(missing_docs, unsafe_code)] // The macros of criterion; windows of leaked memory.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use busway_core::register::{self, ReadOutcome, RegisterReader, RegisterWriter};
use busway_core::ring::{self, RingConsumer, RingProducer};
use busway_core::{LINE_BYTES, Medium, Window};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const SMALL: usize = 40;

fn window(len_bytes: usize) -> Window {
    #[derive(Clone)]
    #[repr(align(128))]
    struct Lines(#[allow(dead_code)] [u64; 16]);
    let lines = Box::leak(vec![Lines([0; 16]); len_bytes.div_ceil(128)].into_boxed_slice());
    // SAFETY: leaked, so mapped for ever; reached through windows only.
    unsafe { Window::from_raw_parts(lines.as_mut_ptr().cast(), len_bytes, Medium::Coherent) }
}

type Ring = (RingProducer<Window>, RingConsumer<Window>);

fn new_ring(max_size_bytes: usize) -> Ring {
    let layout = ring::Layout::for_messages(16, max_size_bytes).unwrap();
    let (memory, credit) = (window(layout.required_bytes()), window(ring::CREDIT_BYTES));
    let producer = RingProducer::new(memory.clone(), layout, 0, credit.clone()).unwrap();
    (producer, RingConsumer::new(memory, layout, 0, credit).unwrap())
}

type Register = (RegisterWriter<Window>, RegisterReader);

fn new_register(max_size_bytes: usize) -> Register {
    let layout = register::Layout::new(3, max_size_bytes).unwrap();
    let memory = window(layout.required_bytes());
    let writer = RegisterWriter::new(memory.clone(), layout, 0).unwrap();
    (writer, RegisterReader::new(memory, layout, 0).unwrap())
}

fn pop(consumer: &mut RingConsumer<Window>, buffer: &mut [u8]) -> bool {
    let Some(message) = consumer.peek().unwrap() else {
        return false;
    };
    consumer.copy(0, &mut buffer[..message.len_bytes]).unwrap();
    consumer.release().unwrap();
    true
}

/// Whether a message came that was not read before, which is then in `buffer`.
fn read_new(reader: &mut RegisterReader, buffer: &mut [u8]) -> bool {
    reader
        .peek_sequence()
        .is_some_and(|sequence| sequence != reader.last_sequence())
        && matches!(reader.read(buffer).unwrap(), ReadOutcome::New(_))
}

/// Time of `rounds` round trips: `ours` sends and waits here, `theirs` answers what has come, in a
/// thread of its own.
fn round_trips(
    rounds: u64,
    mut ours: impl FnMut(u64),
    mut theirs: impl FnMut() + Send + 'static,
) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let before = sched_getaffinity(None);
    pin(0);
    let echo = thread::spawn(move || {
        pin(1);
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..100 {
                theirs();
            }
        }
    });
    for round in 1..=1000 {
        ours(round);
    }
    let begin = Instant::now();
    for round in 1001..=1000 + rounds {
        ours(round);
    }
    let elapsed = begin.elapsed();
    stop.store(true, Ordering::Relaxed);
    echo.join().unwrap();
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

#[repr(align(128))]
struct Line(AtomicU64);

fn line_ping_pong(rounds: u64) -> Duration {
    let lines = Arc::new([Line(AtomicU64::new(0)), Line(AtomicU64::new(0))]);
    let far = lines.clone();
    let mut last = 0;
    round_trips(
        rounds,
        move |round| {
            lines[0].0.store(round, Ordering::Release);
            while lines[1].0.load(Ordering::Acquire) != round {
                spin_loop();
            }
        },
        move || {
            let value = far[0].0.load(Ordering::Acquire);
            if value != last {
                last = value;
                far[1].0.store(value, Ordering::Release);
            } else {
                spin_loop();
            }
        },
    )
}

fn ring_ping_pong(rounds: u64) -> Duration {
    let ((mut ping, mut ping_end), (mut pong, mut pong_end)) = (new_ring(SMALL), new_ring(SMALL));
    let (mut here, mut there) = ([0; SMALL], [0; SMALL]);
    let payload = [7; SMALL];
    round_trips(
        rounds,
        move |round| {
            ping.push(&[&payload], round).unwrap();
            while !pop(&mut pong_end, &mut here) {
                spin_loop();
            }
            black_box(&here);
        },
        move || {
            if pop(&mut ping_end, &mut there) {
                pong.push(&[&there], 0).unwrap();
            } else {
                spin_loop();
            }
        },
    )
}

fn register_ping_pong(rounds: u64) -> Duration {
    let ((mut ping, mut ping_end), (mut pong, mut pong_end)) = (new_register(SMALL), new_register(SMALL));
    let (mut here, mut there) = ([0; SMALL], [0; SMALL]);
    let payload = [7; SMALL];
    round_trips(
        rounds,
        move |round| {
            ping.write(&[&payload], round).unwrap();
            while !read_new(&mut pong_end, &mut here) {
                spin_loop();
            }
            black_box(&here);
        },
        move || {
            if read_new(&mut ping_end, &mut there) {
                pong.write(&[&there], 0).unwrap();
            } else {
                spin_loop();
            }
        },
    )
}

fn ping_pong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ping-pong-40-bytes");
    group.bench_function("two-cache-lines", |bencher| bencher.iter_custom(line_ping_pong));
    group.bench_function("ring", |bencher| bencher.iter_custom(ring_ping_pong));
    group.bench_function("register", |bencher| bencher.iter_custom(register_ping_pong));
}

fn uncontended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one-thread");
    for size in [8, SMALL, 64, 256, 1024, 4096, 65536] {
        group.throughput(Throughput::Bytes(size as u64));
        let payload = vec![7; size];
        let mut buffer = vec![0; size];
        let (mut producer, mut consumer) = new_ring(size);
        group.bench_function(BenchmarkId::new("ring push and pop", size), |bencher| {
            bencher.iter(|| {
                producer.push(&[black_box(&payload)], 0).unwrap();
                pop(&mut consumer, &mut buffer)
            });
        });
        let (mut writer, mut reader) = new_register(size);
        group.bench_function(BenchmarkId::new("register write and read", size), |bencher| {
            bencher.iter(|| {
                writer.write(&[black_box(&payload)], 0).unwrap();
                reader.read(&mut buffer).unwrap()
            });
        });
    }
}

fn copy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    for size in [
        16,
        32,
        48,
        64,
        96,
        128,
        256,
        512,
        1024,
        2048,
        4096,
        16384,
        65536,
        1 << 18,
        1 << 20,
        1 << 22,
    ] {
        group.throughput(Throughput::Bytes(size as u64));
        let memory = window(size + LINE_BYTES);
        let mut buffer = vec![7; size];
        group.bench_function(BenchmarkId::new("write", size), |bencher| {
            bencher.iter(|| memory.write(0, &[], &[black_box(&buffer)]).unwrap());
        });
        group.bench_function(BenchmarkId::new("read", size), |bencher| {
            bencher.iter(|| memory.read(0, black_box(&mut buffer)).unwrap());
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    targets = ping_pong, uncontended, copy
}
criterion_main!(benches);
