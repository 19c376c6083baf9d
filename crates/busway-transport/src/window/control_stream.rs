//! Control messages of any length, reliable and in order, through a small ring in each window.
//!
//! Contract: a message is cut into ring entries, each with a flag byte (1: the message's last).
//! Messages that do not fit are queued in ordinary memory, up to a limit. The first byte of a
//! message is its kind. Everything received is hostile. Called by the control thread, so it may
//! allocate.

use std::collections::VecDeque;

use busway_core::Window;
use busway_core::ring::{PushError, RingConsumer, RingProducer};

use super::layout::ENTRY_BYTES;
use crate::contract::ChannelId;

/// Longest message taken from the peer, in bytes.
const LONGEST_BYTES: usize = 16 << 20;
/// A peer that leaves more than this unread, in bytes, is not alive.
const MOST_QUEUED_BYTES: usize = 64 << 20;

const KIND_USER: u8 = 0;
const KIND_ATTACHED: u8 = 1;
const NO_LANE: u32 = u32::MAX;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A message of the layer above.
    User(Vec<u8>),
    /// The peer has opened its sending end of this channel; which of its lanes to ring for credit.
    Attached(ChannelId, Option<u32>),
}

/// Both directions of one conversation.
#[derive(Debug)]
pub struct ControlStream {
    out: RingProducer<Window>,
    incoming: RingConsumer<Window>,
    /// What found no room, and how much of the first is gone, in bytes.
    queue: VecDeque<Vec<u8>>,
    done_bytes: usize,
    queued_bytes: usize,
    /// A message of which the end is missing.
    partial: Vec<u8>,
    /// Bytes taken since the peer was last rung, each entry counted as a line at least.
    unrung_bytes: usize,
}

/// What a turn has brought about for the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The peer has something to read, or room that it may wait for.
    pub ring: bool,
}

impl ControlStream {
    /// A conversation through these rings.
    pub fn new(out: RingProducer<Window>, incoming: RingConsumer<Window>) -> ControlStream {
        ControlStream {
            out,
            incoming,
            queue: VecDeque::new(),
            done_bytes: 0,
            queued_bytes: 0,
            partial: Vec::new(),
            unrung_bytes: 0,
        }
    }

    /// Queues a message of the layer above.
    pub fn send(&mut self, bytes: &[u8]) {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(KIND_USER);
        message.extend_from_slice(bytes);
        self.enqueue(message);
    }

    /// Queues the news that this host has opened its sending end.
    pub fn send_attached(&mut self, channel: ChannelId, lane: Option<u32>) {
        let mut message = vec![KIND_ATTACHED];
        message.extend_from_slice(&channel.0.to_le_bytes());
        message.extend_from_slice(&lane.unwrap_or(NO_LANE).to_le_bytes());
        self.enqueue(message);
    }

    fn enqueue(&mut self, message: Vec<u8>) {
        self.queued_bytes += message.len();
        self.queue.push_back(message);
    }

    /// Moves what is queued into the ring.
    pub fn flush(&mut self) -> Result<Progress, String> {
        let chunk_bytes = self.out.layout().max_size_bytes() - 1;
        'ring: while let Some(message) = self.queue.front() {
            while self.done_bytes < message.len() {
                let rest = &message[self.done_bytes..];
                let chunk = &rest[..rest.len().min(chunk_bytes)];
                let is_last = u8::from(chunk.len() == rest.len());
                match self.out.stage(&[&[is_last], chunk], 0) {
                    Ok(()) => self.done_bytes += chunk.len(),
                    Err(PushError::Full) => break 'ring,
                    Err(error) => return Err(error.to_string()),
                }
            }
            self.queued_bytes -= self.done_bytes;
            self.done_bytes = 0;
            self.queue.pop_front();
        }
        if self.queued_bytes > MOST_QUEUED_BYTES {
            return Err(format!(
                "the peer left {} bytes of control messages unread",
                self.queued_bytes
            ));
        }
        let ring = self.out.staged() > 0;
        self.out.commit().map_err(|error| error.to_string())?;
        Ok(Progress { ring })
    }

    /// Takes the next message. `Progress` says whether the peer may wait for the space that this
    /// freed.
    pub fn receive(&mut self) -> Result<(Option<Incoming>, Progress), String> {
        let mut progress = Progress::default();
        while let Some(entry) = self.incoming.peek().map_err(|error| error.to_string())? {
            if entry.len_bytes == 0 || self.partial.len() + entry.len_bytes > LONGEST_BYTES {
                return Err(format!(
                    "a control message that is longer than {LONGEST_BYTES} bytes, or has an empty part"
                ));
            }
            let mut is_last = [0];
            let copied = self.incoming.copy(0, &mut is_last);
            let start = self.partial.len();
            self.partial.resize(start + entry.len_bytes - 1, 0);
            copied
                .and_then(|()| self.incoming.copy(1, &mut self.partial[start..]))
                .map_err(|error| error.to_string())?;
            if !self.incoming.stands() {
                return Err("the control ring is not what it was a moment ago".into());
            }
            self.incoming.release().map_err(|error| error.to_string())?;
            self.unrung_bytes += entry.len_bytes.max(ENTRY_BYTES);
            if is_last != [0] {
                let message = std::mem::take(&mut self.partial);
                return Ok((Some(understand(message)?), progress));
            }
        }
        self.incoming.flush_credits().map_err(|error| error.to_string())?;
        // A peer that waits has filled the lines or the data; do not wake it otherwise.
        let full_bytes = self
            .incoming
            .layout()
            .data_bytes()
            .min(self.incoming.layout().lines() * ENTRY_BYTES);
        if self.unrung_bytes >= full_bytes / 4 {
            self.unrung_bytes = 0;
            progress.ring = true;
        }
        Ok((None, progress))
    }
}

fn understand(mut message: Vec<u8>) -> Result<Incoming, String> {
    match message.split_first() {
        Some((&KIND_USER, _)) => {
            message.remove(0);
            Ok(Incoming::User(message))
        }
        Some((&KIND_ATTACHED, body)) => {
            let (channel, lane) = body
                .split_first_chunk::<4>()
                .and_then(|(channel, lane)| Some((channel, <[u8; 4]>::try_from(lane).ok()?)))
                .ok_or_else(|| format!("a notice of {} bytes about a channel", body.len()))?;
            let lane = Some(u32::from_le_bytes(lane)).filter(|lane| *lane != NO_LANE);
            Ok(Incoming::Attached(ChannelId(u32::from_le_bytes(*channel)), lane))
        }
        Some((kind, _)) => Err(format!("a control message of the unknown kind {kind}")),
        None => Err("an empty control message".into()),
    }
}
