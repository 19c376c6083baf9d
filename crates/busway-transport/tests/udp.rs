//! What only UDP has: datagrams that are lost, come twice or overtake each other on a relay between two real sockets, strangers at the port,
//! paths that carry less than the host's own interface.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
#[allow(dead_code)] // A part is for other tests.
#[path = "../../../tests/src/own_network.rs"]
mod own_network;
mod udp_relay;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelError, ChannelId, ChannelSpec, Direction, Flushed, Link, LinkEvent, OpenError,
    Receiver, Refused, Sender, WaitFor,
};
use contract::harness::{Buffer, Collector, LANE, PATIENCE, latest, queue};
use contract::raw::identity;
use contract::skip;
use own_network::{in_own_network, ip};
use udp_relay::{Faults, Relay};

type AnyLink = Box<dyn Link<Buffer>>;

/// Where the port and the address begin in a landing description (src/place.rs).
const PORT_AT: usize = 6;
const ADDRESS_AT: usize = 8;
const TOKEN_AT: usize = 24;

/// An address that no other test uses.
fn address() -> SocketAddr {
    static PLACES: AtomicU16 = AtomicU16::new(0);
    let [_, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id().to_be_bytes();
    SocketAddr::from(([127, process[3], process[2] | 0x80, low], 7403))
}

/// Where the receiver waits that a landing description tells of.
fn place_of(landing: &[u8]) -> SocketAddr {
    let ip: [u8; 4] = landing[ADDRESS_AT..ADDRESS_AT + 4].try_into().expect("4 bytes");
    let port = u16::from_le_bytes([landing[PORT_AT], landing[PORT_AT + 1]]);
    SocketAddr::from((ip, port))
}

/// Host `one`, which listens, and host `two`; `settings` are added to both tables.
fn hosts(settings: &str) -> [AnyLink; 2] {
    // Nobody polls the links while a test moves a channel, which on a busy machine takes its time.
    hosts_with_timeout("60s", settings)
}

fn hosts_with_timeout(timeout: &str, settings: &str) -> [AnyLink; 2] {
    let address = address();
    let own = [
        format!("listen = '{address}'\n"),
        format!("address = '{}'\n", address.ip()),
    ];
    let table = |at: usize| {
        let text = format!("heartbeat = '20ms'\ntimeout = '{timeout}'\n{}{settings}", own[at]);
        parse_host("udp", toml::from_str(&text).expect("TOML")).expect("a good table")
    };
    let mut links = [("one", "two", 11), ("two", "one", 22)].map(|(host, peer, session)| {
        let at = usize::from(host == "two");
        let settings = link_settings("udp", table(at), table(1 - at), at == 0);
        Buses::new(identity(host, session))
            .open(&settings, peer)
            .expect("the link opens")
    });
    let mut up = [false; 2];
    poll_until(&mut links, |at, event| {
        up[at] |= matches!(event, LinkEvent::Up(_));
        up == [true; 2]
    });
    links
}

/// Polls both links until `done` says so.
fn poll_until(links: &mut [AnyLink; 2], mut done: impl FnMut(usize, LinkEvent<Buffer>) -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        for (at, link) in links.iter_mut().enumerate() {
            while let Some(event) = link.poll(Instant::now()) {
                if done(at, event) {
                    return;
                }
            }
        }
        assert!(Instant::now() < give_up_at, "waited in vain for an event");
        std::thread::sleep(Duration::from_micros(100));
    }
}

struct Channel {
    sender: Box<dyn Sender<Buffer>>,
    receiver: Box<dyn Receiver>,
    sink: Collector,
    relay: Relay,
    landing: Vec<u8>,
}

