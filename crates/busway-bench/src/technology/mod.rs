//! What programs exchange messages over: local mechanisms, networks, Busway's ports and buses, and
//! what none of them can be faster than.
//!
//! Contract: each technology is one file with its [`Description`]s, by which experiments choose it,
//! and a function `with` that opens a path and hands it to a user; one line in the list below
//! registers it. The loops around paths (`worker::exchange`) are the same for all, so that figures
//! differ by the path alone. Descriptions are read by the experiments, paths are used by workers.

#[cfg(test)]
mod allocations;
mod begin_end_flags;
mod channel;
mod copy;
mod iceoryx1;
mod iceoryx2;
mod keeper;
mod message;
mod mq;
mod path;
mod port;
mod ready;
pub(crate) mod ring;
mod sampling_sockets;
mod shared;
mod stream;
mod tcp;
mod tipc;
mod two_lines;
mod udp;
mod udp_batch;
mod unix;
mod wait;
mod widened;

use crate::control::WorkerResult;
use crate::record::Measured;
use busway_buses::needs_window;

pub(crate) use iceoryx2::{DEFAULT_QUEUE_DEPTH, node as iceoryx2_node, queue_depth};
pub(crate) use message::PROBE;
pub use message::{MIN_MESSAGE_BYTES, Message, NUMBERS, Received, SHORT_BYTES};
pub use path::{Description, MeetingPoint, OneWay, Reach, Side, Stage};
pub(crate) use path::{Opening, Path, User};
pub(crate) use port::{join, partitions, port_names, sampling_ports, start};
pub use wait::Wait;
pub(crate) use widened::Widened;

macro_rules! technologies {
    ($($module:ident),+ $(,)?) => {
        pub fn all() -> Vec<Description> {
            let mut all = Vec::new();
            $(all.extend($module::describe());)+
            all
        }

        /// Opens a path over the technology called `name`, and hands it to `user`.
        pub(crate) fn with_path(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
            $(if $module::describe().iter().any(|description| description.name == name) {
                return $module::with(name, opening, user);
            })+
            Err(format!("unknown technology {name:?}"))
        }
    };
}

technologies! {
    two_lines,
    begin_end_flags,
    copy,
    mq,
    unix,
    udp,
    tcp,
    sampling_sockets,
    tipc,
    udp_batch,
    iceoryx2,
    iceoryx1,
    channel,
    port,
}

/// The technologies that are this bus without Busway: the sockets of the same name, with a call of
/// the system for each message and with many messages a call, or a copy through a window. Empty
/// where this program knows none.
pub(crate) fn floors_of(bus: &str) -> Vec<Description> {
    let sockets = [bus.to_owned(), format!("{bus}-batch")];
    let mut floors: Vec<Description> = sockets.iter().filter_map(|name| of(name)).collect();
    if floors.is_empty() && needs_window(bus) {
        floors.extend(of("copy"));
    }
    floors
}

pub fn of(name: &str) -> Option<Description> {
    all().into_iter().find(|description| description.name == name)
}

pub fn list() -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["name", "waits", "reaches", "what it is"]);
    for one in all() {
        let waits: Vec<&str> = one.waits.iter().map(|wait| wait.word()).collect();
        let reach = match one.reach {
            Reach::Host => "one host",
            Reach::Machine => "two hosts of one machine, or that share a window",
            Reach::Network => "two machines",
        };
        let what = match one.missing {
            None => one.title,
            Some(missing) => format!("{}; not here: needs {missing}", one.title),
        };
        table.add_row([one.name, waits.join(", "), reach.to_owned(), what]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_technology_has_a_name_of_its_own_and_a_way_to_wait() {
        let all = all();
        for (index, one) in all.iter().enumerate() {
            assert!(!one.waits.is_empty(), "{}", one.name);
            assert!(
                all[..index].iter().all(|other| other.name != one.name),
                "{}",
                one.name
            );
            assert!(
                one.name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{}",
                one.name
            );
        }
    }
}
