//! The gateway's shell: turns what happens on this host into facts for the decision core, and
//! carries out its actions.
//!
//! One control thread. It never touches data: lanes do. What crosses, over which bus, and when it
//! moves is decided in [`crate::control`].
//!
//! * [`links`]: links to peers.
//! * [`lanes`]: the threads that move data.
//! * [`services`]: the gateway's parts in iceoryx2 services.
//! * [`landed`]: channels that the sending gateway writes into the receiving host's port store.
//! * [`own_writers`]: such channels that a process of the source's partition writes itself.
//! * [`ports`], [`clocks`]: channels of ARINC 653 ports, and the peers' clocks.
//! * [`cores`]: queues to and from real-time cores, which have no gateway.
//! * [`status`]: what the status file says of links and services.

mod clocks;
mod cores;
mod landed;
mod lanes;
mod links;
mod own_writers;
mod ports;
mod services;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use busway_system::System;
use busway_transport::{ChannelEnd, Direction, LinkEvent};
use rustix::event::{PollFd, PollFlags, poll};

use crate::catalog::Catalog;
use crate::clock::{measured, monotonic_ns};
use crate::control::endpoint::Endpoint;
use crate::control::fact::LocalEvents;
use crate::control::flow::Flow;
use crate::control::{Action, Core, Fact, LocalService};
use crate::iox::domain;
use crate::iox::sample::Outgoing;
use crate::janitor::Janitor;
use crate::lane::destination::LargeSender;
use crate::lane::wait::{doorbell, silence};
use crate::lane::{ChannelKey, FlowId, InboundCommand, OutboundCommand, Report, ReportSender};
use crate::protocol::ControlMessage;
use crate::status::{Status, StatusFile};
use crate::{GatewayError, Options};
use cores::Cores;
use lanes::Lanes;
use links::Links;
use ports::Ports;
use services::Services;

/// What depends on time is looked at this often.
const TICK: Duration = Duration::from_millis(250);
/// Losses are reported at most this often.
const REPORT: Duration = Duration::from_secs(1);

