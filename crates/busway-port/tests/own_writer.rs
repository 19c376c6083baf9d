//! A process of a partition that writes registers of another host's store itself, and the gateway
//! that lets it: who gets a ticket, what leaves, and what survives failures. The device is one of
//! this test, which takes messages instead of posting WRITEs; the rest is the real thing.
#![cfg(not(loom))]
#![allow(unsafe_code)] // Forks a process.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use busway_port::carry::{WriterDesk, WriterEvent};
use busway_port::peer_clock::PeerClock;
use busway_port::{
    ChannelConfig, Clock, Direction, FarPort, Module, Partition, PartitionConfig, PortConfig, PortKind,
    PortRef, Store,
};
use busway_transport::contract::{
    ChannelError, ChannelId, Dialled, Flushed, Head, NoMessage, OpenError, Refused, RegisterDevice,
    RegisterDevicePlace, RegisterTicket, Sender, SourceNumbers, WaitFor,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

const LIMIT: Duration = Duration::from_secs(20);
const LINK: u32 = 3;
const ORIGIN: u64 = 77;

/// What the other host has got, and what its network does.
#[derive(Default)]
struct Far {
    /// Numbers, stamps and bytes.
    taken: Vec<(u64, u64, Vec<u8>)>,
    dialled: Vec<RegisterTicket>,
    /// Queue pairs that exist.
    open: usize,
    is_full: bool,
    has_failed: bool,
    refuses: bool,
    has_no_device: bool,
}

type Shared = Arc<Mutex<Far>>;

fn far(shared: &Shared) -> MutexGuard<'_, Far> {
    shared.lock().expect("nobody panics")
}

struct FakeSender(Shared);

impl Sender<NoMessage> for FakeSender {
    fn send(&mut self, message: NoMessage) -> Result<(), Refused<NoMessage>> {
        match message {}
    }
    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let far = far(&self.0);
        match (far.has_failed, far.is_full) {
            (true, _) => Err(ChannelError::Closed),
            (_, true) => Ok(Flushed::Waiting),
            _ => Ok(Flushed::Idle),
        }
    }
    fn has_room(&mut self, _: u64) -> bool {
        true
    }
    fn outstanding(&self) -> u64 {
        0
    }
    fn overwritten(&self) -> u64 {
        0
    }
    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
    fn copy_out(&mut self, head: &Head, payload: &[u8]) -> Result<bool, ChannelError> {
        let mut far = far(&self.0);
        if far.has_failed {
            return Err(ChannelError::Closed);
        }
        let is_new = far
            .taken
            .last()
            .is_none_or(|(number, ..)| head.sequence > *number);
        if !far.is_full && is_new {
            assert_eq!(head.origin, ORIGIN);
            far.taken.push((head.sequence, head.time_ns, payload.to_vec()));
        }
        Ok(!far.is_full)
    }
}

impl Drop for FakeSender {
    fn drop(&mut self) {
        far(&self.0).open -= 1;
    }
}

struct FakeDevice {
    shared: Shared,
    done: VecDeque<Dialled>,
    wake: OwnedFd,
}

