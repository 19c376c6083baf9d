//! What only buses over RDMA have: payload that crosses without a copy, peers that are killed. One device, RoCE or iWARP, on `eth0`. Devices that go away
//! are the lab's (`cargo xtask lab roce`).

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;

use std::any::Any;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use busway_transport::{
    ChannelEnd, ChannelError, ChannelId, Direction, Head, Kind, Landing, Link, LinkEvent, LinkIdentity,
    Message, OpenError, Receiver, SegmentId, Sender, Sink, Verdict,
};
use contract::harness::{Buffer, LANE, PATIENCE, Pair, fill, identity, is_filled, queue};
use contract::hostile::Anything;
use contract::rdma::Place;
use contract::{BusUnderTest, Side};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The place of a process that a test has started.
const PLACE: &str = "BUSWAY_TEST_PLACE";

struct RdmaSend(Place);

impl BusUnderTest for RdmaSend {
    fn new() -> Self {
        RdmaSend(Place::new("rdma-send"))
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.0.open(side, identity)
    }

    fn attack(&self, victim: Side, seed: u64) {
        self.0.attack(victim, seed);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        self.0.other_version(side)
    }
}

/// Memory that is never given back, so that its name always means it.
fn leaked(len_bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0; len_bytes].into_boxed_slice())
}

