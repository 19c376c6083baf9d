//! Hosts, the system file that joins them, and their gateways.
//!
//! Hosts are iceoryx2 domains with directories of their own, or network and mount namespaces where
//! a test needs a cable to cut or a `/dev/shm` to fill. All names differ from test to test;
//! everything is removed at the end.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use busway_bench::BenchError;
use busway_bench::hosts::{Hosts, Isolation, own_address};
use busway_buses::{BUS_NAMES, link_lines, needs_window, shares_memory};
use busway_port::system::crossings_of;
use busway_system::System;
use busway_transport::contract::Site;
use iceoryx2::config::Config;
use iceoryx2::prelude::*;
use iceoryx2::service::ipc::Service;
use serde::Deserialize;

use crate::program::Program;
use crate::role::{Role, Runner};
use crate::wait::eventually;
use crate::window::GivenWindow;

const WINDOW_MIB: u32 = 64;
/// More than a rig has links.
const PORTS_OF_A_RIG: u16 = 16;

/// The variable that names the bus of the tests that end in `over_named_bus`.
const NAMED: &str = "BUSWAY_BUS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    Memory,
    Tcp,
    Udp,
    /// Another one of the registry: see [`Bus::named`].
    Named(&'static str),
}

impl Bus {
    /// The bus that `BUSWAY_BUS` names.
    ///
    /// # Panics
    /// It names none of this build.
    pub fn named() -> Bus {
        let name = std::env::var(NAMED).unwrap_or_default();
        let known = BUS_NAMES.iter().find(|known| **known == name);
        let known = known.unwrap_or_else(|| panic!("{NAMED}={name:?} is none of {}", BUS_NAMES.join(", ")));
        let on_every_machine = [Bus::Memory, Bus::Tcp, Bus::Udp];
        let found = on_every_machine.into_iter().find(|bus| bus.name() == *known);
        found.unwrap_or(Bus::Named(known))
    }

