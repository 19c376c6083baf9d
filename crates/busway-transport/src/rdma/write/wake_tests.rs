//! Every order in which two ends, their devices and the wire can take their steps.

use std::collections::{HashSet, VecDeque};

use super::*;

/// Messages that the publisher sends.
const MESSAGES: u64 = 3;

/// What travels on a queue pair, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Message(u64),
    Ring,
    Wish(u64),
    Read,
}

/// Where the sleeper is in its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Looks,
    Asks,
    Sleeps,
}

/// Where the publisher is with the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Publishes {
    Posts,
    Marks,
    Rings,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    sleeper: Sleeper,
    at: At,
    /// Messages in the sleeper's memory, and those that it has seen.
    arrived: u64,
    seen: u64,
    /// Completions that the sleeper has not taken: rings, and what was read.
    rings: u64,
    read: Option<u64>,
    ringer: Ringer,
    publishes: Publishes,
    posted: u64,
    mark: u64,
    want: u64,
    /// The queue pair in both directions, and the answer to a READ, which overtakes what the
    /// publisher posts.
    to_sleeper: VecDeque<Work>,
    to_publisher: VecDeque<Work>,
    answer: Option<u64>,
    /// Something of the publisher has arrived.
    has_heard: bool,
}

impl Model {
    /// Between two ends that may both speak first, or where the publisher `greets`.
    fn new(greets: bool) -> Model {
        Model {
            sleeper: if greets {
                Sleeper::greeted()
            } else {
                Sleeper::new()
            },
            at: At::Looks,
            arrived: 0,
            seen: 0,
            rings: 0,
            read: None,
            ringer: Ringer::default(),
            publishes: Publishes::Posts,
            posted: 0,
            mark: 0,
            want: 0,
            to_sleeper: greets.then_some(Work::Ring).into_iter().collect(),
            to_publisher: VecDeque::new(),
            answer: None,
            has_heard: !greets,
        }
    }

    /// The sleeper's next step; `None` if it sleeps and nothing wakes it. Unless `reads`, it relies
    /// on its wish at once.
    fn sleeper_steps(&self, reads: bool) -> Option<Model> {
        let mut next = self.clone();
        match self.at {
            At::Looks => {
                next.seen = next.arrived;
                next.at = At::Asks;
            }
            At::Asks => {
                if let Some(wish) = next.sleeper.next_wish() {
                    next.sleeper.wished(wish);
                    next.to_publisher.push_back(Work::Wish(wish));
                }
                if next.sleeper.must_read() {
                    next.sleeper.reading(next.seen);
                    if reads {
                        next.to_publisher.push_back(Work::Read);
                    } else {
                        next.sleeper.read(next.seen);
                    }
                }
                next.at = At::Sleeps;
            }
            At::Sleeps => {
                let mark = next.read.take();
                if next.rings == 0 && mark.is_none() {
                    return None;
                }
                if next.rings > 0 {
                    next.rings = 0;
                    next.sleeper.rung();
                }
                if let Some(mark) = mark {
                    next.sleeper.read(mark);
                }
                next.at = At::Looks;
            }
        }
        Some(next)
    }

    fn publisher_steps(&self) -> Option<Model> {
        let mut next = self.clone();
        match self.publishes {
            Publishes::Posts if self.posted == MESSAGES => return None,
            Publishes::Posts => {
                next.posted += 1;
                next.to_sleeper.push_back(Work::Message(next.posted));
                next.publishes = Publishes::Marks;
            }
            Publishes::Marks => {
                next.mark = next.posted;
                next.publishes = Publishes::Rings;
            }
            Publishes::Rings => {
                if next.ringer.must_ring(next.want) {
                    next.ringer.rings(next.want);
                    next.to_sleeper.push_back(Work::Ring);
                }
                next.publishes = Publishes::Posts;
            }
        }
        Some(next)
    }

    fn wire_steps(&self) -> impl Iterator<Item = Model> {
        let mut nexts = Vec::new();
        let mut next = self.clone();
        next.has_heard |= !next.to_sleeper.is_empty();
        match next.to_sleeper.pop_front() {
            Some(Work::Message(number)) => {
                next.arrived = number;
                nexts.push(next);
            }
            Some(_) => {
                next.rings += 1;
                nexts.push(next);
            }
            None => {}
        }
        let mut next = self.clone();
        match next.to_publisher.pop_front() {
            Some(Work::Wish(wish)) => {
                next.want = wish;
                nexts.push(next);
            }
            Some(_) => {
                assert!(next.answer.is_none() && next.read.is_none(), "two READs at once");
                next.answer = Some(next.mark);
                nexts.push(next);
            }
            None => {}
        }
        let mut next = self.clone();
        if let Some(mark) = next.answer.take() {
            next.read = Some(mark);
            nexts.push(next);
        }
        nexts.into_iter()
    }

    fn rings_under_way(&self) -> u64 {
        let on_the_wire = self.to_sleeper.iter().filter(|work| **work == Work::Ring);
        on_the_wire.count() as u64 + self.rings
    }
}

/// Goes through all states that can be reached; how many there are.
fn explore(greets: bool, reads: bool) -> usize {
    let mut known = HashSet::new();
    let mut open = vec![Model::new(greets)];
    while let Some(model) = open.pop() {
        assert!(model.rings_under_way() <= 1, "one SEND too many: {model:?}");
        assert!(
            model.has_heard || model.to_publisher.is_empty(),
            "it speaks first: {model:?}"
        );
        let before = open.len();
        let steps = [model.sleeper_steps(reads), model.publisher_steps()];
        open.extend(steps.into_iter().flatten().chain(model.wire_steps()));
        let is_at_rest = open.len() == before;
        assert!(
            !is_at_rest || model.seen == MESSAGES,
            "it sleeps for ever: {model:?}"
        );
        let fresh: Vec<_> = open
            .drain(before..)
            .filter(|next| known.insert(next.clone()))
            .collect();
        open.extend(fresh);
    }
    known.len()
}

#[test]
fn in_no_order_of_steps_a_wake_up_is_lost_or_a_ring_finds_no_recv() {
    for greets in [false, true] {
        assert!(explore(greets, true) > 1000);
    }
}

#[test]
#[should_panic(expected = "it sleeps for ever")]
fn a_sleeper_that_does_not_read_back_what_is_published_may_sleep_for_ever() {
    explore(false, false);
}