/// A message in memory that has a name.
struct Sample {
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

fn sample(sequence: u64, payload_bytes: usize) -> Sample {
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
struct Places {
    memory: &'static mut [u8],
    is_named: bool,
    user_header: [u8; 6],
    len_bytes: usize,
    delivered: u64,
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
struct Samples {
    links: [Box<dyn Link<Sample>>; 2],
    sender: Box<dyn Sender<Sample>>,
    receiver: Box<dyn Receiver>,
}

/// The next event of a link that `pick` wants.
fn await_event<T>(
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

fn samples() -> Samples {
    // siw counts locked memory of root, too, and whole mappings are registered.
    limit_locked_memory(1 << 30);
    let place = Place::new("rdma-send");
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
fn carry(samples: &mut Samples, sink: &mut Places, lengths: &[usize]) {
    let give_up_at = Instant::now() + PATIENCE;
    let mut waiting: Vec<Sample> = lengths
        .iter()
        .enumerate()
        .map(|(at, bytes)| sample(sink.delivered + at as u64 + 1, *bytes))
        .rev()
        .collect();
    let until = sink.delivered + lengths.len() as u64;
    while sink.delivered < until || samples.sender.outstanding() > 0 {
        if let Some(next) = waiting.pop()
            && let Err(busway_transport::Refused::Full(back)) = samples.sender.send(next)
        {
            waiting.push(back);
        }
        samples.sender.flush().expect("the sender is well");
        samples.receiver.poll(sink, 1).expect("the receiver is well");
        for link in &mut samples.links {
            let _ = link.poll(Instant::now());
        }
        assert!(Instant::now() < give_up_at, "{} of {until}", sink.delivered);
    }
}

fn places(is_named: bool) -> Places {
    Places {
        memory: leaked(2 << 20),
        is_named,
        user_header: [0; 6],
        len_bytes: 0,
        delivered: 0,
    }
}

const LONG: [usize; 12] = [
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

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn long_payload_crosses_from_sample_to_sample_without_a_copy() {
    let mut samples = samples();
    let mut sink = places(true);
    carry(&mut samples, &mut sink, &LONG);
    assert_eq!(
        (samples.sender.copied(), samples.receiver.copied()),
        (Some(0), Some(0))
    );
    carry(&mut samples, &mut sink, &[10, 70_000, 2000, 100_000, 0]);
    assert_eq!(
        (samples.sender.copied(), samples.receiver.copied()),
        (Some(2), Some(2)),
        "short payload, and only that, is copied"
    );
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn long_payload_for_a_landing_without_a_name_is_copied_and_counted() {
    let mut samples = samples();
    carry(&mut samples, &mut places(false), &LONG);
    let all = Some(LONG.len() as u64);
    assert_eq!((samples.sender.copied(), samples.receiver.copied()), (all, all));
}

/// On any host: with RDMA, without it, and without its libraries.
#[test]
fn a_link_whose_host_lacks_rdma_is_refused_with_one_line_that_names_the_mend() {
    // An address that no host has (RFC 5737).
    let place = Place::at("rdma-send", "192.0.2.77:7400".parse().expect("an address"));
    let mut link = place.open(Side::Two, identity(Side::Two));
    let refused: Vec<String> = (0..200)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            match link.poll(Instant::now()) {
                Some(LinkEvent::Refused(why)) => Some(why),
                None => None,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let [why] = &refused[..] else {
        panic!("it is said once: {refused:?}");
    };
    assert_eq!(why.lines().count(), 1, "{why}");
    let mends = ["apt install libibverbs1", "rdma link", "rdma_ucm"];
    assert!(mends.iter().any(|mend| why.contains(mend)), "{why}");
    assert!(matches!(link.send_control(b"hello"), Err(OpenError::Down)));
}

/// A child process, killed at the latest when the test ends.
struct Other(Child);

impl Other {
    fn start(role: &str, place: SocketAddr) -> Other {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .args(["--include-ignored", "--exact", role])
            .env(PLACE, place.to_string())
            .spawn()
            .expect("it starts");
        Other(child)
    }

    fn kill(mut self) {
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
fn place_of_parent() -> Option<SocketAddr> {
    let text = std::env::var(PLACE).ok()?;
    Some(text.parse().expect("the parent gives an address"))
}

/// Receives for ever what the first host sends.
#[test]
#[ignore = "a role: a_killed_peer… starts it as a process of its own"]
fn role_of_a_receiver() {
    let Some(address) = place_of_parent() else { return };
    let mut link = Place::at("rdma-send", address).open(Side::Two, identity(Side::Two));
    let mut receiver = None;
    loop {
        match link.poll(Instant::now()) {
            Some(LinkEvent::Up(_)) => {
                let landing = link
                    .open_receiver(ChannelId(1), &queue(8, 4096), LANE)
                    .expect("it opens");
                link.send_control(&landing).expect("the link is up");
            }
            Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end)))) => receiver = Some(end),
            _ => {}
        }
        if let Some(end) = &mut receiver {
            end.poll(&mut Anything::default(), 100)
                .expect("the parent kills this process first");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn a_killed_peer_fails_its_channels_with_a_reason_and_the_next_process_is_served() {
    let mut pair = Pair::<RdmaSend>::empty();
    pair.start(Side::One);
    for _ in 0..2 {
        let other = Other::start("role_of_a_receiver", pair.bus.0.address());
        let landing = pair.until("the other process receives", |pair| {
            pair.host(Side::One).take_control()
        });
        let link = &mut pair.host(Side::One).link;
        link.open_sender(ChannelId(1), &queue(8, 4096), &landing, LANE)
            .expect("it opens");
        let end = pair.until("the sender is open", |pair| {
            pair.host(Side::One).take_channel(Direction::Send, ChannelId(1))
        });
        let Ok(ChannelEnd::Sender(mut sender)) = end else {
            panic!("no sender: {end:?}");
        };
        for sequence in 1..=20 {
            pair.until("there is room", |_| {
                let sent = sender.send(Buffer::new(sequence, 0, 3000)).is_ok();
                sender.flush().expect("the sender is well");
                sent.then_some(())
            });
        }
        pair.until("everything is confirmed", |_| {
            sender.flush().expect("the sender is well");
            (sender.outstanding() == 0).then_some(())
        });
        other.kill();
        let error = pair.until("the sender fails", |_| {
            let _ = sender.send(Buffer::new(21, 0, 3000));
            sender.flush().err()
        });
        assert!(
            matches!(&error, ChannelError::Io(why) if !why.to_string().is_empty()),
            "{error:?}"
        );
        pair.until("the link is down", |pair| pair.host(Side::One).take_down());
    }
}

/// May lock this much memory, as programs without privileges.
fn limit_locked_memory(len_bytes: u64) {
    let limit = Rlimit {
        current: Some(len_bytes),
        maximum: None,
    };
    setrlimit(Resource::Memlock, limit).expect("the limit is set");
}
