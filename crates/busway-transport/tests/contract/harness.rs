//! Two hosts, their messages and their sinks.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Doorbell, Head, Keep, Kind, Landing, Link, LinkEvent,
    LinkIdentity, Message, Receiver, Sender, Sink, Verdict, WaitFor,
};
use rustix::event::{PollFd, PollFlags};

use super::{BusUnderTest, Side};

/// Nothing here takes so long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The lane that the tests' channel ends live on.
pub const LANE: u32 = 0;

/// Payload `sequence` of a channel: bytes that differ with the sequence and the place.
pub fn fill(bytes: &mut [u8], sequence: u64) {
    let mut word = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Whether the bytes are those of [`fill`].
pub fn is_filled(bytes: &[u8], sequence: u64) -> bool {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, sequence);
    bytes == expected
}

/// A message in ordinary memory.
#[derive(Debug)]
pub struct Buffer {
    pub head: Head,
    pub user_header: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Buffer {
    /// The message of that sequence, with patterns in the user header and the payload.
    pub fn new(sequence: u64, user_header_bytes: usize, payload_bytes: usize) -> Buffer {
        let mut user_header = vec![0; user_header_bytes];
        let mut payload = vec![0; payload_bytes];
        fill(&mut user_header, !sequence);
        fill(&mut payload, sequence);
        Buffer {
            head: Head {
                sequence,
                origin: 77,
                time_ns: sequence * 1000,
                payload_bytes: payload_bytes as u64,
                events: sequence % 64,
                user_header_bytes: user_header_bytes as u32,
                kind: Kind::Data,
            },
            user_header,
            payload,
        }
    }

    pub fn total_bytes(&self) -> u64 {
        self.head.total_bytes().expect("a test's message fits")
    }
}

impl Message for Buffer {
    fn head(&self) -> &Head {
        &self.head
    }
    fn user_header(&self) -> &[u8] {
        &self.user_header
    }
    fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// A sink that checks the pattern of every message and notes its head.
#[derive(Default)]
pub struct Collector {
    /// Heads of the delivered messages.
    pub heads: Vec<Head>,
    /// Verdicts for the next messages, before all others land.
    pub verdicts: VecDeque<Verdict>,
    /// Verdict for all further ones; `None` is [`Verdict::Land`].
    pub then: Option<Verdict>,
    pub abandoned: usize,
    /// Places of the message in progress: user header, payload.
    pub landing: Option<(Vec<u8>, Vec<u8>)>,
}

impl Collector {
    pub fn sequences(&self) -> Vec<u64> {
        self.heads.iter().map(|head| head.sequence).collect()
    }
}

impl Sink for Collector {
    fn land(&mut self, head: &Head) -> Verdict {
        assert!(
            self.landing.is_none(),
            "a message lands while another one is in progress"
        );
        let verdict = self.verdicts.pop_front().or(self.then).unwrap_or(Verdict::Land);
        if verdict == Verdict::Land {
            self.landing = Some((
                vec![0; head.user_header_bytes as usize],
                vec![0; head.payload_bytes as usize],
            ));
        }
        verdict
    }

    fn landing(&mut self) -> Landing<'_> {
        let (user_header, payload) = self
            .landing
            .as_mut()
            .expect("only a message that lands has a landing");
        Landing { user_header, payload }
    }

    fn deliver(&mut self, head: &Head) {
        let (user_header, payload) = self
            .landing
            .take()
            .expect("only a message that landed is delivered");
        assert!(
            is_filled(&user_header, !head.sequence),
            "user header of message {}",
            head.sequence
        );
        assert!(
            is_filled(&payload, head.sequence),
            "payload of message {}",
            head.sequence
        );
        self.heads.push(*head);
    }

    fn abandon(&mut self) {
        self.landing
            .take()
            .expect("only a message that lands is abandoned");
        self.abandoned += 1;
    }
}

/// One host of the pair.
pub struct Host {
    pub link: Box<dyn Link<Buffer>>,
    /// Events that no test has looked at yet.
    pub events: VecDeque<LinkEvent<Buffer>>,
    pub session: u64,
    pub is_up: bool,
}

impl Host {
    pub fn poll(&mut self) {
        while let Some(event) = self.link.poll(Instant::now()) {
            match &event {
                LinkEvent::Up(_) => self.is_up = true,
                LinkEvent::Down(_) => self.is_up = false,
                _ => {}
            }
            self.events.push_back(event);
        }
    }

