//! Programs of a simulated system, and the wires between its hosts.

use std::time::Duration;

use super::lane::lane_of;
use super::world::{BUFFER, Event, World, description, service_name};
use crate::control::fact::LocalEvents;
use crate::control::{Fact, LocalService};
use crate::lane::FlowId;
use crate::protocol::{self, ControlMessage};

impl World<'_> {
    pub fn change_programs(&mut self, host: usize, service: usize) {
        let (publishers, subscribers) = if self.is_busy {
            (self.rng.usize(0..=1), self.rng.usize(0..=1))
        } else {
            (0, 0)
        };
        self.set_programs(host, service, publishers, subscribers);
        if self.is_busy {
            let after = Duration::from_millis(200) + self.delay(4000);
            self.at(after, Event::Programs { host, service });
        }
    }

    pub fn set_programs(&mut self, host: usize, service: usize, publishers: usize, subscribers: usize) {
        let programs = &mut self.hosts[host].programs[service];
        let had_publisher = programs.publishers > 0;
        (programs.publishers, programs.subscribers) = (publishers, subscribers);
        if publishers > 0 && !had_publisher {
            programs.generation += 1;
            let generation = programs.generation;
            self.at(
                Duration::from_millis(1),
                Event::Publish {
                    host,
                    service,
                    generation,
                },
            );
        }
        self.checks
            .programs_changed(host, service, publishers > 0, subscribers > 0);
        let incarnation = self.hosts[host].incarnation;
        let after = self.lag(5, 300);
        self.at(
            after,
            Event::Catalog {
                host,
                incarnation,
                service,
            },
        );
    }

    pub fn catalog(&mut self, host: usize, service: usize) {
        let of = self.hosts[host].programs[service];
        let nodes = of.publishers + of.subscribers;
        let programs = (nodes > 0).then(|| LocalService {
            description: description(service),
            nodes,
            publishers: of.publishers,
            subscribers: of.subscribers,
            longest_bytes: (of.publishers > 0).then_some(if service % 3 == 2 { 1 << 20 } else { 64 }),
        });
        let fact = Fact::Local {
            service: service_name(service),
            programs,
            events: LocalEvents {
                notifiers: of.publishers % 2,
                listeners: of.subscribers % 2,
            },
        };
        self.fact(host, fact);
    }

    pub fn publish(&mut self, host: usize, service: usize, generation: u32) {
        let programs = &mut self.hosts[host].programs[service];
        if programs.publishers == 0 || programs.generation != generation {
            return;
        }
        let next = programs.published + 1;
        let flow = self.flow_of(host, service);
        let lanes = &mut self.hosts[host].lanes;
        let source = flow.map(|flow| lanes.sources.entry(flow).or_default());
        let waits = service % 2 == 1;
        let mut has_published = true;
        if let Some(source) = source.filter(|source| source.has_subscriber) {
            if source.waiting.len() >= BUFFER && waits {
                has_published = false;
            } else {
                if source.waiting.len() >= BUFFER {
                    source.waiting.pop_front();
                    source.overflowed += 1;
                }
                source.waiting.push_back(next);
            }
        }
        if has_published {
            self.hosts[host].programs[service].published += 1;
        }
        if let Some(flow) = flow {
            self.wake(host, lane_of(flow, true));
        }
        let after = Duration::from_millis(5) + self.delay(60);
        self.at(
            after,
            Event::Publish {
                host,
                service,
                generation,
            },
        );
    }

    /// The flow of a service at a host, once its core knows it.
    pub fn flow_of(&self, host: usize, service: usize) -> Option<FlowId> {
        let name = service_name(service);
        self.hosts[host]
            .core
            .flows()
            .find(|flow| flow.name == name)
            .map(|flow| flow.id)
    }

    pub fn write_port(&mut self, port: usize) {
        if !self.is_busy {
            return;
        }
        self.ports[port].written += 1;
        let (host, written) = (self.ports[port].from, self.ports[port].written);
        let flow = FlowId::Port(port as u32);
        self.hosts[host]
            .lanes
            .sources
            .entry(flow)
            .or_default()
            .store
            .push(written);
        self.wake(host, lane_of(flow, true));
        let after = Duration::from_millis(10) + self.delay(80);
        self.at(after, Event::WritePort { port });
    }

    pub fn cut(&mut self, wire: usize) {
        if !self.is_busy {
            return;
        }
        self.wires[wire].is_cut = true;
        let epoch = self.wires[wire].epoch;
        for end in 0..2 {
            let after = self.delay(1500);
            self.at(after, Event::LinkDown { wire, end, epoch });
        }
        // Flapping now and then.
        let after = if self.rng.u32(0..3) == 0 {
            self.delay(300)
        } else {
            self.delay(8000)
        };
        self.at(after, Event::Repair { wire });
    }

    /// The wire carries again: both ends begin a new conversation.
    pub fn repair(&mut self, wire: usize) {
        self.wires[wire].is_cut = false;
        self.wires[wire].epoch += 1;
        let epoch = self.wires[wire].epoch;
        for end in 0..2 {
            let down = self.delay(20);
            self.at(
                down,
                Event::LinkDown {
                    wire,
                    end,
                    epoch: epoch - 1,
                },
            );
            let up = Duration::from_millis(20) + self.lag(5, 200);
            self.at(up, Event::LinkUp { wire, end, epoch });
        }
        if self.options.cuts && self.is_busy {
            let after = if self.rng.u32(0..3) == 0 {
                self.delay(500)
            } else {
                self.delay(6000)
            };
            self.at(after, Event::Cut { wire });
        }
    }

    pub fn link_down(&mut self, wire: usize, end: usize, epoch: u32) {
        let of = &mut self.wires[wire];
        if of.up[end].is_none_or(|up| up > epoch) || epoch == of.epoch && !of.is_cut {
            return;
        }
        of.up[end] = None;
        let (host, link) = of.ends[end];
        let fact = Fact::LinkDown {
            link,
            reason: "cut".into(),
        };
        self.fact(host, fact);
    }

    pub fn link_up(&mut self, wire: usize, end: usize, epoch: u32) {
        let of = &mut self.wires[wire];
        if of.is_cut || epoch != of.epoch || of.up[end].is_some() {
            return;
        }
        of.up[end] = Some(epoch);
        let (host, link) = of.ends[end];
        let fact = Fact::LinkUp {
            link,
            application: protocol::application(),
            may_lose: false,
            silence_timeout: Duration::from_millis(1500),
        };
        self.fact(host, fact);
        self.fact(host, Fact::ClockKnown { link });
        for (epoch, message) in std::mem::take(&mut self.wires[wire].early[end]) {
            self.control(wire, end, epoch, message);
        }
    }

    pub fn control(&mut self, wire: usize, end: usize, epoch: u32, message: ControlMessage) {
        let of = &self.wires[wire];
        if of.is_cut || epoch != of.epoch {
            return;
        }
        if of.up[end] != Some(epoch) {
            return self.wires[wire].early[end].push((epoch, message));
        }
        let (host, link) = of.ends[end];
        self.fact(host, Fact::Control { link, message });
    }

    pub fn send(&mut self, host: usize, link: usize, message: ControlMessage) {
        let (wire, end) = self.hosts[host].wires[link];
        let epoch = self.wires[wire].epoch;
        if self.wires[wire].is_cut || self.wires[wire].up[end] != Some(epoch) {
            return;
        }
        let to = 1 - end;
        let arrival = self.now + self.lag(3, 100);
        let arrival = arrival.max(self.wires[wire].last_arrival[to] + Duration::from_nanos(1));
        self.wires[wire].last_arrival[to] = arrival;
        self.at_time(
            arrival,
            Event::Control {
                wire,
                end: to,
                epoch,
                message,
            },
        );
    }

    /// A gateway is killed and starts anew: the other ends notice.
    pub fn restart(&mut self, host: usize) {
        if !self.is_busy {
            return;
        }
        self.checks.host_restarted(host);
        let incarnation = self.hosts[host].incarnation + 1;
        let programs = self.hosts[host].programs.clone();
        let lanes = std::mem::take(&mut self.hosts[host].lanes);
        let released: Vec<_> = self.hosts[host].channels.values().copied().collect();
        for pipe in released {
            if self.pipes.get(pipe).is_some_and(|of| of.from == host) {
                self.pipes.drop_sender(pipe);
            } else {
                self.pipes.close(pipe);
            }
        }
        let wires = self.hosts[host].wires.clone();
        for (wire, end) in wires {
            self.wires[wire].up[end] = None;
            let epoch = self.wires[wire].epoch;
            self.wires[wire].is_cut = true;
            let after = self.delay(1500);
            self.at(
                after,
                Event::LinkDown {
                    wire,
                    end: 1 - end,
                    epoch,
                },
            );
            let after = self.delay(2500);
            self.at(after, Event::Repair { wire });
        }
        self.hosts[host] = self.fresh_host(host, incarnation);
        self.hosts[host].programs = programs;
        // The stores of ports outlive the gateway.
        for (flow, source) in lanes.sources {
            if matches!(flow, FlowId::Port(_)) {
                self.hosts[host].lanes.sources.insert(flow, source);
            }
        }
        self.hosts[host].lanes.accepted = lanes.accepted;
        self.start_host(host);
        if self.options.restarts {
            let after = Duration::from_secs(3) + self.delay(6000);
            self.at(after, Event::Restart { host });
        }
    }
}