/// The gateway of one host.
pub struct Gateway<'a> {
    core: Core<'a>,
    host: String,
    session: u64,
    janitor: Janitor,
    catalog: Catalog,
    links: Links,
    lanes: Lanes,
    services: Services,
    ports: Ports,
    cores: Cores,
    /// Channel ends that no lane has yet.
    ends: HashMap<(Direction, ChannelKey), ChannelEnd<Outgoing>>,
    reports: mpsc::Receiver<Report>,
    report_sender: ReportSender,
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
        // What the gateway can do something about it logs itself, in terms of services and hosts.
        iceoryx2::prelude::set_log_level(iceoryx2::prelude::LogLevel::Error);
        let settings = settings_of(system, host)?;
        let config = domain::config(&settings.iceoryx2)?;
        let node = Arc::new(domain::create_node(&config, host)?);
        let session = new_session();
        let now = Instant::now();
        let catalog = Catalog::new(&config, *node.id(), now).map_err(GatewayError::Watch)?;
        let (queue, reports) = mpsc::channel();
        let report_sender = ReportSender {
            queue,
            doorbell: Arc::new(doorbell().map_err(GatewayError::Thread)?),
        };
        let janitor =
            Janitor::start(node.clone(), report_sender.doorbell.clone()).map_err(GatewayError::Thread)?;
        let lanes = Lanes::start(&system.lanes, report_sender.clone()).map_err(GatewayError::Thread)?;
        let links = Links::open(system, host, session)?;
        let mut core = Core::new(system, host, links.profiles(), now);
        let ports = Ports::new(system, host, session, &links.profiles(), &mut core)?;
        let cores = Cores::new(system, host, session)?;
        let status = options.status.as_ref().or(settings.status.as_ref());
        tracing::info!(
            "gateway of host {host:?}: {} link(s), {} lane(s), iceoryx2 domain {}",
            links.len(),
            lanes.all().len(),
            config.global.root_path()
        );
        Ok(Gateway {
            core,
            host: host.to_string(),
            session,
            janitor,
            catalog,
            links,
            lanes,
            services: Services::new(node, session),
            ports,
            cores,
            ends: HashMap::new(),
            reports,
            report_sender,
            status: status.map(|path| StatusFile::new(path.clone())),
            next_tick: now + TICK,
            next_report: now + REPORT,
        })
    }

    /// Carries services until `stop` is set.
    ///
    /// # Errors
    /// Only what makes continuing pointless; what may recover is retried.
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), GatewayError> {
        // Relaxed: a flag on its own.
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.poll_links(now);
            self.poll_catalog(now);
            self.take_reports(now);
            for ended in self.ports.ended(&self.core) {
                self.fact(Fact::Lane(ended), now);
            }
            for fact in self.ports.poll_writers(now, &self.core, &self.lanes) {
                self.fact(fact, now);
            }
            self.cores.look(now, self.lanes.all());
            self.tick(now);
            while self.core.is_dirty() {
                self.core.decide(now);
                self.carry_out_all(now);
            }
            self.wait(now);
        }
        self.shut_down();
        Ok(())
    }

    fn fact(&mut self, fact: Fact, now: Instant) {
        self.core.handle(fact, now);
        self.carry_out_all(now);
    }

    fn poll_links(&mut self, now: Instant) {
        for index in 0..self.links.len() {
            while let Some(event) = self.links.poll(index, now) {
                self.link_event(index, event, now);
            }
        }
    }

    fn link_event(&mut self, index: usize, event: LinkEvent<Outgoing>, now: Instant) {
        match event {
            LinkEvent::Up(hello) => {
                self.ports.link_up(index, hello.session);
                self.fact(self.links.up(index, hello.application), now);
                if self.core.links()[index].is_usable() {
                    self.ports.clocks.link_up(index, &mut self.links);
                }
            }
            LinkEvent::Down(reason) => {
                self.fact(Fact::LinkDown { link: index, reason }, now);
                let own = self.services.own_lanes();
                self.links.drop_doorbells(index, &self.lanes, &own);
            }
            LinkEvent::Refused(reason) => self.fact(Fact::LinkRefused { link: index, reason }, now),
            LinkEvent::Control(bytes) => match ControlMessage::decode(&bytes) {
                Some(message) => self.control(index, message, now),
                None => self.links.warn_of_garbage(index, bytes.len()),
            },
            LinkEvent::Channel(direction, channel, end) => {
                let key = self.core.key(index, channel.0);
                if self.core.flow_of(direction, key).is_none() {
                    return;
                }
                let result = end.map(|end| {
                    self.ends.insert((direction, key), end);
                });
                let fact = Fact::EndReady {
                    direction,
                    key,
                    result,
                };
                self.fact(fact, now);
            }
        }
    }

    fn control(&mut self, link: usize, message: ControlMessage, now: Instant) {
        let heard_ns = monotonic_ns();
        if !self.core.links()[link].is_usable() {
            return;
        }
        match message {
            ControlMessage::AskTime { asked_ns } => {
                let answer = ControlMessage::TellTime {
                    asked_ns,
                    heard_ns,
                    answered_ns: monotonic_ns(),
                };
                self.links.send(link, &answer);
            }
            ControlMessage::TellTime {
                asked_ns,
                heard_ns: there_ns,
                answered_ns,
            } => {
                let offset = measured(asked_ns, there_ns, answered_ns, heard_ns);
                if self.ports.clocks.take(link, offset) {
                    self.fact(Fact::ClockKnown { link }, now);
                    for fact in self.ports.clock_known(link, &self.core, &self.lanes) {
                        self.fact(fact, now);
                    }
                }
            }
            message => self.fact(Fact::Control { link, message }, now),
        }
    }

    fn poll_catalog(&mut self, now: Instant) {
        let changes = self.catalog.poll(now);
        for name in changes.names {
            let programs = self.catalog.publish_subscribe(&name).map(|local| LocalService {
                description: local.description.clone(),
                nodes: local.census.nodes,
                publishers: local.census.sources,
                subscribers: local.census.sinks,
                longest_bytes: local.census.longest_bytes(&local.description.payload),
            });
            let events = self
                .catalog
                .companion(&name)
                .map_or_else(LocalEvents::default, |ports| LocalEvents {
                    notifiers: ports.sources,
                    listeners: ports.sinks,
                });
            let fact = Fact::Local {
                service: name,
                programs,
                events,
            };
            self.fact(fact, now);
        }
        if changes.deaths {
            self.janitor.ask();
        }
        if self.janitor.is_done() {
            self.catalog.look_at_everything(now);
        }
    }

    fn take_reports(&mut self, now: Instant) {
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::SenderEnded {
                    flow: FlowId::Core(number),
                    failure,
                    ..
                }
                | Report::ReceiverEnded {
                    flow: FlowId::Core(number),
                    failure,
                    ..
                } => self.cores.end_reported(number, failure),
                report => {
                    if let Report::SenderEnded { flow, key, .. } = report {
                        self.ports.sender_ended(flow, key);
                    }
                    self.fact(Fact::Lane(report), now);
                }
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.core.tick(now);
        let core = &self.core;
        self.ports
            .clocks
            .tick(now, &mut self.links, |link| core.links()[link].is_usable());
        self.lanes.collect_ended();
        if now >= self.next_report {
            self.next_report = now + REPORT;
            self.services.report_losses();
            self.write_status(false);
        }
    }

    fn carry_out_all(&mut self, now: Instant) {
        while let Some(action) = self.core.next_action() {
            if let Some(answer) = self.carry_out(action) {
                self.core.handle(answer, now);
            }
        }
    }

    /// Carries out an action; returns its answer, if it has one.
    fn carry_out(&mut self, action: Action) -> Option<Fact> {
        let Gateway {
            services,
            lanes,
            links,
            ..
        } = self;
        match action {
            Action::Send { link, message } => links.send(link, &message),
            Action::HoldService { flow, description } => {
                if let Some(Flow { name, endpoint, .. }) = self.core.flow(flow)
                    && let Endpoint::Service(service) = endpoint
                {
                    services.introduce(flow, name, service.plan.lane);
                }
                let result = services.hold(flow, &description);
                return Some(Fact::ServiceHeld { flow, result });
            }
            Action::ReleaseService { flow } => services.release(flow),
            Action::MakePublisher { flow, waits } => {
                let result = services.make_publisher(flow, waits, links.len(), lanes);
                let was_there = false;
                return Some(Fact::PublisherMade {
                    flow,
                    result,
                    was_there,
                });
            }
            Action::ReplacePublisher { flow } => {
                let result = services.replace_publisher(flow, links.len(), lanes);
                let was_there = true;
                return Some(Fact::PublisherMade {
                    flow,
                    result,
                    was_there,
                });
            }
            Action::DropPublisher { flow } => services.drop_publisher(flow, lanes, links),
            Action::MakeSubscriber { flow, when_full } => {
                let result = services.make_subscriber(flow, when_full, lanes);
                return Some(Fact::SubscriberMade { flow, result });
            }
            Action::DropSubscriber { flow } => services.drop_subscriber(flow, lanes),
            Action::SetNotifier { flow, is_wanted } => {
                let result = services.set_notifier(flow, is_wanted, lanes);
                return Some(Fact::NotifierSet { flow, result });
            }
            Action::SetListener { flow, is_wanted } => {
                let result = services.set_listener(flow, is_wanted, lanes);
                return Some(Fact::ListenerSet { flow, result });
            }
            Action::NoticeSubscribers { flow } => {
                services.command_inbound(flow, lanes, InboundCommand::NoticeSubscribers);
            }
            Action::NoticePublishers { flow } => {
                services.command_outbound(flow, lanes, OutboundCommand::NoticePublishers);
            }
            Action::ResetContinuity { flow, peer } => services.reset_continuity(flow, &peer),
            Action::CountDeliveryUnknown { flow, messages } => {
                services.count_delivery_unknown(flow, messages);
            }
            Action::Warn(line) => tracing::warn!("{line}"),
            Action::Info(line) => tracing::info!("{line}"),
            action => return self.carry_out_on_channel(action),
        }
        None
    }

    fn carry_out_on_channel(&mut self, action: Action) -> Option<Fact> {
        let Gateway {
            services,
            ports,
            lanes,
            links,
            ends,
            ..
        } = self;
        let is_port = |flow: FlowId| matches!(flow, FlowId::Port(_));
        let core = &self.core;
        let is_up = |key: ChannelKey| {
            core.key(key.link, key.channel) == key && core.links()[key.link].up_since.is_some()
        };
        match action {
            Action::OpenReceiver { flow, key, spec } => {
                let result = if is_port(flow) {
                    ports.open_receiver(flow, key, &spec, links)
                } else {
                    links.open_receiver(key, &spec, services.inbound_lane(flow))
                };
                return Some(Fact::ReceiverOpened { key, result });
            }
            Action::OpenSender {
                flow,
                key,
                spec,
                landing,
            } => {
                let result = if is_port(flow) {
                    ports.open_sender((flow, key), &spec, &landing, links, lanes)
                } else {
                    links.open_sender(key, &spec, &landing, services.outbound_lane(flow))
                };
                return Some(Fact::SenderOpened { key, result });
            }
            Action::CloseChannel { direction, key } => {
                ends.remove(&(direction, key));
                if direction == Direction::Send {
                    ports.forget_sender(key);
                }
                links.close(direction, key);
            }
            Action::AddSender { flow, key, may_join } => match ends.remove(&(Direction::Send, key)) {
                Some(end) if is_port(flow) => ports.add_end(flow, key, end, links, lanes),
                Some(ChannelEnd::Sender(sender)) => {
                    services.add_sender((flow, key), sender, may_join, links, lanes);
                }
                _ => {}
            },
            Action::AddLargeSender {
                flow,
                key,
                main,
                from_bytes,
                in_order,
            } => {
                if let Some(ChannelEnd::Sender(sender)) = ends.remove(&(Direction::Send, key)) {
                    let large = LargeSender {
                        key,
                        from_bytes,
                        in_order,
                        sender,
                    };
                    services.add_large(flow, main, large, links, lanes);
                }
            }
            Action::AddReceiver {
                flow,
                key,
                peer,
                keeps_all,
            } => match ends.remove(&(Direction::Receive, key)) {
                Some(end) if is_port(flow) => ports.add_end(flow, key, end, links, lanes),
                Some(ChannelEnd::Receiver(receiver)) => {
                    services.add_receiver((flow, key), receiver, (peer, keeps_all), links, lanes);
                }
                _ => {}
            },
            Action::EndSender { flow, key, .. } if is_port(flow) => {
                let ended = ports.end_sender(flow, key, is_up(key), lanes);
                return ended.map(Fact::Lane);
            }
            Action::EndReceiver { flow, key } if is_port(flow) => {
                let has_ended = ports.end_receiver(flow, key, is_up(key), lanes);
                let failure = None;
                return has_ended.then_some(Fact::Lane(Report::ReceiverEnded { flow, key, failure }));
            }
            Action::EndSender { flow, key, ending } => services.end_sender(flow, key, ending, lanes),
            Action::EndReceiver { flow, key } => {
                services.command_inbound(flow, lanes, InboundCommand::EndReceiver { key });
            }
            Action::AcknowledgeReceiver { flow, key } => {
                services.command_inbound(flow, lanes, InboundCommand::AcknowledgeReceiver { key });
            }
            _ => {}
        }
        None
    }

    fn write_status(&mut self, is_last: bool) {
        let Some(mut file) = self.status.take() else {
            return;
        };
        let ports = self.ports.status(&self.core).into_iter();
        let status = Status {
            host: self.host.clone(),
            pid: std::process::id(),
            session: self.session,
            links: status::links(&self.core),
            services: status::services(&self.core, &self.services),
            ports: ports.chain(self.cores.status()).collect(),
        };
        file.write(&status, is_last);
        self.status = Some(file);
    }

    fn wait(&self, now: Instant) {
        let mut until = self.catalog.next_look();
        let ticks = self.core.needs_tick()
            || !self.ports.clocks.is_empty()
            || self.lanes.are_ending()
            || self.ports.has_landed();
        if ticks {
            until = until.min(self.next_tick);
        }
        if self.status.is_some() || !self.services.is_empty() {
            until = until.min(self.next_report.max(self.next_tick));
        }
        for look in [self.cores.next_look(), self.ports.next_writer_look()] {
            until = look.map_or(until, |look| until.min(look));
        }
        let within = self.links.poll_within(now).unwrap_or(Duration::MAX);
        let longest = until.saturating_duration_since(now).min(within);
        let timeout = rustix::time::Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let catalog = self.catalog.fd();
        let mut fds = vec![
            PollFd::new(&catalog, PollFlags::IN),
            PollFd::new(&*self.report_sender.doorbell, PollFlags::IN),
        ];
        let link_fds: Vec<_> = self
            .links
            .fds()
            .into_iter()
            .chain(self.ports.writer_fds())
            .collect();
        fds.extend(link_fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        // Interrupted by a signal: the loop looks at the stop flag.
        let _ = poll(&mut fds, Some(&timeout));
        silence(&*self.report_sender.doorbell);
    }

    fn shut_down(mut self) {
        self.write_status(true);
        self.services.join_own_lanes();
        self.lanes.join();
        self.services.report_losses();
        self.janitor.end();
        tracing::info!("gateway of host {:?} ends", self.host);
    }
}

fn settings_of<'a>(system: &'a System, host: &str) -> Result<&'a busway_system::Host, GatewayError> {
    let settings = system.host(host).ok_or_else(|| {
        let known: Vec<_> = system.hosts.iter().map(|host| host.name.clone()).collect();
        GatewayError::UnknownHost {
            host: host.to_string(),
            known: known.join(", "),
        }
    })?;
    if !settings.gateway {
        return Err(GatewayError::Core {
            host: host.to_string(),
        });
    }
    Ok(settings)
}

/// Channels, doorbells and watched processes take a descriptor each: allow as many as the system
/// lets us.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: what does not fit then is refused by name, and tried again.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Distinct from every earlier one on this host: the start time in nanoseconds, mixed with the
/// process id.
fn new_session() -> u64 {
    let mixed = crate::lane::wait::realtime_ns() ^ (u64::from(std::process::id()) << 40);
    mixed.max(1)
}
