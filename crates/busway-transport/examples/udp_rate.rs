//! How fast the bus `udp` is beside a bare pair of sockets with segmentation offload, in the same run: messages of 64 KiB from one thread to
//! another over the loopback interface, in datagrams of 1472 bytes.
//!
//! `cargo run --release -p busway-transport --example udp_rate [-- SECONDS]`. Loss is injected by a filter on the receiving socket
//! (socket(7), SO_ATTACH_FILTER), which drops what it sees at random: single datagrams (then they are not joined), or whole groups.
#![allow(unsafe_code)] // sendmmsg(2), recvmmsg(2) and the filter

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_transport::registry::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Head, Keep, Kind, Landing, Link, LinkEvent, LinkIdentity, Message,
    Receiver, Refused, Sender, Sink, Verdict, WaitFor,
};

const MESSAGE_BYTES: usize = 64 * 1024;
const DATAGRAM_BYTES: usize = 1472;
const GROUP_BYTES: usize = 44 * DATAGRAM_BYTES;
const GROUPS: usize = 8;
const BUFFER_BYTES: usize = 4 << 20;
/// Instructions of the filter: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// A message whose bytes are always there.
#[derive(Debug)]
struct Static(Head);

static BYTES: [u8; MESSAGE_BYTES] = [7; MESSAGE_BYTES];

impl Message for Static {
    fn head(&self) -> &Head {
        &self.0
    }
    fn user_header(&self) -> &[u8] {
        &[]
    }
    fn payload(&self) -> &[u8] {
        &BYTES
    }
}

/// Counts what comes, and what is missing.
struct Counter {
    place: Vec<u8>,
    last: u64,
    missing: u64,
    messages: u64,
}

impl Sink for Counter {
    fn land(&mut self, _: &Head) -> Verdict {
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.place,
        }
    }
    fn deliver(&mut self, head: &Head) {
        assert!(head.sequence > self.last, "in order, none twice");
        self.missing += head.sequence - self.last - 1;
        self.last = head.sequence;
        self.messages += 1;
    }
    fn abandon(&mut self) {}
}

/// What is lost on the way, in percent.
#[derive(Clone, Copy)]
enum Loss {
    None,
    Datagrams(u32),
    Groups(u32),
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .map_or(2.0, |text| text.parse().expect("seconds"));
    let run = Duration::from_secs_f64(seconds);
    let bare = bare(run);
    println!(
        "{:<44} {:>8} {:>8} {:>10} {:>9}",
        "", "GB/s", "of bare", "messages", "missing"
    );
    println!(
        "{:<44} {bare:>8.2} {:>7.0}%",
        "bare sendmmsg/recvmmsg with UDP_SEGMENT, UDP_GRO", 100.0
    );
    for (title, delivery, loss) in [
        ("best effort", "best-effort", Loss::None),
        ("reliable", "reliable", Loss::None),
        ("reliable, 1 % of groups lost", "reliable", Loss::Groups(1)),
        (
            "reliable, datagrams taken one by one",
            "reliable",
            Loss::Datagrams(0),
        ),
        ("reliable, 1 % of datagrams lost", "reliable", Loss::Datagrams(1)),
    ] {
        let (rate, counter) = channel(delivery, loss, run);
        println!(
            "{title:<44} {rate:>8.2} {:>7.0}% {:>10} {:>9}",
            100.0 * rate / bare,
            counter.messages,
            counter.missing
        );
    }
}

/// GB/s that reach the receiver.
fn bare(run: Duration) -> f64 {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("loopback");
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES);
    rustix::net::sockopt::set_socket_send_buffer_size(&sender, BUFFER_BYTES).expect("a socket");
    set(sender.as_raw_fd(), libc::UDP_SEGMENT, DATAGRAM_BYTES as i32);
    set(receiver.as_raw_fd(), libc::UDP_GRO, 1);
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a socket");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
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
        let mut slots = vec![0u8; GROUPS << 16];
        let mut places: [*mut u8; GROUPS] = std::array::from_fn(|at| slots[at << 16..].as_mut_ptr());
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed() < run {
            bytes += exchange(receiver.as_raw_fd(), &mut places, 1 << 16, false);
        }
        let rate = bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
        is_over.store(true, Ordering::Relaxed);
        rate
    })
}

