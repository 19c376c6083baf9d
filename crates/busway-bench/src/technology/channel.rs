//! `channel-BUS` and `channel-sampling-BUS` for each bus of the registry: Busway's channels by
//! themselves, a queuing or a sampling channel each way, without gateways and without ports.
//!
//! Each program opens the link of its host in the system file and holds both conversation and
//! channels; a thread of its own keeps the conversation alive ([`super::keeper`]). In a round trip
//! and on a sampling channel each message is flushed at once; of a queuing stream up to [`BUDGET`]
//! messages leave together, as a gateway's lane sends those that it finds at once.
#![allow(unsafe_code)] // `BorrowedFd::borrow_raw` for descriptors that channel ends own

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_buses::{BUS_NAMES, BusSettings, Buses, missing};
use busway_system::System;
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Doorbell, Flushed, HEAD_BYTES, Head, Keep, Kind, Landing,
    Link, LinkEvent, LinkIdentity, Message as Carried, Receiver, Refused, Sender, Sink, Verdict, WaitFor,
};

use super::keeper::Keeper;
use super::message::{Message, Received, SHORT_BYTES};
use super::path::{
    Description, LOOK_TIMEOUT, MeetingPoint, OneWay, Opening, Path, Side, Stage, User, reach_of,
};
use super::ready::sleep_until_ready;
use super::wait::Wait;
use crate::clock::now_ns;
use crate::control::{Control, WorkerResult};
use crate::record::Measured;

const PREFIX: &str = "channel-";
const SAMPLING_PREFIX: &str = "channel-sampling-";
/// The most bytes under way, unless four messages are longer.
const QUEUE_BYTES: usize = 1 << 20;
/// Most buffers for messages that a bus holds until it has sent them.
const MAX_BUFFERS: usize = 32;
/// Messages taken from a channel in one look, as a gateway's lane does.
const BUDGET: usize = 64;
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_micros(50);
const LANE: u32 = 0;

pub(super) fn describe() -> Vec<Description> {
    let kinds = [
        (PREFIX, "queuing", OneWay::Lossless),
        (SAMPLING_PREFIX, "sampling", OneWay::Sampling),
    ];
    kinds
        .iter()
        .flat_map(|kind| BUS_NAMES.iter().map(move |bus| (kind, bus)))
        .map(|((prefix, kind, one_way), bus)| Description {
            name: format!("{prefix}{bus}"),
            title: format!("a {kind} channel of Busway over {bus}, without gateways and ports"),
            waits: vec![Wait::Spin, Wait::Event],
            reach: reach_of(bus),
            one_way: Some(*one_way),
            least_bytes: SHORT_BYTES,
            max_bytes: 16 << 20,
            helpers: 0,
            stage: Stage::Link(bus),
            missing: missing(bus),
        })
        .collect()
}

pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let sampled = name.strip_prefix(SAMPLING_PREFIX);
    let bus = sampled.or(name.strip_prefix(PREFIX)).unwrap_or(name);
    let keep = match sampled {
        Some(_) => Keep::Latest,
        None => Keep::All {
            depth: depth(opening.payload_bytes) as u32,
        },
    };
    let (settings, peer) = settings(opening.place, bus)?;
    let session = now_ns() << 22 | u64::from(std::process::id());
    let identity = LinkIdentity {
        host: opening.place.host.clone(),
        session,
        application: "busway-bench".into(),
    };
    let mut link = Buses::new(identity)
        .open(&settings, &peer)
        .map_err(|e| format!("link to {peer} over {bus}: {e}"))?;
    if opening.answers() {
        // The other program comes only now, and the link comes up with it.
        (opening.listening)(None);
    }
    let Some((sender, receiver)) = open_ends(&mut *link, keep, opening)? else {
        return Ok(Measured::default());
    };
    user.exchange(Channel {
        sender,
        receiver,
        doorbell: link.doorbell(LANE),
        sink: Landed::new(opening),
        buffers: (0..depth(opening.payload_bytes).min(MAX_BUFFERS))
            .map(|_| vec![0; opening.payload_bytes].into())
            .collect(),
        buffer: 0,
        sequence: 0,
        session,
        is_waiting: false,
        unflushed: 0,
        flushes_after: if opening.one_way && keep != Keep::Latest {
            BUDGET
        } else {
            1
        },
        waits_for_room: keep != Keep::Latest && !opening.timed,
        wait: opening.wait,
        blocks: opening.blocks(),
        timed: opening.timed,
        touched: opening.touched,
        control: opening.control.clone(),
        _keeper: Keeper::start(link),
    })
}

fn depth(payload_bytes: usize) -> usize {
    (QUEUE_BYTES / payload_bytes).clamp(4, 256)
}

fn settings(place: &MeetingPoint, bus: &str) -> WorkerResult<(BusSettings, String)> {
    let file = place
        .system
        .as_deref()
        .ok_or("a channel needs a system file, and none was given")?;
    let system = System::load(file).map_err(|e| e.to_string())?;
    let found = system.links_of(&place.host).find_map(|link| {
        let settings = link.buses.iter().find(|settings| settings.name() == bus)?;
        Some((settings.clone(), link.peer))
    });
    found.ok_or_else(|| {
        format!(
            "{}: host {:?} has no link over {bus}; add a [[link]] with buses = [{bus:?}]",
            file.display(),
            place.host
        )
    })
}

