//! The contents of a slot, and of a reply. All numbers little-endian.
//!
//! ```text
//! piece                                             reply
//! + 0  kind  u64: 1 start, 2 more, 3 end,           + 0  freed    u64: slots freed since the start
//!                 4 announce, 5 done                + 8  taken    u64: messages taken since the start
//! + 8  start: head (48 bytes), then the first       +16  grant    u64: 1 write, 2 copy, 3 discarded   \
//!      bytes of user header and payload             +24  address  u64, of the landing's payload        } or nothing
//!      announce: head, then the whole user header   +32  key      u64                                 /
//!      more: the next bytes
//! ```
//!
//! The length of a piece is that of the SEND. A message is a start and as many mores as it takes.
//! Or it is announced, its payload is written straight into the landing that the reply grants, and
//! then comes done (where the reply says copy: mores). Nothing else comes between announce and
//! done. `end` means that the channel was closed in order. Read by [`super::receiver`] (pieces) and
//! [`super::stream`] (replies).

use crate::contract::{HEAD_BYTES, Head};

/// Bytes before what a piece carries.
pub const PIECE_BYTES: usize = 8;
/// Bytes of a first piece before its part of the message.
pub const START_BYTES: usize = PIECE_BYTES + HEAD_BYTES;
/// Bytes of a reply without a grant.
pub const CREDIT_BYTES: usize = 16;
/// Bytes of a reply at most.
pub const REPLY_BYTES: usize = 40;

/// Kinds of pieces.
pub const START: u64 = 1;
/// See [`START`].
pub const MORE: u64 = 2;
/// See [`START`].
pub const END: u64 = 3;
/// See [`START`].
pub const ANNOUNCE: u64 = 4;
/// See [`START`].
pub const DONE: u64 = 5;

/// A piece that arrived, as far as its first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A message begins; this many bytes of user header and payload are in this piece, from
    /// [`START_BYTES`] on.
    Start(Head, usize),
    /// A message is announced; its whole user header is in this piece, from [`START_BYTES`] on.
    Announce(Head),
    /// The announced message's payload was written.
    Done,
    /// This many further bytes, from [`PIECE_BYTES`] on.
    More(usize),
    /// The end.
    End,
}

impl Piece {
    /// Reads the first bytes of a piece of `len_bytes` bytes; those behind its end are not looked
    /// at.
    ///
    /// # Errors
    /// What is wrong, for [`crate::ChannelError::Corrupt`].
    pub fn decode(bytes: &[u8; START_BYTES], len_bytes: usize) -> Result<Piece, &'static str> {
        let Some(carried_bytes) = len_bytes.checked_sub(PIECE_BYTES) else {
            return Err("a piece shorter than its own head");
        };
        let (kind, rest) = bytes.split_at(PIECE_BYTES);
        match kind.first_chunk().map_or(0, |kind| u64::from_le_bytes(*kind)) {
            kind @ (START | ANNOUNCE) => {
                let head = rest
                    .first_chunk::<HEAD_BYTES>()
                    .filter(|_| carried_bytes >= HEAD_BYTES)
                    .ok_or("a message's first piece is shorter than a head")?;
                let head = Head::decode(head).ok_or("a head of unknown kind")?;
                let total_bytes = head.total_bytes().ok_or("a head whose lengths overflow")?;
                if carried_bytes as u64 > total_bytes {
                    return Err("a piece longer than its message");
                }
                if kind == START {
                    Ok(Piece::Start(head, carried_bytes - HEAD_BYTES))
                } else if (carried_bytes - HEAD_BYTES) as u64 == u64::from(head.user_header_bytes) {
                    Ok(Piece::Announce(head))
                } else {
                    Err("an announced message without its user header")
                }
            }
            DONE if carried_bytes == 0 => Ok(Piece::Done),
            MORE if carried_bytes > 0 => Ok(Piece::More(carried_bytes)),
            END if carried_bytes == 0 => Ok(Piece::End),
            _ => Err("a piece of unknown kind"),
        }
    }
}

/// What a receiver has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Slots that have a RECV posted again.
    pub freed: u64,
    /// Messages taken by the sink.
    pub taken: u64,
}

/// The answer to an announced message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The payload may be written there, and nothing else.
    Write {
        /// Address of the landing's payload.
        address: u64,
        /// Key of that memory.
        key: u32,
    },
    /// The landing's memory is not registered: the payload is to be sent in pieces.
    Copy,
    /// The message is not wanted.
    Discarded,
}

/// What a receiver reports to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What is done.
    pub credit: Credit,
    /// The answer to the announced message, once.
    pub grant: Option<Grant>,
}

impl Reply {
    /// The words of the SEND, and how many of its bytes are used.
    pub fn encode(self) -> ([u64; 5], usize) {
        let (grant, address, key) = match self.grant {
            None => (0, 0, 0),
            Some(Grant::Write { address, key }) => (1, address, u64::from(key)),
            Some(Grant::Copy) => (2, 0, 0),
            Some(Grant::Discarded) => (3, 0, 0),
        };
        let words = [self.credit.freed, self.credit.taken, grant, address, key];
        let len_bytes = if self.grant.is_some() {
            REPLY_BYTES
        } else {
            CREDIT_BYTES
        };
        (words.map(u64::to_le), len_bytes)
    }

