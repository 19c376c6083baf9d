//! A partition's program under `busway module run`: does what its first argument says.
//!
//! | argument | what it does |
//! |---|---|
//! | `record FILE` | writes the times at which it ran, until it is killed |
//! | `wait FILE` | joins, and waits for ever |
//! | `exit FILE STATUS` | joins, and ends with this status |
//! | `signal FILE NUMBER` | joins, and ends by this signal |
//! | `raise FILE` | raises an application error |
//! | `idle FILE` | sets the mode IDLE, and waits for ever |
//! | `parent FILE` | starts a process that waits for ever, and waits for ever |
//! | `send FILE COUNT` | sends the numbers from 1 on, and ends with status 0 |
//! | `receive FILE` | receives one number, and ends with status 1 |
//!
//! All but `record` append a line to FILE: process, mode, start condition, processors, policy and
//! priority; then the number received or the process started, if there is one.
#![allow(unsafe_code)] // The C interface of ARINC 653 is what `raise` is about.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use busway_port::apex::{OperatingMode, get_partition_status, get_time, set_partition_mode};
use busway_port::{Discipline, Partition};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// Two looks at the clock that are further apart have not seen the time between them.
const GAP_NS: i64 = 50_000;
/// Long enough for any test; nobody waits for it.
const FOREVER: Duration = Duration::from_secs(100_000);
const ENDLESS_NS: i64 = 60_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, file, rest @ ..] = arguments.as_slice() else {
        return Err("the task or the file is missing".into());
    };
    if task == "record" {
        return record(file);
    }
    let partition = busway_apex::partition().map_err(|refusal| format!("{refusal:?}"))?;
    let number = || -> Result<i32, Box<dyn std::error::Error>> {
        Ok(rest.first().ok_or("the number is missing")?.parse()?)
    };
    match task.as_str() {
        "wait" => report(file, partition, "")?,
        "exit" => {
            report(file, partition, "")?;
            std::process::exit(number()?);
        }
        "signal" => {
            report(file, partition, "")?;
            // SAFETY: the tests give numbers of signals only.
            let signal = unsafe { Signal::from_raw_unchecked(number()?) };
            // Rust's handler of SIGSEGV takes the first one, for there might be a stack overflow.
            for _ in 0..2 {
                kill_process(getpid(), signal)?;
            }
        }
        "raise" => {
            report(file, partition, "")?;
            let (message, mut code) = (b"too hot", 0);
            // SAFETY: the message has this length, and the return code is valid for writes. No
            // C frame is unwound, since this thread is no process of ARINC 653.
            unsafe { busway_apex::RAISE_APPLICATION_ERROR(1, message.as_ptr(), 7, &raw mut code) };
        }
        "idle" => {
            report(file, partition, "")?;
            set_partition_mode(partition, OperatingMode::Idle)?;
        }
        "parent" => {
            let child = Command::new("sleep").arg("100000").spawn()?;
            report(file, partition, &child.id().to_string())?;
        }
        "send" => return send(file, partition, number()?),
        "receive" => return receive(file, partition),
        other => return Err(format!("{other:?} is no task").into()),
    }
    std::thread::sleep(FOREVER);
    Ok(())
}

fn report(file: &str, partition: &Partition, more: &str) -> std::io::Result<()> {
    let status = get_partition_status(partition);
    let field = |name: &str, path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim);
        line.unwrap_or("?").to_owned()
    };
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold anything; priority and policy are the fields 40 and 41.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    let line = format!(
        "{} {:?} {:?} {} {} {} {more}\n",
        Pid::as_raw(Some(getpid())),
        status.operating_mode,
        status.start_condition,
        field("Cpus_allowed_list:", "/proc/self/status"),
        fields.get(38).unwrap_or(&"?"),
        fields.get(37).unwrap_or(&"?"),
    );
    file.write_all(line.as_bytes())
}

/// Appends begin and end of each stretch of time in which it ran, in ns of `CLOCK_MONOTONIC`.
fn record(file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    let mut begin = get_time();
    let mut last = begin;
    loop {
        let now = get_time();
        if now - last > GAP_NS {
            file.write_all(format!("{begin} {last}\n").as_bytes())?;
            begin = get_time();
            last = begin;
        } else {
            last = now;
        }
    }
}

fn send(file: &str, partition: &Partition, count: i32) -> Result<(), Box<dyn std::error::Error>> {
    let port = partition.queuing_source("OUT", Discipline::Fifo)?;
    set_partition_mode(partition, OperatingMode::Normal)?;
    for number in 1..=count {
        port.send(&number.to_le_bytes(), ENDLESS_NS)?;
    }
    report(file, partition, "")?;
    Ok(())
}

fn receive(file: &str, partition: &Partition) -> Result<(), Box<dyn std::error::Error>> {
    let port = partition.queuing_destination("IN", Discipline::Fifo)?;
    set_partition_mode(partition, OperatingMode::Normal)?;
    let mut bytes = [0; 4];
    port.receive(&mut bytes, ENDLESS_NS)?;
    report(file, partition, &i32::from_le_bytes(bytes).to_string())?;
    std::process::exit(1);
}
