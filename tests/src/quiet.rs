//! When nothing is under way any more between the ports of two hosts: what was written or sent has arrived, or waits for room.
//!
//! Contract: looks at both hosts' stores from outside, as `busway port` does, so neither partitions nor gateways notice. It needs all messages of a
//! sampling channel to differ from the one before, and queues whose gateways live.

use busway_port::observe::{ObservedPort, Observer};
use busway_port::system::{Crossing, crossings_of, module_of, root_of};
use busway_port::{PortKind, PortRef, WhenFull};
use busway_system::{Carrier, System};

use crate::wait::eventually;

/// All channels that gateways move between hosts.
#[derive(Debug)]
pub struct Ways(Vec<Way>);

/// One channel from one host to another.
#[derive(Debug)]
struct Way {
    source: ObservedPort,
    /// The port through which messages leave.
    tap: ObservedPort,
    /// The port through which they come in.
    spout: ObservedPort,
    destinations: Vec<ObservedPort>,
    /// Whether a full queue over there makes messages wait here.
    waits: bool,
}

impl Ways {
    /// Looks at all channels of `system`, as soon as the gateways have made them.
    pub fn open(system: &System) -> Ways {
        let mut ways = Vec::new();
        for host in &system.hosts {
            let crossings = crossings_of(system, &host.name);
            // What partitions write into the other host's memory themselves is there at once.
            let moved = |it: &&Crossing| it.leaves && it.carrier == Carrier::Gateways;
            for leaving in crossings.iter().filter(moved) {
                let arriving = crossings_of(system, &leaving.peer);
                let arriving = arriving
                    .into_iter()
                    .find(|it| !it.leaves && it.peer == host.name && it.channel == leaving.channel)
                    .expect("both hosts know it");
                let here = module_of(system, &host.name).channels;
                let there = module_of(system, &leaving.peer).channels;
                let here = here.iter().find(|it| it.destinations.contains(&leaving.port));
                let there = there.iter().find(|it| it.source == arriving.port);
                let there = there.expect("it ends there");
                ways.push(Way {
                    source: look(system, &host.name, &here.expect("it begins here").source),
                    tap: look(system, &host.name, &leaving.port),
                    spout: look(system, &leaving.peer, &arriving.port),
                    waits: there.when_full == WhenFull::Wait,
                    destinations: there
                        .destinations
                        .iter()
                        .map(|at| look(system, &leaving.peer, at))
                        .collect(),
                });
            }
        }
        Ways(ways)
    }

    /// Waits until nothing is under way.
    pub fn settle(&self) {
        eventually("what was sent arrives, or waits for room", || {
            self.0.iter().all(Way::is_quiet).then_some(())
        });
    }
}

fn look(system: &System, host: &str, port: &PortRef) -> ObservedPort {
    let observer = Observer::new(root_of(system, host), module_of(system, host)).expect("a possible module");
    eventually(&format!("{port} exists on {host}"), || {
        observer.port(port).ok().map(|port| port.expect("of the module"))
    })
}

impl Way {
    fn is_quiet(&self) -> bool {
        match self.tap.in_queue() {
            Some(waiting) => self.is_queue_quiet(waiting),
            None => {
                let bytes = |port: &ObservedPort| port.message().map(|message| message.bytes);
                let written = bytes(&self.source);
                written.is_none() || self.destinations.iter().all(|port| bytes(port) == written)
            }
        }
    }

    /// Whether all that was given to the queue over there is confirmed, and what is `waiting` here waits for room.
    fn is_queue_quiet(&self, waiting: u64) -> bool {
        let is_full = |port: &ObservedPort| {
            let PortKind::Queuing { max_messages } = port.config().kind else {
                return false;
            };
            port.in_queue() == Some(max_messages as u64)
        };
        let (sent, given) = (self.source.counters().writes, self.spout.counters().writes);
        let is_held_back = self.waits && self.destinations.iter().any(is_full);
        given + waiting == sent && (waiting == 0 || is_held_back)
    }
}
