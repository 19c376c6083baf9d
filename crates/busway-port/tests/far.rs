//! Sampling channels between two hosts over a one-sided bus: the source's process writes the other
//! host's memory, and no gateway runs.
//!
//! Both hosts are stores on this machine, joined by a window that is a file, as two processors with
//! a shared memory would be.
#![cfg(not(loom))]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_port::apex::{self, Refusal, Updated, Validity};
use busway_port::observe::Observer;
use busway_port::peer_clock::PeerClock;
use busway_port::system::{module_of, root_of};
use busway_port::{Direction, Partition, PortRef, SamplingDestination, SamplingSource, Store};
use busway_system::System;
use support::two_hosts::TwoHosts as Hosts;

const HOUR_NS: i64 = 3_600_000_000_000;

impl Hosts {
    /// `link` goes into the link's table, `size` is that of the messages.
    fn new(link: &str, size: usize) -> Self {
        Self::with_destinations(link, size, r#"["near/IN", "far/IN", "far/TOO"]"#)
    }

    /// Without a destination on the source's host.
    fn apart(size: usize) -> Self {
        Self::with_destinations("", size, r#"["far/IN", "far/TOO"]"#)
    }

    fn with_destinations(link: &str, size: usize, destinations: &str) -> Self {
        let rest = format!(
            r#"
{link}
[[partition]]
name = "source"
host = "a"
ports = [{{ name = "OUT", kind = "sampling", direction = "source", max_size = {size} }}]
[[partition]]
name = "near"
host = "a"
ports = [{{ name = "IN", kind = "sampling", direction = "destination", max_size = {size}, refresh_period = "1h" }}]
[[partition]]
name = "far"
host = "b"
ports = [
  {{ name = "IN", kind = "sampling", direction = "destination", max_size = {size}, refresh_period = "1h" }},
  {{ name = "TOO", kind = "sampling", direction = "destination", max_size = {size}, refresh_period = "1h" }},
]
[[channel]]
name = "s"
source = "source/OUT"
destinations = {destinations}
"#
        );
        Self::joined_by("1MiB", &rest)
    }
}

fn out(partition: &Partition) -> SamplingSource<'_> {
    partition.sampling_source("OUT").expect("configured")
}

fn input<'p>(partition: &'p Partition, name: &str) -> SamplingDestination<'p> {
    partition.sampling_destination(name, HOUR_NS).expect("configured")
}

fn read(port: SamplingDestination<'_>) -> Result<(Vec<u8>, Validity), Refusal> {
    let mut buffer = [0; 64];
    let read = port.read(&mut buffer)?;
    Ok((buffer[..read.length].to_vec(), read.validity))
}

fn valid(message: &[u8]) -> Result<(Vec<u8>, Validity), Refusal> {
    Ok((message.to_vec(), Validity::Valid))
}

#[test]
fn a_message_is_at_every_destination_as_soon_as_it_is_written() {
    let hosts = Hosts::new("", 64);
    let (far, near, source) = (
        hosts.join("b", "far"),
        hosts.join("a", "near"),
        hosts.join("a", "source"),
    );
    let (one, other, here) = (input(&far, "IN"), input(&far, "TOO"), input(&near, "IN"));
    assert_eq!(read(one), Err(Refusal::NoAction));
    for message in [&b"first"[..], b"second", &[7; 64]] {
        out(&source).write(message).expect("written");
        assert_eq!(read(one), valid(message));
        assert_eq!(read(other), valid(message));
        assert_eq!(read(here), valid(message));
    }
}

#[test]
fn a_message_goes_stale_by_the_age_of_its_write_and_stays() {
    for link in ["", "clock = \"ptp\""] {
        let hosts = Hosts::new(link, 64);
        let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
        let refresh = Duration::from_millis(50);
        let port = far.sampling_destination("IN", 50_000_000).expect("configured");
        // On a busy machine more than that may pass between the two: then the answer says nothing.
        loop {
            let before = Instant::now();
            out(&source).write(b"here").expect("written");
            let message = read(port);
            if before.elapsed() < refresh {
                assert_eq!(message, valid(b"here"), "{link}");
                break;
            }
        }
        std::thread::sleep(refresh + Duration::from_millis(10));
        assert_eq!(read(port), Ok((b"here".to_vec(), Validity::Invalid)), "{link}");
    }
}

