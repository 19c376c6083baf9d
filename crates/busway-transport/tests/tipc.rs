//! TIPC only: the topology service, the link tolerance, connections that the kernel ends, raw
//! sockets as peers; and the three troubles that an evaluation of TIPC 1.7.7 between two SoCs
//! found: no send time-out, no coalescing of small messages, starving senders when many send.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod tipc_nodes;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{
    ChannelEnd, ChannelError, ChannelId, Direction, Flushed, Link, LinkEvent, Refused, Sender, WaitFor,
};
use contract::Side;
use contract::harness::{Buffer, Collector, PATIENCE, queue, sleep_on};
use contract::raw::{self, bytes_of, identity, is_up, until, went_down};
use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tipc_nodes::{Nodes, RawSocket};

type AnyLink = Box<dyn Link<Buffer>>;

/// The link of host `one`, which accepts; its peer is a raw socket.
fn accepting(instance: u32) -> AnyLink {
    tipc_nodes::open(Nodes::get(), Side::One, identity("one", 11), instance, "")
}

fn refused(event: LinkEvent<Buffer>) -> Option<String> {
    match event {
        LinkEvent::Refused(why) => Some(why),
        _ => None,
    }
}

/// Host `two`, session 22, by plain system calls.
struct RawPeer {
    instance: u32,
    control: RawSocket,
}

impl RawPeer {
    fn meet(link: &mut dyn Link<Buffer>, instance: u32) -> RawPeer {
        let control = knock(link, libc::SOCK_STREAM, instance);
        control.send(&raw::greeting()).expect("the link reads");
        until(link, is_up);
        // The link's greeting.
        assert!(control.receive(&mut [0; 1024]).expect("the link speaks") > 0);
        RawPeer { instance, control }
    }

    /// Makes a channel's connection, and waits for the answer.
    fn open(
        &self,
        link: &mut dyn Link<Buffer>,
        kind: i32,
        direction: Direction,
        channel: u32,
        token: &[u8],
    ) -> (RawSocket, ChannelEnd<Buffer>) {
        let socket = knock(link, kind, self.instance);
        let opening = raw::opening(direction, channel, token, 22, 11);
        socket.send(&opening).expect("the link reads");
        let end = until(link, |event| match event {
            LinkEvent::Channel(_, ChannelId(id), end) if id == channel => Some(end),
            _ => None,
        });
        let mut answer = [0; 8];
        socket.receive(&mut answer).expect("the link answers");
        assert_eq!(&answer, raw::ANSWER);
        (socket, end.expect("the channel opens"))
    }
}

/// Connects to a link, which accepts when it is polled.
fn knock(link: &mut dyn Link<Buffer>, kind: i32, instance: u32) -> RawSocket {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let knocker = scope.spawn(|| {
            let socket = RawSocket::connect_patiently(Side::Two, kind, instance);
            done.store(1, Ordering::Relaxed);
            socket
        });
        while done.load(Ordering::Relaxed) == 0 && !knocker.is_finished() {
            assert!(link.poll(Instant::now()).is_none(), "nobody has spoken yet");
            std::thread::sleep(Duration::from_micros(200));
        }
        knocker.join().expect("it connects")
    })
}

