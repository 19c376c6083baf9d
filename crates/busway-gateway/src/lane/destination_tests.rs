//! Which channel a message takes, what marks the changes, and, with a model of the receiving end,
//! that the order holds.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::super::inbound::{Continuity, must_wait};
use super::*;
use Kind::{After, Beyond, Data};

/// What a channel was given: kinds and numbers.
type Given = Arc<Mutex<Vec<(Kind, u64)>>>;

/// A channel that takes this many messages and then is full.
struct Book {
    given: Given,
    room: Arc<Mutex<usize>>,
}

impl Sender<Outgoing> for Book {
    fn send(&mut self, message: Outgoing) -> Result<(), Refused<Outgoing>> {
        let mut room = self.room.lock().expect("one thread");
        let Some(left) = room.checked_sub(1) else {
            return Err(Refused::Full(message));
        };
        *room = left;
        let head = message.head();
        self.given
            .lock()
            .expect("one thread")
            .push((head.kind, head.sequence));
        Ok(())
    }
    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        Ok(Flushed::Idle)
    }
    fn has_room(&mut self, _total_bytes: u64) -> bool {
        true
    }
    fn outstanding(&self) -> u64 {
        0
    }
    fn overwritten(&self) -> u64 {
        0
    }
    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
}

const LARGE: u64 = 1000;

struct Way {
    out: Destination,
    main: Given,
    large: Given,
    /// Of the main channel and the large one.
    room: [Arc<Mutex<usize>>; 2],
    counters: ServiceCounters,
    last: u64,
}

fn key(channel: u32) -> ChannelKey {
    ChannelKey {
        link: 0,
        conversation: 1,
        channel,
    }
}

fn head(sequence: u64, payload_bytes: u64) -> Head {
    Head {
        sequence,
        origin: 7,
        time_ns: 0,
        payload_bytes,
        events: 0,
        user_header_bytes: 0,
        kind: Kind::Data,
    }
}

impl Way {
    fn new(main_room: usize) -> Way {
        let room = [main_room, usize::MAX].map(|room| Arc::new(Mutex::new(room)));
        let main = Given::default();
        let sender = Box::new(Book {
            given: main.clone(),
            room: room[0].clone(),
        });
        let out = Destination::new(key(1), sender);
        let mut way = Way {
            out,
            main,
            large: Given::default(),
            room,
            counters: ServiceCounters::default(),
            last: 0,
        };
        way.add_large();
        way
    }

    fn add_large(&mut self) {
        self.large = Given::default();
        self.set_room(1, usize::MAX);
        let (given, room) = (self.large.clone(), self.room[1].clone());
        let channel = LargeSender {
            key: key(2),
            from_bytes: LARGE,
            in_order: true,
            sender: Box::new(Book { given, room }),
        };
        self.out.add_large(channel, &head(0, 0));
    }

    /// The link of the large-message channel is lost; returns which channels have ended, and
    /// whether that was all.
    fn lose_large(&mut self) -> (Vec<ChannelKey>, bool) {
        self.end(key(2), Ending::Replaced)
    }

    fn end(&mut self, key: ChannelKey, ending: Ending) -> (Vec<ChannelKey>, bool) {
        let now = Instant::now();
        self.out.end(key, ending, WhenFull::Wait, now);
        self.remove_ended()
    }

    fn remove_ended(&mut self) -> (Vec<ChannelKey>, bool) {
        let mut ended = Vec::new();
        let is_gone = self
            .out
            .remove_ended(Instant::now(), false, &self.counters, |end| ended.push(end.key));
        (ended, is_gone)
    }

    /// Whether the large-message channel was abandoned since the last call.
    fn has_ended(&mut self) -> bool {
        self.remove_ended().0 == [key(2)]
    }

    fn set_room(&self, channel: usize, messages: usize) {
        *self.room[channel].lock().expect("one thread") = messages;
    }

    fn offer(&mut self, payload_bytes: u64) {
        self.last += 1;
        let buffer = vec![0; payload_bytes as usize].into();
        let message = Outgoing::port(head(self.last, payload_bytes), buffer);
        self.out.offer(message, WhenFull::DropOldest, &self.counters);
    }

    fn given(&self) -> [Vec<(Kind, u64)>; 2] {
        [&self.main, &self.large].map(|given| std::mem::take(&mut *given.lock().expect("one thread")))
    }
}

#[test]
fn a_new_channel_begins_with_where_it_begins() {
    let way = Way::new(9);
    assert_eq!(way.given(), [vec![], vec![(Beyond, 0)]]);
}

#[test]
fn each_message_takes_the_channel_for_its_length_and_only_changes_of_the_channel_are_marked() {
    let mut way = Way::new(9);
    way.given();
    for bytes in [LARGE - 1, 1, LARGE, LARGE + 1, 0, 3] {
        way.offer(bytes);
    }
    assert_eq!(
        way.given(),
        [
            vec![(Data, 1), (Data, 2), (After, 4), (Data, 5), (Data, 6)],
            vec![(After, 2), (Data, 3), (Data, 4)],
        ]
    );
}

