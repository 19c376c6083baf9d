//! What a technology is to experiments and to programs: its description, and the path that it
//! opens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::{Message, Received, SHORT_BYTES};
use super::wait::Wait;
use crate::control::{Control, WorkerResult};
use crate::record::Measured;
use crate::window::SharedWindow;
use busway_buses::{is_one_sided, needs_window};

/// A blocking look ends after this long, so that a program notices that it shall end.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub title: String,
    /// How programs can wait on it; those that an experiment uses by default.
    pub waits: Vec<Wait>,
    pub reach: Reach,
    pub one_way: Option<OneWay>,
    /// The shortest message that it carries, in bytes.
    pub least_bytes: usize,
    pub max_bytes: usize,
    /// Threads beside each program that are busy while messages come.
    pub helpers: u32,
    pub stage: Stage,
    /// What this machine lacks for it, as the end of "needs …"; none: nothing.
    pub missing: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Host,
    Machine,
    Network,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneWay {
    /// The sender waits; none is lost.
    Lossless,
    /// The newest stays, those before it are overwritten.
    Sampling,
    /// They are dropped.
    Lossy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing.
    Bare,
    /// A system file with ports of this kind in two partitions; with a bus, on two hosts with a
    /// gateway each.
    Ports {
        /// Between the hosts; none: both partitions are on one.
        bus: Option<&'static str>,
        /// Queuing ports; otherwise sampling ports.
        queuing: bool,
    },
    /// A system file with a link over this bus; the programs open it themselves.
    Link(&'static str),
    /// A system file with a link over this bus, and a gateway on each host.
    Gateways(&'static str),
    /// iceoryx2's own tunnel over Zenoh, on each host.
    Tunnel,
}

/// How far a bus reaches: through a window, as far as that does.
pub(super) fn reach_of(bus: &str) -> Reach {
    if needs_window(bus) {
        Reach::Machine
    } else {
        Reach::Network
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Asks,
    Answers,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeetingPoint {
    pub name: String,
    /// A directory for files that both programs open.
    pub directory: PathBuf,
    pub address: SocketAddr,
    pub iceoryx2: PathBuf,
    pub system: Option<PathBuf>,
    pub host: String,
    /// Memory that both machines see, instead of files in `directory`.
    pub window: Option<SharedWindow>,
}

pub(crate) struct Opening<'a> {
    pub side: Side,
    pub place: &'a MeetingPoint,
    /// Size of a message in bytes: [`SHORT_BYTES`], or a multiple of 8 of at least
    /// [`MIN_MESSAGE_BYTES`](super::MIN_MESSAGE_BYTES).
    pub payload_bytes: usize,
    /// How [`Path::receive`] waits: [`Wait::Event`] blocks for [`LOOK_TIMEOUT`] at most, the others
    /// look once.
    pub wait: Wait,
    pub touched: bool,
    /// The program sends at instants of its own: neither `send` nor `receive` may block, it waits
    /// by [`Path::wait`].
    pub timed: bool,
    pub one_way: bool,
    /// Whether iceoryx2 services have their default settings, by which a full queue loses its
    /// oldest message; otherwise the publisher waits for room.
    pub overwrites: bool,
    pub control: &'a Control,
    /// To be called by an answering program that waits until the other one connects: it is ready,
    /// and listens at this address, if at any.
    pub listening: &'a dyn Fn(Option<SocketAddr>),
}

impl Description {
    /// A socket, as nearly all technologies are in most respects: lossless, between any hosts,
    /// opened by its programs alone.
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            waits: vec![Wait::Event, Wait::Spin],
            reach: Reach::Network,
            one_way: Some(OneWay::Lossless),
            least_bytes: SHORT_BYTES,
            max_bytes: usize::MAX,
            helpers: 0,
            stage: Stage::Bare,
            missing: None,
        }
    }

    /// Those of `sizes`, in bytes, that it carries.
    pub fn fitting(&self, sizes: &[usize]) -> Vec<usize> {
        let range = self.least_bytes..=self.max_bytes;
        sizes
            .iter()
            .copied()
            .filter(|bytes| range.contains(bytes))
            .collect()
    }

    pub fn reaches_another_machine(&self, has_window: bool) -> bool {
        match self.reach {
            _ if self.stage == Stage::Tunnel => false,
            Reach::Host => false,
            Reach::Machine => has_window,
            Reach::Network => true,
        }
    }

    /// How its programs can wait where they are on two machines: no word of memory wakes anybody
    /// there.
    pub fn waits_across(&self) -> Vec<Wait> {
        let mut waits = self.waits.clone();
        if self.reach == Reach::Machine && self.stage == Stage::Bare {
            waits.retain(|wait| *wait == Wait::Spin);
        }
        waits
    }

    pub fn has_gateways(&self) -> bool {
        match self.stage {
            Stage::Ports {
                bus: Some(bus),
                queuing,
            } => queuing || !is_one_sided(bus),
            Stage::Gateways(_) | Stage::Tunnel => true,
            _ => false,
        }
    }
}

impl Opening<'_> {
    pub fn answers(&self) -> bool {
        self.side == Side::Answers
    }

    /// Of the ends from the asking program to the answering one and back: the one to send by, and
    /// the one to receive by.
    pub fn ends<T>(&self, there: T, back: T) -> (T, T) {
        if self.answers() {
            (back, there)
        } else {
            (there, back)
        }
    }

    pub fn blocks(&self) -> bool {
        self.wait == Wait::Event && !self.timed
    }
}

pub(crate) trait Path {
    /// Sends one message. Where the path is lossless and full it waits for room. False if it was
    /// not sent: the parent ended the program, or the path was opened for a program that sends at
    /// instants of its own and has no room now.
    fn send(&mut self, message: Message) -> WorkerResult<bool>;

    /// The next message, or the newest one on a path that keeps only that; `None` if none has come
    /// that no call before has given.
    fn receive(&mut self) -> WorkerResult<Option<Received>>;

    /// Passes on what [`send`](Self::send) keeps until it has many messages for one call.
    fn flush(&mut self) -> WorkerResult<()> {
        Ok(())
    }

    /// Sleeps until a message may be there, for `at_most` at most.
    fn wait(&mut self, at_most: Duration) {
        std::thread::sleep(at_most.min(Duration::from_micros(50)));
    }
}

pub(crate) trait User {
    fn exchange(self, path: impl Path) -> WorkerResult<Measured>;
}
