//! The contract of every bus, for TCP over the loopback interface.

mod contract;

use std::any::Any;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use busway_core::control::{self, Body, ByteOrder, Hello, PROTOCOL_VERSION};
use busway_transport::registry::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};

/// Host `one` listens, `two` connects.
struct Tcp {
    address: SocketAddr,
}

impl Tcp {
    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        if side == Side::One {
            table.insert("listen".into(), self.address.to_string().into());
        }
        toml::Value::Table(table)
    }
}

impl BusUnderTest for Tcp {
    fn new() -> Self {
        // Each place has a loopback address of its own, so that no two tests and no two test runs meet.
        static PLACES: AtomicU16 = AtomicU16::new(0);
        let [high, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id().to_be_bytes();
        let ip = [127, process[3], high.wrapping_add(process[2]).max(1), low];
        Tcp {
            address: SocketAddr::from((ip, 7400)),
        }
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        let host = |side| parse_host("tcp", self.table(side)).expect("a good table");
        let settings = link_settings("tcp", host(side), host(side.other()), side == Side::One);
        settings.validate().expect("good settings");
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    }

    fn attack(&self, victim: Side, seed: u64) {
        if victim == Side::Two {
            // The connecting side has no port; its peer's bytes are hostile in tests/tcp.rs.
            return;
        }
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            return;
        };
        let mut bytes = vec![0; 1 + seed as usize * 97 % 5000];
        contract::harness::fill(&mut bytes, seed);
        match seed % 4 {
            // A head of ours before the garbage.
            0 => bytes[..4.min(seed as usize)].copy_from_slice(&b"BUSW"[..4.min(seed as usize)]),
            1 if bytes.len() > 8 => bytes[..8].copy_from_slice(b"BUSC\x01\0\0\0"),
            _ => {}
        }
        // The victim may close at the first byte.
        let _ = stream.write_all(&bytes);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (stop.clone(), self.address);
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
            let speak = |mut stream: TcpStream| {
                let _ = stream.write_all(&frame[..length]);
                let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                let _ = stream.read(&mut [0; 256]);
            };
            let listener = (side == Side::One).then(|| TcpListener::bind(address).expect("a free address"));
            if let Some(listener) = &listener {
                listener.set_nonblocking(true).expect("a socket");
            }
            while !stopped.load(Ordering::Relaxed) {
                match &listener {
                    Some(listener) => {
                        if let Ok((stream, _)) = listener.accept() {
                            stream.set_nonblocking(false).expect("a socket");
                            speak(stream);
                        }
                    }
                    None => {
                        if let Ok(stream) = TcpStream::connect(address) {
                            speak(stream);
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

contract::contract_tests!(Tcp);