    pub fn name(self) -> &'static str {
        match self {
            Bus::Memory => "memory",
            Bus::Tcp => "tcp",
            Bus::Udp => "udp",
            Bus::Named(name) => name,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    pub pid: u32,
    pub links: Vec<LinkStatus>,
    pub services: Vec<ServiceStatus>,
    pub ports: Vec<PortStatus>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PortStatus {
    pub channel: String,
    pub peer: String,
    pub bus: String,
    pub open: bool,
    pub core: Option<String>,
    pub writer: Option<String>,
    pub counters: std::collections::BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct LinkStatus {
    pub peer: String,
    pub bus: String,
    pub up: bool,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ServiceStatus {
    pub name: String,
    /// Whether the gateway holds it.
    pub mirror: bool,
    pub sends_to: Vec<String>,
    pub receives_from: Vec<String>,
    pub over: Vec<String>,
    pub complaint: Option<String>,
    pub counters: std::collections::BTreeMap<String, u64>,
}

impl ServiceStatus {
    /// A counter.
    ///
    /// # Panics
    /// There is none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        *self
            .counters
            .get(name)
            .unwrap_or_else(|| panic!("no counter {name:?} in {:?}", self.counters))
    }
}

#[derive(Debug)]
pub struct Rig {
    // Dropped in this order: programs first, then the directories, then the right to the window.
    gateways: Vec<Option<Program>>,
    pub system: PathBuf,
    pub hosts: Hosts,
    /// The bus of each link, and where its host that accepts listens.
    pub buses: Vec<Bus>,
    pub addresses: Vec<Option<SocketAddr>>,
    binary: PathBuf,
    pub windows: Vec<GivenWindow>,
}

impl Rig {
    pub fn pair(bus: Bus) -> Rig {
        Rig::pair_with(bus, "")
    }

    pub fn pair_with(bus: Bus, more: &str) -> Rig {
        Rig::running(&["a", "b"], &[(0, 1, bus)], more)
    }

    /// As [`pair_with`](Self::pair_with), with TCP beside a bus over which partitions would share
    /// their queues: so the gateways move them, over `bus`.
    pub fn pair_moved_by_gateways(bus: Bus, more: &str) -> Rig {
        let mut links = vec![(0, 1, bus)];
        if shares_memory(bus.name()) {
            links.push((0, 1, Bus::Tcp));
        }
        let rig = Rig::running(&["a", "b"], &links, more);
        // From then on nothing returns from TCP to the better bus.
        rig.links_up(0);
        rig.links_up(1);
        rig
    }

    /// Whether both hosts share the queue of this channel, and no gateway moves its messages.
    pub fn shares_queue(&self, channel: &str) -> bool {
        let system = System::load(&self.system).expect("the test's system file is right");
        let mut crossings = crossings_of(&system, &self.hosts.hosts[0].name).into_iter();
        let crossing = crossings.find(|crossing| crossing.channel == channel);
        crossing.is_some_and(|crossing| crossing.has_shared_queues())
    }

    pub fn running(names: &[&str], links: &[(usize, usize, Bus)], more: &str) -> Rig {
        let mut rig = Rig::stopped(names, links, more);
        rig.start_gateways();
        rig
    }

    pub fn stopped(names: &[&str], links: &[(usize, usize, Bus)], more: &str) -> Rig {
        Rig::over(Hosts::domains(names).expect("domains need nothing"), links, more)
    }

    pub fn isolated_pair(bus: Bus, more: &str) -> Result<Rig, String> {
        Rig::isolated_pair_over(&[(0, 1, bus)], more)
    }

    pub fn isolated_pair_over(links: &[(usize, usize, Bus)], more: &str) -> Result<Rig, String> {
        Ok(Rig::over(isolated_hosts()?, links, more))
    }

    pub fn over(hosts: Hosts, links: &[(usize, usize, Bus)], more: &str) -> Rig {
        Rig::over_links(hosts, links, None, more)
    }

    pub fn pair_with_one_link(buses: [Bus; 2], lines: &str) -> Rig {
        Rig::pair_with_one_link_and(buses, lines, "")
    }

    pub fn pair_with_one_link_and(buses: [Bus; 2], lines: &str, more: &str) -> Rig {
        let hosts = Hosts::domains(&["a", "b"]).expect("domains need nothing");
        Rig::over_links(hosts, &buses.map(|bus| (0, 1, bus)), Some(lines), more)
    }

    pub fn isolated_pair_with_one_link(buses: [Bus; 2], lines: &str) -> Result<Rig, String> {
        let hosts = isolated_hosts()?;
        Ok(Rig::over_links(
            hosts,
            &buses.map(|bus| (0, 1, bus)),
            Some(lines),
            "",
        ))
    }

    /// `joint`: buses between the same two hosts are those of one link, which has these lines.
    fn over_links(hosts: Hosts, links: &[(usize, usize, Bus)], joint: Option<&str>, more: &str) -> Rig {
        iceoryx2::prelude::set_log_level(LogLevel::Error);
        let mut text = String::new();
        let mut addresses = Vec::new();
        let mut tables = Vec::new();
        let mut windows = Vec::new();
        for host in &hosts.hosts {
            let _ = writeln!(
                text,
                "[host.{}]\niceoryx2 = {{ config = {:?} }}\nports = {:?}",
                host.name,
                host.iceoryx2_config,
                host.directory.join("ports")
            );
        }
        for (number, (a, b, bus)) in links.iter().enumerate() {
            let (name_a, name_b) = (&hosts.hosts[*a].name, &hosts.hosts[*b].name);
            // The first host is the one that listens where only one does: the second of a site.
            let free = |here, there, number| listening_place(&hosts, hosts.address(here, there), number);
            let site = Site {
                hosts: [name_b, name_a],
                addresses: [free(*b, *a, number + links.len()), free(*a, *b, number)],
                window: (&hosts.shared.join(format!("window{number}")), WINDOW_MIB),
            };
            let given = GivenWindow::of(bus.name());
            let lines = match &given {
                Some(window) => window.lines([name_a, name_b]),
                None => link_lines(bus.name(), &site),
            };
            windows.extend(given);
            tables.push((*a, *b, bus.name(), lines));
            let address = (!needs_window(bus.name())).then_some(site.addresses[1]);
            addresses.push(address);
        }
        for link in
            tables.chunk_by(|first, second| joint.is_some() && first.0 == second.0 && first.1 == second.1)
        {
            let (a, b, ..) = link[0];
            let buses: Vec<&str> = link.iter().map(|(_, _, bus, _)| *bus).collect();
            let lines: String = link.iter().map(|(_, _, _, lines)| lines.as_str()).collect();
            let (name_a, name_b) = (&hosts.hosts[a].name, &hosts.hosts[b].name);
            let _ = writeln!(
                text,
                "[[link]]\nhosts = [{name_a:?}, {name_b:?}]\nbuses = {buses:?}"
            );
            let _ = writeln!(text, "{}\n{lines}", joint.unwrap_or_default());
        }
        text.push_str(more);
        let system = hosts.shared.join("system.toml");
        std::fs::write(&system, text).expect("the directory is ours");
        let gateways = hosts.hosts.iter().map(|_| None).collect();
        Rig {
            gateways,
            system,
            hosts,
            buses: links.iter().map(|(_, _, bus)| *bus).collect(),
            addresses,
            binary: busway_binary(),
            windows,
        }
    }

    pub fn start_gateway(&mut self, host: usize) {
        let system = self.system.clone();
        self.start_gateway_as(host, &self.hosts.hosts[host].name.clone(), &system);
    }

    pub fn start_gateway_as(&mut self, host: usize, name: &str, system: &Path) {
        let place = &self.hosts.hosts[host];
        let mut command = place.command(&self.binary).expect("the busway binary");
        command
            .args(["gateway", "--host", name])
            .arg(system)
            .arg("--status")
            .arg(self.status_path(host));
        self.gateways[host] = Some(Program::start(command, &format!("gateway of {name}")));
    }

    pub fn start_gateways(&mut self) {
        for host in 0..self.hosts.hosts.len() {
            self.start_gateway(host);
        }
    }

    /// The gateway's process.
    ///
    /// # Panics
    /// It was not started.
    pub fn gateway(&mut self, host: usize) -> &mut Program {
        self.gateways[host].as_mut().expect("started")
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    fn status_path(&self, host: usize) -> PathBuf {
        self.hosts.hosts[host].directory.join("status.json")
    }

    /// The newest status of the gateway that runs now; none in the first second.
    pub fn status(&self, host: usize) -> Option<Status> {
        let pid = self.gateways[host].as_ref()?.id();
        let text = std::fs::read(self.status_path(host)).ok()?;
        let status: Status = serde_json::from_slice(&text).expect("the status is replaced in one piece");
        (status.pid == pid).then_some(status)
    }

    pub fn service(&self, host: usize, name: &str) -> Option<ServiceStatus> {
        self.status(host)?
            .services
            .into_iter()
            .find(|service| service.name == name)
    }

    pub fn newly_written_service(&self, host: usize, name: &str) -> ServiceStatus {
        let written_at = || std::fs::metadata(self.status_path(host)).ok()?.modified().ok();
        // What is written first may have been gathered before.
        for _ in 0..2 {
            let before = written_at();
            eventually("the next status", || (written_at() != before).then_some(()));
        }
        eventually(&format!("{name} is in the status of host {host}"), || {
            self.service(host, name)
        })
    }

    pub fn counter(&self, host: usize, service: &str, counter: &str) -> u64 {
        self.service(host, service)
            .map_or(0, |status| status.counter(counter))
    }

    pub fn counter_becomes(&self, host: usize, service: &str, counter: &str, value: u64) {
        eventually(
            &format!("{counter} of {service} on host {host} becomes {value}"),
            || (self.counter(host, service, counter) == value).then_some(()),
        );
    }

    pub fn links_up(&self, host: usize) {
        eventually(&format!("links of host {host} are up"), || {
            self.status(host)
                .filter(|status| status.links.iter().all(|link| link.up))
        });
    }

    /// Whether the host's link over this bus is up, as far as its gateway has said.
    pub fn is_up(&self, host: usize, bus: Bus) -> Option<bool> {
        let status = self.status(host)?;
        status
            .links
            .iter()
            .find(|link| link.bus == bus.name())
            .map(|link| link.up)
    }

    pub fn log(&self, host: usize) -> String {
        self.gateways[host]
            .as_ref()
            .map_or_else(String::new, Program::log)
    }

    pub fn config(&self, host: usize) -> Config {
        let path = self.hosts.hosts[host]
            .iceoryx2_config
            .to_str()
            .expect("a path of ours");
        Config::from_file(&FilePath::new(path.as_bytes()).expect("a path of ours")).expect("written by us")
    }

    pub fn node(&self, host: usize) -> Node<Service> {
        let builder = NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled);
        builder
            .config(&self.config(host))
            .create::<Service>()
            .expect("a node")
    }

    pub fn run(&self, host: usize, role: &Role) -> Runner {
        let place = &self.hosts.hosts[host];
        let mut command = place.command(&test_program()).expect("the test program");
        command.arg(serde_json::to_string(role).expect("plain data"));
        Runner(Program::start(
            command,
            &format!("{} on {}", role.word(), place.name),
        ))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for host in 0..self.hosts.hosts.len() {
                let text = std::fs::read_to_string(self.status_path(host)).unwrap_or_default();
                eprintln!("--- status of host {host}\n{text}");
            }
        }
    }
}

/// Hosts with a network each. Where the environment names the address of a device that only this
/// machine's own network has, they are domains: what can be cut there is the device.
fn isolated_hosts() -> Result<Hosts, String> {
    if own_address() != Ipv4Addr::LOCALHOST {
        return Ok(Hosts::domains(&["a", "b"]).expect("domains need nothing"));
    }
    match Hosts::isolated(&["a", "b"]) {
        Ok(hosts) => Ok(hosts),
        Err(BenchError::Needs(what)) => Err(what),
        Err(error) => panic!("{error}"),
    }
}

fn busway_binary() -> PathBuf {
    let path = std::env::var_os("BUSWAY_BIN").map_or_else(|| beside_the_test("busway"), PathBuf::from);
    assert!(
        path.is_file(),
        "no busway binary at {}: `cargo build -p busway` makes it, in the tests' profile",
        path.display()
    );
    path
}

fn test_program() -> PathBuf {
    beside_the_test("busway-test-program")
}

pub fn beside_the_test(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("Linux says where the test lies");
    test.parent()
        .and_then(Path::parent)
        .expect("tests lie in deps/, examples in examples/")
        .join(name)
}

/// Where the host of a link listens, given the address by which it is reached. Nobody else has this
/// port there: a port that was only found free may be taken before the gateway has it, or while a
/// gateway that was killed is not back.
fn listening_place(hosts: &Hosts, reached_by: IpAddr, number: usize) -> SocketAddr {
    let port = 7400 + number as u16;
    match (hosts.isolation, reached_by) {
        (Isolation::Namespaces, _) => SocketAddr::new(reached_by, port),
        (Isolation::Domains, IpAddr::V4(Ipv4Addr::LOCALHOST)) => {
            // The port differs too: TIPC has only that for a name, one for the whole machine.
            let port = port + PORTS_OF_A_RIG * (number_of(&hosts.shared) % 1_000) as u16;
            SocketAddr::new(own_loopback(&hosts.shared), port)
        }
        // An address that others use as well: of an RDMA device, say.
        (Isolation::Domains, _) => {
            let listener = TcpListener::bind((reached_by, 0)).expect("a free port");
            listener.local_addr().expect("it has one")
        }
    }
}

/// An address of the loopback interface that no other rig uses, of this process or of another one.
fn own_loopback(shared: &Path) -> IpAddr {
    // Addresses of the buses' own tests have the third number's high bit set.
    let process = std::process::id().to_be_bytes();
    let last = 1 + (number_of(shared) % 254) as u8;
    Ipv4Addr::new(127, process[3], process[2] & 0x7f, last).into()
}

/// The number of a rig in this process: its directory is named busway-PROCESS-NUMBER.
fn number_of(shared: &Path) -> u64 {
    let name = shared.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.rsplit('-').next());
    number.and_then(|it| it.parse().ok()).expect("numbered")
}