#[test]
fn a_change_is_marked_although_the_message_after_it_finds_no_room_at_first() {
    let mut way = Way::new(1);
    way.given();
    way.offer(LARGE);
    way.offer(1);
    assert_eq!(way.given(), [vec![(After, 1)], vec![(Data, 1)]]);
    assert!(way.out.has_pending());
    way.set_room(0, 9);
    way.out.retry(&way.counters);
    way.offer(LARGE);
    assert_eq!(way.given(), [vec![(Data, 2)], vec![(After, 2), (Data, 3)]]);
}

#[test]
fn once_the_large_channel_is_lost_the_main_one_takes_all_and_says_what_they_follow() {
    let mut way = Way::new(9);
    way.offer(LARGE);
    way.given();
    assert_eq!(way.lose_large(), (vec![key(2)], false));
    way.offer(LARGE);
    assert_eq!(way.given(), [vec![(After, 1), (Data, 2)], vec![]]);
}

#[test]
fn with_its_main_channel_a_destination_is_gone() {
    let mut way = Way::new(9);
    assert_eq!(way.end(key(1), Ending::Lost), (vec![key(2), key(1)], true));
}

/// The receiving end of both channels, as [`super::super::inbound`] has it.
#[derive(Default)]
struct Reader {
    continuity: Continuity,
    /// Of the main channel and of the one for what is large, if there is one.
    beyond: [u64; 2],
    has_large: bool,
    delivered: Vec<u64>,
}

impl Reader {
    /// Takes the next head of a channel, if it need not wait. Whether it took one, or is further on
    /// than before.
    fn poll(&mut self, channel: usize, queue: &Given) -> bool {
        let mut queue = queue.lock().expect("one thread");
        let Some(&(kind, sequence)) = queue.first() else {
            return false;
        };
        let head = Head {
            kind,
            ..head(sequence, 0)
        };
        if matches!(kind, After | Beyond) {
            let before = self.beyond[channel];
            self.beyond[channel] = sequence.max(before);
            let other = self.has_large.then_some(self.beyond[1 - channel]);
            if kind == After && must_wait(&head, &self.continuity, other) {
                return self.beyond[channel] > before;
            }
        } else if !self.continuity.is_old(&head) {
            self.continuity.advance(&head);
            self.delivered.push(sequence);
        }
        queue.remove(0);
        true
    }

    /// Takes what has arrived by the large-message channel, while the other one continues; then it
    /// has ended. Returns whether nothing is left.
    fn ends_large(&mut self, way: &Way) -> bool {
        while self.poll(1, &way.large) || self.poll(0, &way.main) {}
        self.has_large = false;
        self.beyond[1] = 0;
        way.large.lock().expect("one thread").is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish(u64),
    Poll(usize),
    /// A channel has room for this many more.
    Room(usize, usize),
    /// The large-message channel is lost with all but this many of the heads in it; the reader
    /// takes those, and the channel returns.
    Lose(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![Just(1), Just(LARGE)].prop_map(Step::Publish),
        6 => (0..2usize).prop_map(Step::Poll),
        2 => (0..2usize, prop_oneof![0..3usize, Just(usize::MAX)]).prop_map(|(channel, room)| Step::Room(channel, room)),
        1 => (0..4usize).prop_map(Step::Lose),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 5000 }))]

    #[test]
    fn whatever_the_timing_the_order_is_kept_nothing_comes_twice_and_nobody_waits_for_good(steps in steps()) {
        let mut way = Way::new(usize::MAX);
        let mut reader = Reader { has_large: true, ..Reader::default() };
        let mut lost = false;
        for step in steps {
            match step {
                Step::Publish(bytes) => way.offer(bytes),
                Step::Poll(0) => _ = reader.poll(0, &way.main),
                Step::Poll(_) => _ = reader.poll(1, &way.large),
                Step::Room(channel, room) => {
                    way.set_room(channel, room);
                    way.out.retry(&way.counters);
                }
                Step::Lose(kept) => {
                    lost = true;
                    way.lose_large();
                    way.large.lock().expect("one thread").truncate(kept);
                    prop_assert!(reader.ends_large(&way));
                    if kept % 2 == 0 {
                        while reader.poll(0, &way.main) {}
                    }
                    way.add_large();
                    reader.has_large = true;
                }
            }
            // A channel without room for its first head is abandoned.
            if way.has_ended() {
                prop_assert!(reader.ends_large(&way));
            }
        }
        for channel in [0, 1] {
            way.set_room(channel, usize::MAX);
        }
        way.out.retry(&way.counters);
        if way.has_ended() {
            prop_assert!(reader.ends_large(&way));
        }
        while reader.poll(0, &way.main) || reader.poll(1, &way.large) {}
        for queue in [&way.main, &way.large] {
            prop_assert!(queue.lock().expect("one thread").is_empty(), "one waits for good");
        }
        prop_assert!(reader.delivered.is_sorted_by(|one, next| one < next), "{:?}", reader.delivered);
        prop_assert!(!way.out.has_pending());
        if !lost {
            let dropped = way.counters.snapshot().dropped_full;
            prop_assert_eq!(reader.delivered.len() as u64 + dropped, way.last);
        }
    }
}
