//! The encoding of the conversation between two hosts: greeting, heartbeat, and the messages of the
//! layer above.
//!
//! # Frame
//!
//! ```text
//! + 0   magic     "BUSW"
//! + 4   kind      u8: 1 hello, 2 heartbeat, 3 payload
//! + 5   zero      3 bytes
//! + 8   length    u32, little-endian: bytes of the body, 0 ..= MAX_BODY_BYTES
//! + 12  body      postcard for hello and heartbeat, opaque for payload
//! ```
//!
//! The encoding is independent of the hosts' byte order, so that two hosts of different order can
//! report that to each other.
//!
//! Contract: nothing allocates; decoding borrows from the received bytes. [`decode`] takes one
//! frame from a buffer (a datagram, a message of a ring). [`StreamDecoder`] cuts a byte stream into
//! frames; it reports garbage, skips to the next magic and continues. Called by the control plane
//! of every bus.

use serde::{Deserialize, Serialize};

/// Version of this encoding and of the layouts in memory. Hosts that differ refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes before the body of a frame.
pub const HEADER_BYTES: usize = 12;

/// Longest body in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Longest host name or version string in bytes.
pub const MAX_NAME_BYTES: usize = 255;

const MAGIC: [u8; 4] = *b"BUSW";

/// Order of the bytes in a word, as a host sends it to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// This host's.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };
}

/// The first frame of a conversation, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// The sender's [`PROTOCOL_VERSION`]. First, so that every later version can read it.
    pub protocol_version: u32,
    /// Order of words in memory that the sender writes.
    pub byte_order: ByteOrder,
    /// Number of the sender's session; a new one voids everything of the old.
    pub session: u64,
    /// Name of the sending host in the system description, 1 ..= 255 bytes without control
    /// characters.
    pub host: &'a str,
    /// Version of iceoryx2 that the sender is built with; empty if none.
    pub iceoryx2_version: &'a str,
}

/// Says that the sender lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's session.
    pub session: u64,
    /// One more with each heartbeat.
    pub count: u64,
    /// The sender's clock in nanoseconds.
    pub time_ns: u64,
}

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Greeting.
    Hello(Hello<'a>),
    /// Sign of life.
    Heartbeat(Heartbeat),
    /// Bytes of the layer above, 0 ..= [`MAX_BODY_BYTES`].
    Payload(&'a [u8]),
}

/// Why a frame could not be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The body exceeds [`MAX_BODY_BYTES`].
    #[error("a control body of {len_bytes} bytes exceeds {MAX_BODY_BYTES}: split it")]
    TooLong {
        /// Length of the body in bytes.
        len_bytes: usize,
    },
    /// The frame does not fit the buffer.
    #[error("the control frame does not fit a buffer of {buffer_bytes} bytes: enlarge it")]
    BufferTooSmall {
        /// Length of the buffer in bytes.
        buffer_bytes: usize,
    },
    /// A host name or version string breaks the rules of [`Hello`].
    #[error(
        "host name or iceoryx2 version: use at most {MAX_NAME_BYTES} bytes without control characters, and name the host"
    )]
    Name,
}

/// Why received bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Bytes that begin no frame.
    #[error("{skipped_bytes} bytes that are no Busway frame: does another program send here?")]
    Garbage {
        /// How many bytes a [`StreamDecoder`] skipped for it.
        skipped_bytes: usize,
    },
    /// The header claims more than a body may have, or than the decoder's buffer holds.
    #[error("a control frame claims {len_bytes} bytes, at most {max_bytes} are possible here")]
    TooLong {
        /// The alleged length in bytes.
        len_bytes: usize,
        /// The most that is taken, in bytes.
        max_bytes: usize,
    },
    /// A kind that this version does not know.
    #[error(
        "a control frame of kind {kind}, which protocol version {PROTOCOL_VERSION} does not know: update this host"
    )]
    UnknownKind {
        /// The kind.
        kind: u8,
    },
    /// The body does not decode to what the kind says.
    #[error(
        "the body of a control frame of kind {kind} does not decode: does the peer speak another version?"
    )]
    Body {
        /// The kind.
        kind: u8,
    },
}

const HELLO: u8 = 1;
const HEARTBEAT: u8 = 2;
const PAYLOAD: u8 = 3;

/// The header of a payload frame with a body of `len_bytes` bytes, for callers that send header and
/// body from two places.
///
/// # Errors
/// [`EncodeError::TooLong`].
pub fn payload_header(len_bytes: usize) -> Result<[u8; HEADER_BYTES], EncodeError> {
    header(PAYLOAD, len_bytes)
}

