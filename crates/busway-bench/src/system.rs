//! The system file of two hosts on one machine, as a user would write it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

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

/// What a system file says of a host.
pub(crate) struct HostTable<'a> {
    pub(crate) name: &'a str,
    pub(crate) iceoryx2_config: &'a Path,
    /// Where the state of its ARINC 653 ports lies; none: it has no ports.
    pub(crate) ports: Option<PathBuf>,
}

/// What a system file says of the link between two hosts. A bus takes what concerns it.
pub(crate) struct LinkTable<'a> {
    pub(crate) bus: &'a str,
    /// File of a window.
    pub(crate) window: &'a Path,
    /// Where the second host listens.
    pub(crate) listen: SocketAddr,
    /// How the gateways' lanes wait.
    pub(crate) lanes_wait: Option<Wait>,
}

/// Writes `system.toml` for the first two of `hosts`, joined by `bus`, with the default lane waiting as `wait` says.
///
/// # Errors
///
/// The file cannot be written, or no TCP port is free.
pub fn write_system_file(hosts: &Hosts, bus: Bus, wait: Option<Wait>) -> Result<PathBuf, BenchError> {
    let tables = [0, 1].map(|i| HostTable {
        name: &hosts.hosts[i].name,
        iceoryx2_config: &hosts.hosts[i].iceoryx2_config,
        ports: None,
    });
    let link = LinkTable {
        bus: bus.word(),
        window: &hosts.shared.join("window"),
        listen: SocketAddr::new(hosts.address(1, 0), free_port(hosts)?),
        lanes_wait: wait,
    };
    let path = hosts.shared.join("system.toml");
    std::fs::write(&path, text(&tables, Some(&link)))
        .map_err(BenchError::io(format!("write {}", path.display())))?;
    Ok(path)
}

/// The tables of two hosts and of the link between them, if there is one.
pub(crate) fn text(hosts: &[HostTable<'_>; 2], link: Option<&LinkTable<'_>>) -> String {
    let mut text = String::new();
    for host in hosts {
        let config = &host.iceoryx2_config;
        let _ = writeln!(text, "[host.{}]\niceoryx2 = {{ config = {config:?} }}", host.name);
        if let Some(ports) = &host.ports {
            let _ = writeln!(text, "ports = {ports:?}");
        }
        text.push('\n');
    }
    let Some(link) = link else {
        return text;
    };
    let [a, b] = hosts.each_ref().map(|host| host.name);
    let bus = link.bus;
    // A bus that needs to be told nothing gets no table.
    let table = if bus == Bus::Memory.word() {
        format!(
            "memory = {{ path = {:?}, length = \"{WINDOW_MIB}MiB\" }}\n",
            link.window
        )
    } else if bus == Bus::Tcp.word() {
        format!("tcp.{b} = {{ listen = \"{}\" }}\n", link.listen)
    } else {
        String::new()
    };
    let _ = write!(
        text,
        "[[link]]\nhosts = [\"{a}\", \"{b}\"]\nbuses = [\"{bus}\"]\n{table}"
    );
    if let Some(wait) = link.lanes_wait {
        let _ = writeln!(text, "\n[[lane]]\nname = \"default\"\nwait = \"{}\"", wait.word());
    }
    text
}

/// A port on which a host can listen.
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
