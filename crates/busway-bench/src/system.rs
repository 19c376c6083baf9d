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
    let mut text = host_tables(hosts, None);
    text += &link_table(hosts, bus.word())?;
    if let Some(wait) = wait {
        let _ = writeln!(text, "\n[[lane]]\nname = \"default\"\nwait = \"{}\"", wait.word());
    }
    write(hosts, "system.toml", &text)
}

/// The same for hosts with ARINC 653 ports, whose state lies in directories of their own called `ports`, joined by any bus of the
/// registry. `partitions` are the tables of partitions and channels. Without a bus the hosts are not joined.
///
/// # Errors
///
/// As [`write_system_file`].
pub fn write_ports_file(
    hosts: &Hosts,
    bus: Option<&str>,
    lanes_wait: Wait,
    ports: &str,
    partitions: &str,
) -> Result<PathBuf, BenchError> {
    let mut text = host_tables(hosts, Some(ports));
    if let Some(bus) = bus {
        text += &link_table(hosts, bus)?;
        let _ = writeln!(
            text,
            "\n[[lane]]\nname = \"default\"\nwait = \"{}\"",
            lanes_wait.word()
        );
    }
    text.push_str(partitions);
    write(hosts, &format!("{ports}.toml"), &text)
}

fn write(hosts: &Hosts, name: &str, text: &str) -> Result<PathBuf, BenchError> {
    let path = hosts.shared.join(name);
    std::fs::write(&path, text).map_err(BenchError::io(format!("write {}", path.display())))?;
    Ok(path)
}

fn host_tables(hosts: &Hosts, ports: Option<&str>) -> String {
    let mut text = String::new();
    for host in &hosts.hosts[..2] {
        let config = &host.iceoryx2_config;
        let _ = writeln!(text, "[host.{}]\niceoryx2 = {{ config = {config:?} }}", host.name);
        if let Some(ports) = ports {
            let _ = writeln!(text, "ports = {:?}", host.directory.join(ports));
        }
        text.push('\n');
    }
    text
}

/// The link between the two hosts. A bus that needs to be told nothing gets no table.
fn link_table(hosts: &Hosts, bus: &str) -> Result<String, BenchError> {
    let (a, b) = (&hosts.hosts[0].name, &hosts.hosts[1].name);
    let table = if bus == Bus::Memory.word() {
        let window = hosts.shared.join("window");
        format!("memory = {{ path = {window:?}, length = \"{WINDOW_MIB}MiB\" }}\n")
    } else if bus == Bus::Tcp.word() {
        let listen = SocketAddr::new(hosts.address(0, 1), free_port(hosts)?);
        format!("tcp.{a} = {{ listen = \"{listen}\" }}\n")
    } else {
        String::new()
    };
    Ok(format!(
        "[[link]]\nhosts = [\"{a}\", \"{b}\"]\nbuses = [\"{bus}\"]\n{table}"
    ))
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
