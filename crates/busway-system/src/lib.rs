//! The system file: one file that describes all hosts, links, rules, lanes, partitions, ports and
//! channels; the same file lies on every host. It is TOML, may include an ARINC 653 XML file, or is
//! one: then everything runs on one host, [`LOCAL_HOST`].
//!
//! ```
//! # use busway_system::System;
//! let system = System::parse(
//!     r#"
//! [host.vision]
//! [host.control]
//!
//! [[link]]
//! hosts = ["vision", "control"]
//! buses = ["tcp"]                       # in order of preference
//! tcp.vision = { listen = "192.0.2.1:7400" }
//!
//! [[service]]                           # the first that matches holds
//! name = "camera/*"
//! keep = "latest"
//! "#,
//!     "system.toml".as_ref(),
//! )?;
//! assert!(system.plan_for("camera/left").crosses);
//! assert_eq!(system.links_of("control").next().unwrap().peer, "vision");
//! # Ok::<(), busway_system::SystemError>(())
//! ```
//!
//! Contract: [`System::parse`] reports everything that is wrong, not only the first thing, each
//! with its place in the file and what would be right ([`Diagnostic`]). What it returns has been
//! validated. It does no I/O; [`System::load`] reads the file and what it includes. Called by the
//! command line, the gateway and partitions at start.

mod diagnostic;
mod direct;
mod execution;
mod link;
mod model;
mod parse;
mod pattern;
mod ports;
mod read;
mod route;
pub mod shared_queue;
pub mod slots;
mod xml;

use std::path::{Path, PathBuf};

pub use busway_buses::{BusSettings, HostTable};
pub use diagnostic::{Diagnostic, Severity, SystemError};
pub use direct::{FarQueue, FarRegister, PortArea};
pub use execution::{
    Execution, Fault, FaultAction, FaultTable, MAX_PRIORITY, MAX_PROCESSORS, MAX_WINDOWS, MIN_WINDOW_NS,
    Program, SchedulingPolicy, Window,
};
pub use link::{Large, Link, LinkBus, LinkOf};
pub use model::{
    DEFAULT_LANE, GatewayRules, Host, Iceoryx2Domain, KeepRule, Lane, MAX_DEPTH, Policy, ServicePlan,
    ServiceRule, Wait,
};
pub use pattern::Pattern;
pub use ports::{
    Channel, Clock, Direction, Discipline, MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_NAME_BYTES, Partition, Port,
    PortKind, PortRef, WhenFull,
};
pub use route::{Carrier, Hop, Route, Way};

/// The XML namespace of Busway's elements in an ARINC 653 module: `Place`, `Rate`, `Bus` and
/// `Queue`.
pub const XML_NAMESPACE: &str = xml::NAMESPACE;

/// Name of the one host of a system that is an ARINC 653 XML file alone.
pub const LOCAL_HOST: &str = parse::LOCAL_HOST;

/// A whole system, validated.
#[derive(Clone, Debug)]
pub struct System {
    /// The file, as it was named.
    pub file: PathBuf,
    /// All hosts, in the order of the file.
    pub hosts: Vec<Host>,
    /// All links, in the order of the file. Several may join the same two hosts.
    pub links: Vec<Link>,
    /// Which services cross.
    pub gateway: GatewayRules,
    /// How services cross, in the order of the file: the first that matches holds.
    pub services: Vec<ServiceRule>,
    /// All lanes; the first is always the one named [`DEFAULT_LANE`].
    pub lanes: Vec<Lane>,
    /// Name of the ARINC 653 module: `[module]`'s, else the XML file's.
    pub module: Option<String>,
    /// All partitions: those of the XML file, then those of the TOML file, each in the order of the
    /// file.
    pub partitions: Vec<Partition>,
    /// All channels between their ports, in the same order.
    pub channels: Vec<Channel>,
    /// What is probably not meant so. For people; nothing depends on it.
    pub warnings: Vec<Diagnostic>,
}

impl System {
    /// Reads and validates the file at `path`, TOML or ARINC 653 XML, and what it includes.
    ///
    /// # Errors
    /// [`SystemError`]: unreadable, or wrong.
    pub fn load(path: &Path) -> Result<System, SystemError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SystemError::Read {
            file: path.to_path_buf(),
            cause,
        })?;
        parse::system(&text, path, &mut |included| std::fs::read_to_string(included))
    }

    /// Validates the text of a system file. `file` is used in messages, and its folder is what
    /// relative paths are joined to. A text that includes other files is wrong here: only
    /// [`System::load`] reads them.
    ///
    /// # Errors
    /// [`SystemError::Invalid`] with everything that is wrong.
    pub fn parse(text: &str, file: &Path) -> Result<System, SystemError> {
        parse::system(text, file, &mut |_| {
            Err(std::io::Error::other("a text without a file includes nothing"))
        })
    }

    /// The partition of this name.
    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.name == name)
    }

    /// The port that a channel joins.
    ///
    /// # Panics
    /// If `at` is not from this system.
    pub fn port(&self, at: PortRef) -> &Port {
        &self.partitions[at.partition].ports[at.port]
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Whether no gateway runs on the host of this name: it is a real-time core.
    pub fn is_core(&self, host: &str) -> bool {
        self.host(host).is_some_and(|host| !host.gateway)
    }

    /// The links of one host, in the order of the file.
    pub fn links_of(&self, host: &str) -> impl Iterator<Item = LinkOf> {
        self.links.iter().enumerate().filter_map(move |(index, link)| {
            let at = link.hosts.iter().position(|name| name == host)?;
            let peer = &link.hosts[1 - at];
            let buses = link.buses.iter().map(|bus| {
                let mut settings = bus.seen_from(at);
                let bytes = |writer| self.port_area(index, bus.name(), writer).bytes;
                settings.set_port_bytes(bytes(peer), bytes(host));
                settings
            });
            let buses = buses.collect();
            Some(LinkOf {
                index,
                peer: peer.clone(),
                local_is_first: at == 0,
                buses,
                large: link.large.clone(),
                clock: link.clock,
            })
        })
    }

    /// The bus named `bus` of the link of this index in [`links`](Self::links), as `host` sees it;
    /// `None` if the host has no such bus.
    pub fn bus_of(&self, host: &str, link: usize, bus: &str) -> Option<BusSettings> {
        let mut links = self.links_of(host);
        let link = links.find(|found| found.index == link)?;
        link.buses.into_iter().find(|found| found.name() == bus)
    }

    /// What the rules say about a service, by its name.
    pub fn plan_for(&self, service_name: &str) -> ServicePlan<'_> {
        let first =
            |patterns: &'_ [Pattern]| patterns.iter().position(|pattern| pattern.matches(service_name));
        let denied = first(&self.gateway.deny).map(|at| &self.gateway.deny[at]);
        let allowed = first(&self.gateway.allow).map(|at| &self.gateway.allow[at]);
        let rule = self
            .services
            .iter()
            .position(|rule| rule.name.matches(service_name));
        let asked = rule.and_then(|at| self.services[at].lane.as_deref());
        let lane = self.lanes.iter().position(|lane| match asked {
            Some(name) => lane.name == name,
            None => first(&lane.services).is_some(),
        });
        ServicePlan {
            crosses: denied.is_none() && allowed.is_some(),
            because: denied.or(allowed),
            rule,
            keep: rule.and_then(|at| self.services[at].keep),
            lane: lane.unwrap_or(0),
            buses: rule.map_or(&[], |at| &self.services[at].buses),
        }
    }
}
