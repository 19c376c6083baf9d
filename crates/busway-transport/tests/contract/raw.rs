//! A peer byte by byte, over a plain socket: by the documented formats (`busway_core::control`,
//! `src/stream/opening.rs`), not by this crate's code. The peer is host `two` of session 22, the
//! link belongs to host `one` of session 11.

use std::time::{Duration, Instant};

use busway_core::control::{self, Body, ByteOrder, Heartbeat, Hello, PROTOCOL_VERSION};
use busway_transport::{Direction, Link, LinkEvent, LinkIdentity};

use super::harness::{Buffer, PATIENCE};

/// Accepts a channel's connection.
pub const ANSWER: &[u8; 8] = b"BUSC ok\n";

pub fn identity(host: &str, session: u64) -> LinkIdentity {
    LinkIdentity {
        host: host.into(),
        session,
        application: String::new(),
    }
}

fn frame(body: &Body<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let length = control::encode(body, &mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

/// The greeting of the peer.
pub fn greeting() -> Vec<u8> {
    frame(&Body::Hello(Hello {
        protocol_version: PROTOCOL_VERSION,
        byte_order: ByteOrder::NATIVE,
        session: 22,
        host: "two",
        iceoryx2_version: "",
    }))
}

pub fn heartbeat() -> Vec<u8> {
    frame(&Body::Heartbeat(Heartbeat {
        session: 22,
        count: 1,
        time_ns: 0,
    }))
}

/// The opening of a channel in the peer's direction, between these sessions.
pub fn opening(direction: Direction, channel: u32, token: &[u8], from: u64, to: u64) -> Vec<u8> {
    let mut bytes = b"BUSC".to_vec();
    bytes.extend(PROTOCOL_VERSION.to_le_bytes());
    bytes.extend(from.to_le_bytes());
    bytes.extend(to.to_le_bytes());
    bytes.extend(token);
    bytes.extend(channel.to_le_bytes());
    bytes.extend([if direction == Direction::Send { 1 } else { 2 }, 3, 0, 0]);
    bytes.extend(b"two");
    bytes
}

/// A message as it crosses the bus.
pub fn bytes_of(message: &Buffer) -> Vec<u8> {
    [&message.head.encode()[..], &message.user_header, &message.payload].concat()
}

/// Polls a link until an event that `pick` wants.
pub fn until<T>(link: &mut dyn Link<Buffer>, mut pick: impl FnMut(LinkEvent<Buffer>) -> Option<T>) -> T {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        while let Some(event) = link.poll(Instant::now()) {
            if let Some(found) = pick(event) {
                return found;
            }
        }
        assert!(Instant::now() < give_up_at, "waited in vain for an event");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn is_up(event: LinkEvent<Buffer>) -> Option<()> {
    matches!(event, LinkEvent::Up(_)).then_some(())
}

pub fn went_down(event: LinkEvent<Buffer>) -> Option<String> {
    match event {
        LinkEvent::Down(why) => Some(why),
        _ => None,
    }
}
