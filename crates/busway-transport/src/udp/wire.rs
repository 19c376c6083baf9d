//! The datagrams of a channel, encoded and decoded. Decoding is pure and trusts nothing. All
//! numbers are little-endian.
//!
//! A channel is a stream of bytes: messages (head, user header, payload) one after the other. Each
//! datagram carries some of it.
//!
//! ```text
//! every datagram                              data (1), ping (2), end (3)
//! + 0  token  u64; 0 in multicast             +10  first   u16: offset of the first head in
//! + 8  kind   u8                                           these bytes, 0xffff: none
//!                                             +16  packet  u64: counts from 1
//! acknowledgement (4)                         +24  offset  u64: in the stream
//! + 9  flags     u8: 1 ended, 2 joined,       +32  number  u64: messages that begin before
//!                from 4 on the last probe                  `first`
//! +16  largest   u64: packet number           +40  bytes of the stream
//! +24  received  u64: offset
//! +32  limit     u64: offset                  open (5)
//! +40  taken     u64: messages                +12  channel       u32
//! +48  seen      128 bytes: bit n is          +16  from session  u64
//!                packet `largest` - n         +24  to session    u64
//!
//! multicast (6)                               invite (7), 16 bytes
//! + 9  count   u8: recipients, 1 to 8         +10  port  u16: of the group
//! +10  first   u16: as in data
//! +16  for each recipient: token, packet, offset, number u64; then the bytes of the stream,
//!      the same for all; none: a probe, whose number (1 to 63) is `packet`
//! ```
//!
//! A multicast datagram is data for each of its recipients, with numbers of its own. Packet numbers
//! are never reused (RFC 9000, 12.3), so that an acknowledgement says which transmission of the
//! same bytes has arrived.

/// Length of the header of data, a ping or an end, in bytes.
pub(super) const DATA_HEADER_BYTES: usize = 40;
pub(super) const ACK_BYTES: usize = 48 + SEEN_WORDS * 8;
pub(super) const OPEN_BYTES: usize = 32;
pub(super) const INVITE_BYTES: usize = 16;
pub(super) const MAX_RECIPIENTS: usize = 8;
/// Length of the longest header of a multicast datagram in bytes.
pub(super) const MAX_MULTICAST_HEADER_BYTES: usize = multicast_header_bytes(MAX_RECIPIENTS);
/// Probes are numbered from 1 up to this, then from 1 again.
pub(super) const MAX_PROBE: u8 = 63;
/// Where the recipients begin in a multicast datagram, in bytes.
const RECIPIENTS_AT: usize = 16;
const RECIPIENT_BYTES: usize = 32;
pub(super) const SEEN_WORDS: usize = 16;

const DATA: u8 = 1;
const PING: u8 = 2;
const END: u8 = 3;
const ACK: u8 = 4;
const OPEN: u8 = 5;
const MULTICAST: u8 = 6;
const INVITE: u8 = 7;
const NO_HEAD: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Data,
    /// It asks for an acknowledgement; the stream has been sent up to its offset.
    Ping,
    /// As a ping, and the stream ends at its offset.
    End,
}

/// The header of a datagram of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataHeader {
    pub(super) purpose: Purpose,
    /// Where the first message head begins in the bytes that follow; at most their length.
    pub(super) first: Option<u16>,
    /// Counts the sender's datagrams from 1.
    pub(super) packet: u64,
    /// Offset of the first byte in the stream.
    pub(super) offset: u64,
    /// Messages that begin before `first`.
    pub(super) number: u64,
}

/// An acknowledgement: everything that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// The channel was ended, and everything before was taken.
    pub(super) is_ended: bool,
    /// The receiver has joined the group to which it was invited.
    pub(super) has_joined: bool,
    /// Number of the last probe that arrived over the group; 0 for none.
    pub(super) probe: u8,
    /// Highest packet number that arrived; 0 for none.
    pub(super) largest: u64,
    /// All bytes of the stream before this one have arrived or are abandoned.
    pub(super) received: u64,
    /// The receiver has credit for the stream up to this offset.
    pub(super) limit: u64,
    /// Messages that the sink has taken or that are abandoned.
    pub(super) taken: u64,
    /// Bit n of the whole is packet `largest` - n.
    pub(super) seen: [u64; SEEN_WORDS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) channel: u32,
    pub(super) from_session: u64,
    pub(super) to_session: u64,
}