/// A sending end whose messages a raw peer takes packet by packet, if it does.
fn sender_to_raw(depth: u32) -> (AnyLink, RawPeer, RawSocket, Box<dyn Sender<Buffer>>) {
    let instance = tipc_nodes::instance();
    let mut link = accepting(instance);
    let peer = RawPeer::meet(&mut *link, instance);
    link.open_sender(ChannelId(7), &queue(depth, 4096), &[1; 8], 0)
        .expect("the link is up");
    match peer.open(&mut *link, libc::SOCK_SEQPACKET, Direction::Receive, 7, &[1; 8]) {
        (socket, ChannelEnd::Sender(sender)) => (link, peer, socket, sender),
        _ => panic!("this side sends"),
    }
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sleeps as a lane does on an end; whether it was woken before the time was over.
fn sleep_on_end(wait_for: WaitFor, at_most: Duration) -> bool {
    let WaitFor::Fd { fd, writable } = wait_for else {
        panic!("a TIPC end waits for its descriptor");
    };
    // SAFETY: the descriptor belongs to the channel end, which the caller holds while it sleeps.
    #[allow(unsafe_code)]
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = if writable {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    let mut set = [PollFd::from_borrowed_fd(fd, flags)];
    rustix::event::poll(&mut set, Some(&timeout)).expect("poll") > 0
}

/// The first trouble: a blocking send without a time-out, which burns a CPU.
#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn a_sender_whose_receiver_stands_still_sleeps_until_its_deadline() {
    let (_link, _peer, _standing_still, mut sender) = sender_to_raw(100_000);
    let mut sequence = 0;
    // As full as it gets: the receiving socket, the sending one, and what the sender keeps.
    loop {
        match sender.send(Buffer::new(sequence + 1, 0, 30_000)) {
            Ok(()) => sequence += 1,
            Err(Refused::Full(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(sender.flush().expect("it is well"), Flushed::Waiting);
    let deadline = Instant::now() + Duration::from_secs(2);
    let (cpu, mut woken) = (thread_cpu(), 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        woken += usize::from(sleep_on_end(sender.wait_for(), left));
        assert_eq!(sender.flush().expect("it is well"), Flushed::Waiting);
    }
    let cpu = thread_cpu() - cpu;
    println!(
        "{sequence} messages on their way; then 2 s of waiting: woken {woken} times, {cpu:?} of CPU time"
    );
    assert!(
        woken < 10,
        "a sender that waits is not woken for nothing: {woken} times in 2 s"
    );
    assert_eq!(sender.outstanding(), sequence);
}

/// The kernel lets what is on its way leave before it closes a connection; nobody waits for that.
#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn a_sender_that_is_dropped_while_its_receiver_stands_still_is_closed_aside() {
    let (mut link, peer, standing_still, mut sender) = sender_to_raw(100_000);
    let mut sequence = 0;
    while let Ok(()) = sender.send(Buffer::new(sequence + 1, 0, 30_000)) {
        sequence += 1;
    }
    drop(sender);
    // The link keeps the stream for `LINGER`, in case the receiver goes on; then a thread closes
    // it.
    let is_aside = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("this process has threads");
        tasks.flatten().any(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "tipc-close")
        })
    };
    let give_up_at = Instant::now() + PATIENCE;
    while !is_aside() {
        assert!(link.poll(Instant::now()).is_none(), "the link is well");
        assert!(Instant::now() < give_up_at, "no thread closes it");
        std::thread::sleep(Duration::from_millis(1));
    }
    link.send_control(b"meanwhile").expect("the conversation goes on");
    assert!(peer.control.receive(&mut [0; 100]).expect("it arrives") > 0);
    drop(standing_still);
}

/// The second trouble: a packet for each small message, however many wait.
#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn small_messages_that_wait_leave_many_to_a_packet_and_one_that_does_not_leaves_at_once() {
    let (_link, _peer, socket, mut sender) = sender_to_raw(1_000_000);
    let mut packet = vec![0; 100_000];
    for sequence in 1..=3 {
        sender.send(Buffer::new(sequence, 0, 64)).expect("there is room");
        assert_eq!(sender.flush().expect("it is well"), Flushed::Idle);
        let bytes = socket.receive(&mut packet).expect("it is there");
        assert_eq!(
            packet[..bytes],
            bytes_of(&Buffer::new(sequence, 0, 64)),
            "it left alone"
        );
    }
    let mut sequence = 3;
    loop {
        match sender.send(Buffer::new(sequence + 1, 0, 64)) {
            Ok(()) => sequence += 1,
            Err(Refused::Full(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
        sender.flush().expect("it is well");
    }
    // One each, as far as the kernel took them; what waits after that leaves together.
    let alone = u64::from(socket.queued());
    let (mut received, mut packets, mut bytes) = (3, 0, Vec::new());
    socket.set_timeouts(Duration::from_millis(20));
    while received < sequence {
        sender.flush().expect("it is well");
        while let Ok(count) = socket.receive(&mut packet) {
            packets += 1;
            bytes.extend(&packet[..count]);
        }
        while bytes.len() >= 112 {
            received += 1;
            let message: Vec<u8> = bytes.drain(..112).collect();
            assert_eq!(message, bytes_of(&Buffer::new(received, 0, 64)));
        }
    }
    let (waited, together) = (sequence - 3 - alone, packets - alone);
    println!("{alone} messages of 64 B left in {alone} packets, {waited} that waited in {together}");
    assert!(
        waited > 1000 && together * 20 < waited,
        "{waited} messages in {together} packets"
    );
}

/// The third trouble: a sender that wakes late finds the queue full again. Between two nodes of one
/// kernel this process is all hosts; on a wire, `BUSWAY_TIPC_SIDE` says which one it is.
#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn of_sixteen_senders_on_a_node_none_starves() {
    match tipc_nodes::own_side() {
        Some(Side::One) => send_over_many(7),
        Some(Side::Two) => receive_over_many(7),
        None => {
            let instance = tipc_nodes::instance();
            std::thread::scope(|scope| {
                scope.spawn(|| send_over_many(instance));
                receive_over_many(instance);
            });
        }
    }
}

const SENDERS: usize = 16;
const MESSAGES: u64 = 150;
const MESSAGE_BYTES: usize = 20_000;

/// Host `one`: a thread for each sender.
fn send_over_many(instance: u32) {
    let mut link = tipc_nodes::open(Nodes::get(), Side::One, identity("one", 11), instance, "");
    until(&mut *link, is_up);
    let (mut opened, mut senders) = (0, Vec::new());
    while senders.len() < SENDERS {
        let event = until(&mut *link, Some);
        match event {
            LinkEvent::Control(landing) => {
                opened += 1;
                link.open_sender(ChannelId(opened), &queue(8, 20_000), &landing, 0)
                    .expect("the link is up");
            }
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(sender))) => senders.push(sender),
            other => panic!("{other:?}"),
        }
    }
    link.send_control(b"go").expect("the link is up");
    let threads: Vec<_> = senders
        .into_iter()
        .map(|sender| std::thread::spawn(move || send_all(sender, MESSAGES, MESSAGE_BYTES)))
        .collect();
    for thread in threads {
        thread.join().expect("it sends all");
    }
}