#[test]
fn what_a_port_has_consumed_counts_across_hosts_too() {
    let hosts = Hosts::new("clock = \"ptp\"", 64);
    let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
    input(&far, "IN");
    let id = apex::get_sampling_port_id(&far, "IN").expect("created");
    let mut buffer = [0; 64];
    let mut updated = || {
        apex::read_updated_sampling_message(&far, id, &mut buffer)
            .expect("read")
            .updated
    };
    assert_eq!(updated(), Updated::EmptyPort);
    out(&source).write(b"one").expect("written");
    assert_eq!(updated(), Updated::NewMessage);
    assert_eq!(updated(), Updated::ConsumedMessage);
    for _ in 0..3 {
        out(&source).write(b"more").expect("written");
    }
    assert_eq!(updated(), Updated::NewMessage);
    assert_eq!(far.counters("IN").expect("a port").overwritten, 2);
    let before = apex::get_time();
    let conditional = |at, buffer: &mut [u8]| {
        apex::read_sampling_message_conditional(&far, id, at, buffer)
            .expect("read")
            .length
    };
    assert_eq!(conditional(before, &mut buffer), 0);
    assert_eq!(conditional(before - HOUR_NS.min(before), &mut buffer), 4);
}

#[test]
fn a_source_host_that_starts_anew_is_heard_at_once_and_its_old_message_stays_until_then() {
    let hosts = Hosts::new("", 64);
    let far = hosts.join("b", "far");
    let port = input(&far, "IN");
    let id = apex::get_sampling_port_id(&far, "IN").expect("created");
    for round in 0..3_u8 {
        let source = hosts.join("a", "source");
        let rounds = 10 - u8::min(round, 5);
        for count in 0..rounds {
            out(&source).write(&[round, count]).expect("written");
            let mut buffer = [0; 64];
            let read = apex::read_updated_sampling_message(&far, id, &mut buffer).expect("read");
            assert_eq!(
                (read.updated, &buffer[..read.length]),
                (Updated::NewMessage, &[round, count][..])
            );
        }
        drop(source);
        hosts.lose("a");
        assert_eq!(read(port), valid(&[round, rounds - 1]));
        let _joined = hosts.join("a", "source");
        assert_eq!(read(port), valid(&[round, rounds - 1]), "joining writes nothing");
    }
}

#[test]
fn a_destination_host_whose_memory_was_reset_has_the_next_message() {
    let hosts = Hosts::new("", 64);
    let source = hosts.join("a", "source");
    let port = out(&source);
    for byte in [0, 0xff, 0x5a] {
        port.write(b"before").expect("written");
        hosts.fill_window(byte);
        let far = hosts.join("b", "far");
        assert_eq!(read(input(&far, "IN")), Err(Refusal::NoAction), "{byte:x}");
        port.write(b"after").expect("written");
        assert_eq!(read(input(&far, "IN")), valid(b"after"), "{byte:x}");
    }
}

#[test]
fn what_another_configuration_left_behind_is_no_message() {
    let hosts = Hosts::new("", 64);
    let source = hosts.join("a", "source");
    out(&source).write(&[1; 64]).expect("written");
    drop(source);
    let mut other = Hosts::new("", 48);
    // The other configuration uses the same window.
    fs::copy(
        hosts.directory.path().join("window"),
        other.directory.path().join("window"),
    )
    .expect("copied");
    other.system.module = None;
    let far = other.join("b", "far");
    assert_eq!(read(input(&far, "IN")), Err(Refusal::NoAction));
}

#[test]
fn an_onlooker_sees_what_a_partition_sees_and_makes_nothing() {
    let hosts = Hosts::new("", 64);
    let root = root_of(&hosts.system, "b");
    let port = PortRef::new("far", "IN");
    let look = || {
        Observer::new(&root, module_of(&hosts.system, "b"))
            .expect("possible")
            .port(&port)
    };
    assert!(look().is_err());
    assert!(!hosts.directory.path().join("window").exists());
    let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
    input(&far, "IN");
    assert_eq!(look().expect("there").expect("configured").message(), None);
    out(&source).write(b"seen").expect("written");
    let message = look()
        .expect("there")
        .expect("configured")
        .message()
        .expect("written");
    assert_eq!((&message.bytes[..], message.number), (&b"seen"[..], 1));
}

