//! What tests of RDMA share: messages and landings in memory that can be registered, and processes
//! of their own.
#![allow(dead_code)] // No test binary uses all of it.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use busway_transport::{
    ChannelEnd, ChannelId, Head, Kind, Landing, Link, LinkEvent, Message, Receiver, Refused, SegmentId,
    Sender, Sink, Verdict,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::contract::Side;
use crate::contract::harness::{LANE, PATIENCE, fill, identity, is_filled, queue};
use crate::rdma_place::RdmaPlace;

/// The place of a process that a test has started.
pub const PLACE: &str = "BUSWAY_TEST_PLACE";

crate::contract::bus_at_place!(pub RdmaSend(RdmaPlace) = RdmaPlace::new("rdma-send"));

/// Memory that is never given back, so that its name always means it.
pub fn leaked(len_bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0; len_bytes].into_boxed_slice())
}

/// A message in memory that has a name.
pub struct Sample {
    head: Head,
    payload: &'static [u8],
    segment: SegmentId,
}

impl Message for Sample {
    fn head(&self) -> &Head {
        &self.head
    }
    fn user_header(&self) -> &[u8] {
        b"beside"
    }
    fn payload(&self) -> &[u8] {
        self.payload
    }
    fn segment(&self) -> Option<SegmentId> {
        Some(self.segment)
    }
}

pub fn sample(sequence: u64, payload_bytes: usize) -> Sample {
    let payload = leaked(payload_bytes);
    fill(payload, sequence);
    Sample {
        head: Head {
            sequence,
            origin: 7,
            time_ns: 0,
            payload_bytes: payload_bytes as u64,
            events: 0,
            user_header_bytes: 6,
            kind: Kind::Data,
        },
        payload,
        // Each sample's memory is a segment of its own.
        segment: SegmentId {
            owner: payload.as_ptr().addr() as u128,
            generation: 1,
        },
    }
}

/// A sink whose landings lie in named memory, or in memory without a name.
pub struct Places {
    memory: &'static mut [u8],
    is_named: bool,
    user_header: [u8; 6],
    len_bytes: usize,
    pub delivered: u64,
}

impl Sink for Places {
    fn land(&mut self, head: &Head) -> Verdict {
        self.len_bytes = head.payload_bytes as usize;
        self.memory[..self.len_bytes].fill(0);
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut self.user_header,
            payload: &mut self.memory[..self.len_bytes],
        }
    }
    fn segment(&mut self) -> Option<SegmentId> {
        self.is_named.then(|| SegmentId {
            owner: self.memory.as_ptr().addr() as u128,
            generation: 1,
        })
    }
    fn deliver(&mut self, head: &Head) {
        assert_eq!(&self.user_header, b"beside");
        assert!(is_filled(&self.memory[..self.len_bytes], head.sequence));
        self.delivered += 1;
        assert_eq!(head.sequence, self.delivered);
    }
    fn abandon(&mut self) {}
}

/// Both ends of a channel for samples; the links go with them.
pub struct Samples {
    pub links: [Box<dyn Link<Sample>>; 2],
    pub sender: Box<dyn Sender<Sample>>,
    pub receiver: Box<dyn Receiver>,
}