/// Host `two`: one thread that takes what comes, a little of each at a time.
fn receive_over_many(instance: u32) {
    let mut link = tipc_nodes::open(Nodes::get(), Side::Two, identity("two", 22), instance, "");
    until(&mut *link, is_up);
    for channel in 1..=SENDERS as u32 {
        let landing = link
            .open_receiver(ChannelId(channel), &queue(8, 20_000), 0)
            .expect("the link is up");
        link.send_control(&landing).expect("the link is up");
    }
    let (mut receivers, mut begun) = (Vec::new(), None);
    while receivers.len() < SENDERS || begun.is_none() {
        match until(&mut *link, Some) {
            LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(receiver))) => {
                receivers.push((receiver, Collector::default()));
            }
            LinkEvent::Control(_) => begun = Some(Instant::now()),
            other => panic!("{other:?}"),
        }
    }
    let (mut shares, give_up_at) = (None, Instant::now() + PATIENCE);
    loop {
        for (receiver, sink) in &mut receivers {
            // A sender that is done is gone.
            match receiver.poll(sink, 4) {
                Ok(_) => {}
                Err(ChannelError::Closed) => assert_eq!(sink.heads.len() as u64, MESSAGES),
                Err(error) => panic!("{error}"),
            }
        }
        let delivered = || receivers.iter().map(|(_, sink)| sink.heads.len() as u64);
        if shares.is_none() && delivered().any(|count| count == MESSAGES) {
            shares = delivered().min().zip(delivered().max());
        }
        if delivered().all(|count| count == MESSAGES) {
            break;
        }
        let so_far: Vec<u64> = delivered().collect();
        assert!(
            Instant::now() < give_up_at,
            "some of {SENDERS} senders starve: {so_far:?} of {MESSAGES}"
        );
    }
    let (least, most) = shares.expect("somebody was first");
    println!(
        "{SENDERS} senders, {MESSAGES} messages of {MESSAGE_BYTES} B each in {:?}; when the first had {most} delivered, the last had {least}",
        begun.map(|at| at.elapsed())
    );
    assert!(
        least > 0,
        "a sender had nothing delivered when another one was done"
    );
    // The last credits have to arrive before this host goes.
    until(&mut *link, went_down);
}