/// The numbers of one recipient in a multicast datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recipient {
    pub(super) token: u64,
    pub(super) packet: u64,
    pub(super) offset: u64,
    pub(super) number: u64,
}

/// The recipients of a multicast datagram: decoded, but not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipients<'a> {
    pub(super) first: Option<u16>,
    table: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Datagram<'a> {
    Data(DataHeader, &'a [u8]),
    Ack(Ack),
    Open(Open),
    Multicast(Recipients<'a>, &'a [u8]),
    Invite(u16),
}

impl DataHeader {
    pub(super) fn encode(&self, token: u64) -> [u8; DATA_HEADER_BYTES] {
        let mut bytes = [0; DATA_HEADER_BYTES];
        self.encode_to(token, &mut bytes);
        bytes
    }

    /// Writes it into [`DATA_HEADER_BYTES`] bytes.
    #[inline]
    pub(super) fn encode_to(&self, token: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let kind = match self.purpose {
            Purpose::Data => DATA,
            Purpose::Ping => PING,
            Purpose::End => END,
        };
        put(bytes, 0, token);
        bytes[8] = kind;
        bytes[10..12].copy_from_slice(&self.first.unwrap_or(NO_HEAD).to_le_bytes());
        put(bytes, 16, self.packet);
        put(bytes, 24, self.offset);
        put(bytes, 32, self.number);
    }
}

impl Ack {
    pub(super) fn encode(&self, token: u64) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        put(&mut bytes, 0, token);
        bytes[8] = ACK;
        bytes[9] = u8::from(self.is_ended) | u8::from(self.has_joined) << 1 | self.probe << 2;
        for (at, word) in [self.largest, self.received, self.limit, self.taken]
            .into_iter()
            .chain(self.seen)
            .enumerate()
        {
            put(&mut bytes, 16 + at * 8, word);
        }
        bytes
    }

    /// Whether this packet has arrived, as far as the acknowledgement says.
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

impl Recipients<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = Recipient> {
        self.table.chunks_exact(RECIPIENT_BYTES).map(|bytes| {
            let word = |at| word(bytes, at).unwrap_or_default();
            Recipient {
                token: word(0),
                packet: word(8),
                offset: word(16),
                number: word(24),
            }
        })
    }

    /// The data header for the receiver with this token, of a datagram with this many bytes of the
    /// stream. `None` if it is not a recipient or the numbers are invalid.
    pub(super) fn header_for(&self, token: u64, bytes: usize) -> Option<DataHeader> {
        let recipient = self.iter().find(|recipient| recipient.token == token)?;
        let is_sound = recipient.packet > 0 && recipient.offset.checked_add(bytes as u64).is_some();
        is_sound.then_some(DataHeader {
            purpose: Purpose::Data,
            first: self.first,
            packet: recipient.packet,
            offset: recipient.offset,
            number: recipient.number,
        })
    }
}

/// Length of the header of a datagram for this many recipients, in bytes.
pub(super) const fn multicast_header_bytes(receivers: usize) -> usize {
    RECIPIENTS_AT + receivers * RECIPIENT_BYTES
}

/// The header of a multicast datagram to at most [`MAX_RECIPIENTS`]; its length is
/// [`multicast_header_bytes`].
pub(super) fn encode_multicast(
    first: Option<u16>,
    recipients: &[Recipient],
) -> [u8; MAX_MULTICAST_HEADER_BYTES] {
    let mut bytes = [0; MAX_MULTICAST_HEADER_BYTES];
    bytes[8] = MULTICAST;
    bytes[9] = recipients.len() as u8; // at most 8
    bytes[10..12].copy_from_slice(&first.unwrap_or(NO_HEAD).to_le_bytes());
    for (at, recipient) in recipients.iter().enumerate() {
        let at = multicast_header_bytes(at);
        for (step, word) in [
            recipient.token,
            recipient.packet,
            recipient.offset,
            recipient.number,
        ]
        .into_iter()
        .enumerate()
        {
            put(&mut bytes, at + step * 8, word);
        }
    }
    bytes
}

