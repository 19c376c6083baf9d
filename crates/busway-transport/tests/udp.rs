//! UDP only: datagrams that a relay between two real sockets loses, repeats or reorders, datagrams
//! of others, and paths that carry less than the host's own interface.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
#[allow(dead_code)] // A part is for other tests.
#[path = "../../../tests/src/own_network.rs"]
mod own_network;
mod udp_links;
mod udp_relay;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use busway_buses::Buses;
use busway_transport::{
    ChannelError, ChannelId, ChannelSpec, Direction, Flushed, LinkEvent, OpenError, Refused, WaitFor,
};
use contract::harness::{self, Buffer, Collector, LANE, PATIENCE, latest, queue};
use contract::raw::identity;
use contract::skip;
use own_network::{in_own_network, ip};
use udp_links::{Links, open_channel, open_links, poll_until, wait_up};
use udp_relay::{Faults, Relay};

/// Offsets of port, address and token in a landing description (src/session/landing.rs).
const PORT_AT: usize = 6;
const ADDRESS_AT: usize = 8;
const TOKEN_AT: usize = 24;

/// An address that no other test uses.
fn address() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [_, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id().to_be_bytes();
    SocketAddr::from(([127, process[3], process[2] | 0x80, low], 7403))
}

/// The receiver's address in a landing description.
fn address_of(landing: &[u8]) -> SocketAddr {
    let ip: [u8; 4] = landing[ADDRESS_AT..ADDRESS_AT + 4].try_into().expect("4 bytes");
    let port = u16::from_le_bytes([landing[PORT_AT], landing[PORT_AT + 1]]);
    SocketAddr::from((ip, port))
}

/// Hosts `one` and `two`; `settings` are added to both tables.
fn hosts(settings: &str) -> Links<Buffer> {
    // No test polls the links while it moves a channel, which takes long on a busy machine.
    hosts_with_timeout("60s", settings)
}

fn hosts_with_timeout(timeout: &str, settings: &str) -> Links<Buffer> {
    let buses = [("one", 11), ("two", 22)].map(|(host, session)| Buses::new(identity(host, session)));
    let settings = format!("timeout = '{timeout}'\n{settings}");
    open_links([&buses[0], &buses[1]], ["one", "two"], address(), &settings)
}

/// A channel whose datagrams pass a relay.
struct Channel {
    ends: harness::Channel,
    relay: Relay,
    /// The description that the receiver has given.
    landing: Vec<u8>,
}

/// Opens a channel from host `one` to host `two` over a relay.
fn open(links: &mut Links<Buffer>, id: u32, spec: &ChannelSpec, faults: Faults, seed: u64) -> Channel {
    let id = ChannelId(id);
    let mut sink = Collector::default();
    let (mut landing, mut relay) = (Vec::new(), None);
    let (sender, receiver) = open_channel(links, id, spec, &mut sink, |description| {
        landing.clone_from(description);
        let started = Relay::start(address_of(description), faults, seed);
        description[PORT_AT..PORT_AT + 2].copy_from_slice(&started.address.port().to_le_bytes());
        relay = Some(started);
    });
    Channel {
        ends: harness::Channel {
            sender,
            receiver,
            sink,
            id,
        },
        relay: relay.expect("it was started above"),
        landing,
    }
}

impl std::ops::Deref for Channel {
    type Target = harness::Channel;
    fn deref(&self) -> &harness::Channel {
        &self.ends
    }
}

impl std::ops::DerefMut for Channel {
    fn deref_mut(&mut self) -> &mut harness::Channel {
        &mut self.ends
    }
}

