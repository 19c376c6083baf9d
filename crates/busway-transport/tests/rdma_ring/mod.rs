//! A queue of the receiving host that the sender writes, over `rdma-write`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use busway_core::ring::{Layout, Position, RingConsumer};
use busway_core::window::Window;
use busway_transport::{
    ChannelError, ChannelId, Flushed, HEAD_BYTES, LandingRing, PortMemory, QueueNumbers, Receiver, Refused,
    RingOwner, Sender,
};

use crate::contract::Side;
use crate::contract::harness::{Buffer, Collector, LANE, PATIENCE, Pair, is_filled, queue, sleep_as_lane};
use crate::rdma_store::{Gone, RdmaWrite, StoreMemory, ends, pair};

const DEPTH: usize = 5;
const MEMORY_BYTES: usize = 64 * 4096;
const OURS: QueueNumbers = QueueNumbers {
    origin: 9,
    newest: 40,
    lost: 0,
};
/// Where the ring stood before.
const LINE: u64 = 7;

/// The store of the receiving host.
struct Queue {
    ring: Window,
    layout: Layout,
    taken_in: Position,
    /// Where its programs stand.
    released: Position,
    begun: Option<QueueNumbers>,
}

impl Queue {
    fn consumer(&self, at: Position) -> RingConsumer<Window> {
        RingConsumer::resume(self.ring.clone(), self.layout, at, self.ring.clone()).expect("it fits")
    }

    /// A program receives the next message.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut consumer = self.consumer(self.released);
        let message = consumer.peek().expect("the sender keeps to the protocol")?;
        let mut bytes = vec![0; message.len_bytes];
        consumer.copy(0, &mut bytes).expect("inside");
        consumer.release_later();
        self.released = consumer.position();
        Some(bytes)
    }
}

#[derive(Clone)]
struct Store(Arc<Mutex<Queue>>);

impl Store {
    fn with<T>(&self, use_it: impl FnOnce(&mut Queue) -> T) -> T {
        use_it(&mut self.0.lock().expect("no test panics with it"))
    }
}

impl RingOwner for Store {
    fn begin(&mut self, numbers: QueueNumbers) -> Result<(), String> {
        self.with(|queue| queue.begun = Some(numbers));
        Ok(())
    }

    fn take_in(&mut self) -> Result<u64, &'static str> {
        self.with(|queue| {
            let mut consumer = queue.consumer(queue.taken_in);
            let mut taken = 0;
            while let Ok(Some(_)) = consumer.peek() {
                consumer.release_later();
                taken += 1;
            }
            queue.taken_in = consumer.position();
            Ok(taken)
        })
    }

    fn placed(&self) -> u64 {
        self.with(|queue| queue.taken_in.line)
    }

    fn released(&self) -> Position {
        self.with(|queue| queue.released)
    }
}

/// A channel from host one into a queue of host two.
struct Landed {
    pair: Pair<RdmaWrite>,
    memory: StoreMemory,
    store: Store,
    size_bytes: usize,
    sender: Box<dyn Sender<Buffer>>,
    receiver: Box<dyn Receiver>,
}

/// `reachable_bytes` of the ring are the peer's; it is told that it has all.
fn landed(layout: Layout, reachable_bytes: usize) -> Landed {
    let mut pair = pair();
    let memory = StoreMemory::new(MEMORY_BYTES, layout.required_bytes());
    let ring = memory.part(layout.required_bytes());
    let position = Position { line: LINE, data: 0 };
    let store = Store(Arc::new(Mutex::new(Queue {
        ring,
        layout,
        taken_in: position,
        released: position,
        begun: None,
    })));
    let landing = LandingRing {
        memory: PortMemory::new(memory.part(reachable_bytes), ()),
        layout,
        depth: DEPTH,
        position,
        released: position,
        numbers: OURS,
        owner: Box::new(store.clone()),
    };
    let id = ChannelId(1);
    let two = pair.host(Side::Two);
    let landing = two.link.open_ring(id, landing, LANE).expect("it opens");
    two.link.send_control(&landing).expect("the link is up");
    let landing = pair.until("the queue is known", |pair| pair.host(Side::One).take_control());
    let size_bytes = layout.max_size_bytes();
    let spec = queue(16, (HEAD_BYTES + size_bytes) as u64);
    // Of these the receiver has all but the last ten.
    let source = QueueNumbers { newest: 30, ..OURS };
    let one = pair.host(Side::One);
    one.link
        .open_ring_sender(id, &spec, &landing, LANE, source)
        .expect("it opens");
    let (sender, receiver) = ends(&mut pair, id);
    assert_eq!(
        store.with(|queue| queue.begun),
        Some(OURS),
        "noted before the sender may write"
    );
    Landed {
        pair,
        memory,
        store,
        size_bytes,
        sender,
        receiver,
    }
}

