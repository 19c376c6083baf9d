//! Sampling channels whose source's process writes the register in the receiving host's port store
//! with a queue pair of its own.
//!
//! The decision core knows nothing of it: such a channel is a sending end that no lane has. When
//! the receiving host offers its register, a process that can connect gets a *ticket*; if there is
//! none, the gateway connects itself. A ticket is used once: if the process fails, or does not
//! answer in time, the channel ends without a failure, upon which the receiving host offers its
//! register anew. That happens too when a process comes that can write, while the gateway does.
//!
//! A process goes on writing while the link is down, or while this gateway is stopped or gone: the
//! end is *detached* then, as in [`super::landed`]. Called by [`super`] and [`super::ports`].

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use busway_port::PortRef;
use busway_port::carry::{WriterDesk, WriterEvent};
use busway_port::system::Crossing;
use busway_system::{Hop, System};
use busway_transport::RegisterTicket;

use crate::lane::{ChannelKey, FlowId, Report};

/// A process that has not answered by then does not get the channel: it is stopped, since it gives
/// up itself after 5 s. Meanwhile nobody writes the register, and a stopped source neither.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// A process that could not connect is tried again after this.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What a ticket is made of.
pub struct Offer {
    pub flow: FlowId,
    pub key: ChannelKey,
    /// The gateway's port of the channel.
    pub port: PortRef,
    /// Index of the link in the system file.
    pub link: u32,
    pub register: RegisterTicket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The offset of the other host's clock is not known yet.
    AwaitsClock,
    /// The process connects.
    Connecting { give_up_at: Instant },
    /// The process writes.
    Open,
    /// It goes on without its conversation.
    Detached,
}

/// A channel that a process has, or is about to have.
struct Writing {
    offer: Offer,
    client: u64,
    ticket: u64,
    phase: Phase,
}

/// What the shell has to do.
pub enum WriterNews {
    /// The process writes: the sending end is ready.
    Open {
        flow: FlowId,
        key: ChannelKey,
        /// Number of the source's newest message when the process got its ticket.
        newest: u64,
    },
    /// The end has ended; without a failure if its process did not connect, or is gone.
    Ended {
        flow: FlowId,
        key: ChannelKey,
        failure: Option<String>,
    },
    /// A process can write this channel of the gateway's port.
    Able(PortRef),
}

/// See the module.
#[derive(Default)]
pub struct OwnWriters {
    /// `None` where no channel may be written so.
    desk: Option<WriterDesk>,
    writing: HashMap<FlowId, Writing>,
    /// Why the gateway has a channel.
    why_not: HashMap<FlowId, String>,
    /// Processes that could not connect, and when they may try again.
    failed: Vec<(u64, PortRef, u32, Instant)>,
}

impl OwnWriters {
    /// Waits for the processes of the store in `root`.
    pub fn open(&mut self, root: &Path) {
        self.desk = WriterDesk::open(root)
            .inspect_err(|error| {
                tracing::warn!(
                    "no socket for partitions in {} ({error}); the gateway writes their sampling ports over RDMA itself",
                    root.display()
                );
            })
            .ok();
    }

