//! TCP only: strangers at the port, peers that send raw bytes, cut wires, several links on one
//! address.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelError, ChannelId, Direction, Head, Kind, Link, LinkEvent, OpenError, Receiver, Sender,
    Sink, Verdict,
};
use contract::harness::{Buffer, Collector, PATIENCE, latest, queue};
use contract::raw::{self, bytes_of, identity, is_up, until, went_down};

type AnyLink = Box<dyn Link<Buffer>>;

/// An address that no other test uses.
fn address() -> SocketAddr {
    static PLACES: AtomicU16 = AtomicU16::new(0);
    let [_, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id().to_be_bytes();
    SocketAddr::from(([127, process[3], process[2] | 0x80, low], 7401))
}

/// Opens a link between a host that listens and one that connects.
fn open(
    buses: &Buses,
    peer: &str,
    listens: bool,
    listen: SocketAddr,
    connect: Option<SocketAddr>,
) -> Result<Box<dyn Link<Buffer>>, OpenError> {
    let table = |is_listener: bool| {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        match connect {
            _ if is_listener => table.insert("listen".into(), listen.to_string().into()),
            Some(connect) => table.insert("connect".into(), connect.to_string().into()),
            None => None,
        };
        parse_host("tcp", toml::Value::Table(table)).expect("a good table")
    };
    let settings = link_settings("tcp", table(listens), table(!listens), listens);
    buses.open(&settings, peer)
}

/// A link of host `one`, which listens, to `two`.
fn listening(address: SocketAddr) -> Box<dyn Link<Buffer>> {
    open(&Buses::new(identity("one", 11)), "two", true, address, None).expect("the link opens")
}

/// A peer `two` of session 22 that is a plain socket.
struct RawPeer {
    address: SocketAddr,
    control: TcpStream,
}

impl RawPeer {
    fn meet(link: &mut dyn Link<Buffer>, address: SocketAddr) -> RawPeer {
        // The listener binds at the first poll.
        let mut control = None;
        while control.is_none() {
            let _ = link.poll(Instant::now());
            control = TcpStream::connect(address).ok();
        }
        let mut control = control.expect("connected");
        control.write_all(&raw::greeting()).expect("the link reads");
        until(link, is_up);
        RawPeer { address, control }
    }

    fn beat(&mut self) {
        self.control.write_all(&raw::heartbeat()).expect("the link reads");
    }

    /// Makes a channel's connection, and waits for the answer.
    fn open(
        &mut self,
        link: &mut dyn Link<Buffer>,
        direction: Direction,
        channel: u32,
        token: &[u8],
    ) -> (TcpStream, ChannelEnd<Buffer>) {
        let mut stream = self.knock(direction, channel, token, 22, 11);
        self.beat();
        let end = until(link, |event| match event {
            LinkEvent::Channel(_, ChannelId(id), end) if id == channel => Some(end),
            _ => None,
        });
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("the link answers");
        assert_eq!(&answer, raw::ANSWER);
        (stream, end.expect("the channel opens"))
    }

    fn knock(&self, direction: Direction, channel: u32, token: &[u8], from: u64, to: u64) -> TcpStream {
        let bytes = raw::opening(direction, channel, token, from, to);
        let mut stream = TcpStream::connect(self.address).expect("the link listens");
        stream.write_all(&bytes).expect("the link reads");
        stream
    }
}

/// A receiving end that a raw peer writes to.
fn raw_to_receiver() -> (AnyLink, RawPeer, TcpStream, Box<dyn Receiver>) {
    let address = address();
    let mut link = listening(address);
    let mut peer = RawPeer::meet(&mut *link, address);
    let landing = link
        .open_receiver(ChannelId(7), &queue(4, 4096), 0)
        .expect("the link is up");
    match peer.open(&mut *link, Direction::Send, 7, &landing) {
        (stream, ChannelEnd::Receiver(receiver)) => (link, peer, stream, receiver),
        _ => panic!("this side receives"),
    }
}

/// A sending end that a raw peer reads from.
fn sender_to_raw(latest_only: bool) -> (AnyLink, RawPeer, TcpStream, Box<dyn Sender<Buffer>>) {
    let address = address();
    let mut link = listening(address);
    let mut peer = RawPeer::meet(&mut *link, address);
    let spec = if latest_only { latest(4096) } else { queue(4, 4096) };
    link.open_sender(ChannelId(7), &spec, &[1; 8], 0)
        .expect("the link is up");
    match peer.open(&mut *link, Direction::Receive, 7, &[1; 8]) {
        (stream, ChannelEnd::Sender(sender)) => (link, peer, stream, sender),
        _ => panic!("this side sends"),
    }
}

fn poll_to_the_end(receiver: &mut dyn Receiver, sink: &mut dyn Sink) -> ChannelError {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        match receiver.poll(sink, 100) {
            Ok(_) => std::thread::sleep(Duration::from_micros(100)),
            Err(error) => return error,
        }
        assert!(Instant::now() < give_up_at, "the receiver does not end");
    }
}