impl RegisterDevice for FakeDevice {
    fn dial(&mut self, ticket: &RegisterTicket) -> Result<(), OpenError> {
        let mut far = far(&self.shared);
        far.dialled.push(ticket.clone());
        let result = if far.refuses {
            Err("the peer refused the connection".into())
        } else {
            far.open += 1;
            Ok(Box::new(FakeSender(self.shared.clone())) as _)
        };
        drop(far);
        self.done.push_back((ticket.channel, result));
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("it counts");
        Ok(())
    }
    fn abandon(&mut self, channel: ChannelId) {
        self.done.retain(|(of, _)| *of != channel);
    }
    fn poll(&mut self, _: Instant) -> Option<Dialled> {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        self.done.pop_front()
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
    fn poll_within(&self, _: Instant) -> Option<Duration> {
        None
    }
    fn is_removed(&self) -> bool {
        false
    }
}

fn place(shared: &Shared) -> RegisterDevicePlace {
    let shared = shared.clone();
    RegisterDevicePlace::new("192.0.2.1".into(), move || {
        if far(&shared).has_no_device {
            return Err(OpenError::NoRoom("no such device".into()));
        }
        Ok(Box::new(FakeDevice {
            shared: shared.clone(),
            done: VecDeque::new(),
            wake: eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"),
        }))
    })
}

fn port() -> PortRef {
    PortRef::new("/other", "P")
}

struct Host {
    directory: tempfile::TempDir,
    store: Store,
    shared: Shared,
    /// The partition that stands for the other host, as the gateway has it.
    gateway: Partition,
}

impl Host {
    fn new(clock: busway_system::Clock) -> Host {
        let shared = Shared::default();
        let partition = |name: &str, direction| PartitionConfig {
            name: name.into(),
            identifier: 1,
            ports: vec![PortConfig::new("P", direction, 64, PortKind::SAMPLING)],
        };
        let channel = ChannelConfig {
            own_writers: vec![FarPort {
                port: port(),
                devices: vec![(LINK as usize, place(&shared))],
                clock,
            }],
            ..ChannelConfig::new("c", PortRef::new("source", "P"), vec![port()])
        };
        let module = Module {
            partitions: vec![
                partition("source", Direction::Source),
                partition("/other", Direction::Destination),
            ],
            channels: vec![channel],
        };
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = Store::open(directory.path(), module).expect("a store");
        let gateway = store.join("/other").expect("a place");
        Host {
            directory,
            store,
            shared,
            gateway,
        }
    }

    fn desk(&self) -> WriterDesk {
        WriterDesk::open(self.directory.path()).expect("a socket")
    }

    fn source(&self) -> Partition {
        self.store.join("source").expect("a place")
    }

    fn far(&self) -> MutexGuard<'_, Far> {
        far(&self.shared)
    }

