//! The datagrams of a channel. What arrives is hostile until decoded; decoding is a pure function. All numbers little-endian.
//!
//! A channel is a stream of bytes: messages (head, user header, payload) one after the other. A datagram carries a run of it.
//!
//! ```text
//! every datagram          run (1), ping (2), end (3)        answer (4)                          open (5)
//! + 0  token  u64         +10  first   u16: of the first    + 9  flags     u8: 1 = ended        +12  channel       u32
//! + 8  kind   u8               head in here, 0xffff: none   +16  largest   u64: packet number   +16  from session  u64
//!                         +16  packet  u64: counts from 1   +24  received  u64: offset          +24  to session    u64
//!                         +24  offset  u64: in the stream   +32  limit     u64: offset
//!                         +32  number  u64: messages that   +40  taken     u64: messages
//!                              begin before `first`         +48  seen      128 bytes: bit n is
//!                         +40  bytes of the stream               packet `largest` - n
//! ```
//!
//! Packet numbers are never used twice (as in RFC 9000, 12.3), so that an answer says which of two transmissions of the same bytes
//! it is about. Read and written by [`super::sender`] and [`super::receiver`]; the opening by [`super::opens`].

/// Length of the head of a run, a ping or an end, in bytes.
pub(super) const RUN_BYTES: usize = 40;
/// Length of an answer in bytes.
pub(super) const ANSWER_BYTES: usize = 48 + SEEN_WORDS * 8;
/// Length of an opening in bytes.
pub(super) const OPEN_BYTES: usize = 32;
/// Words of the bitmap in an answer.
pub(super) const SEEN_WORDS: usize = 16;

const RUN: u8 = 1;
const PING: u8 = 2;
const END: u8 = 3;
const ANSWER: u8 = 4;
const OPEN: u8 = 5;
/// No head begins in this datagram.
const NO_HEAD: u16 = u16::MAX;

/// What a datagram of the sender is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It carries bytes of the stream.
    Run,
    /// It asks for an answer; the stream has gone on as far as its offset.
    Ping,
    /// As a ping, and the stream ends at its offset.
    End,
}

/// The head of a datagram that the sender sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) purpose: Purpose,
    /// Where the first head begins in the bytes that follow, at most their length.
    pub(super) first: Option<u16>,
    /// Counts the sender's datagrams from 1.
    pub(super) packet: u64,
    /// Of the first byte, in the stream.
    pub(super) offset: u64,
    /// Messages that begin before `first`.
    pub(super) number: u64,
}

/// What the receiver says of all that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The channel was ended, and everything before was taken.
    pub(super) is_ended: bool,
    /// Highest packet number that arrived; 0 for none.
    pub(super) largest: u64,
    /// All bytes of the stream before this one have arrived or are given up.
    pub(super) received: u64,
    /// The receiver has room for the stream up to here.
    pub(super) limit: u64,
    /// Messages that the sink has taken, or that are given up.
    pub(super) taken: u64,
    /// Bit n of the whole is packet `largest` - n.
    pub(super) seen: [u64; SEEN_WORDS],
}

/// The first datagram of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) channel: u32,
    pub(super) from_session: u64,
    pub(super) to_session: u64,
}

/// A decoded datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Datagram<'a> {
    Run(Run, &'a [u8]),
    Answer(Answer),
    Open(Open),
}

impl Run {
    /// The head before the bytes.
    pub(super) fn encode(&self, token: u64) -> [u8; RUN_BYTES] {
        let mut bytes = [0; RUN_BYTES];
        let kind = match self.purpose {
            Purpose::Run => RUN,
            Purpose::Ping => PING,
            Purpose::End => END,
        };
        put(&mut bytes, 0, token);
        bytes[8] = kind;
        bytes[10..12].copy_from_slice(&self.first.unwrap_or(NO_HEAD).to_le_bytes());
        put(&mut bytes, 16, self.packet);
        put(&mut bytes, 24, self.offset);
        put(&mut bytes, 32, self.number);
        bytes
    }
}

impl Answer {
    pub(super) fn encode(&self, token: u64) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        put(&mut bytes, 0, token);
        bytes[8] = ANSWER;
        bytes[9] = u8::from(self.is_ended);
        for (at, word) in [self.largest, self.received, self.limit, self.taken]
            .into_iter()
            .chain(self.seen)
            .enumerate()
        {
            put(&mut bytes, 16 + at * 8, word);
        }
        bytes
    }

    /// Whether this packet has arrived, as far as the answer tells.
    pub(super) fn has_seen(&self, packet: u64) -> bool {
        let Some(age) = self.largest.checked_sub(packet) else {
            return false;
        };
        let word = usize::try_from(age / 64).ok().and_then(|at| self.seen.get(at));
        word.is_some_and(|word| word >> (age % 64) & 1 == 1)
    }
}

