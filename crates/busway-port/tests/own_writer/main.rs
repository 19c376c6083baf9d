//! A process of a partition that writes registers of another host's store itself, and the gateway
//! that lets it: who gets a ticket, what leaves, and what survives failures. The device is one of
//! this test, which takes messages instead of posting WRITEs; the rest is the real thing.
#![cfg(not(loom))]
#![allow(unsafe_code)] // Forks a process.

mod fake;

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use busway_port::carry::{PortSource, WriterDesk, WriterEvent};
use busway_port::peer_clock::PeerClock;
use busway_port::{Clock, Partition, PortRef};
use busway_transport::contract::{ChannelError, ChannelId, RegisterTicket, SourceNumbers};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use fake::{Host, LIMIT, LINK, ORIGIN, Shared, far, port, store, until};

/// Names the store for a process that dies.
const ROOT: &str = "BUSWAY_TEST_ROOT";

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
    connected_to(desk, &port(), channel)
}

fn connected_to(desk: &mut WriterDesk, port: &PortRef, channel: u32) -> (u64, u64) {
    let client = until("a process can write", || {
        desk.poll();
        desk.candidate(port, LINK).ok()
    });
    let number = desk.connect(client, port, LINK, &ticket(channel));
    let number = number.expect("the process is there");
    let expected = WriterEvent::Connected {
        port: port.clone(),
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
fn one_message_leaves_once_for_each_host_and_one_that_fails_stops_no_other() {
    let (third, at_third) = (PortRef::new("/third", "P"), Shared::default());
    let others = [(port(), Shared::default()), (third.clone(), at_third.clone())];
    let host = Host::with(busway_system::Clock::Ptp, &others);
    let mut desk = host.desk();
    let source = host.source();
    // The receiving hosts choose the channels' numbers: they may be alike.
    connected_to(&mut desk, &port(), 5);
    write(&source, b"for one");
    host.until_taken(b"for one");
    connected_to(&mut desk, &third, 5);
    write(&source, b"for both");
    host.until_taken(b"for both");
    until("the third host has it", || {
        let far = far(&at_third);
        let newest = far.taken.last();
        newest
            .is_some_and(|(_, _, bytes)| bytes == b"for both")
            .then_some(())
    });
    assert_eq!((host.far().open, far(&at_third).open), (1, 1));
    far(&at_third).has_failed = true;
    for number in 1..=20_u64 {
        write(&source, &number.to_le_bytes());
        host.until_taken(&number.to_le_bytes());
    }
    event(
        &mut desk,
        |event| matches!(event, WriterEvent::Ended { port, .. } if *port == third),
    );
    assert_eq!((host.far().open, far(&at_third).open), (1, 0));
    let numbers: Vec<u64> = host.far().taken.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=22).collect::<Vec<_>>(), "each once");
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
        let socket = hostile(host.root());
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

/// Every step of a connection and of a write at which a process may be killed.
const STEPS: [&str; 4] = ["dialled", "connected", "opened", "copied-out"];

#[test]
fn process_killed_at_any_step_is_gone_and_the_next_one_gets_the_channel() {
    for step in STEPS {
        let host = Host::new(busway_system::Clock::Ptp);
        let mut desk = host.desk();
        let mut dying = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "process_that_dies"])
            .env(ROOT, host.root())
            .env("BUSWAY_PORT_CRASH", step)
            .spawn()
            .expect("it starts");
        event(&mut desk, |event| *event == WriterEvent::Able(port()));
        let other = Arc::new(host.other());
        until("it has written", || {
            let numbers = PortSource::numbers(&other, "P", ORIGIN)?;
            (numbers.newest > 0).then_some(())
        });
        let client = desk.candidate(&port(), LINK).expect("it can");
        desk.connect(client, &port(), LINK, &ticket(1))
            .expect("it is there");
        let status = dying.wait().expect("it is a child");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{step}");
        event(&mut desk, |event| *event == WriterEvent::Gone(client));
        let source = host.source();
        connected(&mut desk, 2);
        // What the dead one wrote last is not lost, whether it left or not.
        until("its message arrives", || {
            let far = host.far();
            far.taken
                .last()
                .is_some_and(|(.., bytes)| bytes.len() == 8)
                .then_some(())
        });
        write(&source, b"of the next");
        host.until_taken(b"of the next");
    }
}

#[test]
#[ignore = "a role: killed by process_killed_at_any_step_is_gone_and_the_next_one_gets_the_channel"]
fn process_that_dies() {
    let root = std::env::var_os(ROOT).expect("the test that starts this one gives it");
    let others = [(port(), Shared::default())];
    let store = store(Path::new(&root), busway_system::Clock::Ptp, &others);
    let source = store.join("source").expect("a place");
    for number in 1_u64.. {
        write(&source, &number.to_le_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}
