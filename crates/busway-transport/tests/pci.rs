//! The PCI bus alone: a link that reads all ones, a peer that was reset, doorbells.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod dead_link;
mod pci_function;
mod window_file;

use std::time::Duration;

use busway_transport::{Link, LinkIdentity, Refused, WaitFor};
use contract::harness::{Buffer, Channel, LANE, Pair, latest, queue};
use contract::{BusUnderTest, Side, waking};
use dead_link::DeadLink;
use pci_function::PciFunction;
use window_file::WindowFile;

contract::bus_at_place! {
    /// One file in the place of a resource.
    Pci(WindowFile) = WindowFile::of_bus("pci")
}

/// Sends and receives until an end fails: the messages delivered, in order.
fn load(mut channel: Channel) -> Channel {
    for sequence in 1.. {
        // What is longer than 40 bytes lies in another place than the word that publishes it.
        let bytes = if sequence % 3 == 0 { 8 } else { 3000 };
        let taken = channel.sender.send(Buffer::new(sequence, 0, bytes));
        let is_well = channel.sender.flush().is_ok() && channel.receiver.poll(&mut channel.sink, 4).is_ok();
        if !is_well || matches!(taken, Err(Refused::Failed(..))) {
            break;
        }
    }
    channel
}

#[test]
fn link_that_reads_all_ones_goes_down_and_recovers() {
    let mut pair = Pair::<Pci>::up();
    for round in 0..40_u64 {
        let channels = [
            pair.open(Side::One, &queue(8, 4096)),
            pair.open(Side::Two, &latest(4096)),
            pair.open(Side::Two, &queue(8, 512)),
        ];
        let loads = channels.map(|channel| std::thread::spawn(|| load(channel)));
        std::thread::sleep(Duration::from_micros(200 + 73 * round % 1000));
        let dead = DeadLink::begin(&pair.bus.0.path, 2 * WindowFile::HALF_BYTES as usize);
        for side in Side::BOTH {
            let why = pair.until("the dead link is noticed", |pair| pair.host(side).take_down());
            assert!(why.contains("reads all ones"), "{why}");
            let why = pair.until("it is told while it lasts", |pair| pair.host(side).take_refused());
            assert!(why.contains("reads all ones"), "{why}");
        }
        for (load, depth) in loads.into_iter().zip([8, 1, 8]) {
            // The sink has checked every byte of what was delivered.
            let channel = load.join().expect("nothing of the ones was delivered");
            let sequences = channel.sink.sequences();
            assert!(sequences.is_sorted_by(|one, next| one < next), "{sequences:?}");
            let in_doubt = channel.sender.outstanding();
            assert!(in_doubt <= depth + 3, "{in_doubt} messages are in doubt");
        }
        dead.end();
        pair.wait_up();
    }
    for side in Side::BOTH {
        let mut channel = pair.open(side, &queue(4, 4096));
        channel.send(Buffer::new(1, 0, 1000));
        channel.until_delivered(1);
    }
}

#[test]
fn reset_peer_is_detected_and_reconnects() {
    let mut pair = Pair::<Pci>::up();
    let mut channel = pair.open(Side::One, &queue(4, 4096));
    channel.send(Buffer::new(1, 0, 1000));
    // As at a reset: no goodbye, the written memory stays, and another session begins.
    std::mem::forget(channel.sender);
    pair.kill(Side::One);
    let why = pair.until("the silence is noticed", |pair| pair.host(Side::Two).take_down());
    assert!(why.contains("heartbeat"), "{why}");
    pair.start(Side::One);
    pair.wait_up();
    let mut channel = pair.open(Side::Two, &queue(4, 4096));
    channel.send(Buffer::new(1, 0, 1000));
    channel.until_delivered(1);
}

/// Two functions with doorbells over one memory, bound to vfio-pci, each ringing the other.
struct Doorbells(PciFunction);

/// The tables of both hosts. Default: functions 0000:00:10.0 and 0000:00:11.0 of QEMU's
/// shared-memory device, peers 0 and 1 of the server.
const TABLES: &str = "BUSWAY_PCI_DOORBELL_TABLES";

impl BusUnderTest for Doorbells {
    fn new() -> Self {
        let default = || {
            let host = |slot: u32, peer: u32| {
                format!(
                    "device = '0000:00:{slot}.0', resource = 2, length = '4MiB', driver = 'vfio', \
                     ring = {{ resource = 0, offset = 12, value = {} }}, wake = {{ vectors = 2 }}",
                    peer << 16
                )
            };
            [host(10, 1), host(11, 0)].join("|")
        };
        Doorbells(PciFunction::of(
            &std::env::var(TABLES).unwrap_or_else(|_| default()),
        ))
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.0.open(side, identity)
    }

    fn attack(&self, victim: Side, seed: u64) {
        self.0.attack(victim, seed);
    }

    fn other_version(&self, side: Side) -> Box<dyn std::any::Any> {
        self.0.other_version(side)
    }
}

#[test]
#[ignore = "needs PCI functions with doorbells: cargo xtask lab runs it"]
fn interrupts_wake_lanes_waiting_for_messages_and_room() {
    let mut pair = Pair::<Doorbells>::up();
    let channel = pair.open(Side::One, &queue(4, 1000));
    assert_eq!(
        (channel.sender.wait_for(), channel.receiver.wait_for()),
        (WaitFor::Doorbell, WaitFor::Doorbell)
    );
    drop((channel, pair));
    waking::a_sleeping_receiver_wakes_for_a_message::<Doorbells>();
    waking::sender_waiting_for_room_is_woken::<Doorbells>();
    waking::link_sleeping_on_descriptor_comes_up_and_receives::<Doorbells>();
}

#[test]
#[ignore = "needs PCI functions with doorbells: cargo xtask lab runs it"]
fn lanes_sleeping_on_interrupts_miss_no_message_and_no_credit() {
    waking::sleeping_lanes_miss_nothing::<Doorbells>(2000);
}

#[test]
#[ignore = "needs PCI functions with doorbells: cargo xtask lab runs it"]
fn a_lane_without_a_vector_polls() {
    let mut pair = Pair::<Doorbells>::up();
    // Lane 0 has vector 1; there is no vector 2.
    assert!(pair.host(Side::Two).link.doorbell(LANE).is_some());
    assert!(pair.host(Side::Two).link.doorbell(LANE + 1).is_none());
}
