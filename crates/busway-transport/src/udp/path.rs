//! Whether datagrams pass between the two hosts of a link. The conversation, a TCP connection, says nothing of that: a firewall or a router may carry
//! the one and drop the other.
//!
//! Each side has a socket for it, tells the peer where in its first letter of the conversation, and sends a beat at each heartbeat, which says whether it
//! hears the peer's. A link is up once a beat says so, and while beats come: whoever hears none for the timeout ends the conversation, which tells the
//! other side. Driven by [`super::link`], on its control thread.
//!
//! ```text
//! beat + 0   token    u64, little-endian, from the letter of whom it is for
//!      + 8   hears    u8: 1 once the sender has heard a beat of this conversation
//!      + 9   zero     7 bytes
//! ```

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::socket::UdpSocket;
use crate::session::landing::Landing;
use crate::stream::draw_token;

/// Begins the letter.
const MAGIC: [u8; 4] = *b"BUSP";
const BEAT_BYTES: usize = 16;
/// Datagrams looked at in one go.
const ROUND: usize = 64;

/// See the module.
pub(super) struct Path {
    socket: UdpSocket,
    token: u64,
    /// The peer's, once its letter is here.
    peer: Option<Landing>,
    hears: bool,
    is_heard: bool,
    /// A beat waits for no heartbeat: the peer does not know yet that it is heard.
    is_asked: bool,
    heard_at: Instant,
    looked_at: Instant,
    beat_at: Instant,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// Not both ways, so far.
    NotYet,
    Yes,
    /// Nothing has come for the timeout, since the last time that this was said.
    NoMore,
}

impl Path {
    /// For a conversation that has just begun.
    pub(super) fn open(
        address: IpAddr,
        foreign_datagrams: &Arc<AtomicU64>,
        now: Instant,
    ) -> std::io::Result<Path> {
        Ok(Path {
            socket: UdpSocket::bind(address, foreign_datagrams)?,
            token: draw_token(),
            peer: None,
            hears: false,
            is_heard: false,
            is_asked: false,
            heard_at: now,
            looked_at: now,
            beat_at: now,
        })
    }

    /// What the peer needs to know.
    pub(super) fn letter(&self) -> std::io::Result<Vec<u8>> {
        let landing = Landing {
            address: self.socket.local_address()?,
            token: self.token,
            description: Vec::new(),
        };
        Ok(landing.encode(MAGIC))
    }

    /// Whether the peer's letter is here.
    pub(super) fn has_letter(&self) -> bool {
        self.peer.is_some()
    }

    /// Takes in the peer's letter.
    ///
    /// # Errors
    /// In words: it is none.
    pub(super) fn read(&mut self, letter: &[u8]) -> Result<(), String> {
        let landing = Landing::decode(letter, MAGIC).map_err(|why| {
            format!("it does not say where it hears datagrams ({why}): run the same version on both hosts")
        })?;
        self.peer = Some(landing);
        Ok(())
    }

    /// Where the peer hears datagrams.
    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer.as_ref().map(|landing| landing.address)
    }

    /// The peer has gone on as if datagrams passed both ways, so they do.
    pub(super) fn believe(&mut self, now: Instant) {
        (self.hears, self.is_heard, self.heard_at) = (true, true, now);
    }

    /// Hears and sends beats, one `every` so often; none for the `timeout` is too few.
    pub(super) fn look(&mut self, every: Duration, timeout: Duration, now: Instant) -> Passing {
        // A host that did not look, for want of processor time, can't say that nothing came.
        if now.saturating_duration_since(self.looked_at) > timeout / 2 {
            self.heard_at = now;
        }
        self.looked_at = now;
        self.hear(now);
        if now >= self.beat_at || self.is_asked {
            self.beat();
            self.beat_at = now + every;
        }
        match (
            self.is_heard,
            now.saturating_duration_since(self.heard_at) >= timeout,
        ) {
            (_, true) => Passing::NoMore,
            (true, false) => Passing::Yes,
            (false, false) => Passing::NotYet,
        }
    }

    fn hear(&mut self, now: Instant) {
        let mut bytes = [0; BEAT_BYTES + 1];
        for _ in 0..ROUND {
            // An error is about an earlier beat of ours.
            let Ok(Some((count, _))) = self.socket.receive(&mut bytes) else {
                return;
            };
            let Some(hears) = decode(&bytes[..count], self.token) else {
                self.socket.count_foreign();
                continue;
            };
            self.is_asked |= !hears || !self.hears;
            self.hears = true;
            self.is_heard |= hears;
            self.heard_at = now;
        }
    }

    fn beat(&mut self) {
        if let Some(peer) = &self.peer {
            // What fails is repeated; each time connected anew, since there may have been no way before.
            let _ = self
                .socket
                .connect(peer.address)
                .and_then(|()| self.socket.send(&encode(peer.token, self.hears)));
            self.is_asked = false;
        }
    }

    /// When [`look`](Self::look) is due.
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        self.beat_at
            .min(self.heard_at + timeout)
            .min(self.looked_at + timeout / 4)
    }
}

