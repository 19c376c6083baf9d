//! Checks whether datagrams pass between the two hosts of a link. A firewall or router may pass the
//! TCP conversation and drop datagrams.
//!
//! Each side has a socket for it, sends its address to the peer in its first control message, and
//! sends a beat at each heartbeat, which says whether it receives the peer's beats. A link is up
//! once a beat says so, and while beats come. A side that receives none within the timeout ends the
//! conversation, which informs the other side.
//!
//! ```text
//! beat + 0   token     u64, little-endian, from the control message of the recipient
//!      + 8   receives  u8: 1 once the sender has received a beat of this conversation
//!      + 9   zero      7 bytes
//! ```

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::socket::UdpSocket;
use crate::session::landing::Landing;
use crate::session::token::draw_token;

const MAGIC: [u8; 4] = *b"BUSP";
const BEAT_BYTES: usize = 16;
const ROUND: usize = 64;

pub(super) struct Path {
    socket: UdpSocket,
    token: u64,
    /// The peer's address and token, once its control message has arrived.
    peer: Option<Landing>,
    receives: bool,
    is_received: bool,
    /// Send a beat at once: the peer does not know yet that its beats arrive.
    must_send: bool,
    received_at: Instant,
    checked_at: Instant,
    beat_at: Instant,
}

/// Whether datagrams pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// Not both ways, so far.
    NotYet,
    Yes,
    /// Nothing has arrived within the timeout, since this was last returned.
    NoLonger,
}

impl Path {
    pub(super) fn open(
        address: IpAddr,
        foreign_datagrams: &Arc<AtomicU64>,
        now: Instant,
    ) -> std::io::Result<Path> {
        Ok(Path {
            socket: UdpSocket::bind(address, foreign_datagrams)?,
            token: draw_token(),
            peer: None,
            receives: false,
            is_received: false,
            must_send: false,
            received_at: now,
            checked_at: now,
            beat_at: now,
        })
    }

    pub(super) fn control_message(&self) -> std::io::Result<Vec<u8>> {
        let landing = Landing {
            address: self.socket.local_address()?,
            token: self.token,
            description: Vec::new(),
        };
        Ok(landing.encode(MAGIC))
    }

    pub(super) fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Reads the peer's control message.
    ///
    /// # Errors
    /// In words: what is wrong with it.
    pub(super) fn read(&mut self, control_message: &[u8]) -> Result<(), String> {
        let landing = Landing::decode(control_message, MAGIC).map_err(|why| {
            format!("it does not say where it receives datagrams ({why}): run the same version on both hosts")
        })?;
        self.peer = Some(landing);
        Ok(())
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer.as_ref().map(|landing| landing.address)
    }

    /// The peer has acted as if datagrams passed both ways, so they do.
    pub(super) fn assume_passing(&mut self, now: Instant) {
        (self.receives, self.is_received, self.received_at) = (true, true, now);
    }

    /// Receives beats, and sends one `every` so often. Returns [`Passing::NoLonger`] if none has
    /// arrived within the timeout.
    pub(super) fn check(&mut self, every: Duration, timeout: Duration, now: Instant) -> Passing {
        // A host that had no processor time cannot know that nothing arrived.
        if now.saturating_duration_since(self.checked_at) > timeout / 2 {
            self.received_at = now;
        }
        self.checked_at = now;
        self.receive(now);
        if now >= self.beat_at || self.must_send {
            self.beat();
            self.beat_at = now + every;
        }
        match (
            self.is_received,
            now.saturating_duration_since(self.received_at) >= timeout,
        ) {
            (_, true) => Passing::NoLonger,
            (true, false) => Passing::Yes,
            (false, false) => Passing::NotYet,
        }
    }

    fn receive(&mut self, now: Instant) {
        let mut bytes = [0; BEAT_BYTES + 1];
        for _ in 0..ROUND {
            // An error is about an earlier beat of this host.
            let Ok(Some((count, _))) = self.socket.receive(&mut bytes) else {
                return;
            };
            let Some(receives) = decode(&bytes[..count], self.token) else {
                self.socket.count_foreign();
                continue;
            };
            self.must_send |= !receives || !self.receives;
            self.receives = true;
            self.is_received |= receives;
            self.received_at = now;
        }
    }

