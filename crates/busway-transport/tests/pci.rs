//! The PCI bus alone: a link that reads all ones, a peer that was reset.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod window_file;

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use busway_transport::{Link, LinkIdentity};
use contract::harness::{Buffer, Channel, Pair, latest, queue};
use contract::hostile::Anything;
use contract::{BusUnderTest, Side};
use window_file::WindowFile;

/// One file in the place of a resource.
struct Pci(WindowFile);

impl BusUnderTest for Pci {
    fn new() -> Self {
        Pci(WindowFile::of_bus("pci"))
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

/// Fills both windows with ones again and again until it is stopped: what a dead PCI link reads.
struct DeadLink(Arc<AtomicBool>, std::thread::JoinHandle<()>);

impl DeadLink {
    fn begin(file: std::fs::File) -> DeadLink {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let ones = vec![0xff; 64 << 10];
            // Headers and control rings at every turn, and the rest piece by piece.
            for at in (0..WindowFile::HALF_BYTES).step_by(ones.len()).cycle() {
                for half in [0, WindowFile::HALF_BYTES] {
                    file.write_all_at(&ones, half).expect("inside");
                    file.write_all_at(&ones, half + at).expect("inside");
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        DeadLink(stop, thread)
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().expect("no panic");
    }
}

/// Sends on both channels as fast as they take it, and receives; whether all ends are well.
fn load(channels: &mut [Channel], sequence: u64) -> bool {
    let mut sink = Anything::default();
    channels.iter_mut().all(|channel| {
        // A full channel is well, too.
        let _ = channel.sender.send(Buffer::new(sequence, 0, 3000));
        channel.sender.flush().is_ok() && channel.receiver.poll(&mut sink, 100).is_ok()
    })
}

#[test]
fn a_link_that_reads_all_ones_goes_down_with_the_reason_and_comes_back() {
    let mut pair = Pair::<Pci>::up();
    for _ in 0..3 {
        let mut channels = [
            pair.open(Side::One, &queue(8, 4096)),
            pair.open(Side::Two, &latest(4096)),
        ];
        for sequence in 1..=100 {
            assert!(load(&mut channels, sequence));
        }
        let dead = DeadLink::begin(pair.bus.0.file());
        let mut sequence = 100;
        for side in Side::BOTH {
            let why = pair.until("the dead link is noticed", |pair| {
                sequence += 1;
                load(&mut channels, sequence);
                pair.host(side).take_down()
            });
            assert!(why.contains("reads all ones"), "{why}");
            let why = pair.until("it is told while it lasts", |pair| pair.host(side).take_refused());
            assert!(why.contains("reads all ones"), "{why}");
        }
        assert!(
            !load(&mut channels, sequence + 1),
            "the channels of a link that is down fail"
        );
        for channel in &channels {
            let under_way = channel.sender.outstanding();
            assert!(
                under_way <= 9,
                "{under_way} messages are in doubt, more than were ever under way"
            );
        }
        dead.end();
        let file = pair.bus.0.file();
        file.write_all_at(&vec![0; 2 * WindowFile::HALF_BYTES as usize], 0)
            .expect("inside");
        pair.wait_up();
    }
    for side in Side::BOTH {
        let mut channel = pair.open(side, &queue(4, 4096));
        channel.send(Buffer::new(1, 0, 1000));
        channel.until_delivered(1);
    }
}

#[test]
fn a_peer_that_was_reset_is_noticed_and_comes_back() {
    let mut pair = Pair::<Pci>::up();
    let mut channel = pair.open(Side::One, &queue(4, 4096));
    channel.send(Buffer::new(1, 0, 1000));
    // As a reset does it: nobody says goodbye, what the host wrote stays, and another session begins.
    let silent = std::mem::replace(
        &mut pair.host(Side::One).link,
        Box::new(contract::harness::Silent),
    );
    std::mem::forget((silent, channel.sender));
    let why = pair.until("the silence is noticed", |pair| pair.host(Side::Two).take_down());
    assert!(why.contains("heartbeat"), "{why}");
    pair.start(Side::One);
    pair.wait_up();
    let mut channel = pair.open(Side::Two, &queue(4, 4096));
    channel.send(Buffer::new(1, 0, 1000));
    channel.until_delivered(1);
}
