//! A simulated system: hosts with a [`Core`] each, wires between them, programs, and virtual time.
//!
//! One queue of events, ordered by virtual time, drawn from one seed: the same seed is the same
//! run. Links of a wire notice a cut at different times, control messages and messages are delayed
//! but keep their order, lanes and catalogues are late, reports of different lanes overtake each
//! other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use busway_system::System;
use busway_transport::{ChannelSpec, Direction, Keep};

use super::check::{Checks, host_of};
use super::lane::{Command, Lanes};
use super::pipe::{Message, PipeId, Pipes};
use crate::control::link::LinkProfile;
use crate::control::plan::WhenFull;
use crate::control::port::{PortEndpoint, PortRoute};
use crate::control::{Core, Fact};
use crate::description::{ServiceDescription, Settings, TypeDescription};
use crate::lane::{ChannelKey, FlowId, Report};
use crate::protocol::ControlMessage;

/// Messages that wait in the gateway's subscriber at most.
pub const BUFFER: usize = 64;
/// Time between ticks of a core, as the shell's.
const TICK: Duration = Duration::from_millis(250);

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Options {
    pub hosts: usize,
    /// Buses between each two joined hosts.
    pub buses: usize,
    pub services: usize,
    /// Pairs of hosts with a queuing channel of ports.
    pub ports: usize,
    /// Links fail and come back.
    pub cuts: bool,
    /// Gateways are killed and start anew.
    pub restarts: bool,
    /// Buses and iceoryx2 refuse now and then.
    pub refusals: bool,
    /// How long programs and faults go on.
    pub busy: Duration,
    /// Falsifies what the core asks for, to show that the checks find it.
    pub fault: Option<Fault>,
}

/// What the shell does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The subscriber is dropped whenever a link goes down: nobody counts what a lost host misses.
    NoHold,
    /// Receiving ends are not ended: they stay in their lanes.
    NoEndReceiver,
    /// Landing places are reused without waiting for the sender.
    EarlyReuse,
    /// The end of a sending end is never confirmed.
    NoClosed,
    /// A peer is asked to end a channel at once where it shall drain.
    NoDrain,
    /// A channel is forgotten at the bus.
    NoCloseChannel,
}

pub struct Wire {
    /// The two ends: host, and index among its links.
    pub ends: [(usize, usize); 2],
    pub is_cut: bool,
    pub epoch: u32,
    /// The conversation that each end has, while its link is up.
    pub up: [Option<u32>; 2],
    /// When the last control message towards each end arrives.
    pub last_arrival: [Duration; 2],
    pub is_stream: bool,
    /// Arrived before the end's link was up.
    pub early: [Vec<(u32, ControlMessage)>; 2],
}

#[derive(Debug)]
pub enum Event {
    LinkDown {
        wire: usize,
        end: usize,
        epoch: u32,
    },
    LinkUp {
        wire: usize,
        end: usize,
        epoch: u32,
    },
    Control {
        wire: usize,
        end: usize,
        epoch: u32,
        message: ControlMessage,
    },
    EndReady {
        host: usize,
        incarnation: u32,
        direction: Direction,
        key: ChannelKey,
        pipe: PipeId,
        result: Result<(), String>,
    },
    Turn {
        host: usize,
        incarnation: u32,
        lane: usize,
    },
    Report {
        host: usize,
        incarnation: u32,
        report: Report,
    },
    Arrive {
        pipe: PipeId,
        message: Message,
    },
    Acknowledged {
        pipe: PipeId,
    },
    Tick {
        host: usize,
        incarnation: u32,
    },
    Catalog {
        host: usize,
        incarnation: u32,
        service: usize,
    },
    Publish {
        host: usize,
        service: usize,
        generation: u32,
    },
    WritePort {
        port: usize,
    },
    Cut {
        wire: usize,
    },
    Repair {
        wire: usize,
    },
    Restart {
        host: usize,
    },
    Programs {
        host: usize,
        service: usize,
    },
}

/// Programs of one host in one service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Programs {
    pub publishers: usize,
    pub subscribers: usize,
    pub generation: u32,
    /// The last number that was published.
    pub published: u64,
}

pub struct Host<'a> {
    pub name: String,
    pub core: Core<'a>,
    pub incarnation: u32,
    pub session: u64,
    pub lanes: Lanes,
    pub is_turn_due: [bool; 4],
    pub last_report: [Duration; 4],
    /// Wires by link index, with this host's end.
    pub wires: Vec<(usize, usize)>,
    pub ends: HashMap<(Direction, ChannelKey), PipeId>,
    /// Channels that the bus knows of.
    pub channels: HashMap<(Direction, ChannelKey), PipeId>,
    pub programs: Vec<Programs>,
    pub held: BTreeSet<FlowId>,
    pub publishers: BTreeSet<FlowId>,
}

/// A channel of ports: its two hosts and the number of its last message.
pub struct PortChannel {
    pub from: usize,
    pub to: usize,
    pub written: u64,
}