#[test]
fn source_without_destination_at_home_stores_no_payload_and_is_seen_all_the_same() {
    const SIZE: usize = 8 << 10;
    let hosts = Hosts::apart(SIZE);
    let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
    let port = input(&far, "IN");
    for round in 1..=9_u8 {
        let message = vec![round; SIZE - usize::from(round)];
        out(&source).write(&message).expect("written");
        let mut buffer = vec![0; SIZE];
        let read = port.read(&mut buffer).expect("a message");
        assert_eq!(
            (&buffer[..read.length], read.validity),
            (&message[..], Validity::Valid)
        );
        let seen = Observer::new(root_of(&hosts.system, "a"), module_of(&hosts.system, "a"))
            .expect("possible")
            .port(&PortRef::new("source", "OUT"))
            .expect("there")
            .expect("configured");
        let seen = seen.message().expect("written");
        assert_eq!((seen.bytes, seen.number), (message, u64::from(round)));
    }
    let stored = fs::metadata(root_of(&hosts.system, "a").join("channel-s")).expect("the channel's file");
    assert!(stored.len() < SIZE as u64, "{} bytes", stored.len());
}

#[test]
fn a_window_that_cannot_be_had_is_an_error_that_names_it() {
    let hosts = Hosts::new("", 64);
    fs::create_dir(hosts.directory.path().join("window")).expect("a directory in its place");
    let store = Store::open(root_of(&hosts.system, "b"), module_of(&hosts.system, "b")).expect("a store");
    let said = store.join("far").expect_err("no window").to_string();
    assert!(said.contains("channel s") && said.contains("/window"), "{said}");
}

/// One writer that never pauses, over slots that are rewritten all the time, and sessions that
/// change.
#[test]
fn a_reader_on_the_other_host_sees_whole_messages_in_order_whatever_happens_to_the_source() {
    const SIZE: usize = 64;
    let hosts = Arc::new(Hosts::new("", SIZE));
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (hosts, is_done) = (hosts.clone(), is_done.clone());
        move || {
            let mut count = 0_u64;
            for _session in 0..20 {
                let source = hosts.join("a", "source");
                for _ in 0..20_000 {
                    count += 1;
                    let message: Vec<u8> = count.to_ne_bytes().repeat(SIZE / 8);
                    out(&source).write(&message).expect("written");
                }
                drop(source);
                hosts.lose("a");
            }
            is_done.store(true, Ordering::Release);
            count
        }
    });
    let far = hosts.join("b", "far");
    let port = input(&far, "IN");
    let (mut last, mut seen) = (0, 0_u64);
    while !is_done.load(Ordering::Acquire) {
        match read(port) {
            Ok((message, _)) => {
                let words: Vec<u64> = message
                    .chunks(8)
                    .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
                    .collect();
                assert!(words.iter().all(|word| *word == words[0]), "torn: {words:?}");
                assert!(words[0] >= last, "back in time: {} after {last}", words[0]);
                last = words[0];
                seen += 1;
            }
            Err(refusal) => assert!(
                matches!(refusal, Refusal::NoAction | Refusal::NotAvailable),
                "{refusal}"
            ),
        }
    }
    let written = writer.join().expect("the writer");
    let (message, _) = read(port).expect("the last one");
    assert_eq!(message[..8], written.to_ne_bytes());
    assert!(seen > 0);
}