/// Opens a channel from host `one` to host `two` whose datagrams go over a relay.
fn open(links: &mut [AnyLink; 2], id: u32, spec: &ChannelSpec, faults: Faults, seed: u64) -> Channel {
    let id = ChannelId(id);
    let mut landing = links[1]
        .open_receiver(id, spec, LANE)
        .expect("the receiver opens");
    let relay = Relay::start(place_of(&landing), faults, seed);
    let real = landing.clone();
    landing[PORT_AT..PORT_AT + 2].copy_from_slice(&relay.address.port().to_le_bytes());
    links[0]
        .open_sender(id, spec, &landing, LANE)
        .expect("the sender opens");
    let (mut sender, mut receiver) = (None, None);
    let mut sink = Collector::default();
    let give_up_at = Instant::now() + PATIENCE;
    while sender.is_none() || receiver.is_none() {
        for link in links.iter_mut() {
            match link.poll(Instant::now()) {
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end)))) => sender = Some(end),
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end)))) => receiver = Some(end),
                None => {}
                other => panic!("{other:?}"),
            }
        }
        // As a lane does: an opening is repeated whose answer was lost, and the receiver answers it again.
        if let Some(receiver) = &mut receiver {
            receiver
                .poll(&mut sink, usize::MAX)
                .expect("the receiver is well");
        }
        assert!(Instant::now() < give_up_at, "waited in vain for the channel");
        std::thread::sleep(Duration::from_micros(100));
    }
    Channel {
        sender: sender.expect("both are there"),
        receiver: receiver.expect("both are there"),
        sink,
        relay,
        landing: real,
    }
}

impl Channel {
    fn turn(&mut self) {
        self.sender.flush().expect("the sender is well");
        let budget = usize::MAX;
        let delivered = self.receiver.poll(&mut self.sink, budget);
        if delivered.expect("the receiver is well") == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn send(&mut self, message: Buffer) {
        let give_up_at = Instant::now() + PATIENCE;
        let mut message = message;
        loop {
            match self.sender.send(message) {
                Ok(()) => return,
                Err(Refused::Full(back)) => message = back,
                Err(other) => panic!("{other:?}"),
            }
            assert!(Instant::now() < give_up_at, "the channel stays full");
            self.turn();
        }
    }

    /// Until the receiver has taken, or given up, everything.
    fn settle(&mut self) {
        let give_up_at = Instant::now() + PATIENCE;
        while self.sender.outstanding() > 0 {
            self.turn();
            assert!(
                Instant::now() < give_up_at,
                "{} messages are stuck",
                self.sender.outstanding()
            );
        }
    }

    /// Sends messages of mixed sizes, and settles.
    fn send_all(&mut self, count: u64) {
        for sequence in 1..=count {
            let size = [64, 900, 3000, 40_000][sequence as usize % 4] + sequence as usize % 7;
            self.send(Buffer::new(sequence, sequence as usize % 9, size));
        }
        self.settle();
    }
}

const BAD: Faults = Faults {
    lost: 5,
    repeated: 5,
    overtaken: 10,
    swallowed_from: 0,
};

#[test]
fn reliable_channel_survives_loss_repetition_and_reordering() {
    let mut links = hosts("mtu = 1500");
    for seed in 1..=6 {
        let mut channel = open(&mut links, seed as u32, &queue(16, 40_000), BAD, seed);
        channel.send_all(300);
        assert_eq!(channel.sink.sequences(), (1..=300).collect::<Vec<_>>());
        assert_eq!(channel.sink.abandoned, 0);
        assert!(
            channel.relay.swallowed.load(Ordering::Relaxed) > 10,
            "the relay has lost something"
        );
    }
}

#[test]
fn reliable_channel_survives_an_interrupted_path() {
    let mut links = hosts("mtu = 1500");
    let mut channel = open(&mut links, 1, &queue(16, 40_000), Faults::default(), 1);
    for round in 0..3u64 {
        channel.relay.is_cut.store(true, Ordering::Relaxed);
        for sequence in 1..=10 {
            channel.send(Buffer::new(round * 10 + sequence, 0, 5000));
        }
        channel.sender.flush().expect("the sender is well");
        std::thread::sleep(Duration::from_millis(100));
        channel.relay.is_cut.store(false, Ordering::Relaxed);
        channel.settle();
    }
    assert_eq!(channel.sink.sequences(), (1..=30).collect::<Vec<_>>());
}

#[test]
fn dropped_sender_delivers_over_a_lossy_path() {
    let mut links = hosts("mtu = 1500");
    for seed in 1..=5 {
        let Channel {
            mut sender,
            mut receiver,
            mut sink,
            relay,
            ..
        } = open(&mut links, seed as u32, &queue(32, 10_000), BAD, seed);
        for sequence in 1..=20 {
            sender
                .send(Buffer::new(sequence, 0, 10_000))
                .expect("there is room");
        }
        drop(sender);
        links[0].close(Direction::Send, ChannelId(seed as u32));
        let give_up_at = Instant::now() + PATIENCE;
        let ending = loop {
            links
                .iter_mut()
                .for_each(|link| assert!(link.poll(Instant::now()).is_none()));
            if let Err(ending) = receiver.poll(&mut sink, usize::MAX) {
                break ending;
            }
            assert!(Instant::now() < give_up_at, "the channel does not end");
        };
        assert!(matches!(ending, ChannelError::Closed), "{ending}");
        assert_eq!(sink.sequences(), (1..=20).collect::<Vec<_>>());
        drop(relay);
    }
}

#[test]
fn best_effort_delivers_the_rest_in_order() {
    let mut links = hosts("mtu = 1500\ndelivery = 'best-effort'");
    let faults = Faults { lost: 3, ..BAD };
    for seed in 1..=6 {
        let mut channel = open(&mut links, seed as u32, &queue(16, 40_000), faults, seed);
        channel.send_all(300);
        let sequences = channel.sink.sequences();
        assert!(sequences.is_sorted_by(|a, b| a < b), "in order, none twice");
        assert!(
            sequences.len() > 20 && sequences.len() < 300,
            "{} of 300",
            sequences.len()
        );
    }
}

#[test]
fn best_effort_gaps_equal_the_lost_messages() {
    let mut links = hosts("mtu = 1500\ndelivery = 'best-effort'");
    let faults = Faults {
        lost: 5,
        ..Default::default()
    };
    for seed in 1..=6 {
        let mut channel = open(&mut links, seed as u32, &queue(1, 1000), faults, seed);
        // One message is one datagram here: each waits until the one before is taken or given up.
        let (mut lost, mut before) = (0, 0);
        for sequence in 1..=400 {
            channel.send(Buffer::new(sequence, 0, 1000));
            channel.settle();
            let delivered = channel.sink.heads.len();
            lost += u64::from(delivered == before);
            before = delivered;
        }
        let mut last = 0;
        let mut gaps = 0;
        for head in &channel.sink.heads {
            gaps += head.sequence - last - 1;
            last = head.sequence;
        }
        assert_eq!(gaps + (400 - last), lost);
        assert!(lost > 0, "the relay has lost something");
        assert_eq!(channel.sink.abandoned, 0);
    }
}

/// As for a program without privileges, whose sockets get small buffers.
#[test]
fn small_socket_buffer_loses_no_message_before_poll() {
    let mut links = hosts("window = '128KiB'\ndelivery = 'best-effort'");
    let mut channel = open(&mut links, 1, &queue(1024, 64), Faults::default(), 1);
    let WaitFor::Fd { fd, .. } = channel.receiver.wait_for() else {
        panic!("a receiver over UDP has a descriptor");
    };
    // SAFETY: the receiver has it open, and outlives this.
    #[allow(unsafe_code)]
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    // The kernel doubles it, and gives a window of a quarter of that.
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, 2 * (128 << 10)).expect("a socket");
    for sequence in 1..=1000 {
        let mut message = Buffer::new(sequence, 0, 64);
        while let Err(Refused::Full(back)) = channel.sender.send(message) {
            message = back;
            channel.turn();
        }
        // Each leaves by itself, and none is taken.
        channel.sender.flush().expect("the sender is well");
    }
    channel.settle();
    assert_eq!(channel.sink.sequences(), (1..=1000).collect::<Vec<_>>());
}

