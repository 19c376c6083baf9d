//! Sets up what must stand between two programs before they open a path.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;

use busway_system::{Carrier, System, Way};

use super::session::Session;
use super::site::{Gateway, Site};
use super::staged::{PROGRAMS, Staged};
use crate::BenchError;
use crate::environment::TUNNEL;
use crate::hosts::find_on_path;
use crate::processes::Process;
use crate::system::{self, HostTable, LinkTable, free_port};
use crate::technology::{Description, Reach, Stage, Wait, partitions};

impl Session<'_> {
    /// Sets up what `technology` needs for messages of `sizes` bytes, with gateways that wait as
    /// `wait` says where there is a core for each.
    pub(crate) fn stage(
        &mut self,
        technology: &Description,
        sizes: &[usize],
        wait: Wait,
    ) -> Result<Staged, BenchError> {
        self.count += 1;
        let has_gateways = match technology.stage {
            Stage::Bare => return Ok(Staged::bare()),
            Stage::Tunnel => return self.tunnels(),
            Stage::Ports { bus, .. } => bus.is_some(),
            Stage::Gateways(_) => true,
            Stage::Link(_) => false,
        };
        let sites = self.sites(technology.reach);
        let text = self.system_text(technology, sizes, wait)?;
        let name = format!("system-{}.toml", self.count);
        let mut staged = Staged::bare();
        staged.gateways_carry = has_gateways;
        if let Stage::Ports { .. } = technology.stage {
            staged.gateways_carry &= gateways_carry(&text)?;
            let ours = sites.iter().filter(|site| matches!(site, Site::Here(..)));
            staged.ports = ours.map(|site| self.ports_of(site)).collect();
        }
        for (file, site) in staged.system.iter_mut().zip(&sites) {
            let path = site.write(&name, &text)?;
            if has_gateways {
                staged.gateways.push(site.gateway(&path)?);
            }
            *file = Some(path);
        }
        Ok(staged)
    }

    fn ports_of(&self, site: &Site<'_>) -> PathBuf {
        site.host().directory.join(format!("ports-{}", self.count))
    }

    fn system_text(
        &self,
        technology: &Description,
        sizes: &[usize],
        wait: Wait,
    ) -> Result<String, BenchError> {
        let (bus, queuing) = match technology.stage {
            Stage::Ports { bus, queuing } => (bus, Some(queuing)),
            Stage::Link(bus) | Stage::Gateways(bus) => (Some(bus), None),
            Stage::Bare | Stage::Tunnel => (None, None),
        };
        // Both tables, though one of them may not be used: a system file names two hosts.
        let pair = self.sites(Reach::Machine);
        let hosts = pair.each_ref().map(|site| HostTable {
            host: site.host(),
            ports: queuing.map(|_| self.ports_of(site)),
        });
        let window = self.hosts.shared.join(format!("window-{}", self.count));
        // The lanes of gateways that carry ports spin only if each thread has a core.
        let is_crowded = self.environment.cores < PROGRAMS as usize + 2;
        let may_spin = matches!(technology.stage, Stage::Gateways(_)) || !is_crowded;
        let lanes_wait = if wait == Wait::Spin && !may_spin {
            Wait::Adaptive
        } else {
            wait
        };
        let link = match bus {
            Some(bus) => Some(LinkTable {
                bus,
                window: &window,
                tables: self.tables(bus),
                addresses: self.gateway_addresses()?,
                lanes_wait: Some(lanes_wait),
            }),
            None => None,
        };
        let sites = self.sites(technology.reach);
        let names = sites.each_ref().map(|site| site.host().name.as_str());
        let partitions = queuing.map_or(String::new(), |queuing| partitions(names, sizes, queuing));
        Ok(system::text(&hosts, link.as_ref()) + &partitions)
    }

    /// Zenoh tunnels with their fastest setting for sparse and for dense traffic alike: woken by
    /// the peers, and once a millisecond besides.
    fn tunnels(&self) -> Result<Staged, BenchError> {
        let tunnel =
            find_on_path(OsStr::new(TUNNEL)).ok_or_else(|| BenchError::Needs(format!("{TUNNEL} on PATH")))?;
        let endpoint = format!("tcp/{}:{}", self.hosts.address(0, 1), free_port(&self.hosts)?);
        let mut staged = Staged::bare();
        staged.gateways_carry = true;
        let verbs = [("listen", ""), ("connect", ", listen: { endpoints: [] }")];
        for (host, (verb, rest)) in self.hosts.hosts.iter().zip(verbs) {
            let config = host.directory.join("zenoh.json5");
            let text = format!(
                "{{ mode: \"peer\", scouting: {{ multicast: {{ enabled: false }} }}, {verb}: {{ endpoints: [\"{endpoint}\"] }}{rest} }}\n"
            );
            std::fs::write(&config, text).map_err(BenchError::io(format!("write {}", config.display())))?;
            let mut command = host.command(&tunnel)?;
            command
                .args(["--poll", "1", "--reactive", "--zenoh-config"])
                .arg(&config)
                .stdout(Stdio::null());
            command.env("IOX2_LOG_LEVEL", "Warn").env("RUST_LOG", "warn");
            let process = Process::start(command, format!("tunnel {}", host.name))?;
            staged.gateways.push(Gateway::Here(process));
        }
        Ok(staged)
    }

    fn tables(&self, bus: &str) -> Option<[String; 2]> {
        let ours = self.common.access.table(bus);
        let theirs = match &self.follower {
            Some(follower) => follower.access.table(bus),
            None => ours.clone(),
        };
        Some([ours?, theirs?])
    }
}

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
