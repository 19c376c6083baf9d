//! What a system file makes each host do, as plain data: printed as JSON, or as text by
//! [`super::text`].

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use busway_system::{
    BusSettings, Diagnostic, GatewayRules, Host, Iceoryx2Domain, Lane, Large, LinkOf, Partition, ServiceRule,
    System, SystemError,
};
use busway_transport::contract::{Access, Addresses, Role, WindowUse};
use serde::Serialize;

use super::here::Finding;
use super::ports::{self, ChannelReport};

/// A file that is right.
#[derive(Serialize)]
pub struct Report<'a> {
    pub file: &'a Path,
    /// Whether nothing is wrong; warnings do not count.
    pub ok: bool,
    pub warnings: &'a [Diagnostic],
    pub hosts: Vec<HostReport<'a>>,
    /// Pairs of hosts between which services cross.
    pub joined: Vec<[&'a str; 2]>,
    /// Pairs of hosts between which nothing crosses, since no link joins them.
    pub not_joined: Vec<[&'a str; 2]>,
    pub gateway: &'a GatewayRules,
    pub services: Vec<RuleReport<'a>>,
    pub lanes: &'a [Lane],
    pub partitions: Vec<&'a Partition>,
    pub channels: Vec<ChannelReport<'a>>,
    /// What was found on this machine, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<Vec<Finding>>,
}

/// A file that is wrong.
#[derive(Serialize)]
pub struct Broken<'a> {
    file: &'a Path,
    ok: bool,
    errors: Vec<&'a Diagnostic>,
    warnings: Vec<&'a Diagnostic>,
}

/// A `[[service]]`.
#[derive(Serialize)]
pub struct RuleReport<'a> {
    #[serde(flatten)]
    pub rule: &'a ServiceRule,
    /// Pairs of hosts that are joined, but by none of its buses: its services don't cross there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_between: Vec<[&'a str; 2]>,
}

#[derive(Serialize)]
pub struct HostReport<'a> {
    pub name: &'a str,
    /// Whether a gateway runs there; if not, it is a real-time core.
    pub gateway: bool,
    pub iceoryx2: &'a Iceoryx2Domain,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'a PathBuf>,
    /// After which the windows of its partitions repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_frame_ns: Option<u64>,
    pub links: Vec<LinkReport>,
    /// Groups to which it sends once what goes to several hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub multicast: Vec<GroupReport>,
}

#[derive(Serialize)]
pub struct GroupReport {
    pub group: IpAddr,
    pub from: IpAddr,
    pub hosts: Vec<String>,
}

#[derive(Serialize)]
pub struct LinkReport {
    /// Index of the `[[link]]`.
    pub index: usize,
    pub peer: String,
    /// In order of preference.
    pub buses: Vec<BusReport>,
    /// Another order of them for what is large.
    pub large: Option<Large>,
}

/// What this host does on one bus of a link.
#[derive(Serialize)]
pub struct BusReport {
    pub bus: &'static str,
    #[serde(flatten)]
    pub about: About,
}

/// What there is to say of a bus, by what its settings say.
#[derive(Serialize)]
#[serde(untagged)]
pub enum About {
    /// Memory that it maps.
    Windows(WindowsReport),
    /// Addresses of an IP network.
    Network(NetworkReport),
    /// In the bus's own words, which may be none.
    Other {
        #[serde(skip_serializing_if = "String::is_empty")]
        details: String,
    },
}

#[derive(Serialize)]
pub struct NetworkReport {
    #[serde(flatten)]
    pub conversation: ConversationReport,
    /// Addresses of this host and of the peer for messages, where they do not follow the
    /// conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<[IpAddr; 2]>,
}

#[derive(Serialize)]
#[serde(tag = "role", content = "address", rename_all = "lowercase")]
pub enum ConversationReport {
    Listens(SocketAddr),
    Connects(SocketAddr),
}

/// The two windows of a link.
#[derive(Serialize)]
pub struct WindowsReport {
    pub reads: WindowReport,
    pub writes: WindowReport,
}

#[derive(Serialize)]
pub struct WindowReport {
    /// The file or device, the resource of a PCI function, or the ivshmem server.
    pub path: String,
    pub offset_bytes: u64,
    /// The whole window.
    pub length_bytes: u64,
    /// At its end, for the registers of sampling channels.
    pub ports_bytes: u64,
    pub medium: &'static str,
}

