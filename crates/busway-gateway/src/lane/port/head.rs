//! The head of a port's message on the wire, and back. Ports raise no events, so the head's
//! `events` field carries [`Carried::lost`].

use busway_port::carry::Carried;
use busway_transport::{Head, Kind};

use crate::clock::Wire;

/// The head under which a message leaves.
pub(super) fn of(carried: &Carried, origin: u64, wire: &Wire) -> Head {
    Head {
        sequence: carried.sequence,
        origin,
        time_ns: wire.leaving(carried.time_ns),
        payload_bytes: carried.len_bytes as u64,
        events: carried.lost,
        user_header_bytes: 0,
        kind: Kind::Data,
    }
}

/// Whether this can be the head of a message of a port; `limit_bytes` is the longest.
pub(super) fn is_valid(head: &Head, limit_bytes: u64) -> bool {
    head.kind == Kind::Data
        && head.user_header_bytes == 0
        && (1..=limit_bytes).contains(&head.payload_bytes)
        && head.sequence > 0
        && head.origin != 0
}

/// What a [valid](is_valid) head tells about its message.
pub(super) fn carried(head: &Head, wire: &Wire) -> Carried {
    Carried {
        len_bytes: head.payload_bytes as usize,
        time_ns: wire.arrived(head.time_ns),
        sequence: head.sequence,
        lost: head.events,
    }
}