    /// Takes out the first event that `pick` accepts.
    pub fn take<T>(
        &mut self,
        mut pick: impl FnMut(LinkEvent<Buffer>) -> Result<T, LinkEvent<Buffer>>,
    ) -> Option<T> {
        for _ in 0..self.events.len() {
            match pick(self.events.pop_front()?) {
                Ok(found) => {
                    return Some(found);
                }
                Err(event) => self.events.push_back(event),
            }
        }
        None
    }

    pub fn take_channel(
        &mut self,
        direction: Direction,
        channel: ChannelId,
    ) -> Option<Result<ChannelEnd<Buffer>, String>> {
        self.take(|event| match event {
            LinkEvent::Channel(d, c, end) if (d, c) == (direction, channel) => Ok(end),
            other => Err(other),
        })
    }

    pub fn take_control(&mut self) -> Option<Vec<u8>> {
        self.take(|event| match event {
            LinkEvent::Control(bytes) => Ok(bytes),
            other => Err(other),
        })
    }

    pub fn take_down(&mut self) -> Option<String> {
        self.take(|event| match event {
            LinkEvent::Down(why) => Ok(why),
            other => Err(other),
        })
    }

    pub fn take_refused(&mut self) -> Option<String> {
        self.take(|event| match event {
            LinkEvent::Refused(why) => Ok(why),
            other => Err(other),
        })
    }
}

/// Two hosts at one place.
pub struct Pair<B: BusUnderTest> {
    // Gone before the place where they meet.
    hosts: [Option<Host>; 2],
    pub bus: B,
    next_channel: u32,
}

/// Both ends of a channel.
pub struct Channel {
    pub sender: Box<dyn Sender<Buffer>>,
    pub receiver: Box<dyn Receiver>,
    pub sink: Collector,
    pub id: ChannelId,
}

pub fn queue(depth: u32, message_bytes: u64) -> ChannelSpec {
    ChannelSpec {
        keep: Keep::All { depth },
        message_bytes,
    }
}

pub fn latest(message_bytes: u64) -> ChannelSpec {
    ChannelSpec {
        keep: Keep::Latest,
        message_bytes,
    }
}

pub fn identity(side: Side) -> LinkIdentity {
    static SESSION: AtomicU64 = AtomicU64::new(1);
    LinkIdentity {
        host: side.name().into(),
        session: SESSION.fetch_add(1, Ordering::Relaxed) << 20 | u64::from(std::process::id()),
        application: format!("app of {}", side.name()),
    }
}

impl<B: BusUnderTest> Pair<B> {
    /// A place with nobody there.
    pub fn empty() -> Pair<B> {
        Pair {
            bus: B::new(),
            hosts: [None, None],
            next_channel: 1,
        }
    }

    /// Both hosts, connected.
    pub fn up() -> Pair<B> {
        let mut pair = Pair::empty();
        pair.start(Side::One);
        pair.start(Side::Two);
        pair.wait_up();
        pair
    }

    /// Starts a host as a new session.
    pub fn start(&mut self, side: Side) {
        let identity = identity(side);
        let session = identity.session;
        let link = self.bus.open(side, identity);
        self.hosts[side as usize] = Some(Host {
            link,
            events: VecDeque::new(),
            session,
            is_up: false,
        });
    }

    /// Ends a host, as a process that exits.
    pub fn stop(&mut self, side: Side) {
        self.hosts[side as usize] = None;
    }

    /// Ends a host as kill -9 does: its link reports nothing and leaves its doorbells.
    pub fn kill(&mut self, side: Side) {
        std::mem::forget(self.hosts[side as usize].take().map(|host| host.link));
    }

    pub fn host(&mut self, side: Side) -> &mut Host {
        self.hosts[side as usize]
            .as_mut()
            .expect("the test has started this host")
    }

    pub fn poll(&mut self) {
        self.hosts.iter_mut().flatten().for_each(Host::poll);
    }

