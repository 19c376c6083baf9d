//! Measures the bus `udp` beside a bare pair of sockets with segmentation offload, in the same run:
//! messages of 64 KiB from one thread to another over the loopback interface, in datagrams of 1472
//! bytes.
//!
//! `cargo run --release -p busway-transport --example udp_rate [-- ROUNDS [ROW]]`. A round is a
//! quarter of a second of each row, right after the same of the bare pair, since the speed of
//! shared memory and processors varies. Sender and receiver have a processor each. A filter on the
//! receiving socket injects loss: it drops whole groups that the kernel has joined, or single
//! datagrams where it does not; then the bare pair does not join them either.
#![allow(unsafe_code)] // sendmmsg(2), recvmmsg(2) and the filter

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{Receiver, WaitFor};

#[path = "../tests/packet_loss/mod.rs"]
mod packet_loss;
mod udp_pair;
use udp_pair::{Counter, MESSAGE_BYTES};

const DATAGRAM_BYTES: usize = 1472;
const GROUP_BYTES: usize = 44 * DATAGRAM_BYTES;
const GROUPS: usize = 8;
/// Length of a measurement, and of the time before it that does not count.
const SLICE: Duration = Duration::from_millis(250);
const WARM: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 4 << 20;

/// What is lost, in percent.
#[derive(Clone, Copy)]
enum Loss {
    None,
    Datagrams(u32),
    Groups(u32),
}

/// What is measured: the title, the channel's delivery, and the loss.
const ROWS: [(&str, &str, Loss); 6] = [
    ("best effort", "best-effort", Loss::None),
    ("reliable", "reliable", Loss::None),
    ("reliable, 1 % of groups lost", "reliable", Loss::Groups(1)),
    ("best effort, one by one", "best-effort", Loss::Datagrams(0)),
    ("reliable, one by one", "reliable", Loss::Datagrams(0)),
    ("reliable, one by one, 1 % lost", "reliable", Loss::Datagrams(1)),
];

/// The results of one row, round by round.
#[derive(Default)]
struct Found {
    bare: Vec<f64>,
    rates: Vec<f64>,
    shares: Vec<f64>,
    messages: u64,
    missing: u64,
}

fn main() {
    let argument = |at| std::env::args().nth(at);
    let rounds: usize = argument(1).map_or(9, |text| text.parse().expect("rounds"));
    let only = argument(2);
    let mut found: [Found; ROWS.len()] = Default::default();
    for _ in 0..rounds {
        for ((title, delivery, loss), found) in ROWS.into_iter().zip(&mut found) {
            if only.as_ref().is_some_and(|only| only != title) {
                continue;
            }
            let bare = bare(!matches!(loss, Loss::Datagrams(_)));
            let (rate, messages, missing) = channel(delivery, loss);
            found.bare.push(bare);
            found.rates.push(rate);
            found.shares.push(100.0 * rate / bare);
            found.messages += messages;
            found.missing += missing;
        }
    }
    println!("medians of {rounds} rounds (least to most)");
    for ((title, ..), found) in ROWS
        .iter()
        .zip(&mut found)
        .filter(|(_, found)| found.messages > 0)
    {
        let [bare, rate, share] =
            [&mut found.bare, &mut found.rates, &mut found.shares].map(|numbers| median(numbers));
        println!(
            "{:<32} {rate:>5.2} GB/s, bare {bare:>5.2} GB/s: {share:>3.0} % ({:.0} to {:.0}), {} missing of {}",
            title,
            found.shares[0],
            found.shares[rounds - 1],
            found.missing,
            found.messages
        );
    }
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// GB/s that `take` moves in [`SLICE`], after [`WARM`].
fn rate_of(mut take: impl FnMut() -> usize) -> f64 {
    let start = Instant::now();
    while start.elapsed() < WARM {
        take();
    }
    let (begin, mut bytes) = (Instant::now(), 0);
    while begin.elapsed() < SLICE {
        bytes += take();
    }
    bytes as f64 / begin.elapsed().as_secs_f64() / 1e9
}

/// GB/s that reach the receiver of a bare pair, whose datagrams arrive joined or one by one.
fn bare(is_joined: bool) -> f64 {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("loopback");
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES);
    rustix::net::sockopt::set_socket_send_buffer_size(&sender, BUFFER_BYTES).expect("a socket");
    set(sender.as_raw_fd(), libc::UDP_SEGMENT, DATAGRAM_BYTES as i32);
    set(receiver.as_raw_fd(), libc::UDP_GRO, i32::from(is_joined));
    receiver.set_nonblocking(true).expect("a socket");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("bare sends".into());
        let sending = writer.spawn_scoped(scope, || {
            pin(0);
            let bytes = vec![7u8; GROUP_BYTES];
            while !is_over.load(Ordering::Relaxed) {
                exchange(
                    sender.as_raw_fd(),
                    &mut [bytes.as_ptr().cast_mut(); GROUPS],
                    GROUP_BYTES,
                    true,
                );
            }
        });
        sending.expect("a thread");
        pin(1);
        let mut slots = vec![0u8; GROUPS << 16];
        let mut places: [*mut u8; GROUPS] = std::array::from_fn(|at| slots[at << 16..].as_mut_ptr());
        let rate = rate_of(|| {
            let bytes = exchange(receiver.as_raw_fd(), &mut places, 1 << 16, false);
            if bytes == 0 {
                std::thread::yield_now();
            }
            bytes
        });
        is_over.store(true, Ordering::Relaxed);
        rate
    })
}

