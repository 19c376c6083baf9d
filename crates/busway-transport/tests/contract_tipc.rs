//! The contract of every bus, for TIPC between two nodes.

mod contract;
mod tipc_nodes;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use busway_core::control::{self, Body, ByteOrder, Hello, PROTOCOL_VERSION};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};
use tipc_nodes::{Nodes, RawSocket};

/// Host `one` accepts, `two` connects. The address is given and not derived, so that tests do not
/// meet each other.
struct Tipc {
    instance: u32,
}

impl BusUnderTest for Tipc {
    fn new() -> Self {
        Tipc {
            instance: tipc_nodes::instance(),
        }
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        tipc_nodes::open(Nodes::get(), side, identity, self.instance, "importance = 'high'")
    }

    fn attack(&self, victim: Side, seed: u64) {
        if victim == Side::Two {
            // The connecting side has no address; its peer's bytes are hostile in tests/tipc.rs.
            return;
        }
        let mut bytes = vec![0; 1 + seed as usize * 97 % 5000];
        contract::harness::fill(&mut bytes, seed);
        match seed % 4 {
            // A head of ours before the garbage.
            0 => bytes[..4.min(seed as usize)].copy_from_slice(&b"BUSW"[..4.min(seed as usize)]),
            1 if bytes.len() > 8 => bytes[..8].copy_from_slice(b"BUSC\x01\0\0\0"),
            _ => {}
        }
        let instance = self.instance;
        // The victim accepts only when it is polled, after this returns.
        std::thread::spawn(move || {
            let stranger = RawSocket::new(Side::Two, libc::SOCK_STREAM);
            stranger.set_timeouts(Duration::from_secs(1));
            if stranger.connect(instance).is_ok() {
                // The victim may close at the first byte.
                let _ = stranger.send(&bytes);
            }
        });
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, instance) = (stop.clone(), self.instance);
        let listener = (side == Side::One).then(|| RawSocket::listen(side, libc::SOCK_STREAM, instance));
        let thread = std::thread::spawn(move || {
            let mut frame = [0; 256];
            let hello = Hello {
                protocol_version: PROTOCOL_VERSION + 1,
                byte_order: ByteOrder::NATIVE,
                session: 5,
                host: side.name(),
                iceoryx2_version: "",
            };
            let length = control::encode(&Body::Hello(hello), &mut frame).expect("it fits");
            let speak = |socket: RawSocket| {
                socket.set_timeouts(Duration::from_millis(20));
                let _ = socket.send(&frame[..length]);
                let _ = socket.receive(&mut [0; 256]);
            };
            if let Some(listener) = &listener {
                listener.set_timeouts(Duration::from_millis(20));
            }
            while !stopped.load(Ordering::Relaxed) {
                match &listener {
                    Some(listener) => {
                        if let Ok(socket) = listener.accept() {
                            speak(socket);
                        }
                    }
                    None => {
                        let socket = RawSocket::new(side, libc::SOCK_STREAM);
                        socket.set_timeouts(Duration::from_secs(1));
                        if socket.connect(instance).is_ok() {
                            speak(socket);
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Box::new(Impostor(stop, Some(thread)))
    }
}

/// Ends the thread when it is dropped.
struct Impostor(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Drop for Impostor {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().expect("the impostor ends");
        }
    }
}

contract::contract_tests!(Tipc, ignore = "needs TIPC in the kernel: cargo xtask lab runs it");
