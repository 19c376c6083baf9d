//! One channel of ports between this host and another: how far it is, and over which of its buses.
//!
//! Contract: plain state; [`super::ports`] decides. The receiving side chooses the way and asks for the messages over it; the sending side follows.

use std::sync::Arc;
use std::time::Instant;

use busway_port::system::Crossing;
use busway_port::{Partition, PortKind};
use busway_system::{Clock, Hop};
use busway_transport::{ChannelSpec, Direction, HEAD_BYTES, Keep};

use super::links::LinkState;
use super::rest::Rests;
use crate::counters::PortCounters;
use crate::lane::{ChannelKey, FlowId};

/// Messages under way at most; the queues themselves may be deeper.
const MOST_UNDER_WAY: usize = 256;

/// How far a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    /// The bus makes this side's end.
    Opening,
    /// The lane has it.
    Open,
    /// The lane was told to give it up.
    Ending,
    /// Receiving side: the lane was told to give it up, since a better way is there.
    Leaving,
    /// Receiving side: the peer was asked to give its end up.
    Closing,
}

/// A bus that can carry the channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Index in the gateway's links.
    pub(super) link: usize,
    pub(super) bus: &'static str,
    pub(super) clock: Clock,
}

/// What a peer asked for over another way than the present one, whose end is still with its lane.
pub(super) struct Asked {
    pub(super) key: ChannelKey,
    pub(super) spec: ChannelSpec,
    pub(super) landing: Vec<u8>,
}

/// One crossing.
pub(super) struct Channel {
    pub(super) crossing: Crossing,
    pub(super) flow: FlowId,
    /// The gateway's place in the store.
    pub(super) partition: Arc<Partition>,
    /// At least one, the best first.
    pub(super) ways: Vec<Way>,
    /// Index of the present one, or of the last.
    pub(super) at: usize,
    pub(super) phase: Phase,
    pub(super) key: Option<ChannelKey>,
    /// Sending side: to be opened once the present end is gone.
    pub(super) asked: Option<Asked>,
    /// Links over which it failed.
    pub(super) rests: Rests,
    pub(super) complaint: Option<String>,
    pub(super) counters: Arc<PortCounters>,
}

/// The ways of a crossing over `links`, the best first.
pub(super) fn ways_of(crossing: &Crossing, links: &[LinkState]) -> Vec<Way> {
    let best = Hop {
        link: crossing.link,
        bus: crossing.bus,
        clock: crossing.clock,
    };
    let way = |hop: &Hop| Way {
        link: links
            .iter()
            .position(|link| link.number == hop.link && link.bus() == hop.bus)
            .expect("a route takes this host's links"),
        bus: hop.bus,
        clock: hop.clock,
    };
    [best].iter().chain(&crossing.fallbacks).map(way).collect()
}

impl Channel {
    pub(super) fn new(
        crossing: Crossing,
        flow: FlowId,
        partition: Arc<Partition>,
        ways: Vec<Way>,
    ) -> Channel {
        Channel {
            crossing,
            flow,
            partition,
            ways,
            at: 0,
            phase: Phase::Closed,
            key: None,
            asked: None,
            rests: Rests::default(),
            complaint: None,
            counters: Arc::default(),
        }
    }

    pub(super) fn direction(&self) -> Direction {
        if self.crossing.leaves {
            Direction::Send
        } else {
            Direction::Receive
        }
    }

    /// The way that it takes, or took last.
    pub(super) fn way(&self) -> Way {
        self.ways[self.at]
    }

    /// The index of its way over a link of the gateway.
    pub(super) fn way_over(&self, link: usize) -> Option<usize> {
        self.ways.iter().position(|way| way.link == link)
    }

    pub(super) fn spec(&self) -> ChannelSpec {
        let keep = match self.crossing.kind {
            PortKind::Sampling => Keep::Latest,
            PortKind::Queuing { max_messages } => Keep::All {
                depth: max_messages.clamp(1, MOST_UNDER_WAY) as u32,
            },
        };
        ChannelSpec {
            keep,
            message_bytes: (HEAD_BYTES + self.crossing.max_message_size_bytes) as u64,
        }
    }

    pub(super) fn complain(&mut self, complaint: String) {
        if self.complaint.as_ref() != Some(&complaint) {
            tracing::warn!(
                "channel {:?} {} {:?}: {complaint}",
                self.crossing.channel,
                if self.crossing.leaves { "to" } else { "from" },
                self.crossing.peer
            );
        }
        self.complaint = Some(complaint);
    }

    /// It failed over its present way.
    pub(super) fn fail(&mut self, complaint: String, links: &[LinkState]) {
        self.complain(complaint);
        let link = self.way().link;
        let has_other = self.has_other(link, links);
        self.rests.failed(link, has_other, Instant::now());
    }

    /// Whether it has a way over a link other than this one.
    pub(super) fn has_other(&self, link: usize, links: &[LinkState]) -> bool {
        let is_other = |way: &Way| way.link != link && links[way.link].is_usable();
        self.ways.iter().any(is_other)
    }
}
