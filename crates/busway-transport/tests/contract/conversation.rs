//! A stranger on the address of a conversation over connections, for the buses that have one.

use std::any::Any;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use busway_core::control::{self, Body, ByteOrder, Hello, PROTOCOL_VERSION};
use socket2::{SockAddr, Socket, Type};

use super::Side;
use super::harness::fill;

/// Connects and writes garbage, a different one for each seed.
pub fn attack(address: impl Into<SockAddr>, seed: u64) {
    let Ok(mut stream) = connect(&address.into()) else {
        return;
    };
    let mut bytes = vec![0; 1 + seed as usize * 97 % 5000];
    fill(&mut bytes, seed);
    match seed % 4 {
        // A head of ours before the garbage.
        0 => bytes[..4.min(seed as usize)].copy_from_slice(&b"BUSW"[..4.min(seed as usize)]),
        1 if bytes.len() > 8 => bytes[..8].copy_from_slice(b"BUSC\x01\0\0\0"),
        _ => {}
    }
    // The victim may close at the first byte.
    let _ = stream.write_all(&bytes);
}

fn connect(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.connect(address)?;
    Ok(socket)
}

fn listen(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(address)?;
    socket.listen(16)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes the place of `side`, which listens on the address if it is [`Side::One`], as a host with
/// another protocol version.
pub fn other_version(side: Side, address: impl Into<SockAddr>) -> Box<dyn Any> {
    let address = address.into();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
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
        let speak = |mut stream: Socket| {
            let _ = stream.write_all(&frame[..length]);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 256]);
        };
        let listener = (side == Side::One).then(|| listen(&address).expect("a free address"));
        while !stopped.load(Ordering::Relaxed) {
            match &listener {
                Some(listener) => {
                    if let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(false).expect("a socket");
                        speak(stream);
                    }
                }
                None => {
                    if let Ok(stream) = connect(&address) {
                        speak(stream);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    Box::new(Impostor(stop, Some(thread)))
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