    /// Polls both links until `done` gives something.
    pub fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Pair<B>) -> Option<T>) -> T {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if let Some(found) = done(self) {
                return found;
            }
            assert!(
                Instant::now() < give_up_at,
                "waited in vain until {what}; events: {:?}",
                self.events()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn events(&self) -> Vec<&VecDeque<LinkEvent<Buffer>>> {
        self.hosts.iter().flatten().map(|host| &host.events).collect()
    }

    pub fn wait_up(&mut self) {
        self.until("both hosts are up", |pair| {
            pair.hosts.iter().flatten().all(|host| host.is_up).then_some(())
        });
    }

    pub fn next_channel(&mut self) -> ChannelId {
        self.next_channel += 1;
        ChannelId(self.next_channel)
    }

    /// Opens a channel from `from` to the other side.
    pub fn open(&mut self, from: Side, spec: &ChannelSpec) -> Channel {
        let id = self.next_channel();
        self.open_as(from, id, spec)
    }

    pub fn open_as(&mut self, from: Side, id: ChannelId, spec: &ChannelSpec) -> Channel {
        let landing = self
            .host(from.other())
            .link
            .open_receiver(id, spec, LANE)
            .expect("the receiver opens");
        // As a real user does it: the landing place goes over the conversation.
        self.host(from.other())
            .link
            .send_control(&landing)
            .expect("the link is up");
        let landing = self.until("the landing place is known", |pair| {
            pair.host(from).take_control()
        });
        self.host(from)
            .link
            .open_sender(id, spec, &landing, LANE)
            .expect("the sender opens");
        let sender = self.until("the sender is open", |pair| {
            pair.host(from).take_channel(Direction::Send, id)
        });
        // Before anything else is waited for: without a sender no receiver opens.
        let sender = sender.expect("a sender");
        let receiver = self.until("the receiver is open", |pair| {
            pair.host(from.other()).take_channel(Direction::Receive, id)
        });
        match (sender, receiver.expect("a receiver")) {
            (ChannelEnd::Sender(sender), ChannelEnd::Receiver(receiver)) => Channel {
                sender,
                receiver,
                sink: Collector::default(),
                id,
            },
            _ => panic!("each side gets its own kind of end"),
        }
    }
}

impl Channel {
    /// Sends what `message` makes, moving the channel on while it is full.
    pub fn send(&mut self, message: Buffer) {
        use busway_transport::Refused;
        let give_up_at = Instant::now() + PATIENCE;
        let mut message = message;
        loop {
            match self.sender.send(message) {
                Ok(()) => return,
                Err(Refused::Full(back)) => message = back,
                Err(other) => panic!("a message was refused: {other:?}"),
            }
            assert!(Instant::now() < give_up_at, "the channel stays full");
            self.turn();
        }
    }

    /// Moves the channel on, both ends. Where nothing moves, the system gets the time to move it.
    pub fn turn(&mut self) {
        self.sender.flush().expect("the sender is well");
        let delivered = self
            .receiver
            .poll(&mut self.sink, usize::MAX)
            .expect("the receiver is well");
        if delivered == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Moves the channel on until that many messages are delivered in all.
    pub fn until_delivered(&mut self, messages: usize) {
        let give_up_at = Instant::now() + PATIENCE;
        while self.sink.heads.len() < messages {
            self.turn();
            assert!(
                Instant::now() < give_up_at,
                "{} of {messages} messages were delivered",
                self.sink.heads.len()
            );
        }
    }
}

/// Sleeps until the descriptor is ready; whether it was within the harness's patience.
pub fn sleep_on(fd: BorrowedFd<'_>, writable: bool) -> bool {
    let flags = if writable {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let timeout = rustix::time::Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout))
        .is_ok_and(|count| count > 0)
}

/// Sleeps as a lane does: on the end's descriptor, on the lane's doorbell (armed before `look`
/// looks once more), or for a moment where nothing wakes it. `look` returns whether there is work.
pub fn sleep_as_lane(
    wait_for: WaitFor,
    bell: &mut Option<Box<dyn Doorbell>>,
    mut look: impl FnMut() -> bool,
) {
    match wait_for {
        #[allow(unsafe_code)]
        WaitFor::Fd { fd, writable } => {
            // SAFETY: the descriptor belongs to the channel end, which the caller keeps while it
            // sleeps.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            assert!(sleep_on(fd, writable), "nothing woke the lane");
        }
        WaitFor::Doorbell => {
            let bell = bell
                .as_mut()
                .expect("a link whose ends wait for a doorbell has one");
            bell.arm();
            if !look() {
                assert!(sleep_on(bell.fd(), false), "nothing rang");
            }
            bell.disarm();
        }
        WaitFor::Poll => std::thread::sleep(Duration::from_micros(100)),
    }
}