type Ends = (Box<dyn Sender<Loan>>, Box<dyn Receiver>);

/// Opens both channels: each receiver says over the conversation where its messages shall land.
/// `None` if the program shall end before.
fn open_ends(link: &mut dyn Link<Loan>, keep: Keep, opening: &Opening<'_>) -> WorkerResult<Option<Ends>> {
    let spec = ChannelSpec {
        keep,
        message_bytes: (opening.payload_bytes + HEAD_BYTES) as u64,
    };
    let (incoming, outgoing) = match opening.side {
        Side::Answers => (ChannelId(1), ChannelId(2)),
        Side::Asks => (ChannelId(2), ChannelId(1)),
    };
    let bus = link.bus();
    let failed = |what: &str, why: String| format!("{what} over {bus}: {why}");
    let (mut sender, mut receiver, mut last_word) = (None, None, "the link did not come up".to_owned());
    let deadline = Instant::now() + OPENING_TIMEOUT;
    while !opening.control.ended() {
        let Some(event) = link.poll(Instant::now()) else {
            if Instant::now() > deadline {
                return Err(failed(
                    "channels",
                    format!("not open after {OPENING_TIMEOUT:?}; {last_word}"),
                ));
            }
            std::thread::sleep(NAP);
            continue;
        };
        match event {
            LinkEvent::Up(_) => {
                let landing = link
                    .open_receiver(incoming, &spec, LANE)
                    .map_err(|e| failed("landing place", e.to_string()))?;
                // A link that is down again says so by its next event.
                let _ = link.send_control(&landing);
            }
            LinkEvent::Control(landing) => link
                .open_sender(outgoing, &spec, &landing, LANE)
                .map_err(|e| failed("sender", e.to_string()))?,
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
            LinkEvent::Channel(direction, _, Err(why)) => {
                let end = if direction == Direction::Send {
                    "sender"
                } else {
                    "receiver"
                };
                return Err(failed(end, why));
            }
            LinkEvent::Refused(why) => return Err(failed("link", why)),
            LinkEvent::Down(why) => {
                // What was opened is void.
                (sender, receiver, last_word) = (None, None, why);
            }
        }
        match (sender.take(), receiver.take()) {
            (Some(sender), Some(receiver)) => return Ok(Some((sender, receiver))),
            unfinished => (sender, receiver) = unfinished,
        }
    }
    Ok(None)
}

struct Loan {
    head: Head,
    payload: Arc<[u8]>,
}

impl Carried for Loan {
    fn head(&self) -> &Head {
        &self.head
    }

    fn user_header(&self) -> &[u8] {
        &[]
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }
}

struct Landed {
    buffer: Vec<u8>,
    /// In order, at most [`BUDGET`].
    messages: VecDeque<Received>,
    touched: bool,
}

impl Landed {
    fn new(opening: &Opening<'_>) -> Self {
        Self {
            buffer: vec![0; opening.payload_bytes],
            messages: VecDeque::with_capacity(BUDGET),
            touched: opening.touched,
        }
    }
}

impl Sink for Landed {
    fn land(&mut self, head: &Head) -> Verdict {
        let is_ours = head.kind == Kind::Data
            && head.user_header_bytes == 0
            && head.payload_bytes == self.buffer.len() as u64;
        if is_ours { Verdict::Land } else { Verdict::Discard }
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.buffer,
        }
    }

    fn deliver(&mut self, _: &Head) {
        self.messages.extend(Message::read(&self.buffer, self.touched));
    }

    fn abandon(&mut self) {}
}

struct Channel {
    sender: Box<dyn Sender<Loan>>,
    receiver: Box<dyn Receiver>,
    doorbell: Option<Box<dyn Doorbell>>,
    sink: Landed,
    /// Free where the bus does not hold a clone.
    buffers: Vec<Arc<[u8]>>,
    /// The one used last, which is warm.
    buffer: usize,
    sequence: u64,
    session: u64,
    /// Something accepted has not left yet.
    is_waiting: bool,
    /// Messages since the last flush, and after how many comes the next.
    unflushed: usize,
    flushes_after: usize,
    /// Whether a sender waits until a message has left. Not if it sends at instants of its own, nor
    /// on a channel that keeps the newest.
    waits_for_room: bool,
    wait: Wait,
    blocks: bool,
    timed: bool,
    touched: bool,
    control: Control,
    // Last: the link outlives its channels.
    _keeper: Keeper,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Message,
    Room,
}