fn flush_to_the_end(sender: &mut dyn Sender<Buffer>) -> ChannelError {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        if let Err(error) = sender.flush() {
            return error;
        }
        assert!(Instant::now() < give_up_at, "the sender does not fail");
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_message_that_comes_byte_by_byte_is_whole_in_the_end() {
    let (_link, _peer, mut stream, mut receiver) = raw_to_receiver();
    let mut sink = Collector::default();
    stream.set_nodelay(true).expect("a socket");
    for byte in bytes_of(&Buffer::new(1, 10, 100)) {
        stream.write_all(&[byte]).expect("the receiver reads");
        let _ = receiver.poll(&mut sink, 1).expect("it is well");
    }
    while sink.heads.is_empty() {
        receiver.poll(&mut sink, 1).expect("it is well");
    }
}

#[test]
fn garbage_instead_of_a_head_fails_the_receiver_after_what_came_before() {
    let (_link, _peer, mut stream, mut receiver) = raw_to_receiver();
    let mut sink = Collector::default();
    stream
        .write_all(&bytes_of(&Buffer::new(1, 0, 100)))
        .expect("the receiver reads");
    stream.write_all(&[0xee; 4000]).expect("the receiver reads");
    let error = poll_to_the_end(&mut *receiver, &mut sink);
    assert!(matches!(error, ChannelError::Corrupt(_)), "{error:?}");
    assert_eq!(sink.sequences(), [1]);
    assert!(
        matches!(receiver.poll(&mut sink, 1), Err(ChannelError::Corrupt(_))),
        "it says so again"
    );
}

#[test]
fn a_head_whose_lengths_overflow_fails_the_receiver() {
    let (_link, _peer, mut stream, mut receiver) = raw_to_receiver();
    let head = Head {
        sequence: 1,
        origin: 1,
        time_ns: 1,
        payload_bytes: u64::MAX,
        events: 0,
        user_header_bytes: 100,
        kind: Kind::Data,
    };
    stream.write_all(&head.encode()).expect("the receiver reads");
    let error = poll_to_the_end(&mut *receiver, &mut Collector::default());
    assert!(matches!(error, ChannelError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_message_without_end_can_be_discarded() {
    let (_link, _peer, mut stream, mut receiver) = raw_to_receiver();
    let mut sink = Collector {
        then: Some(Verdict::Discard),
        ..Collector::default()
    };
    let mut head = Buffer::new(1, 0, 0).head;
    head.payload_bytes = u64::MAX - 1000;
    stream.write_all(&head.encode()).expect("the receiver reads");
    for _ in 0..20 {
        stream.write_all(&[0xff; 50_000]).expect("the receiver reads");
        receiver
            .poll(&mut sink, 100)
            .expect("there is nothing wrong with it");
    }
    drop(stream);
    let error = poll_to_the_end(&mut *receiver, &mut sink);
    assert!(matches!(error, ChannelError::Io(_)), "{error:?}");
}

#[test]
fn a_peer_that_dies_within_a_message_leaves_none_and_is_no_orderly_end() {
    let (_link, _peer, mut stream, mut receiver) = raw_to_receiver();
    let mut sink = Collector::default();
    stream
        .write_all(&bytes_of(&Buffer::new(1, 0, 10)))
        .expect("the receiver reads");
    stream
        .write_all(&bytes_of(&Buffer::new(2, 0, 100_000))[..60_000])
        .expect("the receiver reads");
    drop(stream);
    let error = poll_to_the_end(&mut *receiver, &mut sink);
    assert!(matches!(error, ChannelError::Io(_)), "{error:?}");
    assert_eq!(sink.sequences(), [1]);
    assert_eq!(sink.abandoned, 1);
}

#[test]
fn a_credit_for_what_was_never_sent_fails_the_sender() {
    let (_link, _peer, mut stream, mut sender) = sender_to_raw(false);
    sender.send(Buffer::new(1, 0, 100)).expect("there is room");
    stream.write_all(&2u64.to_le_bytes()).expect("the sender reads");
    let error = flush_to_the_end(&mut *sender);
    assert!(matches!(error, ChannelError::Corrupt(_)), "{error:?}");
    assert_eq!(sender.outstanding(), 1);
}

#[test]
fn credits_that_go_back_fail_the_sender() {
    let (_link, _peer, mut stream, mut sender) = sender_to_raw(false);
    for sequence in 1..=4 {
        sender.send(Buffer::new(sequence, 0, 100)).expect("there is room");
    }
    stream
        .write_all(&[3u64.to_le_bytes(), 2u64.to_le_bytes()].concat())
        .expect("the sender reads");
    let error = flush_to_the_end(&mut *sender);
    assert!(matches!(error, ChannelError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_credit_in_two_parts_is_one_credit() {
    let (_link, _peer, mut stream, mut sender) = sender_to_raw(false);
    for sequence in 1..=4 {
        sender.send(Buffer::new(sequence, 0, 100)).expect("there is room");
    }
    let credit = 4u64.to_le_bytes();
    stream.set_nodelay(true).expect("a socket");
    stream.write_all(&credit[..3]).expect("the sender reads");
    sender.flush().expect("it is well");
    sender.flush().expect("it is well");
    stream.write_all(&credit[3..]).expect("the sender reads");
    while sender.outstanding() > 0 {
        sender.flush().expect("it is well");
    }
}

#[test]
fn a_channel_that_keeps_the_latest_has_two_on_their_way_and_one_waiting() {
    let (_link, _peer, mut stream, mut sender) = sender_to_raw(true);
    for sequence in 1..=10 {
        sender
            .send(Buffer::new(sequence, 0, 100))
            .expect("the latest is always taken");
        sender.flush().expect("it is well");
    }
    assert_eq!(sender.overwritten(), 7, "1 and 2 are on their way, 10 waits");
    assert_eq!(sender.outstanding(), 3);
    stream.write_all(&1u64.to_le_bytes()).expect("the sender reads");
    while sender.outstanding() == 3 {
        sender.flush().expect("it is well");
    }
    let mut bytes = vec![0; 3 * 148];
    stream.read_exact(&mut bytes).expect("the sender writes");
    assert_eq!(bytes[2 * 148..], bytes_of(&Buffer::new(10, 0, 100)));
}

#[test]
fn a_channel_of_another_session_or_with_another_token_joins_nothing() {
    let address = address();
    let mut link = listening(address);
    let mut peer = RawPeer::meet(&mut *link, address);
    let landing = link
        .open_receiver(ChannelId(7), &queue(4, 4096), 0)
        .expect("the link is up");
    for (token, from, to) in [(&landing[..], 21, 11), (&landing, 22, 12), (&[0; 8], 22, 11)] {
        let mut stream = peer.knock(Direction::Send, 7, token, from, to);
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("a socket");
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            peer.beat();
            let _ = link.poll(Instant::now());
            match stream.read(&mut [0; 8]) {
                Ok(0) => break,
                Ok(_) => panic!("it was answered"),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(_) => assert!(Instant::now() < give_up_at, "it was not closed"),
            }
        }
    }
    assert!(matches!(
        peer.open(&mut *link, Direction::Send, 7, &landing).1,
        ChannelEnd::Receiver(_)
    ));
}

#[test]
fn a_stranger_that_says_nothing_is_closed_and_the_link_comes_up_meanwhile() {
    let address = address();
    let mut link = listening(address);
    let _ = link.poll(Instant::now());
    let mut strangers: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(address).expect("the link listens"))
        .collect();
    let mut peer = RawPeer::meet(&mut *link, address);
    for stranger in &mut strangers {
        stranger
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("a socket");
        let give_up_at = Instant::now() + PATIENCE;
        while !matches!(stranger.read(&mut [0; 8]), Ok(0)) {
            peer.beat();
            while let Some(event) = link.poll(Instant::now()) {
                assert!(!matches!(event, LinkEvent::Down(_)), "{event:?}");
            }
            assert!(Instant::now() < give_up_at, "the stranger is still there");
        }
    }
}

#[test]
fn a_peer_that_sends_garbage_in_the_conversation_is_dropped_with_the_reason() {
    let address = address();
    let mut link = listening(address);
    let mut peer = RawPeer::meet(&mut *link, address);
    peer.control.write_all(&[0xee; 100]).expect("the link reads");
    let why = until(&mut *link, went_down);
    assert!(why.contains("two") && why.contains("no Busway frame"), "{why}");
    RawPeer::meet(&mut *link, address);
}

#[test]
fn a_server_that_is_not_busway_does_not_keep_the_link_from_coming_up_later() {
    let address = address();
    let server = TcpListener::bind(address).expect("a free address");
    let mut link =
        open(&Buses::new(identity("two", 22)), "one", false, address, None).expect("the link opens");
    let mut served = None;
    server.set_nonblocking(true).expect("a socket");
    while served.is_none() {
        assert!(link.poll(Instant::now()).is_none());
        served = server.accept().ok();
    }
    let (mut stream, _) = served.expect("the link connects");
    stream
        .write_all(b"SSH-2.0-OpenSSH_9.2\r\n")
        .expect("the link reads");
    for _ in 0..100 {
        assert!(link.poll(Instant::now()).is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((stream, server));
    let mut real = listening(address);
    std::thread::scope(|scope| {
        scope.spawn(|| until(&mut *real, is_up));
        until(&mut *link, is_up);
    });
}

#[test]
fn links_to_several_hosts_share_one_address() {
    let address = address();
    let hub = Buses::new(identity("hub", 1));
    let mut links: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|peer| open(&hub, peer, true, address, None).expect("the link opens"))
        .collect();
    assert!(
        matches!(open(&hub, "b", true, address, None), Err(OpenError::NoRoom(_))),
        "one link a host"
    );
    let mut peers: Vec<_> = ["c", "b", "a"]
        .into_iter()
        .zip(5..)
        .map(|(name, session)| {
            open(&Buses::new(identity(name, session)), "hub", false, address, None).expect("the link opens")
        })
        .collect();
    let mut met = Vec::new();
    let give_up_at = Instant::now() + PATIENCE;
    while met.len() < 3 {
        for (link, name) in links.iter_mut().zip(["a", "b", "c"]) {
            while let Some(event) = link.poll(Instant::now()) {
                if let LinkEvent::Up(hello) = event {
                    assert_eq!(hello.host, name);
                    met.push(name);
                }
            }
        }
        for link in &mut peers {
            while link.poll(Instant::now()).is_some() {}
        }
        assert!(Instant::now() < give_up_at, "only {met:?} are up");
    }
    drop(links.remove(1));
    open(&hub, "b", true, address, None).expect("the place of a link that is gone is free");
}

/// Passes bytes between the hosts; while it is cut it passes nothing, as a pulled cable.
struct Wire {
    cut: Arc<AtomicBool>,
}

impl Wire {
    fn new(here: SocketAddr, there: SocketAddr) -> Wire {
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = cut.clone();
        let listener = TcpListener::bind(here).expect("a free address");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(other) = TcpStream::connect(there) else {
                    continue;
                };
                for (from, to) in [
                    (
                        stream.try_clone().expect("a socket"),
                        other.try_clone().expect("a socket"),
                    ),
                    (other, stream),
                ] {
                    let is_cut = is_cut.clone();
                    std::thread::spawn(move || carry(from, to, &is_cut));
                }
            }
        });
        Wire { cut }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        while is_cut.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    while is_cut.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_cut_wire_is_noticed_by_both_hosts_and_the_link_comes_back_when_it_is_mended() {
    let (listen, wire_at) = (address(), address());
    let wire = Wire::new(wire_at, listen);
    let mut one = open(
        &Buses::new(identity("one", 11)),
        "two",
        true,
        listen,
        Some(wire_at),
    )
    .expect("the link opens");
    let mut two = open(
        &Buses::new(identity("two", 22)),
        "one",
        false,
        listen,
        Some(wire_at),
    )
    .expect("the link opens");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| until(&mut *one, is_up));
            until(&mut *two, is_up);
        });
        wire.cut.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let why = scope.spawn(|| until(&mut *one, went_down));
            let other_why = until(&mut *two, went_down);
            for why in [why.join().expect("no panic"), other_why] {
                assert!(why.contains("nothing heard"), "{why}");
            }
        });
        wire.cut.store(false, Ordering::Relaxed);
    }
}
