//! A process of a partition that carries out commands through the traits of `a653rs`: one service a
//! line on standard input, one line of reply. The language is that of the example `partition_shell`
//! of `busway-port`, as far as the traits go.
//!
//! Until `set-mode normal` the main thread, which initialises the partition, reads the commands;
//! from then on a process of the partition. `set-mode cold` executes the program again: it prints
//! `joined` again.
#![allow(unsafe_code)] // Reading is unsafe by its declaration in `a653rs`.

use std::fmt::Write;
use std::io::stdin;
use std::str::FromStr;

use a653rs::bindings::*;
use busway_a653rs::Busway;

/// Longest message of a port that it is used with, in bytes.
const LONGEST_BYTES: usize = 4096;

type Reply = Result<String, ErrorReturnCode>;

fn main() {
    println!("joined");
    listen();
}

/// Answers lines until standard input is closed, or until the partition becomes normal.
fn listen() {
    let mut line = String::new();
    // Not a lock for as long as it listens: the next to listen is another thread.
    while stdin().read_line(&mut line).expect("read a line") > 0 {
        println!("{}", answer::<Busway>(line.trim_end()));
        line.clear();
    }
    std::process::exit(0);
}

/// The process that listens once the partition is normal.
extern "C" fn process() {
    println!("NO_ERROR");
    listen();
}

fn answer<H>(line: &str) -> String
where
    H: ApexSamplingPortP1 + ApexQueuingPortP1 + ApexPartitionP4 + ApexProcessP4 + ApexTimeP4,
{
    let words: Vec<&str> = line.split_whitespace().collect();
    let reply = match words[0] {
        "create-sampling" | "write" | "read" | "sampling-id" | "sampling-status" => sampling::<H>(&words),
        "set-mode" | "partition-status" | "time" => partition::<H>(&words),
        // The traits give a process its priority when it is created, and this one is.
        "set-priority" => Err(ErrorReturnCode::InvalidMode),
        _ => queuing::<H>(&words),
    };
    reply.unwrap_or_else(|refusal| code(refusal).into())
}

fn sampling<H: ApexSamplingPortP1>(words: &[&str]) -> Reply {
    let port = |word: &str| port(word, H::get_sampling_port_id);
    Ok(match *words {
        ["create-sampling", port, size, way, period] => {
            let id = H::create_sampling_port(name(port), number(size), direction(way), number(period))?;
            format!("NO_ERROR {id}")
        }
        ["write", name, message] => {
            H::write_sampling_message(port(name), &bytes(message))?;
            "NO_ERROR".into()
        }
        ["read", name] => {
            let mut buffer = [0; LONGEST_BYTES];
            // SAFETY: the buffer is as long as the longest message of any port.
            let (validity, length) = unsafe { H::read_sampling_message(port(name), &mut buffer) }?;
            format!("NO_ERROR {validity:?} {}", digits(&buffer[..length as usize]))
        }
        ["sampling-id", port] => format!("NO_ERROR {}", H::get_sampling_port_id(name(port))?),
        ["sampling-status", name] => {
            let status = H::get_sampling_port_status(port(name))?;
            let (period, size) = (status.refresh_period, status.max_message_size);
            let (way, validity) = (way(&status.port_direction), status.last_msg_validity);
            format!("NO_ERROR {period} {size} {way} {validity:?}")
        }
        _ => panic!("not understood: {words:?}"),
    })
}