fn meet(one: &mut dyn Link<Buffer>, two: &mut dyn Link<Buffer>) {
    std::thread::scope(|scope| {
        scope.spawn(|| until(one, is_up));
        until(two, is_up);
    });
}

/// Sends so many messages, asleep while there is no room, until all have arrived.
fn send_all(mut sender: Box<dyn Sender<Buffer>>, messages: u64, payload_bytes: usize) {
    for sequence in 1..=messages {
        let mut message = Buffer::new(sequence, 0, payload_bytes);
        while let Err(refused) = sender.send(message) {
            let Refused::Full(back) = refused else {
                panic!("a sender has failed");
            };
            message = back;
            sender.flush().expect("it is well");
            if !sender.has_room(message.total_bytes()) {
                sleep_on_end(sender.wait_for(), PATIENCE);
            }
        }
        sender.flush().expect("it is well");
    }
    while sender.outstanding() > 0 {
        sender.flush().expect("it is well");
        if sender.outstanding() > 0 {
            sleep_on_end(sender.wait_for(), Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn an_idle_link_puts_nothing_on_the_wire_and_the_end_of_the_peer_is_noticed_all_the_same() {
    let instance = tipc_nodes::instance();
    let mut link = accepting(instance);
    let peer = RawPeer::meet(&mut *link, instance);
    let quiet_until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < quiet_until {
        assert!(link.poll(Instant::now()).is_none(), "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(peer.control.queued(), 0, "an idle link says nothing");
    drop(peer);
    let why = until(&mut *link, went_down);
    assert!(why.contains("two"), "{why}");
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn a_link_that_sleeps_on_its_descriptor_is_woken_when_its_peer_offers_the_address() {
    let instance = tipc_nodes::instance();
    let mut link = tipc_nodes::open(Nodes::get(), Side::Two, identity("two", 22), instance, "");
    // Subscribing is answered over the descriptor too.
    let subscribed_by = Instant::now() + Duration::from_secs(1);
    while Instant::now() < subscribed_by {
        assert!(link.poll(Instant::now()).is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    let fd = link
        .fd()
        .expect("it has one")
        .try_clone_to_owned()
        .expect("a second descriptor");
    let listener = RawSocket::listen(Side::One, libc::SOCK_STREAM, instance);
    listener.set_timeouts(Duration::from_millis(20));
    let give_up_at = Instant::now() + PATIENCE;
    // Polled only when woken: it never tries by the clock.
    while listener.accept().is_err() {
        assert!(sleep_on(fd.as_fd(), false), "nothing woke the link");
        assert!(link.poll(Instant::now()).is_none());
        assert!(Instant::now() < give_up_at, "it does not connect");
    }
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn a_second_socket_at_a_links_address_is_reported_with_both() {
    let instance = tipc_nodes::instance();
    let mut link = accepting(instance);
    let _ = link.poll(Instant::now());
    let rival = RawSocket::listen(Side::Two, libc::SOCK_STREAM, instance);
    let why = until(&mut *link, refused);
    assert!(why.contains("twice") && why.contains("instance"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
    drop(rival);
    RawPeer::meet(&mut *link, instance);
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn whoever_accepts_with_garbage_keeps_no_link_from_coming_up_later() {
    let instance = tipc_nodes::instance();
    let mut link = tipc_nodes::open(Nodes::get(), Side::Two, identity("two", 22), instance, "");
    let listener = RawSocket::listen(Side::One, libc::SOCK_STREAM, instance);
    listener.set_timeouts(Duration::from_millis(20));
    for seed in 0..5u64 {
        let give_up_at = Instant::now() + PATIENCE;
        let stranger = loop {
            while link.poll(Instant::now()).is_some() {}
            if let Ok(stranger) = listener.accept() {
                break stranger;
            }
            assert!(Instant::now() < give_up_at, "the link does not connect");
        };
        let mut garbage = vec![0; 10 + 500 * seed as usize];
        contract::harness::fill(&mut garbage, seed);
        let _ = stranger.send(&garbage);
        for _ in 0..20 {
            while link.poll(Instant::now()).is_some() {}
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(listener);
    let mut one = accepting(instance);
    meet(&mut *one, &mut *link);
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn garbage_in_a_channel_fails_its_receiver_after_what_came_before() {
    let instance = tipc_nodes::instance();
    let mut link = accepting(instance);
    let peer = RawPeer::meet(&mut *link, instance);
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        let channel = ChannelId(kind as u32);
        let landing = link
            .open_receiver(channel, &queue(4, 4096), 0)
            .expect("the link is up");
        let (socket, end) = peer.open(&mut *link, kind, Direction::Send, channel.0, &landing);
        let ChannelEnd::Receiver(mut receiver) = end else {
            panic!("this side receives");
        };
        // A message in packets that are cut anywhere.
        for piece in bytes_of(&Buffer::new(1, 10, 5000)).chunks(777) {
            socket.send(piece).expect("the receiver reads");
        }
        socket.send(&[0xee; 4000]).expect("the receiver reads");
        let mut sink = Collector::default();
        let give_up_at = Instant::now() + PATIENCE;
        let error = loop {
            if let Err(error) = receiver.poll(&mut sink, 100) {
                break error;
            }
            assert!(Instant::now() < give_up_at, "the receiver does not end");
        };
        assert!(matches!(error, ChannelError::Corrupt(_)), "{error:?}");
        assert_eq!(sink.sequences(), [1]);
    }
}

/// Two nodes of its own whose links both hosts shall give up after 200 ms.
fn tolerant() -> (&'static Nodes, AnyLink, AnyLink) {
    let nodes = Nodes::new();
    assert!(
        nodes.are_two(),
        "the link tolerance is of two nodes: run this as root"
    );
    let instance = tipc_nodes::instance();
    let [mut one, mut two] = [(Side::One, 11), (Side::Two, 22)].map(|(side, session)| {
        let identity = identity(side.name(), session);
        tipc_nodes::open(nodes, side, identity, instance, "link_tolerance = '200ms'")
    });
    meet(&mut *one, &mut *two);
    (nodes, one, two)
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn the_link_tolerance_of_the_system_file_becomes_the_kernels() {
    let (nodes, _one, _two) = tolerant();
    for side in Side::BOTH {
        let links = nodes.run(side, &["tipc", "link", "list"]);
        let name = links
            .lines()
            .filter_map(|line| line.split(": ").next())
            .find(|name| *name != "broadcast-link")
            .expect("there is a link");
        let tolerance = nodes.run(side, &["tipc", "link", "get", "tolerance", "link", name]);
        assert!(tolerance.contains("200"), "{name}: {tolerance}");
    }
}

#[test]
#[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
fn a_node_that_is_lost_takes_the_link_down_and_the_link_comes_back_with_it() {
    let (nodes, mut one, mut two) = tolerant();
    for _ in 0..2 {
        let cut_at = Instant::now();
        nodes.run(Side::One, &["ip", "link", "set", "wire", "down"]);
        std::thread::scope(|scope| {
            scope.spawn(|| until(&mut *one, went_down));
            until(&mut *two, went_down);
        });
        println!("both hosts knew {:?} after the cut", cut_at.elapsed());
        nodes.run(Side::One, &["ip", "link", "set", "wire", "up"]);
        meet(&mut *one, &mut *two);
        println!("and met again {:?} after it", cut_at.elapsed());
    }
}

/// What a user sees on a kernel without TIPC.
#[test]
fn a_kernel_without_tipc_is_said_in_one_line_with_the_mend() {
    if busway_buses::missing("tipc").is_none() {
        return;
    }
    for side in Side::BOTH {
        let mut link = tipc_nodes::open(
            Nodes::get(),
            side,
            identity(side.name(), 1),
            tipc_nodes::instance(),
            "",
        );
        let why = until(&mut *link, refused);
        assert!(
            why.contains("modprobe tipc") && why.contains("tipc bearer enable"),
            "{why}"
        );
        assert_eq!(why.lines().count(), 1, "{why}");
        for _ in 0..100 {
            assert!(link.poll(Instant::now()).is_none(), "it is said once");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
