//! What lies in a slot, and in a credit. All numbers little-endian.
//!
//! ```text
//! piece                                            credit
//! +0  kind   u64: 1 start, 2 more, 3 end           +0  freed  u64: slots freed since the start
//! +8  start: head (48 bytes), then the first       +8  taken  u64: messages taken since the start
//!     bytes of user header and payload
//!     more: the next bytes
//! ```
//!
//! The length of a piece is that of the SEND. Pieces of a message follow each other; `end` says that the channel was closed in an
//! orderly way. Read by [`super::receiver`] (pieces) and [`super::sender`] (credits).

use crate::message::{HEAD_BYTES, Head};

/// Bytes before what a piece carries.
pub const PIECE_BYTES: usize = 8;
/// Bytes of a first piece before its part of the message.
pub const START_BYTES: usize = PIECE_BYTES + HEAD_BYTES;
/// Bytes of a credit.
pub const CREDIT_BYTES: usize = 16;

/// Kinds of pieces.
pub const START: u64 = 1;
/// See [`START`].
pub const MORE: u64 = 2;
/// See [`START`].
pub const END: u64 = 3;

/// A piece that arrived, as far as its first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A message begins; so many bytes of user header and payload are in this piece, from [`START_BYTES`] on.
    Start(Head, usize),
    /// So many more bytes, from [`PIECE_BYTES`] on.
    More(usize),
    /// The end.
    End,
}

impl Piece {
    /// Reads the first bytes of a piece of `len_bytes` bytes; those behind its end are not looked at.
    ///
    /// # Errors
    /// What is wrong, for [`crate::ChannelError::Corrupt`].
    pub fn decode(bytes: &[u8; START_BYTES], len_bytes: usize) -> Result<Piece, &'static str> {
        let Some(carried_bytes) = len_bytes.checked_sub(PIECE_BYTES) else {
            return Err("a piece shorter than its own head");
        };
        let (kind, rest) = bytes.split_at(PIECE_BYTES);
        match kind.first_chunk().map_or(0, |kind| u64::from_le_bytes(*kind)) {
            START => {
                let head = rest
                    .first_chunk::<HEAD_BYTES>()
                    .filter(|_| carried_bytes >= HEAD_BYTES)
                    .ok_or("a message's first piece is shorter than a head")?;
                let head = Head::decode(head).ok_or("a head of unknown kind")?;
                let total_bytes = head.total_bytes().ok_or("a head whose lengths overflow")?;
                if carried_bytes as u64 > total_bytes {
                    return Err("a piece longer than its message");
                }
                Ok(Piece::Start(head, carried_bytes - HEAD_BYTES))
            }
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

impl Credit {
    /// The bytes of the SEND.
    pub fn encode(self) -> [u64; 2] {
        [self.freed.to_le(), self.taken.to_le()]
    }

    /// Reads a credit, which must have this length, say more than the `last` one, and no more than was `sent`.
    ///
    /// # Errors
    /// What is wrong, for [`crate::ChannelError::Corrupt`].
    pub fn decode(
        bytes: &[u8; CREDIT_BYTES],
        len_bytes: usize,
        last: Credit,
        sent: Credit,
    ) -> Result<Credit, &'static str> {
        if len_bytes != CREDIT_BYTES {
            return Err("a credit of another length");
        }
        let (words, _) = bytes.as_chunks::<8>();
        let credit = Credit {
            freed: u64::from_le_bytes(words[0]),
            taken: u64::from_le_bytes(words[1]),
        };
        if credit.freed < last.freed || credit.taken < last.taken {
            return Err("a credit that takes back");
        }
        if credit.freed > sent.freed || credit.taken > sent.taken {
            return Err("a credit for messages that were never sent");
        }
        Ok(credit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Kind;

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
    fn credits_for_what_was_never_sent_or_that_take_back_are_refused() {
        let credit = |freed, taken| Credit { freed, taken };
        let read = |bytes: Credit| {
            let mut raw = [0; CREDIT_BYTES];
            for (at, word) in bytes.encode().iter().enumerate() {
                raw[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
            }
            Credit::decode(&raw, CREDIT_BYTES, credit(3, 2), credit(9, 5))
        };
        assert_eq!(read(credit(4, 2)), Ok(credit(4, 2)));
        for bad in [
            credit(2, 2),
            credit(4, 1),
            credit(10, 5),
            credit(9, 6),
            credit(u64::MAX, 2),
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let none = [0; CREDIT_BYTES];
        assert!(Credit::decode(&none, 8, credit(0, 0), credit(1, 1)).is_err());
    }
}