/// The next event of a link that `pick` wants.
pub fn await_event<T>(
    links: &mut [Box<dyn Link<Sample>>; 2],
    from: usize,
    mut pick: impl FnMut(LinkEvent<Sample>) -> Option<T>,
) -> T {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let now = Instant::now();
        // The other link's events are of no interest to any caller.
        if from == 1 {
            let _ = links[0].poll(now);
        }
        if let Some(found) = links[from].poll(now).and_then(&mut pick) {
            return found;
        }
        assert!(now < give_up_at, "no such event");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn samples() -> Samples {
    // siw counts locked memory of root, too, and whole mappings are registered.
    limit_locked_memory(1 << 30);
    let place = RdmaPlace::new("rdma-send");
    let mut links = Side::BOTH.map(|side| place.open_for::<Sample>(side, identity(side)));
    let (id, spec) = (ChannelId(1), queue(8, 1 << 20));
    let is_up = |event: LinkEvent<Sample>| matches!(event, LinkEvent::Up(_)).then_some(());
    let mut is_one_up = false;
    let give_up_at = Instant::now() + PATIENCE;
    // The first one's event may come at any time.
    loop {
        is_one_up |= links[0].poll(Instant::now()).and_then(is_up).is_some();
        if links[1].poll(Instant::now()).and_then(is_up).is_some() {
            break;
        }
        assert!(Instant::now() < give_up_at, "no link");
    }
    if !is_one_up {
        await_event(&mut links, 0, is_up);
    }
    let landing = links[1].open_receiver(id, &spec, LANE).expect("it opens");
    links[0].open_sender(id, &spec, &landing, LANE).expect("it opens");
    let (mut sender, mut receiver) = (None, None);
    while sender.is_none() || receiver.is_none() {
        assert!(Instant::now() < give_up_at, "no channel");
        for link in &mut links {
            match link.poll(Instant::now()) {
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end)))) => sender = Some(end),
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end)))) => receiver = Some(end),
                Some(LinkEvent::Channel(_, _, Err(why))) => panic!("{why}"),
                _ => {}
            }
        }
    }
    Samples {
        links,
        sender: sender.expect("it was awaited"),
        receiver: receiver.expect("it was awaited"),
    }
}

/// Sends messages of these lengths and waits until all are delivered and confirmed.
pub fn carry(samples: &mut Samples, sink: &mut Places, lengths: &[usize]) {
    let until = sink.delivered + lengths.len() as u64;
    for (sequence, bytes) in (sink.delivered + 1..).zip(lengths) {
        let mut message = sample(sequence, *bytes);
        let give_up_at = Instant::now() + PATIENCE;
        while let Err(refused) = samples.sender.send(message) {
            let Refused::Full(back) = refused else {
                panic!("message {sequence} was refused for good");
            };
            message = back;
            assert!(Instant::now() < give_up_at, "no room for message {sequence}");
            turn(samples, sink);
        }
        turn(samples, sink);
    }
    until_confirmed(samples, sink, until);
}

/// Waits until so many are delivered, and all are confirmed.
pub fn until_confirmed(samples: &mut Samples, sink: &mut Places, until: u64) {
    let give_up_at = Instant::now() + PATIENCE;
    while sink.delivered < until || samples.sender.outstanding() > 0 {
        turn(samples, sink);
        assert!(Instant::now() < give_up_at, "{} of {until}", sink.delivered);
    }
}

fn turn(samples: &mut Samples, sink: &mut Places) {
    samples.sender.flush().expect("the sender is well");
    samples.receiver.poll(sink, 1).expect("the receiver is well");
    for link in &mut samples.links {
        let _ = link.poll(Instant::now());
    }
}

pub fn places(is_named: bool) -> Places {
    Places {
        memory: leaked(2 << 20),
        is_named,
        user_header: [0; 6],
        len_bytes: 0,
        delivered: 0,
    }
}

pub const LONG: [usize; 12] = [
    64 << 10,
    70_000,
    1 << 20,
    300_001,
    64 << 10,
    1 << 20,
    99_999,
    1 << 20,
    1 << 20,
    65_537,
    500_000,
    1 << 20,
];

/// A child process, killed at the latest when the test ends.
pub struct Other(Child);

impl Other {
    /// Starts this program again, for one test of it.
    pub fn start(role: &str, place: SocketAddr) -> Other {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .args(["--include-ignored", "--exact", role])
            .env(PLACE, place.to_string())
            .spawn()
            .expect("it starts");
        Other(child)
    }

    /// Waits until it has ended well.
    pub fn succeed(mut self) {
        let give_up_at = Instant::now() + 2 * PATIENCE;
        while Instant::now() < give_up_at {
            if let Some(status) = self.0.try_wait().expect("it was started") {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end: what it waits for is in its own output");
    }

    pub fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The place that a parent test has named, if this process is a child.
pub fn place_of_parent() -> Option<SocketAddr> {
    let text = std::env::var(PLACE).ok()?;
    Some(text.parse().expect("the parent gives an address"))
}

/// May lock this much memory, as programs without privileges.
pub fn limit_locked_memory(len_bytes: u64) {
    let limit = Rlimit {
        current: Some(len_bytes),
        maximum: None,
    };
    setrlimit(Resource::Memlock, limit).expect("the limit is set");
}