#[test]
fn on_another_kernel_the_age_needs_an_estimate_of_its_clock() {
    let hosts = Hosts::new("", 64);
    let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
    let port = far.sampling_destination("IN", HOUR_NS).expect("configured");
    // The word that names the kernel, in the first line of the only register (`partition/far.rs`).
    let area = hosts.system.port_area(0, "memory", "a");
    assert_eq!(area.registers.len(), 1);
    let claim_other_kernel = || {
        let link = hosts.system.links_of("a").next().expect("a link");
        let place = link.buses[0]
            .port_place(busway_transport::contract::Access::Writes)
            .expect("set aside");
        let file = fs::OpenOptions::new()
            .write(true)
            .open(place.path().expect("a file"))
            .expect("the window");
        file.write_all_at(&[1; 8], place.offset_bytes() + 24)
            .expect("written");
    };
    out(&source).write(b"here").expect("written");
    claim_other_kernel();
    assert_eq!(
        read(port),
        Ok((b"here".to_vec(), Validity::Invalid)),
        "no estimate, no age"
    );
    let gateway = hosts.join("b", "/a");
    let now_ns = apex::get_time();
    let known = |offset_ns| PeerClock {
        offset_ns,
        error_ns: 1_000,
        at_ns: now_ns,
    };
    gateway.set_peer_clock(known(0));
    assert_eq!(read(port), valid(b"here"));
    gateway.set_peer_clock(known(2 * HOUR_NS));
    assert_eq!(
        read(port),
        Ok((b"here".to_vec(), Validity::Invalid)),
        "written two hours ago"
    );
}

#[test]
fn the_store_of_either_host_has_only_what_ends_there() {
    let hosts = Hosts::new("", 64);
    let (a, b) = (module_of(&hosts.system, "a"), module_of(&hosts.system, "b"));
    assert_eq!(a.channels[0].copies.len(), 1);
    assert_eq!(a.channels[0].destinations, [PortRef::new("near", "IN")]);
    assert!(a.partition("/b").is_none(), "no gateway takes part");
    assert!(b.channels[0].landing.is_some());
    let port = &b.partition("/a").expect("stands for the host").ports[0];
    assert_eq!(port.direction, Direction::Source);
    let (copy, landing) = (
        &a.channels[0].copies[0],
        b.channels[0].landing.as_ref().expect("one"),
    );
    assert_eq!((copy.key, copy.offset_bytes), (landing.key, landing.offset_bytes));
    assert_eq!(copy.place.offset_bytes(), landing.place.offset_bytes());
}

/// Steps of a write to a register here and one on the other host (`busway_port`'s crash hooks).
const STEPS: [&str; 14] = [
    "locked",
    "resumed",
    "half-written",
    "written",
    "before-publish",
    "published",
    "half-written@2",
    "written@2",
    "before-publish@2",
    "published@2",
    "far-announced",
    "far-written",
    "before-unlock",
    "unlocked",
];

/// Not a test of its own: the writer that
/// [`a_writer_killed_at_any_step_leaves_a_whole_message_on_the_other_host`] starts and has killed.
#[test]
fn the_writer_that_is_killed() {
    let Ok(text) = std::env::var("BUSWAY_TEST_FAR_SYSTEM") else {
        return;
    };
    let system = System::parse(&text, "system.toml".as_ref()).expect("right");
    let store = Store::open(root_of(&system, "a"), module_of(&system, "a")).expect("a store");
    let source = store.join("source").expect("a partition");
    out(&source).write(b"dying").expect("written");
}

#[test]
fn a_writer_killed_at_any_step_leaves_a_whole_message_on_the_other_host() {
    for (step, has_near) in STEPS.into_iter().flat_map(|step| [(step, true), (step, false)]) {
        let hosts = if has_near {
            Hosts::new("", 64)
        } else {
            Hosts::apart(64)
        };
        let (far, source) = (hosts.join("b", "far"), hosts.join("a", "source"));
        let (port, source) = (input(&far, "IN"), out(&source));
        // Several rounds, so that every slot is hit.
        for round in 0..6_u8 {
            let killed = std::process::Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "the_writer_that_is_killed"])
                .env("BUSWAY_TEST_FAR_SYSTEM", &hosts.text)
                .env("BUSWAY_PORT_CRASH", step)
                .output()
                .expect("started");
            // Only the first write, and the one after a gap, is announced.
            if step != "far-announced" || round == 0 {
                assert_eq!(killed.status.code(), None, "{step} is no step of a write");
            }
            match (read(port), round) {
                (Err(Refusal::NoAction | Refusal::NotAvailable), 0) => {}
                (Ok((message, _)), _) => {
                    assert!(
                        message == b"dying" || message == [round; 8],
                        "{step}: {message:?}"
                    );
                }
                (refusal, _) => panic!("{step}, round {round}: {refusal:?}"),
            }
            source.write(&[round + 1; 8]).expect("written");
            assert_eq!(read(port), valid(&[round + 1; 8]), "{step}");
        }
    }
}