    /// Waits until the other host has this message, as its newest.
    fn until_taken(&self, message: &[u8]) {
        until("the message arrives", || {
            let far = self.far();
            let newest = far.taken.last();
            newest.is_some_and(|(_, _, bytes)| bytes == message).then_some(())
        });
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up_at, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write(partition: &Partition, message: &[u8]) {
    let port = partition.sampling_source("P").expect("configured");
    port.write(message).expect("a source port");
}

fn event(desk: &mut WriterDesk, wanted: impl Fn(&WriterEvent) -> bool) -> WriterEvent {
    until("the event", || desk.poll().into_iter().find(&wanted))
}

fn ticket(channel: u32) -> RegisterTicket {
    RegisterTicket {
        channel: ChannelId(channel),
        session: 1,
        peer_session: 2,
        landing: vec![channel as u8; 90],
        source: SourceNumbers {
            origin: ORIGIN,
            newest: 0,
        },
    }
}

/// Lets a process connect; returns its number and its ticket's.
fn connected(desk: &mut WriterDesk, channel: u32) -> (u64, u64) {
    let client = until("a process can write", || {
        desk.poll();
        desk.candidate(&port(), LINK).ok()
    });
    let number = desk.connect(client, &port(), LINK, &ticket(channel));
    let number = number.expect("the process is there");
    let expected = WriterEvent::Connected {
        port: port(),
        ticket: number,
    };
    event(desk, |event| *event == expected);
    (client, number)
}

#[test]
fn process_with_a_device_offers_itself_and_writes_once_it_has_a_ticket() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    assert!(desk.candidate(&port(), LINK).is_err(), "nobody is there");
    let source = host.source();
    event(&mut desk, |event| *event == WriterEvent::Able(port()));
    assert!(desk.candidate(&port(), LINK + 1).is_err(), "over that link only");
    write(&source, b"before");
    connected(&mut desk, 9);
    // The newest message is not lost because it was written before.
    host.until_taken(b"before");
    for number in 2..=100_u64 {
        write(&source, &number.to_le_bytes());
    }
    host.until_taken(&100_u64.to_le_bytes());
    let far = host.far();
    let numbers: Vec<u64> = far.taken.iter().map(|(number, ..)| *number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let dialled = &far.dialled[0];
    assert_eq!(dialled.landing, ticket(9).landing);
    assert_eq!((dialled.session, dialled.peer_session), (1, 2));
    let expected = SourceNumbers {
        origin: ORIGIN,
        newest: 1,
    };
    assert_eq!(dialled.source, expected);
    let age_ns = Clock::Tai.now_ns() - far.taken[0].1 as i64;
    assert!(
        (0..LIMIT.as_nanos() as i64).contains(&age_ns),
        "CLOCK_TAI: {age_ns} ns old"
    );
}

#[test]
fn stamps_are_the_other_hosts_by_the_gateways_estimate() {
    let host = Host::new(busway_system::Clock::Estimated);
    let mut desk = host.desk();
    let source = host.source();
    connected(&mut desk, 1);
    write(&source, b"unknown");
    std::thread::sleep(Duration::from_millis(20));
    assert!(host.far().taken.is_empty(), "it cannot be stamped yet");
    let (before_ns, ahead_ns, error_ns) = (Clock::Monotonic.now_ns(), 1_000_000_000_000, 5_000_000);
    host.gateway.set_peer_clock(PeerClock {
        offset_ns: ahead_ns,
        error_ns,
        at_ns: before_ns,
    });
    host.until_taken(b"unknown");
    write(&source, b"known");
    host.until_taken(b"known");
    let stamp_ns = host.far().taken[1].1 as i64;
    let here_ns = stamp_ns - ahead_ns;
    let now_ns = Clock::Monotonic.now_ns();
    assert!(here_ns <= now_ns - error_ns, "set back by the error");
    assert!(here_ns >= before_ns - error_ns - LIMIT.as_nanos() as i64);
}

#[test]
fn newest_message_waits_for_room_and_the_writer_does_not() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    connected(&mut desk, 1);
    write(&source, b"first");
    host.until_taken(b"first");
    host.far().is_full = true;
    for message in [b"second", b"third.", b"fourth"] {
        write(&source, message);
    }
    host.far().is_full = false;
    host.until_taken(b"fourth");
    let far = host.far();
    assert_eq!((far.taken[0].0, far.taken.last().expect("one").0), (1, 4));
}

#[test]
fn message_of_another_process_of_the_partition_leaves_by_the_one_with_the_queue_pair() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let first = host.source();
    let (client, _) = connected(&mut desk, 1);
    let second = host.source();
    for number in 1..=50_u64 {
        write(&second, &number.to_le_bytes());
        host.until_taken(&number.to_le_bytes());
    }
    assert_eq!(host.far().open, 1);
    // When the first one goes, the second one is there.
    drop(first);
    event(&mut desk, |event| *event == WriterEvent::Gone(client));
    assert_eq!(host.far().open, 0);
    connected(&mut desk, 2);
    write(&second, b"by itself");
    host.until_taken(b"by itself");
}

#[test]
fn failed_queue_pair_is_reported_and_the_next_ticket_gets_the_newest_message() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    let (_, number) = connected(&mut desk, 1);
    host.far().has_failed = true;
    write(&source, b"lost at first");
    let ended = event(&mut desk, |event| matches!(event, WriterEvent::Ended { .. }));
    let expected = WriterEvent::Ended {
        port: port(),
        ticket: number,
        why: ChannelError::Closed.to_string(),
    };
    assert_eq!(ended, expected);
    assert_eq!(host.far().open, 0);
    host.far().has_failed = false;
    connected(&mut desk, 2);
    host.until_taken(b"lost at first");
}

#[test]
fn refused_connection_is_reported_with_its_reason() {
    let host = Host::new(busway_system::Clock::Ptp);
    host.far().refuses = true;
    let mut desk = host.desk();
    let _source = host.source();
    event(&mut desk, |event| *event == WriterEvent::Able(port()));
    let client = desk.candidate(&port(), LINK).expect("it can");
    desk.connect(client, &port(), LINK, &ticket(1))
        .expect("it is there");
    let ended = event(&mut desk, |event| matches!(event, WriterEvent::Ended { .. }));
    assert!(matches!(ended, WriterEvent::Ended { why, .. } if why.contains("refused")));
    desk.set_unable(client, &port(), LINK, "refused".into());
    assert_eq!(desk.candidate(&port(), LINK), Err("refused".into()));
    assert!(desk.forget_failure(client, &port(), LINK));
    assert_eq!(desk.candidate(&port(), LINK), Ok(client));
}