#[test]
fn sampling_over_a_lossy_path_never_goes_back() {
    let mut links = hosts("mtu = 1500");
    for seed in 1..=4 {
        let mut channel = open(&mut links, seed as u32, &latest(5000), BAD, seed);
        let give_up_at = Instant::now() + PATIENCE;
        let mut sequence = 0;
        while channel.sink.heads.len() < 100 {
            sequence += 1;
            channel.send(Buffer::new(sequence, 2, 200 + sequence as usize % 4000));
            if sequence % 3 == 0 {
                channel.turn();
            }
            assert!(
                Instant::now() < give_up_at,
                "{} samples came",
                channel.sink.heads.len()
            );
        }
        while channel.sender.flush().expect("the sender is well") == Flushed::Waiting {
            channel.turn();
        }
        channel.settle();
        let sequences = channel.sink.sequences();
        assert!(sequences.is_sorted_by(|a, b| a < b));
    }
}

#[test]
fn path_that_drops_long_datagrams_gets_short_ones() {
    let mut links = hosts("");
    let faults = Faults {
        swallowed_from: 1472,
        ..Default::default()
    };
    let mut channel = open(&mut links, 1, &queue(8, 40_000), faults, 1);
    channel.send_all(100);
    assert_eq!(channel.sink.sequences(), (1..=100).collect::<Vec<_>>());
}

