//! What stands between the two hosts while a group is measured: our gateways, or the tunnels of others.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use super::measure::Bench;
use super::plan::Transport;
use crate::BenchError;
use crate::environment::TUNNEL;
use crate::hosts::find_on_path;
use crate::processes::{Process, start_gateway};
use crate::system::{free_port, write_system_file};
use crate::worker::Wait;

impl Bench<'_> {
    /// Starts the processes between the hosts; they end when dropped.
    ///
    /// # Errors
    ///
    /// [`BenchError::Needs`] where a program is not installed.
    pub(super) fn start_path(&self, transport: Transport, wait: Wait) -> Result<Vec<Process>, BenchError> {
        match transport {
            Transport::Memory | Transport::Tcp => {
                let bus = transport.bus().expect("both are buses");
                let system = write_system_file(self.hosts, bus, Some(wait))?;
                self.hosts
                    .hosts
                    .iter()
                    .map(|host| start_gateway(&self.program, host, &system))
                    .collect()
            }
            Transport::ZenohTunnel => self.start_tunnels(),
            Transport::BareCopy | Transport::BareTcp | Transport::Iceoryx2Hop => Ok(Vec::new()),
        }
    }

    /// Its fastest setting for sparse and for dense traffic alike: woken by the peers, and once a millisecond besides.
    fn start_tunnels(&self) -> Result<Vec<Process>, BenchError> {
        let tunnel =
            find_on_path(OsStr::new(TUNNEL)).ok_or_else(|| BenchError::Needs(format!("{TUNNEL} on PATH")))?;
        let endpoint = format!("tcp/{}:{}", self.hosts.address(0, 1), free_port(self.hosts)?);
        let mut tunnels = Vec::new();
        for (host, verb) in self.hosts.hosts.iter().zip(["listen", "connect"]) {
            let config = host.directory.join("zenoh.json5");
            let listen = if verb == "listen" {
                ""
            } else {
                ", listen: { endpoints: [] }"
            };
            let text = format!(
                "{{ mode: \"peer\", scouting: {{ multicast: {{ enabled: false }} }}, {verb}: {{ endpoints: [\"{endpoint}\"] }}{listen} }}\n"
            );
            write(&config, &text)?;
            let mut command = host.command(&tunnel)?;
            command
                .args(["--poll", "1", "--reactive", "--zenoh-config"])
                .arg(&config)
                .stdout(Stdio::null());
            command.env("IOX2_LOG_LEVEL", "Warn").env("RUST_LOG", "warn");
            tunnels.push(Process::start(command, format!("tunnel {}", host.name))?);
        }
        Ok(tunnels)
    }
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(BenchError::io(format!("write {}", path.display())))
}
