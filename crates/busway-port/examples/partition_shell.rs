//! A process of a partition that does what it is told: one service a line on standard input, one line of reply.
//!
//! `partition_shell ROOT PARTITION`, with the module of `shared`. The replies are `ok` with the output parameters, or the return
//! code. Messages are hexadecimal digits, `-` if empty.
#![cfg(not(loom))]

use std::fmt::Write;
use std::io::{BufRead, stdin};
use std::str::FromStr;

use busway_port::apex::{self, OperatingMode, Refusal};
use busway_port::{Direction, Discipline, Partition, Store};

mod shared;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, root, name] = arguments.as_slice() else {
        panic!("usage: partition_shell ROOT PARTITION");
    };
    let store = Store::open(root.as_str(), shared::module()).expect("open the store");
    let partition = store.join(name).expect("join the partition");
    println!("joined");
    for line in stdin().lock().lines() {
        let line = line.expect("read a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        match answer(&partition, &words) {
            Ok(reply) => println!("ok {reply}"),
            Err(refusal) => println!("{refusal:?}"),
        }
    }
}

fn answer(partition: &Partition, words: &[&str]) -> Result<String, Refusal> {
    let mut buffer = [0; shared::LARGE_BYTES];
    let reply = match *words {
        ["create-sampling", name, size, direction, period] => {
            apex::create_sampling_port(partition, name, number(size), way(direction), number(period))?
                .to_string()
        }
        ["create-queuing", name, size, messages, direction, discipline] => apex::create_queuing_port(
            partition,
            name,
            number(size),
            number(messages),
            way(direction),
            if discipline == "priority" {
                Discipline::Priority
            } else {
                Discipline::Fifo
            },
        )?
        .to_string(),
        ["write", id, message] => {
            apex::write_sampling_message(partition, number(id), &bytes(message))?;
            String::new()
        }
        ["read", id] => {
            let read = apex::read_sampling_message(partition, number(id), &mut buffer)?;
            format!("{} {}", read.validity as i32, digits(&buffer[..read.length]))
        }
        ["read-updated", id] => {
            let read = apex::read_updated_sampling_message(partition, number(id), &mut buffer)?;
            format!("{} {}", read.updated as i32, digits(&buffer[..read.length]))
        }
        ["read-conditional", id, after] => {
            let id = number(id);
            let read = apex::read_sampling_message_conditional(partition, id, number(after), &mut buffer)?;
            format!("{} {}", read.time_stamp, digits(&buffer[..read.length]))
        }
        ["send", id, message, time_out] => {
            apex::send_queuing_message(partition, number(id), &bytes(message), number(time_out))?;
            String::new()
        }
        ["receive", id, time_out] => {
            let received =
                apex::receive_queuing_message(partition, number(id), number(time_out), &mut buffer)?;
            format!("{} {}", received.overflowed, digits(&buffer[..received.length]))
        }
        ["clear", id] => {
            apex::clear_queuing_port(partition, number(id))?;
            String::new()
        }
        ["sampling-id", name] => apex::get_sampling_port_id(partition, name)?.to_string(),
        ["queuing-id", name] => apex::get_queuing_port_id(partition, name)?.to_string(),
        ["set-mode", mode] => {
            apex::set_partition_mode(partition, operating_mode(mode))?;
            String::new()
        }
        ["set-priority", priority] => {
            apex::set_process_priority(number(priority));
            String::new()
        }
        ["time"] => apex::get_time().to_string(),
        _ => return status(partition, words),
    };
    Ok(reply)
}

fn status(partition: &Partition, words: &[&str]) -> Result<String, Refusal> {
    Ok(match *words {
        ["sampling-status", id] => {
            let status = apex::get_sampling_port_status(partition, number(id))?;
            format!(
                "{} {} {} {}",
                status.refresh_period,
                status.max_message_size,
                status.port_direction as i32,
                status.last_msg_validity as i32
            )
        }
        ["current-status", id] => {
            let status = apex::get_sampling_port_current_status(partition, number(id))?;
            format!(
                "{} {} {} {} {} {}",
                status.refresh_period,
                status.time_stamp,
                status.max_message_size,
                status.port_direction as i32,
                status.message_age as i32,
                status.updated as i32
            )
        }
        ["queuing-status", id] => {
            let status = apex::get_queuing_port_status(partition, number(id))?;
            format!(
                "{} {} {} {} {}",
                status.nb_message,
                status.max_nb_message,
                status.max_message_size,
                status.port_direction as i32,
                status.waiting_processes
            )
        }
        ["partition-status"] => {
            let status = apex::get_partition_status(partition);
            format!(
                "{} {} {}",
                status.identifier, status.operating_mode as i32, status.start_condition as i32
            )
        }
        _ => panic!("not understood: {words:?}"),
    })
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is no number that fits"))
}

fn way(word: &str) -> Direction {
    if word == "source" {
        Direction::Source
    } else {
        Direction::Destination
    }
}

fn operating_mode(word: &str) -> OperatingMode {
    match word {
        "idle" => OperatingMode::Idle,
        "cold" => OperatingMode::ColdStart,
        "warm" => OperatingMode::WarmStart,
        _ => OperatingMode::Normal,
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits = digits.trim_start_matches('-').as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits"))
        .collect()
}

fn digits(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