impl AsFd for Path {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode(token: u64, hears: bool) -> [u8; BEAT_BYTES] {
    let mut bytes = [0; BEAT_BYTES];
    bytes[..8].copy_from_slice(&token.to_le_bytes());
    bytes[8] = u8::from(hears);
    bytes
}

/// Whether the sender of a beat hears; `None` if it is no beat for this token.
fn decode(bytes: &[u8], token: u64) -> Option<bool> {
    [false, true]
        .into_iter()
        .find(|hears| bytes == encode(token, *hears))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(200);
    const TIMEOUT: Duration = Duration::from_millis(1500);

    fn pair(now: Instant) -> [Path; 2] {
        let paths = [1, 2]
            .map(|last| Path::open(IpAddr::from([127, 0, 0, last]), &Arc::default(), now).expect("loopback"));
        let letters = [&paths[0], &paths[1]].map(|path| path.letter().expect("bound"));
        let mut paths = paths;
        paths[0].read(&letters[1]).expect("a letter");
        paths[1].read(&letters[0]).expect("a letter");
        paths
    }

    #[test]
    fn datagrams_pass_once_each_side_knows_that_it_is_heard_without_waiting_for_a_heartbeat() {
        let now = Instant::now();
        let mut paths = pair(now);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push([0, 1].map(|at: usize| paths[at].look(EVERY, TIMEOUT, now)));
        }
        assert_eq!(seen[0], [Passing::NotYet, Passing::NotYet]);
        assert_eq!(seen[2], [Passing::Yes, Passing::Yes], "{seen:?}");
    }

    #[test]
    fn one_way_is_not_enough() {
        let start = Instant::now();
        let open =
            |last| Path::open(IpAddr::from([127, 0, 0, last]), &Arc::default(), start).expect("loopback");
        let (mut near, mut far) = (open(1), open(2));
        // The near side does not know where to send, so that nothing of it arrives.
        far.read(&near.letter().expect("bound")).expect("a letter");
        for step in 0..20 {
            let now = start + EVERY * step;
            assert_eq!(far.look(EVERY, Duration::from_secs(100), now), Passing::NotYet);
            assert_eq!(near.look(EVERY, TIMEOUT, now), Passing::NotYet, "step {step}");
            assert!(near.hears || step == 0, "the far side is heard");
        }
    }

    #[test]
    fn silence_is_noticed_after_the_timeout_unless_nobody_looked() {
        let start = Instant::now();
        let mut paths = pair(start);
        for _ in 0..3 {
            for path in &mut paths {
                path.look(EVERY, TIMEOUT, start);
            }
        }
        let [mut near, far] = paths;
        drop(far);
        let mut last = Passing::Yes;
        for step in 1..=8 {
            assert_eq!(last, Passing::Yes, "before step {step}");
            last = near.look(EVERY, TIMEOUT, start + EVERY * step);
        }
        assert_eq!(last, Passing::NoMore);
        near.heard_at = start;
        near.looked_at = start;
        assert_eq!(near.look(EVERY, TIMEOUT, start + TIMEOUT * 3), Passing::Yes);
    }

    #[test]
    fn only_a_beat_with_the_token_is_one() {
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
