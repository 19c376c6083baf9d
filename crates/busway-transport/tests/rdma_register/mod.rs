//! A register of the receiving host that the sender writes, over `rdma-write`.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use busway_core::register::{Layout, ReadOutcome, RegisterReader};
use busway_transport::{
    ChannelError, ChannelId, ChannelSpec, HEAD_BYTES, Keep, LandingRegister, PortMemory, Receiver, Sender,
    SourceNumbers,
};

use crate::contract::Side;
use crate::contract::harness::{Buffer, Collector, LANE, PATIENCE, Pair, fill};
use crate::rdma_store::{Gone, RdmaWrite, StoreMemory, ends, pair};

const SIZE_BYTES: usize = 200;
const SLOTS: usize = 4;
const MEMORY_BYTES: usize = 4 * 4096;
const OURS: SourceNumbers = SourceNumbers {
    origin: 9,
    newest: 40,
};

/// A channel from host one into a register of host two.
struct Landed {
    pair: Pair<RdmaWrite>,
    memory: StoreMemory,
    layout: Layout,
    sender: Box<dyn Sender<Buffer>>,
    receiver: Box<dyn Receiver>,
    begun: SourceNumbers,
}

/// `reachable_bytes` of the register are the peer's; it is told that it has all.
fn landed(layout: Layout, latest: u64, reachable_bytes: usize) -> Landed {
    let mut pair = pair();
    let memory = StoreMemory::new(MEMORY_BYTES, layout.required_bytes());
    let mut register = memory.part(layout.required_bytes());
    layout.prepare(&mut register, latest).expect("inside");
    let (noted, begun) = mpsc::channel();
    let landing = LandingRegister {
        memory: PortMemory::new(memory.part(reachable_bytes), ()),
        layout,
        start: 0,
        latest,
        numbers: OURS,
        begin: Box::new(move |numbers| noted.send(numbers).expect("the test waits")),
    };
    let id = ChannelId(1);
    let two = pair.host(Side::Two);
    let landing = two.link.open_register(id, landing).expect("it opens");
    two.link.send_control(&landing).expect("the link is up");
    let landing = pair.until("the register is known", |pair| {
        pair.host(Side::One).take_control()
    });
    let spec = ChannelSpec {
        keep: Keep::Latest,
        message_bytes: (HEAD_BYTES + SIZE_BYTES) as u64,
    };
    let source = SourceNumbers { newest: 50, ..OURS };
    let one = pair.host(Side::One);
    one.link
        .open_register_sender(id, &spec, &landing, LANE, source)
        .expect("it opens");
    let (sender, receiver) = ends(&mut pair, id);
    Landed {
        pair,
        memory,
        layout,
        sender,
        receiver,
        begun: begun.try_recv().expect("it is noted before the sender may write"),
    }
}

impl Landed {
    fn reader(&self) -> RegisterReader {
        let register = self.memory.part(self.layout.required_bytes());
        RegisterReader::new(register, self.layout, 0)
            .expect("it fits")
            .with_patience_bytes(1 << 20)
    }