    fn beat(&mut self) {
        if let Some(peer) = &self.peer {
            // A beat that fails is repeated. Connects each time: there may have been no route
            // before.
            let _ = self
                .socket
                .connect(peer.address)
                .and_then(|()| self.socket.send(&encode(peer.token, self.receives)));
            self.must_send = false;
        }
    }

    /// When to call [`check`](Self::check).
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        self.beat_at
            .min(self.received_at + timeout)
            .min(self.checked_at + timeout / 4)
    }
}

impl AsFd for Path {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode(token: u64, receives: bool) -> [u8; BEAT_BYTES] {
    let mut bytes = [0; BEAT_BYTES];
    bytes[..8].copy_from_slice(&token.to_le_bytes());
    bytes[8] = u8::from(receives);
    bytes
}

/// Whether the sender of a beat receives beats; `None` if it is no beat with this token.
fn decode(bytes: &[u8], token: u64) -> Option<bool> {
    [false, true]
        .into_iter()
        .find(|receives| bytes == encode(token, *receives))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(200);
    const TIMEOUT: Duration = Duration::from_millis(1500);

    fn pair(now: Instant) -> [Path; 2] {
        let paths = [1, 2]
            .map(|last| Path::open(IpAddr::from([127, 0, 0, last]), &Arc::default(), now).expect("loopback"));
        let letters = [&paths[0], &paths[1]].map(|path| path.control_message().expect("bound"));
        let mut paths = paths;
        paths[0].read(&letters[1]).expect("a letter");
        paths[1].read(&letters[0]).expect("a letter");
        paths
    }

    #[test]
    fn path_passes_without_waiting_for_a_heartbeat() {
        let now = Instant::now();
        let mut paths = pair(now);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push([0, 1].map(|at: usize| paths[at].check(EVERY, TIMEOUT, now)));
        }
        assert_eq!(seen[0], [Passing::NotYet, Passing::NotYet]);
        assert_eq!(seen[2], [Passing::Yes, Passing::Yes], "{seen:?}");
    }

    #[test]
    fn path_that_passes_one_way_only_does_not_pass() {
        let start = Instant::now();
        let open =
            |last| Path::open(IpAddr::from([127, 0, 0, last]), &Arc::default(), start).expect("loopback");
        let (mut near, mut far) = (open(1), open(2));
        // `near` does not know where to send, so nothing of it arrives.
        far.read(&near.control_message().expect("bound"))
            .expect("a letter");
        for step in 0..20 {
            let now = start + EVERY * step;
            assert_eq!(far.check(EVERY, Duration::from_secs(100), now), Passing::NotYet);
            assert_eq!(near.check(EVERY, TIMEOUT, now), Passing::NotYet, "step {step}");
            assert!(near.receives || step == 0, "the far side is heard");
        }
    }

    #[test]
    fn silence_ends_path_after_timeout_unless_unpolled() {
        let start = Instant::now();
        let mut paths = pair(start);
        for _ in 0..3 {
            for path in &mut paths {
                path.check(EVERY, TIMEOUT, start);
            }
        }
        let [mut near, far] = paths;
        drop(far);
        let mut last = Passing::Yes;
        for step in 1..=8 {
            assert_eq!(last, Passing::Yes, "before step {step}");
            last = near.check(EVERY, TIMEOUT, start + EVERY * step);
        }
        assert_eq!(last, Passing::NoLonger);
        near.received_at = start;
        near.checked_at = start;
        assert_eq!(near.check(EVERY, TIMEOUT, start + TIMEOUT * 3), Passing::Yes);
    }

    #[test]
    fn beat_without_the_token_is_refused() {
        let beat = encode(7, true);
        assert_eq!(decode(&beat, 7), Some(true));
        assert_eq!(decode(&encode(7, false), 7), Some(false));
        assert_eq!(decode(&beat, 8), None);
        assert_eq!(decode(&beat[..15], 7), None);
        assert_eq!(decode(&[&beat[..], &[0]].concat(), 7), None);
        let mut other = beat;
        other[8] = 2;
        assert_eq!(decode(&other, 7), None);
    }
}
