//! When nothing is under way any more between the ports of two hosts: what was written or sent has
//! arrived, or waits for room.
//!
//! Contract: looks at both hosts' stores from outside, as `busway port` does, so neither partitions
//! nor gateways notice. It needs all messages of a sampling channel to differ from the one before,
//! and queues whose gateways live.

use busway_port::observe::{ObservedPort, Observer};
use busway_port::system::{Crossing, crossings_of, module_of, root_of};
use busway_port::{PortRef as Name, Store};
use busway_system::{Carrier, PortRef, System, WhenFull};

use crate::wait::eventually;

#[derive(Debug)]
pub struct Routes(Vec<Route>);

#[derive(Debug)]
struct Route {
    source: ObservedPort,
    /// The ports through which messages leave here and come in there; none if the source's
    /// partition writes the other host's memory itself.
    gateways: Option<[ObservedPort; 2]>,
    destinations: Vec<ObservedPort>,
    /// Both hosts share the queues: what was sent is there.
    shares_queues: bool,
    /// Whether a full queue over there makes messages wait here.
    waits: bool,
}

impl Routes {
    pub fn open(system: &System) -> Routes {
        let mut routes = Vec::new();
        for host in &system.hosts {
            let crossings = crossings_of(system, &host.name);
            let leaving = crossings.iter().filter(|crossing| crossing.leaves);
            routes.extend(leaving.map(|leaving| Route::open(system, &host.name, leaving)));
        }
        Routes(routes)
    }

    pub fn settle(&self) {
        eventually("what was sent arrives, or waits for room", || {
            self.0.iter().all(Route::is_quiet).then_some(())
        });
    }
}

pub fn look(system: &System, host: &str, port: &Name) -> ObservedPort {
    // As a partition would: no gateway makes the store of a host whose channels need none.
    Store::open(root_of(system, host), module_of(system, host)).expect("the store");
    let observer = Observer::new(root_of(system, host), module_of(system, host)).expect("a possible module");
    eventually(&format!("{port} exists on {host}"), || {
        observer.port(port).ok().map(|port| port.expect("of the module"))
    })
}

impl Route {
    fn open(system: &System, host: &str, leaving: &Crossing) -> Route {
        let mut channels = system.channels.iter();
        let channel = channels
            .find(|channel| channel.name == leaving.channel)
            .expect("of the system");
        let host_of = |at: PortRef| &system.partitions[at.partition].host;
        let name_of = |at: PortRef| Name::new(&system.partitions[at.partition].name, &system.port(at).name);
        let over_there = channel.destinations.iter().copied();
        let over_there = over_there.filter(|at| *host_of(*at) == leaving.peer);
        let gateways = (leaving.carrier == Carrier::Gateways).then(|| {
            let arriving = crossings_of(system, &leaving.peer);
            let arriving = arriving
                .into_iter()
                .find(|it| !it.leaves && it.peer == host && it.channel == leaving.channel)
                .expect("both hosts know it");
            [
                look(system, host, &leaving.port),
                look(system, &leaving.peer, &arriving.port),
            ]
        });
        Route {
            source: look(system, host, &name_of(channel.source)),
            gateways,
            destinations: over_there
                .map(|at| look(system, &leaving.peer, &name_of(at)))
                .collect(),
            shares_queues: leaving.has_shared_queues(),
            waits: channel.when_full == Some(WhenFull::Wait),
        }
    }

    fn is_quiet(&self) -> bool {
        if self.shares_queues {
            return true;
        }
        if let Some([source, receiver]) = &self.gateways
            && let Some(waiting) = source.in_queue()
        {
            return self.is_queue_quiet(waiting, receiver.counters().writes);
        }
        let bytes = |port: &ObservedPort| port.message().map(|message| message.bytes);
        let written = bytes(&self.source);
        written.is_none() || self.destinations.iter().all(|port| bytes(port) == written)
    }

    fn is_queue_quiet(&self, waiting: u64, given: u64) -> bool {
        let is_full = |port: &ObservedPort| {
            let max_messages = port.config().kind.max_messages();
            max_messages.is_some_and(|max_messages| port.in_queue() == Some(max_messages as u64))
        };
        // The other host may have written a message that the gateway has not taken in.
        let is_all_given = |port: &ObservedPort| {
            let front = port.message().map(|message| message.number - 1);
            front.zip(port.in_queue()).map(|(taken, left)| taken + left) == Some(given)
        };
        let sent = self.source.counters().writes;
        let mut destinations = self.destinations.iter();
        let is_held_back = self.waits && destinations.any(|port| is_full(port) && is_all_given(port));
        given + waiting == sent && (waiting == 0 || is_held_back)
    }
}