pub(super) fn encode_invite(token: u64, port: u16) -> [u8; INVITE_BYTES] {
    let mut bytes = [0; INVITE_BYTES];
    put(&mut bytes, 0, token);
    bytes[8] = INVITE;
    bytes[10..12].copy_from_slice(&port.to_le_bytes());
    bytes
}

fn decode_multicast(bytes: &[u8]) -> Option<Datagram<'_>> {
    let (head, rest) = bytes.split_first_chunk::<RECIPIENTS_AT>()?;
    let first = u16::from_le_bytes([head[10], head[11]]);
    let first = (first != NO_HEAD).then_some(first);
    let count = usize::from(head[9]);
    let (table, stream) = rest.split_at_checked(count * RECIPIENT_BYTES)?;
    let is_sound = (1..=MAX_RECIPIENTS).contains(&count)
        && head[..8] == [0; 8]
        && head[12..] == [0; 4]
        && first.is_none_or(|first| usize::from(first) <= stream.len());
    is_sound.then_some(Datagram::Multicast(Recipients { first, table }, stream))
}

/// Decodes a datagram: the token (0 for multicast), which the caller must compare, and the rest.
/// `None` if it is no datagram of this bus.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Datagram<'_>)> {
    let token = word(bytes, 0)?;
    let datagram = match *bytes.get(8)? {
        kind @ (DATA | PING | END) => {
            let (head, rest) = bytes.split_first_chunk::<DATA_HEADER_BYTES>()?;
            let first = u16::from_le_bytes([head[10], head[11]]);
            let header = DataHeader {
                purpose: match kind {
                    DATA => Purpose::Data,
                    PING => Purpose::Ping,
                    _ => Purpose::End,
                },
                first: (first != NO_HEAD).then_some(first),
                packet: word(head, 16)?,
                offset: word(head, 24)?,
                number: word(head, 32)?,
            };
            let is_sound = header.packet > 0
                && header.offset.checked_add(rest.len() as u64).is_some()
                && header.first.is_none_or(|first| usize::from(first) <= rest.len())
                && (header.purpose == Purpose::Data) != rest.is_empty();
            is_sound.then_some(Datagram::Data(header, rest))?
        }
        ACK if bytes.len() == ACK_BYTES => {
            let mut seen = [0; SEEN_WORDS];
            for (at, bits) in seen.iter_mut().enumerate() {
                *bits = word(bytes, 48 + at * 8)?;
            }
            Datagram::Ack(Ack {
                is_ended: bytes[9] & 1 == 1,
                has_joined: bytes[9] & 2 == 2,
                probe: bytes[9] >> 2,
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
        MULTICAST => decode_multicast(bytes)?,
        INVITE if bytes.len() == INVITE_BYTES => Datagram::Invite(u16::from_le_bytes([bytes[10], bytes[11]])),
        _ => return None,
    };
    Some((token, datagram))
}

#[inline]
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

    fn header() -> DataHeader {
        DataHeader {
            purpose: Purpose::Data,
            first: Some(3),
            packet: 7,
            offset: u64::MAX - 10,
            number: 9,
        }
    }

    fn ack() -> Ack {
        let mut seen = [0; SEEN_WORDS];
        (seen[0], seen[15]) = (0b101, 1 << 63);
        Ack {
            is_ended: true,
            has_joined: true,
            probe: MAX_PROBE,
            largest: 2000,
            received: 5,
            limit: u64::MAX,
            taken: 3,
            seen,
        }
    }

    #[test]
    fn encoded_datagrams_decode_unchanged() {
        let bytes = [&header().encode(TOKEN)[..], b"abcdef"].concat();
        assert_eq!(decode(&bytes), Some((TOKEN, Datagram::Data(header(), b"abcdef"))));
        for purpose in [Purpose::Ping, Purpose::End] {
            let header = DataHeader {
                purpose,
                first: None,
                ..header()
            };
            assert_eq!(
                decode(&header.encode(TOKEN)),
                Some((TOKEN, Datagram::Data(header, b"")))
            );
        }
        assert_eq!(decode(&ack().encode(TOKEN)), Some((TOKEN, Datagram::Ack(ack()))));
        let open = Open {
            channel: 1,
            from_session: 2,
            to_session: 3,
        };
        assert_eq!(decode(&open.encode(TOKEN)), Some((TOKEN, Datagram::Open(open))));
        assert_eq!(
            decode(&encode_invite(TOKEN, 7400)),
            Some((TOKEN, Datagram::Invite(7400)))
        );
    }

    /// A datagram for this many recipients, whose tokens count from 1.
    fn multicast(receivers: usize, first: Option<u16>, stream: &[u8]) -> Vec<u8> {
        let recipients: Vec<Recipient> = (1..=receivers as u64)
            .map(|token| Recipient {
                token,
                packet: token + 10,
                offset: token * 1000,
                number: token + 50,
            })
            .collect();
        let head = encode_multicast(first, &recipients);
        [&head[..multicast_header_bytes(receivers)], stream].concat()
    }

    #[test]
    fn each_recipient_finds_its_numbers() {
        for receivers in 1..=MAX_RECIPIENTS {
            let bytes = multicast(receivers, Some(2), b"abcdef");
            let Some((0, Datagram::Multicast(recipients, stream))) = decode(&bytes) else {
                panic!("{receivers} receivers");
            };
            assert_eq!((stream, recipients.iter().count()), (&b"abcdef"[..], receivers));
            for token in 1..=receivers as u64 {
                let header = DataHeader {
                    purpose: Purpose::Data,
                    first: Some(2),
                    packet: token + 10,
                    offset: token * 1000,
                    number: token + 50,
                };
                assert_eq!(recipients.header_for(token, stream.len()), Some(header));
            }
            assert_eq!(recipients.header_for(receivers as u64 + 1, stream.len()), None);
        }
    }

    #[test]
    fn malformed_multicast_header_is_refused() {
        let good = multicast(3, Some(6), b"abcdef");
        assert!(decode(&good).is_some());
        for end in 0..multicast_header_bytes(3) {
            assert_eq!(decode(&good[..end]), None, "cut at {end}");
        }
        assert_eq!(
            decode(&multicast(3, Some(7), b"abcdef")),
            None,
            "the first head lies behind the end"
        );
        for (at, value) in [(0, 1), (9, 0), (9, 9), (9, 255), (12, 1), (15, 1)] {
            let mut bad = multicast(8, None, &[7; 5000]);
            bad[at] = value;
            assert_eq!(decode(&bad), None, "byte {at} is {value}");
        }
        let is_sound = |packet, offset| {
            let recipient = Recipient {
                token: TOKEN,
                packet,
                offset,
                number: 0,
            };
            let head = encode_multicast(None, &[recipient]);
            let bytes = [&head[..multicast_header_bytes(1)], b"abc"].concat();
            let Some((0, Datagram::Multicast(recipients, stream))) = decode(&bytes) else {
                panic!("the datagram is sound");
            };
            recipients.header_for(TOKEN, stream.len()).is_some()
        };
        assert!(is_sound(1, u64::MAX - 3));
        assert!(!is_sound(0, u64::MAX - 3), "packets count from 1");
        assert!(!is_sound(1, u64::MAX - 2), "the offset overflows");
    }

    #[test]
    fn acknowledgement_reports_the_last_1024_packets() {
        let reported: Vec<u64> = (0..2100).filter(|packet| ack().has_seen(*packet)).collect();
        assert_eq!(reported, [2000 - 1023, 1998, 2000]);
    }

    #[test]
    fn malformed_datagram_is_refused() {
        let with =
            |header: DataHeader, bytes: &[u8]| decode(&[&header.encode(TOKEN)[..], bytes].concat()).is_some();
        assert!(!with(header(), &[0; 11]), "the offset overflows");
        assert!(!with(header(), b"ab"), "the first head lies behind the end");
        let without_number = DataHeader {
            packet: 0,
            ..header()
        };
        assert!(!with(without_number, b"abcdef"));
        assert!(!with(header(), b""), "data has bytes");
        let whole = ack().encode(TOKEN);
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None);
        }
        assert_eq!(decode(&[0; 200]), None);
        assert_eq!(decode(&[0xff; 200]), None);
    }
}