impl Landed {
    fn message(&self, number: u64) -> Buffer {
        let mut message = Buffer::new(number, 0, self.size_bytes);
        // Losses of the source, of which there are none.
        message.head.events = 0;
        message
    }

    fn send(&mut self, number: u64) -> Result<(), Refused<Buffer>> {
        let message = self.message(number);
        self.sender.send(message)
    }

    /// The receiving gateway's lane looks.
    fn poll(&mut self) -> usize {
        let polled = self.receiver.poll(&mut Collector::default(), 1);
        polled.expect("the receiver is well")
    }

    /// Until a program of the receiving host gets the message of this number, with or without its
    /// gateway.
    fn until_received(&mut self, number: u64, is_gateway_stopped: bool) {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            self.sender.flush().expect("the sender is well");
            if !is_gateway_stopped {
                self.poll();
            }
            if let Some(bytes) = self.store.with(Queue::receive) {
                assert!(is_filled(&bytes, number), "message {number}");
                return;
            }
            assert!(Instant::now() < give_up_at, "message {number} does not arrive");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The failure of the sender, which goes on until then.
    fn until_sender_fails(&mut self, mut number: u64) -> ChannelError {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            for side in [Side::One, Side::Two] {
                self.pair.host(side).poll();
            }
            match self.send(number) {
                Ok(()) => number += 1,
                Err(Refused::Full(_)) => {}
                Err(Refused::Failed(_, error)) => return error,
                Err(other) => panic!("{other:?}"),
            }
            if let Err(error) = self.sender.flush() {
                return error;
            }
            assert!(Instant::now() < give_up_at, "the sender goes on");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Short messages in lines, with checksums; long ones with a data area, with and without.
fn layouts() -> [Layout; 3] {
    let short = Layout::with_wide_lines(8, 256, 0, 200).expect("possible");
    let long = Layout::for_messages(DEPTH, 9000).expect("possible");
    let checked = |layout: Layout| layout.with_checksum().expect("short enough");
    [checked(short), checked(long), long]
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn sender_writes_the_queue_in_order_and_is_told_what_arrived_and_what_was_released() {
    for layout in layouts() {
        let mut landed = landed(layout, layout.required_bytes());
        // The receiver has it.
        landed.send(40).expect("it is left out");
        assert_eq!(landed.sender.outstanding(), 0);
        for number in 41..=100 {
            landed.send(number).expect("one at a time has room");
            // With and without the receiving gateway, which only credits need.
            landed.until_received(number, number % 2 == 0);
            while landed.sender.outstanding() > 1 {
                landed.poll();
                landed.sender.flush().expect("the sender is well");
            }
        }
        landed.memory.assert_untouched_beside(layout.required_bytes());
        assert_eq!(landed.receiver.copied(), Some(0));
        assert_eq!(landed.sender.copied(), Some(60));
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn full_queue_refuses_messages_until_a_program_receives_one() {
    for layout in layouts() {
        let mut landed = landed(layout, layout.required_bytes());
        for number in 41..41 + DEPTH as u64 {
            landed.send(number).expect("it has room");
        }
        let next = 41 + DEPTH as u64;
        let give_up_at = Instant::now() + PATIENCE;
        while landed.sender.outstanding() > 0 {
            landed.sender.flush().expect("the sender is well");
            landed.poll();
            assert!(
                Instant::now() < give_up_at,
                "the receiver acknowledges what it has"
            );
        }
        assert!(!landed.sender.has_room(100));
        assert!(matches!(landed.send(next), Err(Refused::Full(_))));
        landed.until_received(41, false);
        while let Err(refused) = landed.send(next) {
            assert!(matches!(refused, Refused::Full(_)), "{refused:?}");
            assert!(Instant::now() < give_up_at, "the receiver tells of room");
            landed.poll();
            landed.sender.flush().expect("the sender is well");
        }
        for number in 42..=next {
            landed.until_received(number, false);
        }
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn sleeping_receiver_is_woken_by_a_message_and_sleeping_sender_by_room() {
    let layout = layouts()[0];
    let mut landed = landed(layout, layout.required_bytes());
    let mut sender_bell = landed.pair.host(Side::One).link.doorbell(LANE);
    let mut receiver_bell = landed.pair.host(Side::Two).link.doorbell(LANE);
    let mut number = 41;
    for _ in 0..5 {
        for _ in 0..DEPTH {
            std::thread::scope(|scope| {
                let Landed {
                    receiver,
                    sender,
                    size_bytes,
                    ..
                } = &mut landed;
                let bell = &mut receiver_bell;
                let sleeping = scope.spawn(move || {
                    let mut taken = 0;
                    while taken == 0 {
                        let wait_for = receiver.wait_for();
                        sleep_as_lane(wait_for, bell, || {
                            taken += receiver.poll(&mut Collector::default(), 1).expect("it is well");
                            taken > 0
                        });
                        taken += receiver.poll(&mut Collector::default(), 1).expect("it is well");
                    }
                });
                let mut message = Buffer::new(number, 0, *size_bytes);
                message.head.events = 0;
                sender.send(message).expect("it has room");
                while sender.flush().expect("the sender is well") == Flushed::Waiting {}
                sleeping.join().expect("it is woken");
            });
            number += 1;
        }
        // The queue is full; one is taken out of it.
        assert!(!landed.sender.has_room(100));
        let first = number - DEPTH as u64;
        landed.until_received(first, true);
        std::thread::scope(|scope| {
            let Landed { sender, receiver, .. } = &mut landed;
            let bell = &mut sender_bell;
            let sleeping = scope.spawn(move || {
                let mut has_room = false;
                while !has_room {
                    let wait_for = sender.wait_for();
                    sleep_as_lane(wait_for, bell, || {
                        sender.flush().expect("it is well");
                        has_room = sender.has_room(100);
                        has_room
                    });
                    sender.flush().expect("it is well");
                    has_room = sender.has_room(100);
                }
            });
            while !sleeping.is_finished() {
                receiver.poll(&mut Collector::default(), 1).expect("it is well");
                std::thread::sleep(Duration::from_micros(50));
            }
            sleeping.join().expect("it is woken");
        });
        for rest in first + 1..number {
            landed.until_received(rest, false);
        }
        while !landed.sender.has_room(100) {
            landed.poll();
            landed.sender.flush().expect("the sender is well");
        }
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn write_outside_the_queue_ends_the_queue_pair_at_both_hosts() {
    let layout = layouts()[0];
    // Lines 7, 0 and 1 of eight are not all in the first half.
    let reachable_bytes = layout.required_bytes() / 2;
    let mut landed = landed(layout, reachable_bytes);
    let error = landed.until_sender_fails(41);
    assert!(matches!(error, ChannelError::Io(_)), "{error:?}");
    let Landed { pair, receiver, .. } = &mut landed;
    pair.until("the receiver's end ends", |_| {
        receiver.poll(&mut Collector::default(), 1).err()
    });
    landed.memory.assert_untouched_beside(reachable_bytes);
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn dropped_receiver_takes_the_queue_from_the_sender() {
    let layout = layouts()[0];
    let mut landed = landed(layout, layout.required_bytes());
    landed.send(41).expect("it has room");
    landed.until_received(41, false);
    drop(std::mem::replace(&mut landed.receiver, Box::new(Gone)));
    landed.until_sender_fails(42);
    assert_eq!(
        landed.store.with(Queue::receive),
        None,
        "nothing was written after that"
    );
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn closed_sender_leaves_what_it_wrote_and_its_receiver_ends_in_order() {
    for layout in layouts() {
        let mut landed = landed(layout, layout.required_bytes());
        landed.send(41).expect("it has room");
        landed.send(42).expect("it has room");
        let Landed {
            mut pair,
            sender,
            mut receiver,
            store,
            ..
        } = landed;
        drop(sender);
        let ended = pair.until("the receiver ends", |_| {
            receiver.poll(&mut Collector::default(), 1).err()
        });
        assert!(matches!(ended, ChannelError::Closed), "{ended:?}");
        for number in [41, 42] {
            let bytes = store.with(Queue::receive).expect("it was written before the end");
            assert!(is_filled(&bytes, number));
        }
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn gap_in_the_numbers_of_the_source_ends_the_channel() {
    let layout = layouts()[0];
    let mut landed = landed(layout, layout.required_bytes());
    landed.send(41).expect("it has room");
    let refused = landed.send(43).expect_err("42 is missing");
    assert!(
        matches!(&refused, Refused::Failed(_, error) if error.to_string().contains("damaged")),
        "{refused:?}"
    );
    let mut lossy = landed.message(42);
    lossy.head.events = 1;
    let refused = landed
        .sender
        .send(lossy)
        .expect_err("the receiver must be told of it");
    assert!(matches!(refused, Refused::Failed(..)), "{refused:?}");
    landed.send(42).expect("the next one");
}