    /// Sends a message of this number; the error if the channel fails.
    fn send(&mut self, number: u64) -> Result<(), ChannelError> {
        let message = Buffer::new(number, 0, SIZE_BYTES);
        match self.sender.send(message) {
            Ok(()) => self.sender.flush().map(drop),
            Err(busway_transport::Refused::Failed(_, error)) => Err(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Until the newest message in the register has this sequence; checks its bytes.
    fn until_read(&mut self, reader: &mut RegisterReader, sequence: u64, number: u64) {
        let give_up_at = Instant::now() + PATIENCE;
        let mut buffer = [0; SIZE_BYTES];
        loop {
            self.sender.flush().expect("the sender is well");
            if let Ok(ReadOutcome::New(sample)) = reader.read(&mut buffer)
                && sample.sequence == sequence
            {
                let mut expected = [0; SIZE_BYTES];
                fill(&mut expected, number);
                assert_eq!((buffer, sample.time_ns), (expected, number * 1000));
                return;
            }
            assert!(Instant::now() < give_up_at, "message {number} does not arrive");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The failure of the sender, to which messages are sent until then.
    fn until_sender_fails(&mut self) -> ChannelError {
        let give_up_at = Instant::now() + PATIENCE;
        for number in 100.. {
            // The other host reads its events too.
            for side in [Side::One, Side::Two] {
                self.pair.host(side).poll();
            }
            if let Err(error) = self.send(number) {
                return error;
            }
            assert!(Instant::now() < give_up_at, "the sender goes on");
            std::thread::sleep(Duration::from_micros(200));
        }
        unreachable!("numbers have no end")
    }
}

fn layouts() -> [Layout; 2] {
    let layout = Layout::new(SLOTS, SIZE_BYTES).expect("possible");
    [layout.with_checksum(), layout]
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn sender_writes_the_register_and_counts_in_step_with_its_numbers() {
    for layout in layouts() {
        let mut landed = landed(layout, 7, layout.required_bytes());
        assert_eq!(landed.begun, OURS);
        let mut reader = landed.reader();
        // Some are left out, and an old one is none.
        for number in [41, 42, 45, 44, 60, 61] {
            landed.send(number).expect("the sender is well");
            if number != 44 {
                landed.until_read(&mut reader, 7 + number - OURS.newest, number);
            }
        }
        landed.memory.assert_untouched_beside(layout.required_bytes());
        let polled = landed.receiver.poll(&mut Collector::default(), 1);
        assert!(matches!(polled, Ok(0)), "{polled:?}");
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn write_outside_the_register_ends_the_queue_pair_at_both_hosts() {
    let layout = layouts()[0];
    // Two slots of four.
    let reachable_bytes = 128 + 2 * (layout.required_bytes() - 128) / SLOTS;
    let mut landed = landed(layout, 0, reachable_bytes);
    let mut reader = landed.reader();
    landed.send(41).expect("the sender is well");
    landed.until_read(&mut reader, 1, 41);
    let error = landed.until_sender_fails();
    assert!(matches!(error, ChannelError::Io(_)), "{error:?}");
    let Landed { pair, receiver, .. } = &mut landed;
    pair.until("the receiver's end ends", |_| {
        receiver.poll(&mut Collector::default(), 1).err()
    });
    landed.memory.assert_untouched_beside(reachable_bytes);
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn dropped_receiver_takes_the_register_from_the_sender() {
    let layout = layouts()[0];
    let mut landed = landed(layout, 0, layout.required_bytes());
    let mut reader = landed.reader();
    landed.send(41).expect("the sender is well");
    landed.until_read(&mut reader, 1, 41);
    drop(std::mem::replace(&mut landed.receiver, Box::new(Gone)));
    landed.until_sender_fails();
    let latest = layout.latest(&landed.memory.part(layout.required_bytes()));
    assert_eq!(latest, Ok(1), "nothing was written after that");
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn register_is_written_on_while_the_receiving_host_is_stopped_and_the_link_is_down() {
    let layout = layouts()[0];
    let mut landed = landed(layout, 0, layout.required_bytes());
    let mut reader = landed.reader();
    let give_up_at = Instant::now() + PATIENCE;
    // Only the sending host goes on.
    loop {
        let one = landed.pair.host(Side::One);
        one.poll();
        if one.take_down().is_some() {
            break;
        }
        assert!(Instant::now() < give_up_at, "the link stays up");
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in 41..=60 {
        landed.send(number).expect("the sender is well");
        landed.until_read(&mut reader, number - OURS.newest, number);
    }
    // The receiving host notices that its conversation has ended, and the register is still its
    // sender's.
    landed.pair.until("the receiving host notices", |pair| {
        pair.host(Side::Two).take_down()
    });
    landed.send(61).expect("the sender is well");
    landed.until_read(&mut reader, 21, 61);
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn hosts_that_disagree_about_the_kind_of_channel_are_refused_by_name() {
    let layout = layouts()[0];
    let mut pair = pair();
    let spec = ChannelSpec {
        keep: Keep::Latest,
        message_bytes: (HEAD_BYTES + SIZE_BYTES) as u64,
    };
    let two = pair.host(Side::Two);
    let landing = two
        .link
        .open_receiver(ChannelId(1), &spec, LANE)
        .expect("it opens");
    let one = pair.host(Side::One);
    let refused = one
        .link
        .open_register_sender(ChannelId(1), &spec, &landing, LANE, OURS);
    let error = refused.expect_err("a landing place of another kind").to_string();
    assert!(error.contains("system file"), "{error}");
    let _ = layout;
}
