//! The system file of two hosts on one machine, as a user would write it.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use busway_buses::link_lines;
use busway_transport::contract::Site;

use crate::BenchError;
use crate::hosts::{Host, Hosts, Isolation, own_address};
use crate::technology::Wait;

/// Where gateways of isolated hosts listen.
const PORT: u16 = 7400;
/// The window and both directions in it.
const WINDOW_MIB: u32 = 256;

pub(crate) struct HostTable<'a> {
    pub(crate) host: &'a Host,
    pub(crate) ports: Option<PathBuf>,
}

/// What a system file says of the link between two hosts. A bus takes what concerns it.
pub(crate) struct LinkTable<'a> {
    pub(crate) bus: &'a str,
    /// File of a window.
    pub(crate) window: &'a Path,
    pub(crate) tables: Option<[String; 2]>,
    pub(crate) addresses: [SocketAddr; 2],
    pub(crate) lanes_wait: Option<Wait>,
}

/// Writes `system.toml` for the first two of `hosts`, joined by `bus`, with the default lane
/// waiting as `wait` says.
///
/// # Errors
///
/// The file cannot be written, or no TCP port is free.
pub fn write_system_file(hosts: &Hosts, bus: &str, wait: Option<Wait>) -> Result<PathBuf, BenchError> {
    let tables = [0, 1].map(|i| HostTable {
        host: &hosts.hosts[i],
        ports: None,
    });
    let link = LinkTable {
        bus,
        window: &hosts.shared.join("window"),
        tables: None,
        addresses: free_addresses(hosts)?,
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
    for HostTable { host, ports } in hosts {
        let config = &host.iceoryx2_config;
        let _ = writeln!(text, "[host.{}]\niceoryx2 = {{ config = {config:?} }}", host.name);
        if let Some(ports) = ports {
            let _ = writeln!(text, "ports = {ports:?}");
        }
        text.push('\n');
    }
    let Some(link) = link else {
        return text;
    };
    let names = hosts.each_ref().map(|table| table.host.name.as_str());
    let site = Site {
        hosts: names,
        addresses: link.addresses,
        window: (link.window, WINDOW_MIB),
    };
    let bus = link.bus;
    let lines = match &link.tables {
        Some([first, second]) => {
            let [one, other] = names;
            format!("{bus}.{one} = {first}\n{bus}.{other} = {second}\n")
        }
        None => link_lines(bus, &site),
    };
    let _ = write!(text, "[[link]]\nhosts = {names:?}\nbuses = [\"{bus}\"]\n{lines}");
    if let Some(wait) = link.lanes_wait {
        let _ = writeln!(text, "\n[[lane]]\nname = \"default\"\nwait = \"{}\"", wait.word());
    }
    text
}

/// Where each of the first two hosts can listen for the other one.
///
/// # Errors
///
/// No TCP port is free.
pub(crate) fn free_addresses(hosts: &Hosts) -> Result<[SocketAddr; 2], BenchError> {
    let at = |here, there| Ok(SocketAddr::new(hosts.address(here, there), free_port(hosts)?));
    Ok([at(0, 1)?, at(1, 0)?])
}

pub(crate) fn free_port(hosts: &Hosts) -> Result<u16, BenchError> {
    match hosts.isolation {
        Isolation::Namespaces => Ok(PORT),
        Isolation::Domains => {
            let listener = TcpListener::bind((own_address(), 0));
            let address = listener.and_then(|listener| listener.local_addr());
            Ok(address.map_err(BenchError::io("find a free TCP port"))?.port())
        }
    }
}