#[test]
fn process_without_the_device_says_why_and_offers_itself_once_it_is_there() {
    let host = Host::new(busway_system::Clock::Ptp);
    host.far().has_no_device = true;
    let mut desk = host.desk();
    let _source = host.source();
    until("the reason is known", || {
        desk.poll();
        let why = desk.candidate(&port(), LINK).expect_err("there is no device");
        why.contains("no such device").then_some(())
    });
    host.far().has_no_device = false;
    event(&mut desk, |event| *event == WriterEvent::Able(port()));
}

#[test]
fn process_writes_on_without_a_gateway_and_obeys_the_next_one() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    connected(&mut desk, 1);
    drop(desk);
    for number in 1..=20_u64 {
        write(&source, &number.to_le_bytes());
        host.until_taken(&number.to_le_bytes());
    }
    assert_eq!(host.far().open, 1);
    let mut desk = host.desk();
    let (client, number) = connected(&mut desk, 2);
    assert_eq!(host.far().open, 1, "the old queue pair is gone");
    write(&source, b"by the next one");
    host.until_taken(b"by the next one");
    desk.end(client, &port(), number);
    until("the queue pair ends", || (host.far().open == 0).then_some(()));
    write(&source, b"for the gateway to send");
    assert_eq!(host.far().taken.last().expect("one").2, b"by the next one");
}

#[test]
fn process_that_leaves_its_partition_ends_its_queue_pair() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    let (client, _) = connected(&mut desk, 1);
    drop(source);
    assert_eq!(host.far().open, 0);
    event(&mut desk, |event| *event == WriterEvent::Gone(client));
    assert!(desk.candidate(&port(), LINK).is_err());
}

fn hostile(root: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(root.join("writers")).expect("short enough");
    rustix::net::connect(&socket, &address).expect("the gateway is there");
    socket
}

#[test]
fn gateway_leaves_a_process_that_sends_garbage_and_keeps_the_others() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    connected(&mut desk, 1);
    for bytes in [&[][..], &[1], &[0xff; 1024], &[1, 0, 200, 200, 200], &[2; 4000]] {
        let socket = hostile(host.directory.path());
        rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL).expect("it has room");
        event(&mut desk, |event| matches!(event, WriterEvent::Gone(_)));
    }
    // One that names what does not exist is heard, and nothing follows from it.
    write(&source, b"still here");
    host.until_taken(b"still here");
}

#[test]
fn long_path_of_the_store_has_a_socket_too() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let root = directory.path().join("x".repeat(200));
    std::fs::create_dir(&root).expect("a directory");
    WriterDesk::open(&root).expect("a socket");
}

#[test]
fn gateway_takes_the_socket_from_one_that_was_killed() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let first = WriterDesk::open(directory.path()).expect("a socket");
    // Its file stays, as after a kill.
    drop(first);
    let mut desk = WriterDesk::open(directory.path()).expect("a socket");
    let socket = hostile(directory.path());
    drop(socket);
    event(&mut desk, |event| matches!(event, WriterEvent::Gone(_)));
}

#[test]
fn message_of_a_forked_child_leaves_by_its_parent() {
    let host = Host::new(busway_system::Clock::Ptp);
    let mut desk = host.desk();
    let source = host.source();
    connected(&mut desk, 1);
    write(&source, b"of the parent");
    host.until_taken(b"of the parent");
    // SAFETY: the child writes one message, which neither allocates nor takes a lock that another
    // thread of the parent may hold, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            write(&source, b"of the child");
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: `status` is a valid place.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child ended well");
        }
    }
    host.until_taken(b"of the child");
    assert_eq!(host.far().open, 1, "the child has closed nothing");
}
