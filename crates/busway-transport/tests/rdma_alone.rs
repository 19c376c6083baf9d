//! Tests that need a fresh process: devices that go away (the kernel waits with the removal until
//! no process has them open, and librdmacm never closes one), and memory that can't be locked (a
//! process of root always may). So each test is a role in a process that it starts. One device,
//! RoCE or iWARP, named `…0` after its driver, on `eth0`; run as root.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod rdma_place;
mod rdma_samples;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use busway_transport::{ChannelError, OpenError};
use contract::Side;
use contract::harness::{Buffer, LANE, Pair, queue};
use rdma_place::RdmaPlace;
use rdma_samples::{
    LONG, Other, Places, RdmaSend, Samples, carry, limit_locked_memory, place_of_parent, places, samples,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// One role at a time: they share the device.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a role in a process of its own.
fn in_a_process(role: &str) {
    let _turn = alone();
    Other::start(role, RdmaPlace::new("rdma-send").address()).succeed();
}

/// Runs a role in a process that may not lock more memory than its limit says.
///
/// A process inherits the capabilities of the thread that starts it. So a thread of its own drops
/// the capability first, and the process never has it. (A process that drops it later can't use
/// what it has opened: the kernel takes commands on an open device only from the credentials that
/// opened it.)
fn in_a_poor_process(role: &'static str) {
    let starter = std::thread::spawn(move || {
        remove_capability_from_bounding_set(CapabilitySet::IPC_LOCK).expect("root may give it up");
        in_a_process(role);
    });
    if let Err(panic) = starter.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `rdma link …` of iproute2.
fn rdma_link(words: &str) -> std::process::Output {
    Command::new("rdma")
        .arg("link")
        .args(words.split_whitespace())
        .output()
        .expect("iproute2 is installed")
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn a_device_removed_under_load_fails_its_channels_and_the_link_says_why_and_comes_back_with_it() {
    let _restored = DeviceComesBack(first_device());
    in_a_process("role_of_a_user_of_a_removed_device");
}

fn first_device() -> String {
    std::fs::read_dir("/sys/class/infiniband")
        .expect("there is RDMA")
        .find_map(|entry| entry.ok()?.file_name().into_string().ok())
        .expect("there is a device")
}

fn add(device: &str) -> std::process::Output {
    let driver = device.trim_end_matches('0');
    rdma_link(&format!("add {device} type {driver} netdev eth0"))
}

/// The other tests find the device, however this one ends.
struct DeviceComesBack(String);

impl Drop for DeviceComesBack {
    fn drop(&mut self) {
        if !std::path::Path::new("/sys/class/infiniband")
            .join(&self.0)
            .exists()
        {
            let _ = add(&self.0);
        }
    }
}

#[test]
#[ignore = "a role: a_device_removed… starts it as a process of its own"]
fn role_of_a_user_of_a_removed_device() {
    if place_of_parent().is_none() {
        return;
    }
    let device = first_device();
    let mut pair = Pair::<RdmaSend>::up();
    let mut channel = pair.open(Side::One, &queue(8, 4096));
    channel.send(Buffer::new(1, 0, 3000));
    channel.until_delivered(1);
    let delete = format!("delete {device}");
    let removal = std::thread::spawn(move || rdma_link(&delete));
    let (mut of_sender, mut of_receiver, mut sequence) = (None, None, 1);
    pair.until("both ends have failed", |_| {
        if of_sender.is_none() {
            sequence += u64::from(channel.sender.send(Buffer::new(sequence + 1, 0, 3000)).is_ok());
            of_sender = channel.sender.flush().err();
        }
        if of_receiver.is_none() {
            of_receiver = channel.receiver.poll(&mut channel.sink, 100).err();
        }
        (of_sender.is_some() && of_receiver.is_some()).then_some(())
    });
    // Its queue pairs fail when the driver ends them, when the link learns of the removal, or when
    // the other host, on the same device, learns of it first: the lane reports what it sees first.
    for error in [of_sender, of_receiver].into_iter().flatten() {
        assert!(matches!(error, ChannelError::Io(_)), "{error:?}");
    }
    drop(channel);
    let said = Side::BOTH.map(|side| pair.until("the link is down", |pair| pair.host(side).take_down()));
    // The other host may have heard only that the first one hung up.
    assert!(said.iter().any(|why| why.contains("was removed")), "{said:?}");
    pair.until("the device is gone", |_| removal.is_finished().then_some(()));
    let removed = removal.join().expect("it ran");
    assert!(removed.status.success(), "{removed:?}");
    let added = add(&device);
    assert!(added.status.success(), "{added:?}");
    pair.wait_up();
    let mut channel = pair.open(Side::Two, &queue(8, 4096));
    channel.send(Buffer::new(1, 0, 3000));
    channel.until_delivered(1);
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn memory_that_can_t_be_registered_refuses_the_channel_with_the_mend_and_nothing_else() {
    in_a_poor_process("role_of_one_who_opens_channels_with_little_memory_to_lock");
}

#[test]
#[ignore = "a role: memory_that_can_t_be_registered… starts it as a process of its own"]
fn role_of_one_who_opens_channels_with_little_memory_to_lock() {
    if place_of_parent().is_none() {
        return;
    }
    limit_locked_memory(128 << 10);
    let mut pair = Pair::<RdmaSend>::up();
    let id = pair.next_channel();
    let refused = pair
        .host(Side::Two)
        .link
        .open_receiver(id, &queue(32, 1 << 20), LANE);
    match refused {
        Err(OpenError::NoRoom(why)) => assert!(why.contains("ulimit -l"), "{why}"),
        other => panic!("{other:?}"),
    }
    let mut small = pair.open(Side::One, &queue(4, 100));
    small.send(Buffer::new(1, 0, 50));
    small.until_delivered(1);
    limit_locked_memory(64 << 20);
    let mut large = pair.open(Side::One, &queue(32, 1 << 20));
    large.send(Buffer::new(1, 0, 1 << 20));
    large.until_delivered(1);
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn a_local_port_that_some_socket_has_is_no_reason_to_fail() {
    in_a_process("role_of_one_whose_system_has_few_ports_left");
}

#[test]
#[ignore = "a role: a_local_port_that_some_socket_has… starts it as a process of its own"]
fn role_of_one_whose_system_has_few_ports_left() {
    if place_of_parent().is_none() {
        return;
    }
    let _few = FewPorts::new();
    let mut pair = Pair::<RdmaSend>::up();
    for _ in 0..8 {
        let mut channel = pair.open(Side::One, &queue(8, 100));
        channel.send(Buffer::new(1, 0, 50));
        channel.until_delivered(1);
    }
}

/// The system chooses local ports among a few, of which sockets have two thirds. Over siw they are
/// the ports of connections, too.
struct FewPorts {
    range: String,
    _sockets: Vec<socket2::Socket>,
}

impl FewPorts {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    /// So many that all 32 tries of one opening meet a used port once in 100,000 openings.
    const PORTS: std::ops::Range<u16> = 40_000..40_192;

    fn new() -> FewPorts {
        use socket2::{Domain, SockAddr, Socket, Type};
        let take = |port: u16| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let address = std::net::SocketAddr::from(([0, 0, 0, 0], port));
            socket.bind(&SockAddr::from(address)).ok()?;
            socket.listen(1).expect("it listens");
            Some(socket)
        };
        let wanted = Self::PORTS.filter(|port| port % 3 != 0);
        let sockets: Vec<_> = wanted.filter_map(take).collect();
        // One that an earlier connection still has is in use as well.
        assert!(
            sockets.len() > Self::PORTS.len() / 2,
            "only {} were free",
            sockets.len()
        );
        let range = std::fs::read_to_string(Self::RANGE).expect("IPv4");
        let few = format!("{} {}", Self::PORTS.start, Self::PORTS.end - 1);
        std::fs::write(Self::RANGE, few).expect("root may set it");
        FewPorts {
            range,
            _sockets: sockets,
        }
    }
}

impl Drop for FewPorts {
    fn drop(&mut self) {
        // The other tests have ports enough, however this one ends.
        let _ = std::fs::write(Self::RANGE, &self.range);
    }
}

/// A page, which is less than any message's memory.
const NOTHING_BYTES: u64 = 4096;

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn long_payload_that_can_t_be_registered_at_either_end_is_copied_and_counted_and_none_is_lost() {
    in_a_poor_process("role_of_one_whose_messages_can_t_be_locked");
}

#[test]
#[ignore = "a role: long_payload_that_can_t_be_registered… starts it as a process of its own"]
fn role_of_one_whose_messages_can_t_be_locked() {
    if place_of_parent().is_none() {
        return;
    }
    let all = LONG.len() as u64;
    let mut samples = samples();
    limit_locked_memory(NOTHING_BYTES);
    let mut sink = places(true);
    carry(&mut samples, &mut sink, &LONG);
    assert_eq!(
        copied(&samples),
        (all, all),
        "nothing can be locked at the sender"
    );
    drop(samples);

    let mut samples = rdma_samples::samples();
    let mut sink = places(true);
    announce_one_and_lock_nothing_more(&mut samples, &mut sink);
    assert_eq!(copied(&samples), (1, 1), "nothing can be locked at the receiver");
    carry(&mut samples, &mut sink, &LONG);
    assert_eq!(copied(&samples), (all + 1, all + 1));
}

fn copied(samples: &Samples) -> (u64, u64) {
    let count = |copied: Option<u64>| copied.expect("the bus counts");
    (count(samples.sender.copied()), count(samples.receiver.copied()))
}

/// Sends a long message from memory that is registered to a landing that can't be.
fn announce_one_and_lock_nothing_more(samples: &mut Samples, sink: &mut Places) {
    let message = rdma_samples::sample(1, 1 << 20);
    let sent = samples.sender.send(message);
    assert!(sent.is_ok(), "there is room");
    samples.sender.flush().expect("the sender is well");
    assert_eq!(copied(samples), (0, 0), "it is announced");
    limit_locked_memory(NOTHING_BYTES);
    rdma_samples::until_confirmed(samples, sink, 1);
}
