//! The services as lines of text, so that a rule can be put to any implementation in any language.
//!
//! A line is a service and its parameters; the reply is the return code and the output parameters.
//! A port is called by its name or, as `#N`, by an identifier; an unknown name is the identifier 0.
//! Messages are hexadecimal digits, `-` if empty. Times are nanoseconds, a time-out is `-1` for
//! ever.

use std::fmt::Write;
use std::str::FromStr;

use busway_port::apex::{self, OperatingMode, PortId, Refusal, ReturnCode, StartCondition};
use busway_port::{Direction, Discipline, Partition};

use super::LARGE_BYTES;

type Reply = Result<String, Refusal>;

/// Does what `line` says.
pub fn answer(partition: &Partition, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let reply = match words.first() {
        Some(&("create-sampling" | "write" | "read" | "read-updated" | "read-conditional")) => {
            sampling(partition, &words)
        }
        Some(&("create-queuing" | "send" | "receive" | "clear")) => queuing(partition, &words),
        _ => rest(partition, &words),
    };
    reply.unwrap_or_else(|refusal| code(refusal.into()).into())
}

fn sampling(partition: &Partition, words: &[&str]) -> Reply {
    let port = |name| port(partition, name, apex::get_sampling_port_id);
    let mut buffer = [0; LARGE_BYTES];
    Ok(match *words {
        ["create-sampling", name, size, direction, period] => {
            let (size, direction) = (number(size), way(direction));
            let id = apex::create_sampling_port(partition, name, size, direction, number(period))?;
            format!("NO_ERROR {id}")
        }
        ["write", name, message] => {
            apex::write_sampling_message(partition, port(name), &bytes(message))?;
            "NO_ERROR".into()
        }
        ["read", name] => {
            let read = apex::read_sampling_message(partition, port(name), &mut buffer)?;
            format!("NO_ERROR {:?} {}", read.validity, digits(&buffer[..read.length]))
        }
        ["read-updated", name] => {
            let read = apex::read_updated_sampling_message(partition, port(name), &mut buffer)?;
            let message = digits(&buffer[..read.length]);
            format!("{} {:?} {message}", code(read.code()), read.updated)
        }
        ["read-conditional", name, after] => {
            let (port, after) = (port(name), number(after));
            let read = apex::read_sampling_message_conditional(partition, port, after, &mut buffer)?;
            let message = digits(&buffer[..read.length]);
            format!("{} {} {message}", code(read.code()), read.time_stamp)
        }
        _ => panic!("not understood: {words:?}"),
    })
}

fn queuing(partition: &Partition, words: &[&str]) -> Reply {
    let port = |name| port(partition, name, apex::get_queuing_port_id);
    let mut buffer = [0; LARGE_BYTES];
    Ok(match *words {
        ["create-queuing", name, size, messages, direction, discipline] => {
            let discipline = if discipline == "priority" {
                Discipline::Priority
            } else {
                Discipline::Fifo
            };
            let (size, messages, direction) = (number(size), number(messages), way(direction));
            let id = apex::create_queuing_port(partition, name, size, messages, direction, discipline)?;
            format!("NO_ERROR {id}")
        }
        ["send", name, message, time_out] => {
            apex::send_queuing_message(partition, port(name), &bytes(message), number(time_out))?;
            "NO_ERROR".into()
        }
        ["receive", name, time_out] => {
            let (port, time_out) = (port(name), number(time_out));
            let received = apex::receive_queuing_message(partition, port, time_out, &mut buffer)?;
            format!("{} {}", code(received.code()), digits(&buffer[..received.length]))
        }
        ["clear", name] => {
            apex::clear_queuing_port(partition, port(name))?;
            "NO_ERROR".into()
        }
        _ => panic!("not understood: {words:?}"),
    })
}

fn rest(partition: &Partition, words: &[&str]) -> Reply {
    Ok(match *words {
        ["sampling-id", name] => format!("NO_ERROR {}", apex::get_sampling_port_id(partition, name)?),
        ["queuing-id", name] => format!("NO_ERROR {}", apex::get_queuing_port_id(partition, name)?),
        ["sampling-status", name] => {
            let id = port(partition, name, apex::get_sampling_port_id);
            let status = apex::get_sampling_port_status(partition, id)?;
            let (size, direction) = (status.max_message_size, status.port_direction);
            let (period, validity) = (status.refresh_period, status.last_msg_validity);
            format!("NO_ERROR {period} {size} {direction} {validity:?}")
        }
        ["current-status", name] => {
            let id = port(partition, name, apex::get_sampling_port_id);
            let status = apex::get_sampling_port_current_status(partition, id)?;
            let (size, direction) = (status.max_message_size, status.port_direction);
            let (period, stamp) = (status.refresh_period, status.time_stamp);
            let (age, updated) = (status.message_age, status.updated);
            format!("NO_ERROR {period} {stamp} {size} {direction} {age:?} {updated:?}")
        }
        ["queuing-status", name] => {
            let id = port(partition, name, apex::get_queuing_port_id);
            let status = apex::get_queuing_port_status(partition, id)?;
            let (messages, most) = (status.nb_message, status.max_nb_message);
            let (size, direction) = (status.max_message_size, status.port_direction);
            format!(
                "NO_ERROR {messages} {most} {size} {direction} {}",
                status.waiting_processes
            )
        }
        ["partition-status"] => {
            let status = apex::get_partition_status(partition);
            let restarted = status.start_condition != StartCondition::NormalStart;
            format!(
                "NO_ERROR {} {:?} {restarted}",
                status.identifier, status.operating_mode
            )
        }
        ["set-mode", mode] => {
            apex::set_partition_mode(partition, operating_mode(mode))?;
            "NO_ERROR".into()
        }
        ["set-priority", priority] => {
            apex::set_process_priority(number(priority));
            "NO_ERROR".into()
        }
        ["time"] => format!("NO_ERROR {}", apex::get_time()),
        _ => panic!("not understood: {words:?}"),
    })
}

fn code(code: ReturnCode) -> &'static str {
    match code {
        ReturnCode::NoError => "NO_ERROR",
        ReturnCode::NoAction => "NO_ACTION",
        ReturnCode::NotAvailable => "NOT_AVAILABLE",
        ReturnCode::InvalidParam => "INVALID_PARAM",
        ReturnCode::InvalidConfig => "INVALID_CONFIG",
        ReturnCode::InvalidMode => "INVALID_MODE",
        ReturnCode::TimedOut => "TIMED_OUT",
    }
}

fn port(partition: &Partition, name: &str, id: fn(&Partition, &str) -> Result<PortId, Refusal>) -> PortId {
    match name.strip_prefix('#') {
        Some(raw) => number(raw),
        None => id(partition, name).unwrap_or(0),
    }
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
