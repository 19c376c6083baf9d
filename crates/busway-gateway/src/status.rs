//! What the gateway is doing, for programs to read: a JSON file, replaced in one piece every
//! second.

use std::path::PathBuf;

use serde::Serialize;

use crate::counters::{PortSnapshot, Snapshot};

/// The whole status.
#[derive(Debug, Serialize)]
pub struct Status {
    /// This host.
    pub host: String,
    /// The gateway's process.
    pub pid: u32,
    /// The gateway's session: a new one after each start.
    pub session: u64,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// All services that it knows.
    pub services: Vec<ServiceStatus>,
    /// Channels of ARINC 653 ports between this host and others.
    pub ports: Vec<PortStatus>,
}

/// A channel of ports, towards or from one other host.
#[derive(Debug, Serialize)]
pub struct PortStatus {
    /// The channel's name in the system file.
    pub channel: String,
    /// The other host.
    pub peer: String,
    /// Whether messages leave this host by it.
    pub leaves: bool,
    pub bus: String,
    /// Whether messages can pass now.
    pub open: bool,
    /// Who writes the other host's ports where the sending host does, over `rdma-write`: the
    /// source's own process (`"partition"`), or the `"gateway"`; `None` for other channels.
    pub writer: Option<&'static str>,
    /// Why it is the gateway.
    pub writer_reason: Option<String>,
    /// Whether the other host, a core without a gateway, is `"absent"` (it has not opened its end),
    /// `"waiting"` (it has, and has not used it yet), `"up"` or `"stopped"`; `None` where gateways
    /// move the messages.
    pub core: Option<&'static str>,
    /// The last complaint, if it still holds.
    pub complaint: Option<String>,
    /// How far off the estimate of the two clocks' offset is at most, in ns; `None` where there is
    /// none or none is needed.
    pub clock_error_ns: Option<i64>,
    /// What was counted. What queues had no room for, the ports count (`busway port stats`). What
    /// the source's own process writes counts as sent, also where a newer message replaced it.
    pub counters: PortSnapshot,
}

/// One link.
#[derive(Debug, Serialize)]
pub struct LinkStatus {
    /// The host at the other end.
    pub peer: String,
    pub bus: String,
    /// Whether the conversation stands.
    pub up: bool,
    /// Why it does not, or why nothing crosses.
    pub reason: Option<String>,
    /// How many services the peer offers.
    pub offers: usize,
}

/// One service.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Whether the gateway holds it open.
    pub mirror: bool,
    /// Hosts that get its messages from here.
    pub sends_to: Vec<String>,
    /// Hosts whose messages come here.
    pub receives_from: Vec<String>,
    /// The buses that its channels take at present, those that send first, in the order of those
    /// hosts.
    pub over: Vec<&'static str>,
    /// The last complaint, if it still holds.
    pub complaint: Option<String>,
    /// What was counted.
    pub counters: Snapshot,
}

/// Where the status goes.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    complained: bool,
}

impl StatusFile {
    /// At this path; the directory must exist.
    pub fn new(path: PathBuf) -> StatusFile {
        StatusFile {
            path,
            complained: false,
        }
    }

    /// Replaces the file. A failure is logged once.
    pub fn write(&mut self, status: &Status, is_last: bool) {
        let text = serde_json::to_vec_pretty(status).expect("plain data always serialises");
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &self.path));
        match written {
            Ok(()) => self.complained = false,
            Err(error) if !self.complained => {
                self.complained = true;
                tracing::warn!(
                    "status file {}: {error}; the gateway goes on without",
                    self.path.display()
                );
            }
            Err(_) => {}
        }
        tracing::trace!(is_last, "status written");
    }
}