impl Open {
    pub(super) fn encode(&self, token: u64) -> [u8; OPEN_BYTES] {
        let mut bytes = [0; OPEN_BYTES];
        put(&mut bytes, 0, token);
        bytes[8] = OPEN;
        bytes[12..16].copy_from_slice(&self.channel.to_le_bytes());
        put(&mut bytes, 16, self.from_session);
        put(&mut bytes, 24, self.to_session);
        bytes
    }
}

/// Reads what arrived: the token, which the caller must compare, and the rest. `None` for what is no datagram of ours.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Datagram<'_>)> {
    let token = word(bytes, 0)?;
    let datagram = match *bytes.get(8)? {
        kind @ (RUN | PING | END) => {
            let (head, rest) = bytes.split_first_chunk::<RUN_BYTES>()?;
            let first = u16::from_le_bytes([head[10], head[11]]);
            let run = Run {
                purpose: match kind {
                    RUN => Purpose::Run,
                    PING => Purpose::Ping,
                    _ => Purpose::End,
                },
                first: (first != NO_HEAD).then_some(first),
                packet: word(head, 16)?,
                offset: word(head, 24)?,
                number: word(head, 32)?,
            };
            let is_sound = run.packet > 0
                && run.offset.checked_add(rest.len() as u64).is_some()
                && run.first.is_none_or(|first| usize::from(first) <= rest.len())
                && (run.purpose == Purpose::Run) != rest.is_empty();
            is_sound.then_some(Datagram::Run(run, rest))?
        }
        ANSWER if bytes.len() == ANSWER_BYTES => {
            let mut seen = [0; SEEN_WORDS];
            for (at, bits) in seen.iter_mut().enumerate() {
                *bits = word(bytes, 48 + at * 8)?;
            }
            Datagram::Answer(Answer {
                is_ended: bytes[9] & 1 == 1,
                largest: word(bytes, 16)?,
                received: word(bytes, 24)?,
                limit: word(bytes, 32)?,
                taken: word(bytes, 40)?,
                seen,
            })
        }
        OPEN if bytes.len() == OPEN_BYTES => Datagram::Open(Open {
            channel: u32::from_le_bytes(*bytes[12..].first_chunk()?),
            from_session: word(bytes, 16)?,
            to_session: word(bytes, 24)?,
        }),
        _ => return None,
    };
    Some((token, datagram))
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: u64 = 0x1234_5678_9abc_def0;

    fn run() -> Run {
        Run {
            purpose: Purpose::Run,
            first: Some(3),
            packet: 7,
            offset: u64::MAX - 10,
            number: 9,
        }
    }

    fn answer() -> Answer {
        let mut seen = [0; SEEN_WORDS];
        (seen[0], seen[15]) = (0b101, 1 << 63);
        Answer {
            is_ended: true,
            largest: 2000,
            received: 5,
            limit: u64::MAX,
            taken: 3,
            seen,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes = [&run().encode(TOKEN)[..], b"abcdef"].concat();
        assert_eq!(decode(&bytes), Some((TOKEN, Datagram::Run(run(), b"abcdef"))));
        for purpose in [Purpose::Ping, Purpose::End] {
            let run = Run {
                purpose,
                first: None,
                ..run()
            };
            assert_eq!(decode(&run.encode(TOKEN)), Some((TOKEN, Datagram::Run(run, b""))));
        }
        assert_eq!(
            decode(&answer().encode(TOKEN)),
            Some((TOKEN, Datagram::Answer(answer())))
        );
        let open = Open {
            channel: 1,
            from_session: 2,
            to_session: 3,
        };
        assert_eq!(decode(&open.encode(TOKEN)), Some((TOKEN, Datagram::Open(open))));
    }

    #[test]
    fn an_answer_tells_of_the_last_1024_packets() {
        let told: Vec<u64> = (0..2100).filter(|packet| answer().has_seen(*packet)).collect();
        assert_eq!(told, [2000 - 1023, 1998, 2000]);
    }

    #[test]
    fn what_leads_outside_is_no_datagram() {
        let with = |run: Run, bytes: &[u8]| decode(&[&run.encode(TOKEN)[..], bytes].concat()).is_some();
        assert!(!with(run(), &[0; 11]), "the offset overflows");
        assert!(!with(run(), b"ab"), "the first head lies behind the end");
        assert!(!with(Run { packet: 0, ..run() }, b"abcdef"));
        assert!(!with(run(), b""), "a run carries something");
        let whole = answer().encode(TOKEN);
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None);
        }
        assert_eq!(decode(&[0; 200]), None);
        assert_eq!(decode(&[0xff; 200]), None);
    }
}