pub struct World<'a> {
    pub system: &'a System,
    pub options: Options,
    pub base: Instant,
    pub now: Duration,
    pub rng: fastrand::Rng,
    pub hosts: Vec<Host<'a>>,
    pub wires: Vec<Wire>,
    pub ports: Vec<PortChannel>,
    pub pipes: Pipes,
    pub queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    pub events: HashMap<usize, Event>,
    pub next_event: usize,
    pub is_busy: bool,
    pub checks: Checks,
}

/// The name of a simulated service; odd ones make publishers wait.
pub fn service_name(service: usize) -> String {
    format!("service-{service}")
}

pub fn description(service: usize) -> ServiceDescription {
    let of = |name: &str, size_bytes, slice| TypeDescription {
        name: name.into(),
        slice,
        size_bytes,
        alignment_bytes: 8,
    };
    ServiceDescription {
        name: service_name(service),
        payload: of("u8", 64, service % 3 == 2),
        user_header: of("()", 0, false),
        settings: Settings {
            max_publishers: 8,
            max_subscribers: 8,
            max_nodes: 20,
            history_size: 0,
            subscriber_max_buffer_size: 8,
            subscriber_max_borrowed_samples: 8,
            safe_overflow: service.is_multiple_of(2),
        },
        attributes: Vec::new(),
        schema: None,
    }
}

impl<'a> World<'a> {
    pub fn new(system: &'a System, options: Options, seed: u64) -> World<'a> {
        let base = Instant::now();
        let mut world = World {
            system,
            base,
            now: Duration::ZERO,
            rng: fastrand::Rng::with_seed(seed),
            hosts: Vec::new(),
            wires: Vec::new(),
            ports: Vec::new(),
            pipes: Pipes::default(),
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            next_event: 0,
            is_busy: true,
            checks: Checks::default(),
            options,
        };
        world.join();
        for number in 0..world.options.ports {
            let from = number % world.options.hosts;
            let to = (from + 1) % world.options.hosts;
            world.ports.push(PortChannel { from, to, written: 0 });
        }
        for host in 0..world.options.hosts {
            let fresh = world.fresh_host(host, 0);
            world.hosts.push(fresh);
            world.start_host(host);
        }
        for wire in 0..world.wires.len() {
            let after = world.delay(2000);
            world.at(after, Event::Repair { wire });
        }
        for port in 0..world.ports.len() {
            world.at(Duration::from_millis(5), Event::WritePort { port });
        }
        for host in 0..world.options.hosts {
            for service in 0..world.options.services {
                let after = world.delay(1000);
                world.at(after, Event::Programs { host, service });
            }
        }
        world
    }

    /// One wire for each bus of each link of the system file.
    pub fn join(&mut self) {
        let mut links = vec![0; self.options.hosts];
        for link in &self.system.links {
            let [one, other] = [&link.hosts[0], &link.hosts[1]].map(|name| host_of(name));
            for _ in &link.buses {
                let ends = [one, other].map(|host| {
                    links[host] += 1;
                    (host, links[host] - 1)
                });
                self.wires.push(Wire {
                    ends,
                    is_cut: true,
                    epoch: 0,
                    up: [None; 2],
                    last_arrival: [Duration::ZERO; 2],
                    is_stream: self.rng.bool(),
                    early: [Vec::new(), Vec::new()],
                });
            }
        }
    }

    pub fn fresh_host(&mut self, index: usize, incarnation: u32) -> Host<'a> {
        let name = format!("h{index}");
        let mut profiles = Vec::new();
        for link in self.system.links_of(&name) {
            for bus in &link.buses {
                profiles.push(LinkProfile {
                    number: link.index,
                    peer: link.peer.clone(),
                    bus: bus.name(),
                });
            }
        }
        let wires = (0..profiles.len())
            .map(|link| self.wire_of(index, link))
            .collect();
        let mut core = Core::new(self.system, &name, profiles, self.base + self.now);
        self.add_ports(index, &mut core);
        Host {
            name,
            core,
            incarnation,
            session: self.rng.u64(1..),
            lanes: Lanes::default(),
            is_turn_due: [false; 4],
            last_report: [Duration::ZERO; 4],
            wires,
            ends: HashMap::new(),
            channels: HashMap::new(),
            programs: vec![Programs::default(); self.options.services],
            held: BTreeSet::new(),
            publishers: BTreeSet::new(),
        }
    }

    pub fn wire_of(&self, host: usize, link: usize) -> (usize, usize) {
        let at = |ends: &[(usize, usize); 2]| ends.iter().position(|end| *end == (host, link));
        self.wires
            .iter()
            .enumerate()
            .find_map(|(wire, of)| Some((wire, at(&of.ends)?)))
            .expect("each link has a wire")
    }