fn header(kind: u8, len_bytes: usize) -> Result<[u8; HEADER_BYTES], EncodeError> {
    let length = u32::try_from(len_bytes)
        .ok()
        .filter(|_| len_bytes <= MAX_BODY_BYTES);
    let length = length.ok_or(EncodeError::TooLong { len_bytes })?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = kind;
    header[8..].copy_from_slice(&length.to_le_bytes());
    Ok(header)
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

fn is_hello(hello: &Hello<'_>) -> bool {
    !hello.host.is_empty() && is_name(hello.host) && is_name(hello.iceoryx2_version)
}

/// Writes a frame to the start of `into` and returns its length in bytes.
///
/// # Errors
/// [`EncodeError`].
pub fn encode(body: &Body<'_>, into: &mut [u8]) -> Result<usize, EncodeError> {
    let buffer_bytes = into.len();
    let too_small = EncodeError::BufferTooSmall { buffer_bytes };
    let (head, room) = into.split_at_mut_checked(HEADER_BYTES).ok_or(too_small)?;
    let (kind, len_bytes) = match body {
        Body::Hello(hello) if !is_hello(hello) => return Err(EncodeError::Name),
        Body::Hello(hello) => (
            HELLO,
            postcard::to_slice(hello, room).map_err(|_| too_small)?.len(),
        ),
        Body::Heartbeat(beat) => (
            HEARTBEAT,
            postcard::to_slice(beat, room).map_err(|_| too_small)?.len(),
        ),
        Body::Payload(bytes) => {
            header(PAYLOAD, bytes.len())?;
            room.get_mut(..bytes.len())
                .ok_or(too_small)?
                .copy_from_slice(bytes);
            (PAYLOAD, bytes.len())
        }
    };
    head.copy_from_slice(&header(kind, len_bytes)?);
    Ok(HEADER_BYTES + len_bytes)
}

/// Takes the frame at the start of `bytes`: its body and its length in bytes, or `None` if it is
/// not complete yet.
///
/// # Errors
/// [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Option<(Body<'_>, usize)>, DecodeError> {
    match frame(bytes, MAX_BODY_BYTES)? {
        Some((kind, end)) => Ok(Some((body(kind, &bytes[HEADER_BYTES..end])?, end))),
        None => Ok(None),
    }
}

/// Kind and end of the frame at the start of `bytes`, or `None` if it is not complete.
fn frame(bytes: &[u8], max_bytes: usize) -> Result<Option<(u8, usize)>, DecodeError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(DecodeError::Garbage { skipped_bytes: 0 });
    }
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [_, _, _, _, kind, zeros @ .., l0, l1, l2, l3] = *header;
    if zeros != [0; 3] {
        return Err(DecodeError::Garbage { skipped_bytes: 0 });
    }
    let len_bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len_bytes > max_bytes {
        return Err(DecodeError::TooLong { len_bytes, max_bytes });
    }
    let end = HEADER_BYTES + len_bytes;
    Ok((bytes.len() >= end).then_some((kind, end)))
}

fn body(kind: u8, bytes: &[u8]) -> Result<Body<'_>, DecodeError> {
    let wrong = DecodeError::Body { kind };
    match kind {
        HELLO => {
            // Fields that a later version appends are left over and ignored.
            let (hello, _) = postcard::take_from_bytes::<Hello<'_>>(bytes).map_err(|_| wrong)?;
            if is_hello(&hello) {
                Ok(Body::Hello(hello))
            } else {
                Err(wrong)
            }
        }
        HEARTBEAT => Ok(Body::Heartbeat(
            postcard::take_from_bytes(bytes).map_err(|_| wrong)?.0,
        )),
        PAYLOAD => Ok(Body::Payload(bytes)),
        _ => Err(DecodeError::UnknownKind { kind }),
    }
}

/// Cuts a byte stream into frames.
///
/// Read into [`space`](Self::space), say how much came with [`filled`](Self::filled), then call
/// [`next_frame`](Self::next_frame) until it returns `Ok(None)`.
#[derive(Debug, Clone)]
pub struct StreamDecoder<S> {
    buffer: S,
    /// Received and not yet decoded: `start .. end` of the buffer.
    start: usize,
    end: usize,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> StreamDecoder<S> {
    /// Uses `buffer` for what has come; a frame longer than it is an error.
    #[must_use]
    pub fn new(buffer: S) -> Self {
        Self {
            buffer,
            start: 0,
            end: 0,
        }
    }

    /// Where to read more bytes to. Not empty after [`next_frame`](Self::next_frame) returned
    /// `Ok(None)`, unless the buffer is shorter than a frame's header.
    pub fn space(&mut self) -> &mut [u8] {
        let buffer = self.buffer.as_mut();
        buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut buffer[self.end..]
    }

    /// Says that the first `len_bytes` bytes of [`space`](Self::space) hold received bytes.
    pub fn filled(&mut self, len_bytes: usize) {
        self.end = self.end.saturating_add(len_bytes).min(self.buffer.as_ref().len());
    }

    /// Forgets everything received, for a new connection.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// The next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`DecodeError`]. The bytes at fault are skipped: every call that returns an error has made
    /// progress.
    pub fn next_frame(&mut self) -> Result<Option<Body<'_>>, DecodeError> {
        let received = &self.buffer.as_ref()[self.start..self.end];
        let max_bytes = MAX_BODY_BYTES.min(self.buffer.as_ref().len().saturating_sub(HEADER_BYTES));
        match frame(received, max_bytes) {
            Ok(None) => Ok(None),
            Ok(Some((kind, end))) => {
                let begin = self.start;
                self.start += end;
                body(kind, &self.buffer.as_ref()[begin + HEADER_BYTES..begin + end])
            }
            .map(Some),
            Err(error) => {
                let skipped_bytes = garbage(received);
                self.start += skipped_bytes;
                Err(match error {
                    DecodeError::Garbage { .. } => DecodeError::Garbage { skipped_bytes },
                    other => other,
                })
            }
        }
    }
}

/// How many bytes, at least one, lie before the next place where a frame may begin.
fn garbage(bytes: &[u8]) -> usize {
    let may_begin = |at: &usize| {
        let rest = &bytes[*at..];
        let known = rest.len().min(MAGIC.len());
        rest[..known] == MAGIC[..known]
    };
    (1..bytes.len()).find(may_begin).unwrap_or(bytes.len())
}

#[cfg(all(test, not(loom)))]
#[path = "control_tests.rs"]
mod tests;