#[test]
fn datagrams_shrink_with_the_path_mtu() {
    in_own_network(|| {
        let carry = |mtu: &str| ip(&format!("link set lo up mtu {mtu}"));
        for delivery in ["reliable", "best-effort"] {
            carry("9000");
            let mut links = hosts(&format!("delivery = '{delivery}'"));
            let mut channel = open(&mut links, 1, &queue(8, 40_000), Faults::default(), 1);
            for (round, mtu) in ["9000", "4000", "1400"].into_iter().enumerate() {
                carry(mtu);
                for sequence in 1..=50 {
                    channel.send(Buffer::new(round as u64 * 50 + sequence, 3, 20_000));
                    channel.turn();
                }
                channel.settle();
            }
            let sequences = channel.sink.sequences();
            assert!(sequences.is_sorted_by(|a, b| a < b));
            assert!(delivery != "reliable" || sequences == (1..=150).collect::<Vec<_>>());
            assert!(
                sequences.len() > 100,
                "{} of 150 came by {delivery}",
                sequences.len()
            );
        }
    });
}

#[test]
fn blocked_datagrams_take_the_link_down_until_they_pass() {
    in_own_network(|| {
        let mut links = hosts_with_timeout("500ms", "");
        for _ in 0..2 {
            let mut channel = open(&mut links, 1, &queue(8, 4000), Faults::default(), 1);
            channel.send_all(10);
            assert_eq!(channel.sink.sequences(), (1..=10).collect::<Vec<_>>());
            let drop = std::process::Command::new("ip")
                .args("rule add pref 1 ipproto udp blackhole".split(' '))
                .status();
            if !drop.is_ok_and(|status| status.success()) {
                return skip::skipped("rules by protocol (`ip rule add ipproto udp`), to drop datagrams");
            }
            // The table of the host's own addresses comes first otherwise.
            ip("rule add pref 2 lookup local");
            ip("rule del pref 0");
            let mut whys = [None, None];
            poll_until(&mut links, |at, event| {
                if let LinkEvent::Down(why) = event {
                    whys[at] = Some(why);
                }
                whys.iter().all(Option::is_some)
            });
            let is_named =
                |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains("keep UDP out?"));
            assert!(whys.iter().any(is_named), "{whys:?}");
            let refused = links[0].open_receiver(ChannelId(2), &queue(8, 64), LANE);
            assert!(matches!(refused, Err(OpenError::Down)), "{refused:?}");
            let mut refusals = 0;
            poll_until(&mut links, |at, event| {
                assert!(matches!(event, LinkEvent::Refused(_)), "{at}: {event:?}");
                refusals += 1;
                refusals == 2
            });
            ip("rule del pref 1");
            let mut up = [false; 2];
            poll_until(&mut links, |at, event| {
                up[at] |= matches!(event, LinkEvent::Up(_));
                up == [true; 2]
            });
            ip("rule add pref 0 lookup local");
            ip("rule del pref 2");
        }
    });
}

#[test]
fn foreign_datagrams_open_and_disturb_nothing() {
    let mut links = hosts("");
    let mut channel = open(&mut links, 1, &queue(8, 4000), Faults::default(), 1);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let place = place_of(&channel.landing);
    for sequence in 1..=100u64 {
        // Even one who knows the token: the channel belongs to the socket that opened it.
        let mut bytes = channel.landing[TOKEN_AT..TOKEN_AT + 8].to_vec();
        bytes.extend([(sequence % 7) as u8, 1]);
        bytes.resize(40 + sequence as usize, 0x55);
        stranger.send_to(&bytes, place).expect("loopback");
        channel.send(Buffer::new(sequence, 0, 3000));
        channel.settle();
    }
    assert_eq!(channel.sink.sequences(), (1..=100).collect::<Vec<_>>());

    // Whoever knows the place but not the token does not become the sender.
    let landing = links[1]
        .open_receiver(ChannelId(2), &queue(8, 64), LANE)
        .expect("room");
    let mut open = [0; 32];
    (open[8], open[12], open[16], open[24]) = (5, 2, 11, 22);
    stranger.send_to(&open, place_of(&landing)).expect("loopback");
    for _ in 0..50 {
        assert!(links[1].poll(Instant::now()).is_none(), "nothing has opened");
        std::thread::sleep(Duration::from_millis(1));
    }
}
