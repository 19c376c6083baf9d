//! A relay between two sockets of a channel that loses, repeats, reorders, or drops long datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a relay does, in percent of datagrams, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub repeated: u64,
    pub overtaken: u64,
    /// Datagrams longer than this are dropped; 0: none.
    pub swallowed_from: usize,
}

/// Carries datagrams between two sockets until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// Datagrams that it dropped.
    pub swallowed: Arc<AtomicU64>,
    /// While set, nothing passes.
    pub is_cut: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    pub fn start(to: SocketAddr, faults: Faults, seed: u64) -> Relay {
        let bind = || {
            let socket = UdpSocket::bind((to.ip(), 0)).expect("a free port");
            socket.set_nonblocking(true).expect("a socket");
            // All loss must be the relay's own: as large as the system allows.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20);
            socket
        };
        let (front, back) = (bind(), bind());
        back.connect(to).expect("loopback");
        let address = front.local_addr().expect("bound");
        let (stop, swallowed, is_cut) = (Arc::default(), Arc::default(), Arc::default());
        let mut run = Run {
            front,
            back,
            sender: None,
            faults,
            random: seed * 2 + 1,
            held: [None, None],
            swallowed: Arc::clone(&swallowed),
            is_cut: Arc::clone(&is_cut),
        };
        let stopped: Arc<AtomicBool> = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if !run.turn() {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Relay {
            address,
            stop,
            swallowed,
            is_cut,
            thread: Some(thread),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the relay ends");
        }
    }
}

struct Run {
    front: UdpSocket,
    back: UdpSocket,
    sender: Option<SocketAddr>,
    faults: Faults,
    random: u64,
    /// A datagram of each direction that the next one overtakes.
    held: [Option<Vec<u8>>; 2],
    swallowed: Arc<AtomicU64>,
    is_cut: Arc<AtomicBool>,
}

impl Run {
    fn percent(&mut self, percent: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < percent
    }

    /// Passes on what has arrived; returns whether anything has.
    fn turn(&mut self) -> bool {
        let mut bytes = [0; 65_536];
        let mut came = false;
        for _ in 0..32 {
            if let Ok((count, from)) = self.front.recv_from(&mut bytes) {
                self.sender = Some(from);
                self.carry(0, &bytes[..count]);
                came = true;
            }
            if let Ok(count) = self.back.recv(&mut bytes) {
                self.carry(1, &bytes[..count]);
                came = true;
            }
        }
        if !came {
            // Nothing has arrived that would overtake it.
            for way in 0..2 {
                if let Some(held) = self.held[way].take() {
                    self.pass(way, &held);
                }
            }
        }
        came
    }

    fn carry(&mut self, way: usize, bytes: &[u8]) {
        let from = self.faults.swallowed_from;
        let is_swallowed = from > 0 && bytes.len() > from || self.is_cut.load(Ordering::Relaxed);
        if is_swallowed || self.percent(self.faults.lost) {
            self.swallowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.held[way].is_none() && self.percent(self.faults.overtaken) {
            self.held[way] = Some(bytes.to_vec());
            return;
        }
        self.pass(way, bytes);
        if self.percent(self.faults.repeated) {
            self.pass(way, bytes);
        }
        if let Some(held) = self.held[way].take() {
            self.pass(way, &held);
        }
    }

    fn pass(&self, way: usize, bytes: &[u8]) {
        // A datagram that fails is lost, as on any path.
        let _ = match (way, self.sender) {
            (0, _) => self.back.send(bytes),
            (_, Some(sender)) => self.front.send_to(bytes, sender),
            _ => Ok(0),
        };
    }
}
