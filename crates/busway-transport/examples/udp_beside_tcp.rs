//! Measures how the bus `udp` shares a bottleneck with TCP (CUBIC, Linux's default): a reliable
//! channel and a TCP connection between the same hosts, through a token bucket with a queue
//! (tc-tbf(8)) on a router, all in network namespaces. Needs root, `ip` and `tc`.
//!
//! `cargo run --release -p busway-transport --example udp_beside_tcp [-- MBIT [QUEUE_MS...]]`
//! prints for each length of the queue what each carries alone and what both carry together,
//! whoever starts first.
#![allow(unsafe_code)] // setns(2) and TCP_CONGESTION

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

mod udp_pair;
use udp_pair::{Counter, MESSAGE_BYTES};

/// The sender's host and the receiver's. Each shares a network with the router, whose host number
/// there is 254.
const ADDRESSES: [&str; 2] = ["198.18.1.1", "198.18.2.1"];
/// Time before counting starts.
const WARM: Duration = Duration::from_secs(5);
const ALONE: Duration = Duration::from_secs(5);
const TOGETHER: Duration = Duration::from_secs(20);

/// Three network namespaces, two hosts and a router, removed when dropped. The bottleneck is the
/// router's way to the receiver: in a queue of its own host, TCP puts at most a millisecond's worth
/// (tcp_limit_output_bytes in ip-sysctl) and could not claim its share.
struct Wire([String; 3]);

impl Wire {
    fn new(mbit: u32, queue_ms: u32) -> Wire {
        let wire = Wire(["a", "b", "r"].map(|side| format!("bw{}{side}", std::process::id())));
        let router = &wire.0[2];
        for name in &wire.0 {
            shell(&format!("ip netns add {name} && ip -n {name} link set lo up"));
        }
        for (at, (name, address)) in wire.0.iter().zip(ADDRESSES).enumerate() {
            let gateway = address.replace(".1.1", ".1.254").replace(".2.1", ".2.254");
            shell(&format!(
                "ip link add veth0 netns {name} type veth peer name veth{at} netns {router}
                 ip -n {name} address add {address}/24 dev veth0 && ip -n {name} link set veth0 up
                 ip -n {router} address add {gateway}/24 dev veth{at} && ip -n {router} link set veth{at} up
                 ip -n {name} route add default via {gateway}"
            ));
        }
        shell(&format!(
            "ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1
             tc -n {router} qdisc add dev veth1 root tbf rate {mbit}mbit burst 32kb latency {queue_ms}ms"
        ));
        wire
    }

    /// Opens the later sockets of this thread on that host.
    fn enter(&self, at: usize) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0[at])).expect("made above");
        // SAFETY: the descriptor is open.
        let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn shell(line: &str) {
    let status = Command::new("sh").args(["-c", line]).status().expect("a shell");
    assert!(status.success(), "`{line}` failed: are you root?");
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u32>().expect("a number"));
    let mbit = numbers.next().unwrap_or(200);
    let mut queues_ms: Vec<u32> = numbers.collect();
    if queues_ms.is_empty() {
        queues_ms = vec![100, 40, 10];
    }
    println!("{mbit} Mbit/s; payload in Mbit/s");
    for queue_ms in queues_ms {
        let wire = Wire::new(mbit, queue_ms);
        let udp_alone = run(&wire, Some(Duration::ZERO), None).0;
        let tcp_alone = run(&wire, None, Some(Duration::ZERO)).1;
        println!("queue of {queue_ms} ms: UDP alone {udp_alone:.0}, TCP alone {tcp_alone:.0}");
        for (who, udp_after, tcp_after) in [("UDP", 0, 2), ("TCP", 2, 0)] {
            let after = |seconds| Some(Duration::from_secs(seconds));
            let (udp, tcp) = run(&wire, after(udp_after), after(tcp_after));
            println!("  together, {who} first: UDP {udp:.0}, TCP {tcp:.0}");
        }
    }
}

/// What UDP and TCP carry in Mbit/s. Each starts after the given time, or not at all.
fn run(wire: &Wire, udp: Option<Duration>, tcp: Option<Duration>) -> (f64, f64) {
    let is_over = AtomicBool::new(false);
    let (udp_bytes, tcp_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let counted = if udp.is_some() && tcp.is_some() {
        TOGETHER
    } else {
        ALONE
    };
    let (over, udp_carried, tcp_carried) = (&is_over, &udp_bytes, &tcp_bytes);
    std::thread::scope(|scope| {
        if let Some(after) = udp {
            scope.spawn(move || {
                std::thread::sleep(after);
                carry_udp(wire, over, udp_carried);
            });
        }
        if let Some(after) = tcp {
            scope.spawn(move || {
                std::thread::sleep(after);
                carry_tcp(wire, over, tcp_carried);
            });
        }
        std::thread::sleep(WARM + udp.max(tcp).unwrap_or_default());
        // Relaxed, here and below: counts by themselves.
        let now = || [&udp_bytes, &tcp_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        let before = now();
        std::thread::sleep(counted);
        let [udp, tcp] = [0, 1].map(|at| (now()[at] - before[at]) as f64 * 8e-6 / counted.as_secs_f64());
        is_over.store(true, Ordering::Relaxed);
        (udp, tcp)
    })
}

fn carry_udp(wire: &Wire, is_over: &AtomicBool, bytes: &AtomicU64) {
    static PORT: AtomicU32 = AtomicU32::new(7400);
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let mut links = udp_pair::links([
        format!("listen = '{}:{port}'", ADDRESSES[0]),
        format!("address = '{}'", ADDRESSES[1]),
    ]);
    let (sender, mut receiver) = udp_pair::open(&mut links, |at| wire.enter(at));
    let idle = || std::thread::sleep(Duration::from_micros(200));
    std::thread::scope(|scope| {
        scope.spawn(move || udp_pair::send_on(sender, is_over, idle));
        scope.spawn(move || udp_pair::tend(links, is_over));
        let mut counter = Counter::new();
        while !is_over.load(Ordering::Relaxed) {
            let delivered = receiver.poll(&mut counter, 64).expect("well");
            bytes.fetch_add((delivered * MESSAGE_BYTES) as u64, Ordering::Relaxed);
            if delivered == 0 {
                idle();
            }
        }
        assert_eq!(counter.missing, 0, "of {} messages", counter.messages);
    });
}

fn carry_tcp(wire: &Wire, is_over: &AtomicBool, bytes: &AtomicU64) {
    wire.enter(1);
    let listener = TcpListener::bind((ADDRESSES[1], 0)).expect("the host's address");
    wire.enter(0);
    let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("the wire");
    let (mut receiver, _) = listener.accept().expect("it is there");
    // SAFETY: the kernel reads so many bytes from the pointer.
    let result = unsafe {
        libc::setsockopt(
            sender.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            c"cubic".as_ptr().cast(),
            5,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let block = vec![7u8; MESSAGE_BYTES];
            while sender.write_all(&block).is_ok() {}
        });
        let mut block = vec![0u8; MESSAGE_BYTES];
        while !is_over.load(Ordering::Relaxed) {
            let count = receiver.read(&mut block).expect("well");
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        // Unread bytes reset the connection, so that the writer ends.
        drop(receiver);
    });
}
