//! A partition's program: does one [`Work`], its argument, until its standard input is closed. Reports on standard output what it has written.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_port::Discipline;
use busway_port::apex::{OperatingMode, Refusal, set_partition_mode};
use busway_tests::ports::{Task, Work, join};

/// Reports at most this often.
const REPORT: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let work: Work = serde_json::from_str(&std::env::args().nth(1).ok_or("the work is missing")?)?;
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
        Task::Write => {
            let port = partition.sampling_source(&work.port)?;
            set_partition_mode(&partition, OperatingMode::Normal)?;
            for number in 1_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                port.write(&number.to_le_bytes())?;
                report(number, false);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
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
