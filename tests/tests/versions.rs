//! A peer of another protocol version is refused in one line that names both versions, disturbs no
//! other link, and is taken in once it has been updated.
//!
//! The peer is made of bytes, not of our own encoders: a host that was installed years ago won't
//! change with them either. The layouts are documented in `busway-core` (`control.rs`) and
//! `busway-transport` (`memory/layout.rs`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use busway_tests::role::Settings;
use busway_tests::stream::{flows, stream};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const STRICT: Settings = Settings::lossless(16);

/// A control frame: "BUSW", kind hello, length 6; the body in postcard: protocol version 2,
/// little-endian, session 7, host "c", no iceoryx2.
const HELLO: [u8; 18] = *b"BUSW\x01\0\0\0\x06\0\0\0\x02\x00\x07\x01c\x00";

/// Offsets in the header of a window, in bytes.
const MAGIC_AT: u64 = 0;
const VERSION_AT: u64 = 8;
const CONVERSATION_AT: u64 = 40;
/// The rig's windows: two in one file, the first one read by the host named first.
const WINDOW_BYTES: u64 = 32 << 20;

fn greet(mut socket: TcpStream) {
    socket.write_all(&HELLO).expect("the gateway is there");
    let mut answer = [0; 13];
    socket.read_exact(&mut answer).expect("the gateway answers");
    assert_eq!((&answer[..5], answer[12]), (&b"BUSW\x01"[..], 1));
    // Refused: the gateway hangs up.
    let _ = socket.read_to_end(&mut Vec::new());
}

fn connect_again_and_again(address: SocketAddr) {
    for _ in 0..5 {
        let connected = || TcpStream::connect(address).ok();
        greet(eventually("the gateway listens", connected));
    }
}

fn listen_until_it_has_tried(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("the port is free");
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let answers = std::thread::spawn(move || {
        // Relaxed: a count on its own.
        while counted.fetch_add(1, Ordering::Relaxed) < 5 {
            greet(listener.accept().expect("a connection").0);
        }
    });
    eventually("the gateway tries again and again", || {
        (tries.load(Ordering::Relaxed) > 5).then_some(())
    });
    answers.join().expect("each greeting is answered");
}

fn write_header(rig: &Rig, peer_is_first: bool) {
    let path = rig.hosts.shared.join("window1");
    let file = eventually("the gateway makes the window", || {
        let file = std::fs::File::options().write(true).open(&path).ok()?;
        (file.metadata().ok()?.len() >= 2 * WINDOW_BYTES).then_some(file)
    });
    let start = if peer_is_first { WINDOW_BYTES } else { 0 };
    for (at, word) in [
        (MAGIC_AT, *b"BUSWAYmw"),
        (VERSION_AT, 3u64.to_le_bytes()),
        (CONVERSATION_AT, 7u64.to_le_bytes()),
    ] {
        file.write_all_at(&word, start + at).expect("written");
    }
}

/// Hosts a and b are well, c is the wrong one. `peer_is_first`: c stands first in the link, so that
/// it listens.
fn refused(bus: Bus, peer_is_first: bool) {
    let wrong = if peer_is_first { (2, 0, bus) } else { (0, 2, bus) };
    let mut rig = Rig::stopped(&["a", "b", "c"], &[(0, 1, bus), wrong], "");
    rig.start_gateway(0);
    rig.start_gateway(1);
    let (publisher, subscriber) = stream(&rig, "goes-on", STRICT);
    match (bus, peer_is_first) {
        (Bus::Memory, _) => write_header(&rig, peer_is_first),
        (_, true) => listen_until_it_has_tried(rig.addresses[1].expect("TCP")),
        (_, false) => connect_again_and_again(rig.addresses[1].expect("TCP")),
    }
    let status = eventually("the status says so", || {
        rig.status(0).filter(|status| {
            let reason = &status.links[1].reason;
            reason.as_ref().is_some_and(|reason| reason.contains("version"))
        })
    });
    assert!(!status.links[1].up && status.links[0].up, "{status:?}");
    flows(&publisher, &subscriber, "beside a peer of another version");
    // What it wrote to its log may come later than what it wrote to its status afterwards.
    let log = eventually("the log says so", || {
        Some(rig.log(0)).filter(|log| log.contains("version"))
    });
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("version")).collect();
    assert_eq!(lines.len(), 1, "once, not at every try: {lines:?}");
    let line = lines[0];
    let [theirs, ours] = match bus {
        Bus::Memory => ["version 3", "version 2"],
        _ => ["version 2", "version 1"],
    };
    assert!(
        line.contains(theirs) && line.contains(ours) && line.contains("\"c\""),
        "it must name both versions and the peer: {line}"
    );
    rig.start_gateway(2);
    rig.links_up(0);
    flows(&publisher, &subscriber, "beside the peer once it is updated");
    let published = publisher.finish().sent;
    let report = subscriber.until_seen("the last message arrives", |seen| seen.last == published);
    let seen = report.seen[&1];
    assert_eq!((seen.received, seen.missing), (published, 0), "{seen:?}");
}

fn second_peer_of_other_version_is_refused_in_one_line(bus: Bus) {
    refused(bus, false);
}

fn first_peer_of_other_version_is_refused_in_one_line(bus: Bus) {
    refused(bus, true);
}

on_each_bus!(
    second_peer_of_other_version_is_refused_in_one_line,
    first_peer_of_other_version_is_refused_in_one_line,
);