impl Channel {
    /// A message in a free buffer; `None` if the bus holds them all, or has no room.
    fn next(&mut self, message: Message) -> Option<Loan> {
        let count = self.buffers.len();
        let free = (0..count)
            .map(|step| (self.buffer + step) % count)
            .find(|index| Arc::get_mut(&mut self.buffers[*index]).is_some())?;
        let buffer = Arc::get_mut(&mut self.buffers[free])?;
        if !self.sender.has_room((HEAD_BYTES + buffer.len()) as u64) {
            return None;
        }
        message.fill(buffer, self.touched);
        self.buffer = free;
        Some(Loan {
            head: Head {
                sequence: self.sequence + 1,
                origin: self.session,
                time_ns: 0,
                payload_bytes: buffer.len() as u64,
                events: 0,
                user_header_bytes: 0,
                kind: Kind::Data,
            },
            payload: Arc::clone(&self.buffers[free]),
        })
    }

    fn flush_once(&mut self) -> WorkerResult<()> {
        let flushed = self.sender.flush().map_err(|e| format!("flush: {e}"))?;
        self.is_waiting = flushed == Flushed::Waiting;
        self.unflushed = 0;
        Ok(())
    }

    /// Flushes, and waits until all has left where the program may; false if it shall end.
    fn flush_wholly(&mut self) -> WorkerResult<bool> {
        self.flush_once()?;
        while self.is_waiting && self.waits_for_room {
            if self.control.ended() {
                return Ok(false);
            }
            if self.wait == Wait::Event {
                self.sleep(Awaited::Room, LOOK_TIMEOUT)?;
            } else {
                std::hint::spin_loop();
            }
            self.flush_once()?;
        }
        Ok(true)
    }

    fn look(&mut self) -> WorkerResult<bool> {
        if self.is_waiting || self.sender.needs_flush() {
            self.flush_once()?;
        }
        if self.sink.messages.is_empty() {
            // The other program is done, and the parent ends this one. If the
            // bus has failed, the sending program gets the error.
            if self.receiver.poll(&mut self.sink, BUDGET).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(!self.sink.messages.is_empty())
    }

    fn look_for_room(&mut self) -> WorkerResult<bool> {
        self.flush_once()?;
        let bytes = (HEAD_BYTES + self.sink.buffer.len()) as u64;
        Ok(!self.is_waiting && self.sender.has_room(bytes))
    }

    fn look_for(&mut self, awaited: Awaited) -> WorkerResult<bool> {
        match awaited {
            Awaited::Message => self.look(),
            Awaited::Room => self.look_for_room(),
        }
    }

    fn sleep(&mut self, awaited: Awaited, at_most: Duration) -> WorkerResult<()> {
        let wait_for = match awaited {
            Awaited::Message if self.is_waiting => WaitFor::Poll,
            Awaited::Message => self.receiver.wait_for(),
            Awaited::Room => self.sender.wait_for(),
        };
        match wait_for {
            WaitFor::Fd { fd, writable } => {
                // SAFETY: the descriptor belongs to a channel end of `self`, which lives longer
                // than this call.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                sleep_until_ready(&fd, writable, at_most);
            }
            WaitFor::Doorbell if self.doorbell.is_some() => {
                self.doorbell.iter_mut().for_each(|doorbell| doorbell.arm());
                // What came before the arming rings no doorbell.
                if !self.look_for(awaited)?
                    && let Some(doorbell) = &self.doorbell
                {
                    sleep_until_ready(&doorbell.fd(), false, at_most);
                }
                self.doorbell.iter_mut().for_each(|doorbell| doorbell.disarm());
            }
            WaitFor::Doorbell | WaitFor::Poll => std::thread::sleep(at_most.min(NAP)),
        }
        Ok(())
    }

    /// Waits for room, as this program waits; false if it shall end, or must not wait.
    fn make_room(&mut self) -> WorkerResult<bool> {
        if self.timed {
            self.flush_once()?;
            return Ok(false);
        }
        while !self.look_for_room()? {
            if self.control.ended() {
                return Ok(false);
            }
            if self.wait == Wait::Event {
                self.sleep(Awaited::Room, LOOK_TIMEOUT)?;
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(true)
    }
}

impl Path for Channel {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        let mut loan = loop {
            if let Some(loan) = self.next(message) {
                break loan;
            }
            if !self.make_room()? {
                return Ok(false);
            }
        };
        loop {
            match self.sender.send(loan) {
                Ok(()) => break,
                Err(Refused::Full(back)) => loan = back,
                Err(Refused::TooLong { limit_bytes, .. }) => {
                    return Err(format!("send: the channel carries at most {limit_bytes} bytes"));
                }
                Err(Refused::Failed(_, e)) => return Err(format!("send: {e}")),
            }
            if !self.make_room()? {
                return Ok(false);
            }
        }
        self.sequence += 1;
        self.unflushed += 1;
        if self.unflushed < self.flushes_after {
            return Ok(true);
        }
        self.flush_wholly()
    }

    fn flush(&mut self) -> WorkerResult<()> {
        self.flush_wholly().map(drop)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if !self.look()? && self.blocks {
            self.sleep(Awaited::Message, LOOK_TIMEOUT)?;
            self.look()?;
        }
        Ok(self.sink.messages.pop_front())
    }

    fn wait(&mut self, at_most: Duration) {
        let _ = self.sleep(Awaited::Message, at_most);
    }
}