    pub fn add_ports(&self, host: usize, core: &mut Core) {
        for (number, port) in self.ports.iter().enumerate() {
            let leaves = port.from == host;
            if !leaves && port.to != host {
                continue;
            }
            let peer = format!("h{}", if leaves { port.to } else { port.from });
            let routes = core
                .links()
                .iter()
                .enumerate()
                .filter(|(_, link)| link.profile.peer == peer)
                .map(|(link, _)| PortRoute {
                    link,
                    needs_clock: number % 2 == 1 && !leaves,
                })
                .collect();
            let spec = ChannelSpec {
                keep: Keep::All { depth: 8 },
                message_bytes: 128,
            };
            let endpoint = PortEndpoint {
                peer,
                leaves,
                spec,
                routes,
                clocks_known: BTreeSet::new(),
                at: 0,
            };
            core.add_port(number as u32, format!("channel-{number}"), endpoint);
        }
    }

    /// What a gateway does at its start.
    pub fn start_host(&mut self, host: usize) {
        let incarnation = self.hosts[host].incarnation;
        for number in 0..self.ports.len() {
            let flow = FlowId::Port(number as u32);
            if self.ports[number].from == host {
                self.command(host, Command::SetOutbound(flow, WhenFull::Wait));
            } else if self.ports[number].to == host {
                self.command(host, Command::SetInbound(flow));
            }
        }
        let after = self.delay(250);
        self.at(after, Event::Tick { host, incarnation });
        for service in 0..self.options.services {
            let after = self.delay(50);
            self.at(
                after,
                Event::Catalog {
                    host,
                    incarnation,
                    service,
                },
            );
        }
        self.settle(host);
    }

    pub fn delay(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.rng.u64(0..=most_ms * 1000))
    }

    /// Mostly short, now and then long.
    pub fn lag(&mut self, short_ms: u64, long_ms: u64) -> Duration {
        let most = if self.rng.u32(0..20) == 0 {
            long_ms
        } else {
            short_ms
        };
        self.delay(most)
    }

    pub fn at(&mut self, after: Duration, event: Event) {
        self.at_time(self.now + after, event);
    }

    pub fn at_time(&mut self, time: Duration, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.events.insert(number, event);
        self.queue.push(Reverse((time, number as u64, number)));
    }

    /// Lets events happen until then.
    pub fn run_until(&mut self, end: Duration) {
        while let Some(&Reverse((time, _, number))) = self.queue.peek() {
            if time > end || !self.checks.violations.is_empty() {
                break;
            }
            self.queue.pop();
            self.now = time;
            if let Some(event) = self.events.remove(&number) {
                self.happen(event);
            }
        }
        self.now = end;
    }

    pub fn is_current(&self, host: usize, incarnation: u32) -> bool {
        self.hosts[host].incarnation == incarnation
    }

    pub fn happen(&mut self, event: Event) {
        match event {
            Event::LinkDown { wire, end, epoch } => self.link_down(wire, end, epoch),
            Event::LinkUp { wire, end, epoch } => self.link_up(wire, end, epoch),
            Event::Control {
                wire,
                end,
                epoch,
                message,
            } => self.control(wire, end, epoch, message),
            Event::EndReady {
                host,
                incarnation,
                direction,
                key,
                pipe,
                result,
            } => {
                if self.is_current(host, incarnation) {
                    self.end_ready(host, direction, key, pipe, result);
                }
            }
            Event::Turn {
                host,
                incarnation,
                lane,
            } => {
                if self.is_current(host, incarnation) {
                    self.turn(host, lane);
                }
            }
            Event::Report {
                host,
                incarnation,
                report,
            } => {
                if self.is_current(host, incarnation) {
                    self.fact(host, Fact::Lane(report));
                }
            }
            Event::Arrive { pipe, message } => self.arrive(pipe, message),
            Event::Acknowledged { pipe } => {
                if self.is_intact(pipe) {
                    self.pipes.acknowledge(pipe);
                    self.wake_sender(pipe);
                }
            }
            Event::Tick { host, incarnation } => {
                if self.is_current(host, incarnation) {
                    let now = self.base + self.now;
                    self.hosts[host].core.tick(now);
                    self.settle(host);
                    self.at(TICK, Event::Tick { host, incarnation });
                }
            }
            Event::Catalog {
                host,
                incarnation,
                service,
            } => {
                if self.is_current(host, incarnation) {
                    self.catalog(host, service);
                }
            }
            Event::Publish {
                host,
                service,
                generation,
            } => self.publish(host, service, generation),
            Event::WritePort { port } => self.write_port(port),
            Event::Cut { wire } => self.cut(wire),
            Event::Repair { wire } => self.repair(wire),
            Event::Restart { host } => self.restart(host),
            Event::Programs { host, service } => self.change_programs(host, service),
        }
    }

    /// The state of each host, for a failed run.
    pub fn counters(&self) -> BTreeMap<String, String> {
        self.hosts
            .iter()
            .map(|host| (host.name.clone(), format!("{:?}", host.lanes.counters)))
            .collect()
    }
}