/// One sendmmsg(2) or recvmmsg(2) of [`GROUPS`] places of so many bytes; returns how many bytes went.
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
                libc::MSG_WAITFORONE as _,
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

fn set(fd: RawFd, name: i32, value: i32) {
    // SAFETY: the kernel reads an `int`, as it is told.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_UDP, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "the kernel has segmentation offload for UDP");
}

/// Makes the kernel drop what comes for this socket, at random.
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
    let step = |code: u16, k: u32, jf: u8| libc::sock_filter { code, jt: 0, jf, k };
    // Load a random number, and drop where it is below the threshold (linux/filter.h: SKF_AD_OFF + SKF_AD_RANDOM).
    let mut program = [
        step(LOAD_WORD, (-0x1000 + 56) as u32, 0),
        step(JUMP_IF_AT_LEAST, u32::MAX / 100 * percent, 1),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, of that length, from the pointer.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

type Ends = (Box<dyn Sender<Static>>, Box<dyn Receiver>);

fn open(links: &mut [Box<dyn Link<Static>>; 2]) -> Ends {
    let spec = ChannelSpec {
        keep: Keep::All { depth: 64 },
        message_bytes: MESSAGE_BYTES as u64,
    };
    let (mut sender, mut receiver, mut up) = (None, None, 0);
    loop {
        for link in links.iter_mut() {
            while let Some(event) = link.poll(Instant::now()) {
                match event {
                    LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end))) => sender = Some(end),
                    LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end))) => receiver = Some(end),
                    LinkEvent::Up(_) => up += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        if up == 2 {
            up = 3;
            let landing = links[1].open_receiver(ChannelId(1), &spec, 0).expect("room");
            links[0]
                .open_sender(ChannelId(1), &spec, &landing, 0)
                .expect("a good landing");
        }
        match (sender.take(), receiver.take()) {
            (Some(sender), Some(receiver)) => return (sender, receiver),
            unfinished => (sender, receiver) = unfinished,
        }
    }
}

/// GB/s that reach the sink, and what it has counted.
fn channel(delivery: &str, loss: Loss, run: Duration) -> (f64, Counter) {
    let port = 20_000 + std::process::id() % 10_000;
    let table = |own: &str| {
        let text = format!("{own}\ndelivery = '{delivery}'\nmtu = 1500");
        parse_host("udp", toml::from_str(&text).expect("TOML")).expect("a good table")
    };
    let tables = [
        format!("listen = '127.0.0.9:{port}'"),
        "address = '127.0.0.9'".into(),
    ];
    let mut links = [0, 1].map(|at| {
        let names = ["one", "two"];
        let identity = LinkIdentity {
            host: names[at].into(),
            session: 1 + at as u64,
            application: String::new(),
        };
        let settings = link_settings("udp", table(&tables[at]), table(&tables[1 - at]), at == 0);
        Buses::new(identity)
            .open::<Static>(&settings, names[1 - at])
            .expect("good settings")
    });
    let (mut sender, mut receiver) = open(&mut links);
    lose(&*receiver, loss);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || {
            let mut sequence = 0;
            while !is_over.load(Ordering::Relaxed) {
                let message = Static(Head {
                    sequence: sequence + 1,
                    origin: 1,
                    time_ns: 0,
                    payload_bytes: MESSAGE_BYTES as u64,
                    events: 0,
                    user_header_bytes: 0,
                    kind: Kind::Data,
                });
                match sender.send(message) {
                    Ok(()) => sequence += 1,
                    Err(Refused::Full(_)) => {
                        sender.flush().expect("well");
                        std::thread::yield_now();
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for link in &mut links {
                    while link.poll(Instant::now()).is_some() {}
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut counter = Counter {
            place: vec![0; MESSAGE_BYTES],
            last: 0,
            missing: 0,
            messages: 0,
        };
        let begin = Instant::now();
        while begin.elapsed() < run {
            if receiver.poll(&mut counter, 64).expect("well") == 0 {
                std::thread::yield_now();
            }
        }
        let rate = counter.messages as f64 * MESSAGE_BYTES as f64 / begin.elapsed().as_secs_f64() / 1e9;
        is_over.store(true, Ordering::Relaxed);
        (rate, counter)
    })
}