impl Channel {
    /// Moves the channel on until the receiver has taken or abandoned everything.
    fn settle(&mut self) {
        let fails_at = Instant::now() + PATIENCE;
        while self.sender.outstanding() > 0 {
            self.turn();
            let left = self.sender.outstanding();
            assert!(Instant::now() < fails_at, "{left} messages are stuck");
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

    /// Checks that the first `count` messages arrived, in order.
    fn assert_complete(&self, count: u64) {
        assert_eq!(self.sink.sequences(), (1..=count).collect::<Vec<_>>());
    }

    /// Checks that what arrived is in order, none twice; returns how many messages it is.
    fn assert_ordered(&self) -> usize {
        let sequences = self.sink.sequences();
        assert!(sequences.is_sorted_by(|a, b| a < b));
        sequences.len()
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
        channel.assert_complete(300);
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
    channel.assert_complete(30);
}

#[test]
fn dropped_sender_delivers_over_a_lossy_path() {
    let mut links = hosts("mtu = 1500");
    for seed in 1..=5 {
        let Channel { ends, relay, .. } = open(&mut links, seed as u32, &queue(32, 10_000), BAD, seed);
        let harness::Channel {
            mut sender,
            mut receiver,
            mut sink,
            id,
        } = ends;
        for sequence in 1..=20 {
            sender
                .send(Buffer::new(sequence, 0, 10_000))
                .expect("there is room");
        }
        drop(sender);
        links[0].close(Direction::Send, id);
        let fails_at = Instant::now() + PATIENCE;
        let ending = loop {
            links
                .iter_mut()
                .for_each(|link| assert!(link.poll(Instant::now()).is_none()));
            if let Err(ending) = receiver.poll(&mut sink, usize::MAX) {
                break ending;
            }
            assert!(Instant::now() < fails_at, "the channel does not end");
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
        let arrived = channel.assert_ordered();
        assert!(arrived > 20 && arrived < 300, "{arrived} of 300");
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
        // One message is one datagram here: each waits until the one before is taken or abandoned.
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

/// As in a program without privileges, whose socket buffers are small.
#[test]
fn small_socket_buffer_loses_no_message_before_poll() {
    let mut links = hosts("window = '128KiB'\ndelivery = 'best-effort'");
    let mut channel = open(&mut links, 1, &queue(1024, 64), Faults::default(), 1);
    let WaitFor::Fd { fd, .. } = channel.receiver.wait_for() else {
        panic!("a receiver over UDP has a descriptor");
    };
    // SAFETY: the receiver has it open and outlives this.
    #[allow(unsafe_code)]
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    // The kernel doubles it; the window is a quarter of that.
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, 2 * (128 << 10)).expect("a socket");
    for sequence in 1..=1000 {
        let mut message = Buffer::new(sequence, 0, 64);
        while let Err(Refused::Full(back)) = channel.sender.send(message) {
            message = back;
            channel.turn();
        }
        // Each leaves alone, and none is taken.
        channel.sender.flush().expect("the sender is well");
    }
    channel.settle();
    channel.assert_complete(1000);
}

#[test]
fn sampling_over_a_lossy_path_never_goes_back() {
    let mut links = hosts("mtu = 1500");
    for seed in 1..=4 {
        let mut channel = open(&mut links, seed as u32, &latest(5000), BAD, seed);
        let fails_at = Instant::now() + PATIENCE;
        let mut sequence = 0;
        while channel.sink.heads.len() < 100 {
            sequence += 1;
            channel.send(Buffer::new(sequence, 2, 200 + sequence as usize % 4000));
            if sequence % 3 == 0 {
                channel.turn();
            }
            assert!(
                Instant::now() < fails_at,
                "{} samples came",
                channel.sink.heads.len()
            );
        }
        while channel.sender.flush().expect("the sender is well") == Flushed::Waiting {
            channel.turn();
        }
        channel.settle();
        channel.assert_ordered();
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
    channel.assert_complete(100);
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
            let arrived = channel.assert_ordered();
            assert!(delivery != "reliable" || arrived == 150);
            assert!(arrived > 100, "{arrived} of 150 arrived by {delivery}");
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
            channel.assert_complete(10);
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
            wait_up(&mut links);
            ip("rule add pref 0 lookup local");
            ip("rule del pref 2");
        }
    });
}

#[test]
fn foreign_datagrams_open_and_disturb_nothing() {
    let mut links = hosts("");
    let mut channel = open(&mut links, 1, &queue(8, 4000), Faults::default(), 1);
    let other = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = address_of(&channel.landing);
    for sequence in 1..=100u64 {
        // Not even one with the token: the channel belongs to the socket that opened it.
        let mut bytes = channel.landing[TOKEN_AT..TOKEN_AT + 8].to_vec();
        bytes.extend([(sequence % 7) as u8, 1]);
        bytes.resize(40 + sequence as usize, 0x55);
        other.send_to(&bytes, address).expect("loopback");
        channel.send(Buffer::new(sequence, 0, 3000));
        channel.settle();
    }
    channel.assert_complete(100);

    // Knowing the address but not the token does not open a channel.
    let landing = links[1]
        .open_receiver(ChannelId(2), &queue(8, 64), LANE)
        .expect("room");
    let mut open = [0; 32];
    (open[8], open[12], open[16], open[24]) = (5, 2, 11, 22);
    other.send_to(&open, address_of(&landing)).expect("loopback");
    for _ in 0..50 {
        assert!(links[1].poll(Instant::now()).is_none(), "nothing has opened");
        std::thread::sleep(Duration::from_millis(1));
    }
}
