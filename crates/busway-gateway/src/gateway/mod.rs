//! The control thread: what crosses, and where.
//!
//! It knows three things: the services of this host ([`Catalog`]), what the peers offer (their links), and what is held open here
//! (`ServiceState`). Whenever something of one service changes, `reconcile` compares what should be with what is, and makes
//! the next step. It never touches data: lanes do.
//!
//! * `links`: the conversation with the peers.
//! * `channels`: channels of services, from being asked for to their end.
//! * `ports`: channels of ARINC 653 ports.
//! * `cores`: those to and from hosts without a gateway.
//! * `ways`: which links a service takes from a host.
//! * `large`: second channels, for what is large.
//! * `reconcile`: mirror, channels, ports of one service.
//! * `service`: the state of one service.

mod channels;
mod clocks;
mod cores;
mod large;
mod links;
mod port_channel;
mod ports;
mod reconcile;
mod rest;
mod service;
mod unconfirmed;
mod ways;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use busway_system::{Lane as LaneSettings, System};
use busway_transport::registry::Buses;
use busway_transport::{Direction, LinkIdentity};
use iceoryx2::node::Node;
use rustix::event::{PollFd, PollFlags, poll};

use crate::catalog::Catalog;
use crate::iox::{Service, domain};
use crate::janitor::Janitor;
use crate::lane::wait::{doorbell, silence};
use crate::lane::{ChannelKey, FlowId, Lane, Report, ReportSender};
use crate::status::StatusFile;
use crate::{GatewayError, Options, protocol};
use cores::Cores;
use links::LinkState;
use ports::Ports;
use service::{InLane, Plan, ServiceState};

/// Whatever depends on time is looked at this often.
const TICK: Duration = Duration::from_millis(250);
/// Losses are reported at most this often.
const REPORT: Duration = Duration::from_secs(1);

/// The gateway of one host.
pub struct Gateway<'a> {
    system: &'a System,
    host: String,
    session: u64,
    node: Arc<Node<Service>>,
    janitor: Janitor,
    catalog: Catalog,
    links: Vec<LinkState>,
    lanes: Vec<Lane>,
    /// Lanes of single flows that were told to end.
    ending_lanes: Vec<(Lane, u32)>,
    free_lane_numbers: Vec<u32>,
    next_lane_number: u32,
    services: HashMap<String, ServiceState>,
    names: HashMap<FlowId, String>,
    ports: Ports,
    cores: Cores,
    channels: HashMap<(Direction, ChannelKey), String>,
    dirty: BTreeSet<String>,
    reports: mpsc::Receiver<Report>,
    report_box: ReportSender,
    status: Option<StatusFile>,
    next_tick: Instant,
    next_report: Instant,
}

