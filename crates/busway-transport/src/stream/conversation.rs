//! The control connection: frames in, frames out, and the time of the peer's last frame. Owned by
//! the link.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use busway_core::control::{
    self, Body, ByteOrder, HEADER_BYTES, Heartbeat, Hello, MAX_BODY_BYTES, PROTOCOL_VERSION, StreamDecoder,
};

use super::bus::Socket;
use super::opening::Greeting;
use crate::contract::LinkIdentity;

/// Bytes that may wait for the peer at most; one that reads so slowly is not well.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// A frame that arrived.
pub(super) enum Frame {
    Greeting(Greeting),
    Heartbeat,
    Payload(Vec<u8>),
}

pub(super) struct Conversation<S> {
    socket: S,
    decoder: StreamDecoder<Box<[u8]>>,
    /// `out[out_done..]` waits for the socket.
    out: Vec<u8>,
    out_done: usize,
    heartbeats: u64,
    /// When bytes of the peer last arrived.
    pub(super) heard_at: Instant,
    /// Bytes that the socket has taken since the start.
    written_bytes: u64,
    /// When the peer last took bytes, or had none to take; and `written_bytes` at that time.
    moved_at: Instant,
    moved_bytes: u64,
}

impl<S: Socket> Conversation<S> {
    pub(super) fn new(socket: S, now: Instant) -> Self {
        Conversation {
            socket,
            decoder: StreamDecoder::new(vec![0; HEADER_BYTES + MAX_BODY_BYTES].into_boxed_slice()),
            out: Vec::new(),
            out_done: 0,
            heartbeats: 0,
            heard_at: now,
            written_bytes: 0,
            moved_at: now,
            moved_bytes: 0,
        }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    pub(super) fn greet(&mut self, identity: &LinkIdentity) -> Result<(), String> {
        self.say(&Body::Hello(Hello {
            protocol_version: PROTOCOL_VERSION,
            byte_order: ByteOrder::NATIVE,
            session: identity.session,
            host: &identity.host,
            iceoryx2_version: &identity.application,
        }))
    }

    pub(super) fn heartbeat(&mut self, session: u64) -> Result<(), String> {
        self.heartbeats += 1;
        self.say(&Body::Heartbeat(Heartbeat {
            session,
            count: self.heartbeats,
            time_ns: 0,
        }))
    }

    pub(super) fn say_payload(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.say(&Body::Payload(bytes))
    }

    /// Queues a frame and writes what fits.
    fn say(&mut self, body: &Body<'_>) -> Result<(), String> {
        let body_bytes = match body {
            Body::Payload(bytes) => bytes.len(),
            Body::Hello(_) | Body::Heartbeat(_) => 1024,
        };
        let start = self.out.len();
        self.out.resize(start + HEADER_BYTES + body_bytes, 0);
        match control::encode(body, &mut self.out[start..]) {
            Ok(frame_bytes) => self.out.truncate(start + frame_bytes),
            Err(error) => {
                self.out.truncate(start);
                return Err(error.to_string());
            }
        }
        if self.out.len() - self.out_done > MAX_WAITING_BYTES {
            return Err(format!("the peer has left {MAX_WAITING_BYTES} bytes unread"));
        }
        self.write()
    }

    /// Writes as much as fits.
    pub(super) fn write(&mut self) -> Result<(), String> {
        while self.out_done < self.out.len() {
            match self.socket.write(&[IoSlice::new(&self.out[self.out_done..])]) {
                Ok(Some(bytes)) => {
                    self.out_done += bytes;
                    self.written_bytes += bytes as u64;
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(format!("the control connection failed: {error}")),
            }
        }
        self.out.clear();
        self.out_done = 0;
        Ok(())
    }

    /// Whether something waits for the socket.
    pub(super) fn is_waiting(&self) -> bool {
        !self.out.is_empty()
    }

    /// For how long the peer has taken nothing of what waits for it, as far as was looked.
    pub(super) fn stalled_for(&mut self, now: Instant) -> Duration {
        if !self.is_waiting() || self.written_bytes != self.moved_bytes {
            self.moved_at = now;
            self.moved_bytes = self.written_bytes;
        }
        now.saturating_duration_since(self.moved_at)
    }

    /// The next frame, `None` if none is there; an error ends the conversation.
    pub(super) fn hear(&mut self, now: Instant) -> Result<Option<Frame>, String> {
        loop {
            if let Some(body) = self.decoder.next_frame().map_err(|error| error.to_string())? {
                return Ok(Some(match body {
                    Body::Hello(hello) => Frame::Greeting(hello.into()),
                    Body::Heartbeat(_) => Frame::Heartbeat,
                    Body::Payload(bytes) => Frame::Payload(bytes.to_vec()),
                }));
            }
            match self.socket.read(self.decoder.space()) {
                Ok(None) => return Ok(None),
                Ok(Some(0)) => return Err("the peer closed the control connection".into()),
                Ok(Some(bytes)) => {
                    self.decoder.filled(bytes);
                    self.heard_at = now;
                }
                Err(error) => return Err(format!("the control connection failed: {error}")),
            }
        }
    }
}
