//! A partition's program: does one [`Work`], its argument, until its standard input is closed.
//! Reports on standard output what it has written. With `buses` it only says which buses this build
//! has.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_buses::BUS_NAMES;
use busway_port::apex::{OperatingMode, Refusal, Updated, Validity, get_time, set_partition_mode};
use busway_port::{Discipline, Partition};
use busway_tests::ports::{Seen, TORTURE_BYTES, Task, Work, join, torture_words};

const REPORT: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let word = std::env::args().nth(1).ok_or("the work is missing")?;
    if word == "buses" {
        println!("{}", serde_json::to_string(BUS_NAMES)?);
        return Ok(());
    }
    let work: Work = serde_json::from_str(&word)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopped.store(true, Ordering::Relaxed);
    });
    let partition = join(&work.system, &work.partition);
    let mut reported = Instant::now();
    let mut report = |number: u64, is_last: bool| {
        if is_last || reported.elapsed() >= REPORT {
            println!("{number}");
            reported = Instant::now();
        }
    };
    match work.task {
        Task::Write | Task::WriteEvery { .. } => {
            let gap_us = match work.task {
                Task::WriteEvery { gap_us } => gap_us,
                _ => 1000,
            };
            let port = partition.sampling_source(&work.port)?;
            set_partition_mode(&partition, OperatingMode::Normal)?;
            for number in 1_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                port.write(&number.to_le_bytes())?;
                report(number, false);
                std::thread::sleep(Duration::from_micros(gap_us));
            }
        }
        Task::Watch {
            refresh_period_ns,
            gap_us,
        } => watch(&partition, &work.port, refresh_period_ns, gap_us, &stop)?,
        Task::WriteTime => {
            let port = partition.sampling_source(&work.port)?;
            while !stop.load(Ordering::Relaxed) {
                port.write(&get_time().to_le_bytes())?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Task::Flood => flood(&partition, &stop)?,
        Task::Check => check_in_two_threads(&partition, &stop),
        Task::Send { from, to } => {
            let port = partition.queuing_source(&work.port, Discipline::Fifo)?;
            set_partition_mode(&partition, OperatingMode::Normal)?;
            let mut number = from;
            while number <= to && !stop.load(Ordering::Relaxed) {
                match port.send(&number.to_le_bytes(), 10_000_000) {
                    Ok(()) => {
                        report(number, number == to);
                        number += 1;
                    }
                    Err(Refusal::TimedOut) => {}
                    Err(refusal) => return Err(refusal.into()),
                }
            }
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(REPORT);
            }
        }
    }
    Ok(())
}

fn watch(
    partition: &Partition,
    port: &str,
    refresh_period_ns: i64,
    gap_us: u64,
    stop: &AtomicBool,
) -> Result<(), Refusal> {
    let port = partition.sampling_destination(port, refresh_period_ns)?;
    set_partition_mode(partition, OperatingMode::Normal)?;
    let mut seen = Seen::default();
    let mut reported = Instant::now();
    let mut buffer = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        let updated = port.read_updated(&mut buffer)?.updated;
        if updated == Updated::NewMessage {
            let number = u64::from_le_bytes(buffer);
            seen.repeated += u64::from(number <= seen.last);
            seen.last = number;
            seen.new += 1;
        }
        if updated != Updated::EmptyPort {
            match port.read(&mut buffer)?.validity {
                Validity::Valid => seen.valid += 1,
                Validity::Invalid => seen.stale += 1,
            }
        }
        if reported.elapsed() >= REPORT {
            println!("{}", serde_json::to_string(&seen).expect("plain data"));
            reported = Instant::now();
        }
        std::thread::sleep(Duration::from_micros(gap_us));
    }
    Ok(())
}

fn flood(partition: &Partition, stop: &AtomicBool) -> Result<(), Refusal> {
    let mut ports = Vec::new();
    for size_bytes in TORTURE_BYTES {
        ports.push((
            size_bytes,
            partition.sampling_source(&format!("OUT{size_bytes}"))?,
        ));
    }
    let mut message = Vec::new();
    for number in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for (size_bytes, port) in &ports {
            message.clear();
            let words = torture_words(number, *size_bytes);
            message.extend(std::iter::repeat_n(number.to_le_bytes(), words).flatten());
            port.write(&message)?;
        }
    }
    Ok(())
}

/// Reports how many different messages every port has returned to every thread.
fn check_in_two_threads(partition: &Partition, stop: &AtomicBool) {
    let different = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let readers = different
            .each_ref()
            .map(|different| scope.spawn(move || check(partition, stop, different)));
        while readers.iter().all(|reader| !reader.is_finished()) {
            let least = different.iter().map(|it| it.load(Ordering::Relaxed)).min();
            println!("{}", least.unwrap_or_default());
            std::thread::sleep(REPORT);
        }
        // A reader that found something wrong has ended: report it now, and don't wait for the
        // other.
        if !stop.load(Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}

fn check(partition: &Partition, stop: &AtomicBool, different: &AtomicU64) {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let mut ports = TORTURE_BYTES.map(|size_bytes| {
        let port = partition.sampling_destination(&format!("IN{size_bytes}"), HOUR_NS);
        (size_bytes, port.expect("configured"), 0_u64, 0_u64)
    });
    let mut buffer = vec![0; TORTURE_BYTES[2]];
    while !stop.load(Ordering::Relaxed) {
        for (size_bytes, port, last, count) in &mut ports {
            let length = match port.read(&mut buffer) {
                Ok(read) => read.length,
                // Not available: a first read, and the writer was faster than every attempt.
                Err(Refusal::NoAction | Refusal::NotAvailable) => continue,
                Err(refusal) => panic!("{refusal}"),
            };
            let words = buffer[..length].as_chunks::<8>().0;
            let number = u64::from_le_bytes(words[0]);
            assert_eq!(
                words.len(),
                torture_words(number, *size_bytes),
                "message {number} has another's length"
            );
            assert!(
                words.iter().all(|word| *word == words[0]),
                "message {number} is torn"
            );
            assert!(number >= *last, "message {number} came after {last}");
            *count += u64::from(number != *last);
            *last = number;
        }
        let least = ports.iter().map(|(.., count)| *count).min();
        different.store(least.unwrap_or_default(), Ordering::Relaxed);
    }
}