    /// Readable when [`poll`](Self::poll) has work.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.desk.iter().flat_map(WriterDesk::fds)
    }

    /// When [`poll`](Self::poll) has work although nothing is readable.
    pub fn next_look(&self) -> Option<Instant> {
        let answers = self.writing.values().filter_map(|writing| match writing.phase {
            Phase::Connecting { give_up_at } => Some(give_up_at),
            _ => None,
        });
        answers.chain(self.failed.iter().map(|(.., at)| *at)).min()
    }

    /// Lets a process connect; `false`: the gateway has to. `is_clock_known`: the process would
    /// know how to stamp messages. The channel was [taken](Self::take) from whoever had it.
    pub fn offer(&mut self, offer: Offer, is_clock_known: bool, now: Instant) -> bool {
        let candidate = match &self.desk {
            Some(desk) => desk.candidate(&offer.port, offer.link),
            None => Err("the system file or the system keeps it from partitions".into()),
        };
        let client = match candidate {
            Ok(client) => client,
            Err(why) => {
                self.why_not.insert(offer.flow, why);
                return false;
            }
        };
        let flow = offer.flow;
        let writing = Writing {
            offer,
            client,
            ticket: 0,
            phase: Phase::AwaitsClock,
        };
        self.writing.insert(flow, writing);
        !is_clock_known || self.connect(flow, now)
    }

    /// Sends the ticket; `false`: the process is gone.
    fn connect(&mut self, flow: FlowId, now: Instant) -> bool {
        let (Some(desk), Some(writing)) = (self.desk.as_mut(), self.writing.get_mut(&flow)) else {
            return false;
        };
        let Offer {
            port, link, register, ..
        } = &writing.offer;
        match desk.connect(writing.client, port, *link, register) {
            Some(ticket) => {
                writing.ticket = ticket;
                writing.phase = Phase::Connecting {
                    give_up_at: now + ANSWER_WITHIN,
                };
                true
            }
            None => {
                self.why_not.insert(flow, "the source's process is gone".into());
                self.writing.remove(&flow);
                false
            }
        }
    }

    /// The offset of the peer's clock over a link is known.
    pub fn clock_known(&mut self, link: usize, now: Instant) -> Vec<WriterNews> {
        let is_ready =
            |writing: &Writing| writing.phase == Phase::AwaitsClock && writing.offer.key.link == link;
        let writing = self.writing.iter();
        let flows: Vec<_> = writing
            .filter(|(_, writing)| is_ready(writing))
            .map(|(flow, writing)| (*flow, writing.offer.key))
            .collect();
        let lost = flows.into_iter().filter(|(flow, _)| !self.connect(*flow, now));
        lost.map(|(flow, key)| not_connected(flow, key)).collect()
    }

    /// Takes a channel from its process, if one has it. Returns whether one had.
    pub fn take(&mut self, flow: FlowId) -> bool {
        let Some(writing) = self.writing.remove(&flow) else {
            return false;
        };
        if let Some(desk) = &mut self.desk
            && writing.phase != Phase::AwaitsClock
        {
            desk.end(writing.client, &writing.offer.port, writing.ticket);
        }
        true
    }

    /// Whether a process has this channel, or is about to.
    pub fn has(&self, flow: FlowId, key: ChannelKey) -> bool {
        self.writing
            .get(&flow)
            .is_some_and(|writing| writing.offer.key == key)
    }

    /// The channel's conversation has ended: a process that writes goes on.
    pub fn detach(&mut self, flow: FlowId) {
        match self.writing.get_mut(&flow) {
            Some(writing) if writing.phase == Phase::Open => writing.phase = Phase::Detached,
            _ => {
                self.take(flow);
            }
        }
    }

    /// The decision core has forgotten a channel: a process that has not connected yet need not.
    pub fn forget(&mut self, key: ChannelKey) {
        let is_it = |writing: &Writing| {
            writing.offer.key == key && matches!(writing.phase, Phase::AwaitsClock | Phase::Connecting { .. })
        };
        let mut writing = self.writing.iter();
        let found = writing.find(|(_, writing)| is_it(writing)).map(|(flow, _)| *flow);
        if let Some(flow) = found {
            self.take(flow);
        }
    }

    /// Whether a process may still write although its conversation has ended.
    pub fn is_detached(&self, flow: FlowId) -> bool {
        let writing = self.writing.get(&flow);
        writing.is_some_and(|writing| writing.phase == Phase::Detached)
    }

    /// Who writes a channel that leaves over a bus which writes registers, and if it is the
    /// gateway, why. `may_partition`: the system file lets a process of the source's partition.
    pub fn writer(&self, flow: FlowId, may_partition: bool) -> (&'static str, Option<String>) {
        if self.writing.contains_key(&flow) {
            return ("partition", None);
        }
        let why = if may_partition {
            self.why_not.get(&flow).cloned()
        } else {
            Some("partition_writes = false in this host's table of the link".into())
        };
        ("gateway", why)
    }

    /// Takes what processes have told, and gives those up that do not answer.
    pub fn poll(&mut self, now: Instant) -> Vec<WriterNews> {
        let Some(desk) = &mut self.desk else {
            return Vec::new();
        };
        let mut news = Vec::new();
        for event in desk.poll() {
            match event {
                WriterEvent::Able(port) => news.push(WriterNews::Able(port)),
                WriterEvent::Connected { port, ticket } => news.extend(self.connected(&port, ticket)),
                WriterEvent::Ended { port, ticket, why } => news.extend(self.ended(&port, ticket, &why, now)),
                WriterEvent::Gone(client) => self.gone(client, &mut news),
            }
        }
        self.give_up_late(now, &mut news);
        self.forgive(now, &mut news);
        news
    }

    fn find(&self, port: &PortRef, ticket: u64) -> Option<FlowId> {
        let mut writing = self.writing.iter();
        let found = writing.find(|(_, it)| it.ticket == ticket && it.offer.port == *port);
        found.map(|(flow, _)| *flow)
    }

    fn connected(&mut self, port: &PortRef, ticket: u64) -> Option<WriterNews> {
        let flow = self.find(port, ticket)?;
        let writing = self.writing.get_mut(&flow)?;
        if !matches!(writing.phase, Phase::Connecting { .. }) {
            return None;
        }
        writing.phase = Phase::Open;
        Some(WriterNews::Open {
            flow,
            key: writing.offer.key,
            newest: writing.offer.register.source.newest,
        })
    }

    fn ended(&mut self, port: &PortRef, ticket: u64, why: &str, now: Instant) -> Option<WriterNews> {
        let flow = self.find(port, ticket)?;
        let writing = self.writing.remove(&flow)?;
        let key = writing.offer.key;
        match writing.phase {
            Phase::Open => {
                let failure = Some(why.to_owned());
                Some(WriterNews::Ended { flow, key, failure })
            }
            Phase::Detached => None,
            Phase::AwaitsClock | Phase::Connecting { .. } => {
                let (port, link) = (writing.offer.port.clone(), writing.offer.link);
                if let Some(desk) = &mut self.desk {
                    desk.set_unable(writing.client, &port, link, why.to_owned());
                }
                self.failed
                    .push((writing.client, port, link, now + TRY_AGAIN_AFTER));
                self.why_not.insert(flow, why.to_owned());
                Some(not_connected(flow, key))
            }
        }
    }

    fn gone(&mut self, client: u64, news: &mut Vec<WriterNews>) {
        self.failed.retain(|(of, ..)| *of != client);
        for (flow, writing) in self.writing.extract_if(|_, writing| writing.client == client) {
            self.why_not.insert(flow, "the source's process has ended".into());
            if writing.phase != Phase::Detached {
                news.push(not_connected(flow, writing.offer.key));
            }
        }
    }

    fn give_up_late(&mut self, now: Instant, news: &mut Vec<WriterNews>) {
        let is_late = |writing: &Writing| matches!(writing.phase, Phase::Connecting { give_up_at } if now >= give_up_at);
        let late: Vec<_> = self.writing.extract_if(|_, writing| is_late(writing)).collect();
        for (flow, writing) in late {
            if let Some(desk) = &mut self.desk {
                desk.set_mute(writing.client);
                desk.end(writing.client, &writing.offer.port, writing.ticket);
            }
            let why = format!("the source's process did not connect within {ANSWER_WITHIN:?}");
            self.why_not.insert(flow, why);
            news.push(not_connected(flow, writing.offer.key));
        }
    }

    /// Processes that could not connect may try again.
    fn forgive(&mut self, now: Instant, news: &mut Vec<WriterNews>) {
        let Some(desk) = &mut self.desk else { return };
        self.failed.retain(|(client, port, link, at)| {
            let is_due = now >= *at;
            if is_due && desk.forget_failure(*client, port, *link) {
                news.push(WriterNews::Able(port.clone()));
            }
            !is_due
        });
    }
}

/// The channel ends, and the receiving host offers its register anew.
fn not_connected(flow: FlowId, key: ChannelKey) -> WriterNews {
    let failure = None;
    WriterNews::Ended { flow, key, failure }
}

/// What a lane would report of a sending end.
pub fn sender_ended(flow: FlowId, key: ChannelKey, failure: Option<String>) -> Report {
    Report::SenderEnded {
        flow,
        key,
        unacknowledged: 0,
        failure,
    }
}

/// The link of a hop, index in the system file, if a process of the source's partition on this host
/// may write the register over it.
pub fn link_of(system: &System, crossing: &Crossing, hop: &Hop) -> Option<u32> {
    if !crossing.leaves || !crossing.writes_register(hop) {
        return None;
    }
    let mut channels = system.channels.iter();
    let channel = channels.find(|channel| channel.name == crossing.channel)?;
    let host = &system.partitions[channel.source.partition].host;
    let bus = system.bus_of(host, hop.link, hop.bus)?;
    bus.register_device().map(|_| hop.link as u32)
}