impl<'a> Report<'a> {
    pub fn new(system: &'a System, only: Option<&'a Host>, here: Option<Vec<Finding>>) -> Self {
        let shown = system
            .hosts
            .iter()
            .filter(|host| only.is_none_or(|only| only.name == host.name));
        let (joined, not_joined) = pairs(system);
        Report {
            file: &system.file,
            ok: here.iter().flatten().all(|finding| finding.problem.is_none()),
            warnings: &system.warnings,
            hosts: shown.map(|host| HostReport::new(system, host)).collect(),
            joined,
            not_joined,
            gateway: &system.gateway,
            services: system
                .services
                .iter()
                .map(|rule| RuleReport::new(system, rule))
                .collect(),
            lanes: &system.lanes,
            partitions: ports::partitions(system, only),
            channels: ports::channels(system, only),
            here,
        }
    }
}

/// All pairs of hosts with gateways: those that a link joins, and the others.
fn pairs(system: &System) -> (Vec<[&str; 2]>, Vec<[&str; 2]>) {
    let hosts: Vec<&Host> = system.hosts.iter().filter(|host| host.gateway).collect();
    let all = hosts.iter().enumerate().flat_map(|(at, first)| {
        hosts[at + 1..]
            .iter()
            .map(|second| [first.name.as_str(), second.name.as_str()])
    });
    all.partition(|[first, second]| system.links_of(first).any(|link| link.peer == *second))
}

impl<'a> RuleReport<'a> {
    fn new(system: &'a System, rule: &'a ServiceRule) -> Self {
        RuleReport {
            rule,
            not_between: system.unreached_by(rule),
        }
    }
}

impl<'a> HostReport<'a> {
    fn new(system: &'a System, host: &'a Host) -> Self {
        HostReport {
            name: &host.name,
            gateway: host.gateway,
            iceoryx2: &host.iceoryx2,
            status: host.status.as_ref(),
            major_frame_ns: host.major_frame_ns,
            links: system.links_of(&host.name).map(LinkReport::new).collect(),
            multicast: groups(system, host),
        }
    }
}

/// The multicast groups to which a host sends, each with the hosts at the other ends.
fn groups(system: &System, host: &Host) -> Vec<GroupReport> {
    let mut groups: Vec<GroupReport> = Vec::new();
    for link in system.links_of(&host.name) {
        let place = link.buses.iter().find_map(|bus| {
            let addresses = bus.addresses()?;
            Some((addresses.group?, addresses.messages?[0]))
        });
        let Some((group, from)) = place else { continue };
        let same = |known: &&mut GroupReport| (known.group, known.from) == (group, from);
        match groups.iter_mut().find(same) {
            Some(known) => known.hosts.push(link.peer),
            None => groups.push(GroupReport {
                group,
                from,
                hosts: vec![link.peer],
            }),
        }
    }
    groups
}

impl LinkReport {
    fn new(link: LinkOf) -> Self {
        LinkReport {
            index: link.index,
            peer: link.peer,
            buses: link.buses.iter().map(BusReport::new).collect(),
            large: link.large,
        }
    }
}

impl BusReport {
    fn new(settings: &BusSettings) -> Self {
        let windows = settings.windows();
        let window = |access| windows.iter().find(|window| window.access == access);
        let about = match (
            window(Access::Reads),
            window(Access::Writes),
            settings.addresses(),
        ) {
            (Some(reads), Some(writes), _) => About::Windows(WindowsReport {
                reads: WindowReport::new(reads),
                writes: WindowReport::new(writes),
            }),
            (_, _, Some(addresses)) => About::Network(NetworkReport::new(&addresses)),
            _ => About::Other {
                details: settings.details(),
            },
        };
        BusReport {
            bus: settings.name(),
            about,
        }
    }
}

impl NetworkReport {
    fn new(addresses: &Addresses) -> Self {
        NetworkReport {
            conversation: match addresses.conversation {
                Role::Accept(address) => ConversationReport::Listens(address),
                Role::Connect(address) => ConversationReport::Connects(address),
            },
            messages: addresses.messages,
        }
    }
}

impl WindowReport {
    fn new(window: &WindowUse) -> Self {
        WindowReport {
            path: window.source.clone(),
            offset_bytes: window.offset_bytes,
            length_bytes: window.length_bytes,
            ports_bytes: window.ports_bytes,
            medium: window.medium,
        }
    }
}

impl<'a> Broken<'a> {
    pub fn new(file: &'a Path, error: &'a SystemError) -> Self {
        let is_error = |it: &&Diagnostic| it.severity == busway_system::Severity::Error;
        let (errors, warnings) = error.diagnostics().iter().partition(is_error);
        Broken {
            file,
            ok: false,
            errors,
            warnings,
        }
    }
}
