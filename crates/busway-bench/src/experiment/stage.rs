//! What must stand between two programs before they open a path: a system file, and gateways.

use std::net::SocketAddr;
use std::path::PathBuf;

use busway_system::{Carrier, System, Way};

use super::session::Session;
use super::site::{Gateway, Site};
use crate::BenchError;
use crate::system::{self, HostTable, LinkTable};
use crate::technology::{Description, Reach, Stage, partitions};
use crate::worker::Wait;

/// Programs that exchange messages, and gateways that carry them.
const PROGRAMS: u32 = 2;

/// What stands; it goes when this is dropped.
pub(crate) struct Staged {
    /// The system file as each side sees it: asking, answering.
    pub(crate) system: [Option<PathBuf>; 2],
    /// In the same order; none where none is needed.
    pub(crate) gateways: Vec<Gateway>,
    /// Whether messages go through the gateways.
    pub(crate) gateways_carry: bool,
    /// Where the state of ports lies on this machine.
    ports: Vec<PathBuf>,
}

impl Staged {
    /// Threads that may be busy at once.
    pub(crate) fn threads(&self) -> u32 {
        PROGRAMS
            + if self.gateways_carry {
                self.gateways.len() as u32
            } else {
                0
            }
    }

    /// An error if a gateway has ended.
    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        self.gateways.iter_mut().try_for_each(Gateway::check)
    }

    /// CPU time of each gateway so far in s.
    pub(crate) fn cpu_s(&mut self) -> Vec<f64> {
        self.gateways.iter_mut().map(Gateway::cpu_s).collect()
    }

    fn bare() -> Self {
        Self {
            system: [None, None],
            gateways: Vec::new(),
            gateways_carry: false,
            ports: Vec::new(),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.gateways.clear();
        for directory in &self.ports {
            // Memory; what a program that was killed still holds open goes with it.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

impl Session<'_> {
    /// Sets up what `technology` needs for messages of `sizes` bytes, with gateways that wait as `wait` says where there is a core for each.
    pub(crate) fn stage(
        &mut self,
        technology: &Description,
        sizes: &[usize],
        wait: Wait,
    ) -> Result<Staged, BenchError> {
        self.count += 1;
        let (bus, tables) = match technology.stage {
            Stage::Bare => return Ok(Staged::bare()),
            Stage::Ports { bus, queuing } => (bus, Some(queuing)),
            Stage::Link(bus) => (Some(bus), None),
        };
        let sites = self.sites(technology.reach);
        let directories = sites.map(|site| site.directory().join(format!("ports-{}", self.count)));
        let text = {
            // Both tables, though one of them may not be used: a system file names two hosts.
            let pair = self.sites(Reach::Machine);
            let hosts = [0, 1].map(|i| HostTable {
                name: pair[i].name(),
                iceoryx2_config: pair[i].iceoryx2_config(),
                ports: tables.map(|_| pair[i].directory().join(format!("ports-{}", self.count))),
            });
            let link = bus.map(|bus| self.link(bus, wait)).transpose()?;
            let link = link
                .as_ref()
                .map(|(bus, window, addresses, lanes_wait)| LinkTable {
                    bus,
                    window,
                    tables: self.tables(bus),
                    addresses: *addresses,
                    lanes_wait: Some(*lanes_wait),
                });
            let names = [sites[0].name(), sites[1].name()];
            system::text(&hosts, link.as_ref())
                + &tables.map_or(String::new(), |queuing| partitions(names, sizes, queuing))
        };
        let name = format!("system-{}.toml", self.count);
        let mut files = [None, None];
        for (file, site) in files.iter_mut().zip(&sites) {
            *file = Some(site.write(&name, &text)?);
        }
        let mut staged = Staged {
            gateways_carry: tables.is_some() && bus.is_some() && gateways_carry(&text)?,
            system: files,
            gateways: Vec::new(),
            ports: sites
                .iter()
                .zip(directories)
                .filter(|(site, _)| matches!(site, Site::Here(..)))
                .map(|(_, directory)| directory)
                .collect(),
        };
        if bus.is_some() && tables.is_some() {
            for (site, file) in sites.iter().zip(&staged.system) {
                let file = file.as_deref().expect("written above");
                staged.gateways.push(site.gateway(file)?);
            }
        }
        Ok(staged)
    }

    /// The hosts' tables of a bus, where both sides have one that was given, or a window.
    fn tables(&self, bus: &str) -> Option<[String; 2]> {
        let ours = self.common.access.table(bus);
        let theirs = match &self.follower {
            Some(follower) => follower.access.table(bus),
            None => ours.clone(),
        };
        Some([ours?, theirs?])
    }

    fn link<'b>(
        &self,
        bus: &'b str,
        wait: Wait,
    ) -> Result<(&'b str, PathBuf, [SocketAddr; 2], Wait), BenchError> {
        let threads = PROGRAMS as usize + 2;
        // Gateways' lanes spin only if each thread has a core.
        let lanes_wait = if self.environment.cores < threads && wait == Wait::Spin {
            Wait::Adaptive
        } else {
            wait
        };
        let window = self.hosts.shared.join(format!("window-{}", self.count));
        Ok((bus, window, self.gateway_addresses()?, lanes_wait))
    }
}

/// Whether any channel of the system file goes through gateways.
fn gateways_carry(text: &str) -> Result<bool, BenchError> {
    let system = System::parse(text, "system.toml".as_ref()).map_err(|error| BenchError::Io {
        what: "the system file of this measurement".into(),
        source: std::io::Error::other(error),
    })?;
    let mut routes = system
        .channels
        .iter()
        .flat_map(|channel| system.routes_of(channel));
    Ok(routes.any(|route| {
        matches!(
            route.way,
            Way::Link {
                carrier: Carrier::Gateways,
                ..
            }
        )
    }))
}