fn queuing<H: ApexQueuingPortP1>(words: &[&str]) -> Reply {
    let port = |word: &str| port(word, H::get_queuing_port_id);
    Ok(match *words {
        ["create-queuing", port, size, messages, way, discipline] => {
            let discipline = match discipline {
                "priority" => QueuingDiscipline::Priority,
                _ => QueuingDiscipline::Fifo,
            };
            let (size, messages) = (number(size), number(messages));
            let id = H::create_queuing_port(name(port), size, messages, direction(way), discipline)?;
            format!("NO_ERROR {id}")
        }
        ["send", name, message, time_out] => {
            H::send_queuing_message(port(name), &bytes(message), number(time_out))?;
            "NO_ERROR".into()
        }
        ["receive", name, time_out] => {
            let mut buffer = [0; LONGEST_BYTES];
            // SAFETY: the buffer is as long as the longest message of any port.
            let received = unsafe { H::receive_queuing_message(port(name), number(time_out), &mut buffer) };
            let (length, overflowed) = received?;
            let code = if overflowed { "INVALID_CONFIG" } else { "NO_ERROR" };
            format!("{code} {}", digits(&buffer[..length as usize]))
        }
        ["clear", name] => {
            H::clear_queuing_port(port(name))?;
            "NO_ERROR".into()
        }
        ["queuing-id", port] => format!("NO_ERROR {}", H::get_queuing_port_id(name(port))?),
        ["queuing-status", name] => {
            let status = H::get_queuing_port_status(port(name))?;
            let (messages, most) = (status.nb_message, status.max_nb_message);
            let (size, way) = (status.max_message_size, way(&status.port_direction));
            format!(
                "NO_ERROR {messages} {most} {size} {way} {}",
                status.waiting_processes
            )
        }
        _ => panic!("not understood: {words:?}"),
    })
}

fn partition<H: ApexPartitionP4 + ApexProcessP4 + ApexTimeP4>(words: &[&str]) -> Reply {
    Ok(match *words {
        ["set-mode", "normal"] => {
            // Whoever is normal already can't create it, and is refused below.
            if let Ok(id) = H::create_process(&attributes()) {
                H::start(id)?;
            }
            H::set_partition_mode(OperatingMode::Normal)?;
            unreachable!("the processes of the partition run, and this thread has ended");
        }
        ["set-mode", mode] => {
            let mode = match mode {
                "warm" => OperatingMode::WarmStart,
                _ => OperatingMode::ColdStart,
            };
            H::set_partition_mode(mode)?;
            "NO_ERROR".into()
        }
        ["partition-status"] => {
            let status = H::get_partition_status();
            let restarted = status.start_condition == StartCondition::PartitionRestart;
            format!(
                "NO_ERROR {} {:?} {restarted}",
                status.identifier, status.operating_mode
            )
        }
        ["time"] => format!("NO_ERROR {}", H::get_time()),
        _ => panic!("not understood: {words:?}"),
    })
}

fn attributes() -> ApexProcessAttribute {
    ApexProcessAttribute {
        period: INFINITE_TIME_VALUE,
        time_capacity: INFINITE_TIME_VALUE,
        entry_point: process,
        stack_size: 64 * 1024,
        base_priority: 1,
        deadline: Deadline::Soft,
        name: name("LISTENER"),
    }
}

fn code(code: ErrorReturnCode) -> &'static str {
    match code {
        ErrorReturnCode::NoAction => "NO_ACTION",
        ErrorReturnCode::NotAvailable => "NOT_AVAILABLE",
        ErrorReturnCode::InvalidParam => "INVALID_PARAM",
        ErrorReturnCode::InvalidConfig => "INVALID_CONFIG",
        ErrorReturnCode::InvalidMode => "INVALID_MODE",
        ErrorReturnCode::TimedOut => "TIMED_OUT",
    }
}

/// The identifier that a word says: `#N`, or a name; 0 for an unknown one.
fn port(word: &str, id: fn(ApexName) -> Result<i64, ErrorReturnCode>) -> i64 {
    match word.strip_prefix('#') {
        Some(raw) => number(raw),
        None => id(name(word)).unwrap_or(0),
    }
}

fn name(word: &str) -> ApexName {
    let mut name = ApexName::default();
    name[..word.len()].copy_from_slice(word.as_bytes());
    name
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is no number that fits"))
}

fn direction(word: &str) -> PortDirection {
    match word {
        "source" => PortDirection::Source,
        _ => PortDirection::Destination,
    }
}

fn way(direction: &PortDirection) -> &'static str {
    match direction {
        PortDirection::Source => "source",
        PortDirection::Destination => "destination",
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
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
