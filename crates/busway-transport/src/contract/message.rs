//! What crosses a bus: a fixed head, the user header, the payload.
//!
//! The sending end of a channel encodes the head; the receiving end decodes it as hostile bytes.
//! The owner of a payload (an iceoryx2 sample, a buffer of a port) implements [`Message`]. A bus
//! takes ownership and drops the message when it no longer needs the bytes, so that a bus which
//! reads memory by itself (RDMA) needs no copy.

/// Length of an encoded [`Head`] in bytes.
pub const HEAD_BYTES: usize = 48;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A payload, with the events that announced it.
    Data = 1,
    /// Events only: the payload that they announce went before.
    Notify = 2,
    /// No payload: what follows on this channel comes after the message of this number, which took
    /// another channel to the same host. It keeps the order where long messages have a channel of
    /// their own.
    After = 3,
    /// No payload: messages up to this number do not come by this channel, which is a new one
    /// beside another.
    Beyond = 4,
}

/// What every message carries beside its payload. Little-endian on the wire, [`HEAD_BYTES`] long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Counts the messages of one channel's source from 1; a gap is a loss.
    pub sequence: u64,
    /// Session of the gateway on the origin host. With `sequence` it names the message; a gateway
    /// recognises an echo by it.
    pub origin: u64,
    /// When the origin gateway took the message, CLOCK_REALTIME in nanoseconds.
    pub time_ns: u64,
    /// Length of the payload in bytes.
    pub payload_bytes: u64,
    /// Events 0..=63 to raise with this message on the far side, one bit an event.
    pub events: u64,
    /// Length of the user header in bytes.
    pub user_header_bytes: u32,
    /// What this message is for.
    pub kind: Kind,
}

impl Head {
    /// The head as it crosses the bus.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        for (at, word) in [
            self.sequence,
            self.origin,
            self.time_ns,
            self.payload_bytes,
            self.events,
        ]
        .into_iter()
        .enumerate()
        {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&self.user_header_bytes.to_le_bytes());
        bytes[44..48].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    /// Reads a head that a peer wrote; `None` if its kind is unknown. Does *not* check lengths: the
    /// [`Sink`](super::Sink) does, since it knows what it can take.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let kind = match half(44) {
            1 => Kind::Data,
            2 => Kind::Notify,
            3 => Kind::After,
            4 => Kind::Beyond,
            _ => return None,
        };
        Some(Head {
            sequence: word(0),
            origin: word(8),
            time_ns: word(16),
            payload_bytes: word(24),
            events: word(32),
            user_header_bytes: half(40),
            kind,
        })
    }

    /// Bytes of the whole message on the bus; `None` where a hostile head makes the sum overflow.
    pub fn total_bytes(&self) -> Option<u64> {
        self.payload_bytes
            .checked_add(u64::from(self.user_header_bytes))?
            .checked_add(HEAD_BYTES as u64)
    }
}

/// Names memory that holds messages, for a bus that registers memory once and then reads or writes
/// it by itself (RDMA).
///
/// Contract of the caller that chooses the name: while a message or landing with this name exists,
/// its bytes lie in one shared mapping, always the same for this name. No other mapping gets the
/// name while the process lives, so that a bus may keep a registration under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentId {
    /// The owner, such as iceoryx2's id of a publisher, which is never used twice.
    pub owner: u128,
    /// Counts the owner's mappings.
    pub generation: u32,
}

/// Owns a message while a bus needs its bytes; dropping it returns the memory.
///
/// The slices keep their addresses when the value is moved (they point into shared memory or the
/// heap, never into the value), and are as long as the head says.
pub trait Message: Send + 'static {
    /// The head; its lengths are those of the two slices.
    fn head(&self) -> &Head;
    /// The user header's bytes.
    fn user_header(&self) -> &[u8];
    /// The payload's bytes.
    fn payload(&self) -> &[u8];
    /// The memory that the payload lies in; `None` where it has no lasting name (a heap, a segment
    /// that may be replaced), so that a bus must copy.
    fn segment(&self) -> Option<SegmentId> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_wire() {
        let head = Head {
            sequence: 1,
            origin: u64::MAX,
            time_ns: 3,
            payload_bytes: 4,
            events: 5,
            user_header_bytes: 6,
            kind: Kind::Notify,
        };
        assert_eq!(Head::decode(&head.encode()), Some(head));
    }

    #[test]
    fn an_unknown_kind_is_no_head() {
        assert_eq!(Head::decode(&[0xff; HEAD_BYTES]), None);
        assert_eq!(Head::decode(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn hostile_lengths_do_not_overflow() {
        let head = Head::decode(&{
            let mut bytes = [0xff; HEAD_BYTES];
            bytes[44..48].copy_from_slice(&1u32.to_le_bytes());
            bytes
        })
        .expect("kind 1 is data");
        assert_eq!(head.total_bytes(), None);
    }
}