impl<'a> Gateway<'a> {
    /// Takes its place on this host: node, lanes, links.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub fn new(system: &'a System, host: &str, options: &Options) -> Result<Gateway<'a>, GatewayError> {
        crate::faults::install();
        raise_descriptor_limit();
        // What the gateway can do something about it says itself, in terms of services and hosts.
        iceoryx2::prelude::set_log_level(iceoryx2::prelude::LogLevel::Error);
        let settings = system.host(host).ok_or_else(|| GatewayError::UnknownHost {
            host: host.to_string(),
            known: system
                .hosts
                .iter()
                .map(|host| host.name.clone())
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        if !settings.gateway {
            return Err(GatewayError::Core {
                host: host.to_string(),
            });
        }
        let config = domain::config(&settings.iceoryx2)?;
        let node = Arc::new(domain::create_node(&config, host)?);
        let session = new_session();
        let now = Instant::now();
        let catalog = Catalog::new(&config, *node.id(), now).map_err(GatewayError::Watch)?;
        let (sender, reports) = mpsc::channel();
        let report_box = ReportSender {
            queue: sender,
            doorbell: Arc::new(doorbell().map_err(GatewayError::Thread)?),
        };
        let janitor =
            Janitor::start(node.clone(), report_box.doorbell.clone()).map_err(GatewayError::Thread)?;
        let lanes = system
            .lanes
            .iter()
            .map(|lane| Lane::start(lane.clone(), report_box.clone()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(GatewayError::Thread)?;
        let identity = LinkIdentity {
            host: host.to_string(),
            session,
            application: protocol::application(),
        };
        let buses = Buses::new(identity);
        let mut links = Vec::new();
        for link in system.links_of(host).filter(|link| !system.is_core(&link.peer)) {
            for bus in &link.buses {
                let opened = buses.open(bus, &link.peer).map_err(|error| GatewayError::Link {
                    bus: bus.name(),
                    peer: link.peer.clone(),
                    reason: error.to_string(),
                })?;
                links.push(LinkState::new(link.index, link.peer.clone(), opened));
            }
        }
        let ports = Ports::new(system, host, session, &links)?;
        let cores = Cores::new(system, host, session)?;
        let status = options
            .status
            .as_ref()
            .or(settings.status.as_ref())
            .map(|path| StatusFile::new(path.clone()));
        tracing::info!(
            "gateway of host {host:?}: {} link(s), {} lane(s), iceoryx2 domain {}",
            links.len(),
            lanes.len(),
            config.global.root_path()
        );
        Ok(Gateway {
            system,
            host: host.to_string(),
            session,
            node,
            janitor,
            catalog,
            links,
            next_lane_number: lanes.len() as u32,
            lanes,
            ending_lanes: Vec::new(),
            free_lane_numbers: Vec::new(),
            services: HashMap::new(),
            names: HashMap::new(),
            ports,
            cores,
            channels: HashMap::new(),
            dirty: BTreeSet::new(),
            reports,
            report_box,
            status,
            next_tick: now + TICK,
            next_report: now + REPORT,
        })
    }

    /// Carries services until `stop` is set.
    ///
    /// # Errors
    /// Only what makes going on pointless; whatever may mend itself is retried for ever.
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), GatewayError> {
        // Relaxed: a flag on its own.
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.poll_links(now);
            self.poll_catalog(now);
            self.hear_reports(now);
            self.cores.look(now, &self.lanes);
            self.tick(now);
            for name in std::mem::take(&mut self.dirty) {
                self.reconcile(&name, now);
            }
            self.wait(now);
        }
        self.shut_down();
        Ok(())
    }

    fn poll_catalog(&mut self, now: Instant) {
        let changes = self.catalog.poll(now);
        self.dirty.extend(changes.names);
        if changes.deaths {
            self.janitor.ask();
        }
        if self.janitor.is_done() {
            self.catalog.look_at_everything(now);
        }
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.expire_offers(now);
        self.ports.tick(now, &mut self.links, &self.lanes);
        let timed = self.services.iter().filter(|(_, service)| service.needs_tick());
        self.dirty.extend(timed.map(|(name, _)| name.clone()));
        let free = &mut self.free_lane_numbers;
        self.ending_lanes.retain(|(lane, number)| {
            if lane.is_finished() {
                free.push(*number);
            }
            !lane.is_finished()
        });
        if now >= self.next_report {
            self.next_report = now + REPORT;
            self.report_losses();
            self.write_status(false);
        }
    }

    fn report_losses(&mut self) {
        for (name, service) in &mut self.services {
            let snapshot = service.counters.snapshot();
            let losses = snapshot.losses();
            if losses > service.reported_losses {
                tracing::warn!(
                    "service {name:?}: {} message(s) lost since the last report ({losses} in all: {} missing from other hosts, {} overflowed here, {} channel full, {} link down, {} in doubt, {} no memory, {} reader full, {} refused)",
                    losses - service.reported_losses,
                    snapshot.lost,
                    snapshot.overflowed,
                    snapshot.dropped_full,
                    snapshot.dropped_link_down,
                    snapshot.in_doubt,
                    snapshot.dropped_no_memory,
                    snapshot.dropped_reader_full,
                    snapshot.refused,
                );
                service.reported_losses = losses;
            }
        }
    }

    fn write_status(&mut self, is_last: bool) {
        let Some(mut file) = self.status.take() else {
            return;
        };
        file.write(&self.status_now(), is_last);
        self.status = Some(file);
    }

    fn status_now(&self) -> crate::status::Status {
        use crate::status::{LinkStatus, ServiceStatus, Status};
        let links = self.links.iter().map(|link| LinkStatus {
            peer: link.peer.clone(),
            bus: link.bus().to_string(),
            up: link.up.is_some(),
            reason: link.reason.clone(),
            offers: link.offers.len(),
        });
        let services = self.services.iter().map(|(name, service)| ServiceStatus {
            name: name.clone(),
            mirror: service.factory.is_some(),
            sends_to: service
                .outbound
                .iter()
                .flat_map(|out| out.channels.values())
                .filter(|channel| channel.is_main())
                .map(|channel| channel.peer.clone())
                .collect(),
            receives_from: service
                .inbound
                .iter()
                .flat_map(|input| input.channels.values())
                .filter(|channel| !channel.is_large)
                .map(|channel| channel.peer.clone())
                .collect(),
            over: service.channels().map(|key| self.links[key.link].bus()).collect(),
            complaint: service.complaint.clone(),
            counters: service.counters.snapshot(),
        });
        Status {
            host: self.host.clone(),
            pid: std::process::id(),
            session: self.session,
            links: links.collect(),
            services: services.collect(),
            ports: self
                .ports
                .status()
                .into_iter()
                .chain(self.cores.status())
                .collect(),
        }
    }

    fn wait(&self, now: Instant) {
        if !self.dirty.is_empty() {
            return;
        }
        let mut until = self.catalog.next_look();
        if self.services.values().any(ServiceState::needs_tick)
            || self.links.iter().any(LinkState::needs_tick)
            || self.ports.needs_tick()
        {
            until = until.min(self.next_tick);
        }
        if !self.ending_lanes.is_empty() {
            until = until.min(self.next_tick);
        }
        if self.status.is_some() || !self.services.is_empty() {
            until = until.min(self.next_report.max(self.next_tick));
        }
        if let Some(look) = self.cores.next_look() {
            until = until.min(look);
        }
        let mut longest = until.saturating_duration_since(now);
        for link in &self.links {
            longest = longest.min(link.link.poll_within(now));
        }
        let timeout = rustix::time::Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let catalog = self.catalog.fd();
        let mut fds = vec![
            PollFd::new(&catalog, PollFlags::IN),
            PollFd::new(&*self.report_box.doorbell, PollFlags::IN),
        ];
        let link_fds: Vec<_> = self.links.iter().filter_map(|link| link.link.fd()).collect();
        fds.extend(link_fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        // Interrupted by a signal: the loop looks at the stop flag.
        let _ = poll(&mut fds, Some(&timeout));
        silence(&*self.report_box.doorbell);
    }

    /// The state of a service, made if it is heard of for the first time.
    fn service(&mut self, name: &str) -> &mut ServiceState {
        if !self.services.contains_key(name) {
            let flow = FlowId::Service(self.names.len() as u32);
            let plan = self.system.plan_for(name);
            let plan = Plan {
                crosses: plan.crosses,
                keep: plan.keep,
                lane: plan.lane,
                buses: plan.buses.to_vec(),
            };
            self.names.insert(flow, name.to_string());
            self.services
                .insert(name.to_string(), ServiceState::new(flow, plan));
        }
        self.services.get_mut(name).expect("made above")
    }

    /// Starts a lane for one flow whose publisher may have to wait.
    fn own_lane(&mut self, name: &str, like: usize) -> std::io::Result<InLane> {
        let number = self.free_lane_numbers.pop().unwrap_or_else(|| {
            self.next_lane_number += 1;
            self.next_lane_number - 1
        });
        let settings = LaneSettings {
            name: name.to_string(),
            ..self.system.lanes[like].clone()
        };
        let lane = Lane::start(settings, self.report_box.clone())?;
        Ok(InLane::Own(lane, number))
    }

    fn end_own_lane(&mut self, lane: InLane) {
        if let InLane::Own(lane, number) = lane {
            lane.stop();
            for link in &mut self.links {
                link.forget_lane(number);
            }
            self.ending_lanes.push((lane, number));
        }
    }

    fn shut_down(mut self) {
        self.write_status(true);
        for service in self.services.values_mut() {
            if let Some(inbound) = &service.inbound {
                inbound.backpressure.stop_waiting();
            }
            if let Some(InLane::Own(lane, _)) = service.inbound.take().map(|inbound| inbound.lane) {
                lane.join();
            }
        }
        for lane in self.lanes.drain(..) {
            lane.join();
        }
        for (lane, _) in self.ending_lanes.drain(..) {
            lane.join();
        }
        self.report_losses();
        self.janitor.end();
        tracing::info!("gateway of host {:?} ends", self.host);
    }
}

/// Channels, doorbells and watched processes take a descriptor each: allow as many as the system lets us.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: what does not fit then is refused by name, and tried again.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Distinct from every earlier one on this host: the start time in nanoseconds, mixed with the process id.
fn new_session() -> u64 {
    let mixed = crate::lane::wait::realtime_ns() ^ (u64::from(std::process::id()) << 40);
    mixed.max(1)
}