    /// Reads a reply, whose credit must say no less than the `last` one and no more than was
    /// `sent`.
    ///
    /// # Errors
    /// What is wrong, for [`crate::ChannelError::Corrupt`].
    pub fn decode(
        bytes: &[u8; REPLY_BYTES],
        len_bytes: usize,
        last: Credit,
        sent: Credit,
    ) -> Result<Reply, &'static str> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let grant = match (len_bytes, word(2)) {
            (CREDIT_BYTES, _) => None,
            (REPLY_BYTES, 1) => Some(Grant::Write {
                address: word(3),
                key: u32::try_from(word(4)).map_err(|_| "a key that is none")?,
            }),
            (REPLY_BYTES, 2) => Some(Grant::Copy),
            (REPLY_BYTES, 3) => Some(Grant::Discarded),
            (REPLY_BYTES, _) => return Err("a grant of unknown kind"),
            _ => return Err("a reply of another length"),
        };
        let credit = Credit {
            freed: word(0),
            taken: word(1),
        };
        if credit.freed < last.freed || credit.taken < last.taken {
            return Err("a credit that takes back");
        }
        if credit.freed > sent.freed || credit.taken > sent.taken {
            return Err("a credit for messages that were never sent");
        }
        Ok(Reply { credit, grant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;

    fn start(payload_bytes: u64) -> [u8; START_BYTES] {
        let head = Head {
            sequence: 1,
            origin: 2,
            time_ns: 3,
            payload_bytes,
            events: 0,
            user_header_bytes: 5,
            kind: Kind::Data,
        };
        let mut bytes = [0; START_BYTES];
        bytes[..8].copy_from_slice(&START.to_le_bytes());
        bytes[8..].copy_from_slice(&head.encode());
        bytes
    }

    #[test]
    fn a_first_piece_says_how_much_of_the_message_it_has() {
        assert!(matches!(
            Piece::decode(&start(100), START_BYTES + 105),
            Ok(Piece::Start(head, 105)) if head.payload_bytes == 100
        ));
        assert!(matches!(
            Piece::decode(&start(100), START_BYTES),
            Ok(Piece::Start(_, 0))
        ));
        assert!(Piece::decode(&start(100), START_BYTES + 106).is_err());
        assert!(Piece::decode(&start(u64::MAX), START_BYTES).is_err());
        for len_bytes in 0..START_BYTES {
            assert!(
                Piece::decode(&start(100), len_bytes).is_err(),
                "{len_bytes} bytes"
            );
        }
    }

    #[test]
    fn pieces_of_no_kind_are_refused() {
        let mut bytes = [0; START_BYTES];
        assert!(Piece::decode(&bytes, 100).is_err());
        bytes[0] = 2;
        assert_eq!(Piece::decode(&bytes, 9), Ok(Piece::More(1)));
        assert!(Piece::decode(&bytes, 8).is_err(), "a piece with nothing in it");
        bytes[0] = 3;
        assert_eq!(Piece::decode(&bytes, 8), Ok(Piece::End));
        assert!(Piece::decode(&bytes, 9).is_err());
    }

    #[test]
    fn an_announced_message_brings_its_user_header_and_no_payload() {
        let mut bytes = start(100);
        bytes[0] = 4;
        assert!(matches!(
            Piece::decode(&bytes, START_BYTES + 5),
            Ok(Piece::Announce(head)) if head.payload_bytes == 100
        ));
        for carried_bytes in [0, 4, 6, 105] {
            assert!(Piece::decode(&bytes, START_BYTES + carried_bytes).is_err());
        }
        bytes[0] = 5;
        assert_eq!(Piece::decode(&bytes, PIECE_BYTES), Ok(Piece::Done));
        assert!(Piece::decode(&bytes, PIECE_BYTES + 1).is_err());
    }

    const LAST: Credit = Credit { freed: 3, taken: 2 };
    const SENT: Credit = Credit { freed: 9, taken: 5 };

    fn cross(reply: Reply) -> Result<Reply, &'static str> {
        let (words, len_bytes) = reply.encode();
        let mut raw = [0; REPLY_BYTES];
        for (bytes, word) in raw.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_ne_bytes();
        }
        Reply::decode(&raw, len_bytes, LAST, SENT)
    }

    #[test]
    fn replies_survive_the_wire() {
        let write = Grant::Write {
            address: u64::MAX,
            key: u32::MAX,
        };
        for grant in [None, Some(write), Some(Grant::Copy), Some(Grant::Discarded)] {
            let reply = Reply {
                credit: Credit { freed: 4, taken: 2 },
                grant,
            };
            assert_eq!(cross(reply), Ok(reply));
        }
    }

    #[test]
    fn credits_for_what_was_never_sent_or_that_take_back_are_refused() {
        for (freed, taken) in [(2, 2), (4, 1), (10, 5), (9, 6), (u64::MAX, 2)] {
            let reply = Reply {
                credit: Credit { freed, taken },
                grant: None,
            };
            assert!(cross(reply).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn replies_of_another_length_or_grants_of_no_kind_are_refused() {
        let mut bytes = [0; REPLY_BYTES];
        let none = Credit::default();
        for len_bytes in [0, 8, 17, 39] {
            assert!(Reply::decode(&bytes, len_bytes, none, none).is_err());
        }
        assert!(Reply::decode(&bytes, REPLY_BYTES, none, none).is_err());
        bytes[16] = 1;
        bytes[39] = 1;
        assert!(
            Reply::decode(&bytes, REPLY_BYTES, none, none).is_err(),
            "a key of 64 bits"
        );
    }
}
