//! The system file: one TOML file that describes all hosts, links, rules and lanes; the same file lies on every host.
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
//! Contract: [`System::parse`] reports everything that is wrong, not only the first thing, each with its place in the file and
//! what would be right ([`Diagnostic`]). What it returns has been validated. It does no I/O; [`System::load`] reads the one file.
//! Called by the command line and the gateway at start.

mod diagnostic;
mod link;
mod model;
mod parse;
mod pattern;
mod read;

use std::path::{Path, PathBuf};

pub use busway_transport::registry::{BusSettings, HostTable};
pub use diagnostic::{Diagnostic, Severity, SystemError};
pub use link::{Link, LinkBus, LinkOf};
pub use model::{
    DEFAULT_LANE, GatewayRules, Host, Iceoryx2Domain, KeepRule, Lane, MAX_DEPTH, Policy, ServicePlan,
    ServiceRule, Wait,
};
pub use pattern::Pattern;

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
    /// What is probably not meant so. For people; nothing depends on it.
    pub warnings: Vec<Diagnostic>,
}

impl System {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// [`SystemError`]: unreadable, or wrong.
    pub fn load(path: &Path) -> Result<System, SystemError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SystemError::Read {
            file: path.to_path_buf(),
            cause,
        })?;
        System::parse(&text, path)
    }

    /// Validates the text of a system file. `file` is used in messages, and its folder is what relative paths are joined to.
    ///
    /// # Errors
    /// [`SystemError::Invalid`] with everything that is wrong.
    pub fn parse(text: &str, file: &Path) -> Result<System, SystemError> {
        parse::system(text, file)
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The links of one host, in the order of the file.
    pub fn links_of(&self, host: &str) -> impl Iterator<Item = LinkOf> {
        self.links.iter().enumerate().filter_map(move |(index, link)| {
            let at = link.hosts.iter().position(|name| name == host)?;
            let buses = link.buses.iter().map(|bus| bus.seen_from(at)).collect();
            Some(LinkOf {
                index,
                peer: link.hosts[1 - at].clone(),
                local_is_first: at == 0,
                buses,
            })
        })
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
        }
    }
}
