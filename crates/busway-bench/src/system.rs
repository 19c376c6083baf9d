//! The system file of two hosts on one machine, as a user would write it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::hosts::{Hosts, Isolation};
use crate::worker::Wait;

/// Where gateways of isolated hosts listen.
const PORT: u16 = 7400;
/// The window and both directions in it.
const WINDOW_MIB: u32 = 256;

/// The buses that one machine has.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// A window in shared memory
    Memory,
    /// TCP: over the loopback interface, or a veth pair between isolated hosts
    Tcp,
}

impl Bus {
    /// The word used in system files and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
        }
    }
}

/// Writes `system.toml` for the first two of `hosts`, joined by `bus`, with the default lane waiting as `wait` says.
///
/// # Errors
///
/// The file cannot be written, or no TCP port is free.
pub fn write_system_file(hosts: &Hosts, bus: Bus, wait: Option<Wait>) -> Result<PathBuf, BenchError> {
    let [a, b, ..] = &hosts.hosts[..] else {
        unreachable!("made for two hosts")
    };
    let mut text = String::new();
    for host in [a, b] {
        let _ = writeln!(
            text,
            "[host.{}]\niceoryx2 = {{ config = {:?} }}\n",
            host.name, host.iceoryx2_config
        );
    }
    let _ = writeln!(
        text,
        "[[link]]\nhosts = [\"{}\", \"{}\"]\nbuses = [\"{}\"]",
        a.name,
        b.name,
        bus.word()
    );
    match bus {
        Bus::Memory => {
            let window = hosts.shared.join("window");
            let _ = writeln!(
                text,
                "memory = {{ path = {window:?}, length = \"{WINDOW_MIB}MiB\" }}"
            );
        }
        Bus::Tcp => {
            let listen = SocketAddr::new(hosts.address(0, 1), free_port(hosts)?);
            let _ = writeln!(text, "tcp.{} = {{ listen = \"{listen}\" }}", a.name);
        }
    }
    if let Some(wait) = wait {
        let _ = writeln!(text, "\n[[lane]]\nname = \"default\"\nwait = \"{}\"", wait.word());
    }
    let path = hosts.shared.join("system.toml");
    std::fs::write(&path, text).map_err(BenchError::io(format!("write {}", path.display())))?;
    Ok(path)
}

/// A port on which the first host can listen.
pub(crate) fn free_port(hosts: &Hosts) -> Result<u16, BenchError> {
    match hosts.isolation {
        Isolation::Namespaces => Ok(PORT),
        Isolation::Domains => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let address = listener.and_then(|listener| listener.local_addr());
            Ok(address.map_err(BenchError::io("find a free TCP port"))?.port())
        }
    }
}