/// One sendmmsg(2) or recvmmsg(2) with [`GROUPS`] buffers of `bytes` bytes; returns how many bytes
/// it moved.
fn exchange(fd: RawFd, places: &mut [*mut u8; GROUPS], bytes: usize, is_send: bool) -> usize {
    let mut slices = places.map(|place| libc::iovec {
        iov_base: place.cast(),
        iov_len: bytes,
    });
    // SAFETY: all zeros is a valid `mmsghdr`.
    let mut messages: [libc::mmsghdr; GROUPS] = unsafe { std::mem::zeroed() };
    for (message, slice) in messages.iter_mut().zip(&mut slices) {
        message.msg_hdr.msg_iov = slice;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the messages point to places of `bytes` bytes that the caller owns.
    let count = unsafe {
        if is_send {
            libc::sendmmsg(fd, messages.as_mut_ptr(), GROUPS as _, 0)
        } else {
            libc::recvmmsg(
                fd,
                messages.as_mut_ptr(),
                GROUPS as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        }
    };
    let done = usize::try_from(count).unwrap_or(0);
    messages[..done]
        .iter()
        .map(|message| message.msg_len as usize)
        .sum()
}

/// Keeps this thread on one processor, so that the scheduler does not affect the rows.
fn pin(processor: usize) {
    // SAFETY: all zeros is an empty set, and the kernel only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn set(fd: RawFd, name: i32, value: i32) {
    // SAFETY: the kernel reads an `int`, as it is told.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_UDP, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "the kernel has segmentation offload for UDP");
}

/// Makes the kernel drop what arrives at this socket, at random.
fn lose(receiver: &dyn Receiver, loss: Loss) {
    let WaitFor::Fd { fd, .. } = receiver.wait_for() else {
        panic!("a receiver over UDP has a descriptor");
    };
    let percent = match loss {
        Loss::None => return,
        Loss::Groups(percent) => percent,
        Loss::Datagrams(percent) => {
            set(fd, libc::UDP_GRO, 0);
            percent
        }
    };
    packet_loss::lose(fd, percent);
}

/// GB/s that reach the sink, the number of messages, and of those missing between them.
fn channel(delivery: &str, loss: Loss) -> (f64, u64, u64) {
    // Each channel has its own port, so that none meets connections just closed.
    static PORT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number by itself.
    let port = 20_000 + (std::process::id() * 64 + PORT.fetch_add(1, Ordering::Relaxed)) % 40_000;
    let rest = format!("delivery = '{delivery}'\nmtu = 1500");
    let mut links = udp_pair::links([
        format!("listen = '127.0.0.9:{port}'\n{rest}"),
        format!("address = '127.0.0.9'\n{rest}"),
    ]);
    let (sender, mut receiver) = udp_pair::open(&mut links, |_| ());
    lose(&*receiver, loss);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let writer = std::thread::Builder::new().name("sends".into());
        let sending = writer.spawn_scoped(scope, move || {
            pin(0);
            udp_pair::send_on(sender, is_over, std::thread::yield_now);
        });
        sending.expect("a thread");
        scope.spawn(move || udp_pair::tend(links, is_over));
        pin(1);
        let mut counter = Counter::new();
        let rate = rate_of(|| {
            let delivered = receiver.poll(&mut counter, 64).expect("well");
            if delivered == 0 {
                std::thread::yield_now();
            }
            delivered * MESSAGE_BYTES
        });
        is_over.store(true, Ordering::Relaxed);
        (rate, counter.messages, counter.missing)
    })
}
