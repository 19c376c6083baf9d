//! Every interleaving, and every stale value that a weak memory model allows, of the lock and of
//! going to sleep.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p busway-port --release --test loom`
//!
//! For each promise there is also a mutant that breaks it. Loom must catch it, or the promise would
//! be unproven.
#![cfg(loom)]
#![allow(unsafe_code)] // Sharing the guarded cell.

use busway_port::for_loom::{
    MemberTable, WAITER_WORDS, Waiters, Words, after_publishing, arm, before_last_look, disarm,
    is_anybody_there, is_due, lock,
};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

/// The lock's word, what it guards, and who of members 1 to 3 is dead.
struct Shared {
    word: AtomicU64,
    guarded: UnsafeCell<u64>,
    dead: [AtomicU64; 4],
    words: Vec<AtomicU64>,
}

// SAFETY: whether accesses to the cell are ordered is what loom checks.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU64::new(0),
            guarded: UnsafeCell::new(0),
            dead: std::array::from_fn(|_| AtomicU64::new(0)),
            words: (0..WAITER_WORDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

impl Words for Shared {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }
}

struct Member {
    shared: Arc<Shared>,
    me: u64,
    /// Declares everybody dead.
    is_rash: bool,
}

impl MemberTable for Member {
    fn me(&self) -> u64 {
        self.me
    }
    fn is_alive(&self, member: u64) -> bool {
        // Acquire: the kernel tells of a death after what the dead one did.
        !self.is_rash && self.shared.dead[member as usize].load(Ordering::Acquire) == 0
    }
    fn sleep(&self, _: &AtomicU64, _: u64) {
        thread::yield_now();
    }
    fn wake(&self, _: &AtomicU64) {}
}

fn member(shared: &Arc<Shared>, me: u64) -> Member {
    Member {
        shared: shared.clone(),
        me,
        is_rash: false,
    }
}

/// Adds one under the lock; returns whether the lock was taken over.
fn add(member: &Member) -> bool {
    let guard = lock(&member.shared.word, member);
    // SAFETY: loom panics if this is not exclusive.
    member.shared.guarded.with_mut(|value| unsafe { *value += 1 });
    guard.taken_over
}

/// Dies with the lock, having added one.
fn add_and_die(member: &Member) {
    let guard = lock(&member.shared.word, member);
    // SAFETY: as above.
    member.shared.guarded.with_mut(|value| unsafe { *value += 1 });
    std::mem::forget(guard);
    member.shared.dead[member.me as usize].store(1, Ordering::Release);
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn value(shared: &Shared) -> u64 {
    // SAFETY: as above.
    shared.guarded.with(|value| unsafe { *value })
}

#[test]
fn two_members_never_hold_the_lock_at_once() {
    explore(|| {
        let shared = Shared::new();
        let other = member(&shared, 2);
        let thread = thread::spawn(move || add(&other));
        let first = add(&member(&shared, 1));
        let second = thread.join().unwrap();
        assert!(!first && !second, "nobody died");
        assert_eq!(value(&shared), 2);
        assert_eq!(shared.word.load(Ordering::Relaxed), 0, "given back");
    });
}

#[test]
fn the_lock_of_a_dead_holder_is_taken_over_once_with_all_that_it_wrote() {
    explore(|| {
        let shared = Shared::new();
        let (dying, heir) = (member(&shared, 1), member(&shared, 2));
        add_and_die(&dying);
        let thread = thread::spawn(move || add(&heir));
        let first = add(&member(&shared, 3));
        let second = thread.join().unwrap();
        assert!(first ^ second, "one of the two finds what the dead one left");
        assert_eq!(value(&shared), 3);
    });
}

#[test]
fn a_holder_may_die_while_another_waits() {
    explore(|| {
        let shared = Shared::new();
        let dying = member(&shared, 1);
        let thread = thread::spawn(move || add_and_die(&dying));
        let _ = add(&member(&shared, 2));
        thread.join().unwrap();
        assert_eq!(value(&shared), 2);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_lock_taken_from_a_living_holder_is_caught() {
    explore(|| {
        let shared = Shared::new();
        let other = member(&shared, 2);
        let thread = thread::spawn(move || add(&other));
        let rash = Member {
            shared: shared.clone(),
            me: 1,
            is_rash: true,
        };
        add(&rash);
        thread.join().unwrap();
    });
}

/// Somebody waits for word 3 of the table's spare words to change, somebody else changes it.
/// Neither may miss the other.
fn meet(is_careful: bool) {
    explore(move || {
        let shared = Shared::new();
        let event = 3;
        let sender = shared.clone();
        let thread = thread::spawn(move || {
            sender.words[event].store(1, Ordering::Relaxed);
            if is_careful {
                is_anybody_there(&sender.words[0])
            } else {
                sender.words[0].load(Ordering::Relaxed) != 0
            }
        });
        Waiters(&*shared)
            .arrive(&member(&shared, 1), 0)
            .expect("a free place");
        if is_careful {
            before_last_look();
        }
        let seen = shared.words[event].load(Ordering::Relaxed) == 1;
        let woken = thread.join().unwrap();
        assert!(seen || woken, "asleep for ever");
    });
}

#[test]
fn who_goes_to_sleep_sees_the_event_or_is_seen_by_who_causes_it() {
    meet(true);
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn going_to_sleep_without_the_fences_is_caught() {
    meet(false);
}

/// As [`meet`], between hosts that share the queue: who waits copies the number of those who wait
/// into the shared memory, where the other host looks (`announce_waiters`).
fn meet_in_shared_memory(is_announced_first: bool) {
    explore(move || {
        let shared = Shared::new();
        let (event, announced) = (3, 4);
        let sender = shared.clone();
        let thread = thread::spawn(move || {
            sender.words[event].store(1, Ordering::Relaxed);
            is_anybody_there(&sender.words[announced])
        });
        let waiters = Waiters(&*shared);
        waiters.arrive(&member(&shared, 1), 0).expect("a free place");
        let announce = || shared.words[announced].store(waiters.waiting(), Ordering::Relaxed);
        if is_announced_first {
            announce();
        }
        before_last_look();
        if !is_announced_first {
            announce();
        }
        let seen = shared.words[event].load(Ordering::Relaxed) == 1;
        let woken = thread.join().unwrap();
        assert!(seen || woken, "asleep for ever");
    });
}

#[test]
fn who_goes_to_sleep_at_a_shared_queue_sees_the_event_or_is_seen_by_the_other_host() {
    meet_in_shared_memory(true);
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn announcing_a_sleep_after_the_last_look_is_caught() {
    meet_in_shared_memory(false);
}

/// The source ends a session and writes the ring again, while the destination copies a message of
/// it (`begin_anew`, `is_same`). What the destination accepts is whole.
fn end_a_session(is_careful: bool) {
    explore(move || {
        let shared = Shared::new();
        let (session, ring) = (3, 4);
        shared.words[session].store(1, Ordering::Relaxed);
        shared.words[ring].store(10, Ordering::Relaxed);
        let source = shared.clone();
        let thread = thread::spawn(move || {
            source.words[session].store(0, Ordering::Relaxed);
            if is_careful {
                fence(Ordering::Release);
            }
            source.words[ring].store(20, Ordering::Relaxed);
            source.words[session].store(2, Ordering::Release);
        });
        let met = shared.words[session].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let copied = shared.words[ring].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_same = shared.words[session].load(Ordering::Relaxed) == met;
        thread.join().unwrap();
        assert!(met != 1 || !is_same || copied == 10, "of two sessions");
        assert!(met != 2 || copied == 20, "of two sessions");
    });
}

#[test]
fn message_copied_while_its_session_ends_is_rejected() {
    end_a_session(true);
}

#[test]
#[should_panic(expected = "of two sessions")]
fn ending_a_session_without_the_fence_is_caught() {
    end_a_session(false);
}

#[test]
fn the_place_of_a_dead_process_passes_to_the_next() {
    explore(|| {
        let shared = Shared::new();
        let waiters = Waiters(&*shared);
        let dead = waiters.arrive(&member(&shared, 1), 5);
        let alive = waiters.arrive(&member(&shared, 2), 1);
        assert_eq!(waiters.first(), dead);
        shared.dead[1].store(1, Ordering::Release);
        assert_eq!(waiters.first_alive(&member(&shared, 3)), alive);
        assert_eq!(waiters.waiting(), 1);
    });
}

/// A gateway falls asleep while a partition writes. It sees the message, or it is rung.
fn ring(is_careful: bool) {
    explore(move || {
        let shared = Shared::new();
        let (doorbell, message, rung) = (0, 1, 2);
        let writer = shared.clone();
        let thread = thread::spawn(move || {
            writer.words[message].store(1, Ordering::Release);
            if is_careful {
                after_publishing();
            }
            is_due(&writer.words[doorbell], &writer.words[rung])
        });
        arm(&shared.words[doorbell]);
        let seen = shared.words[message].load(Ordering::Acquire) == 1;
        let is_rung = thread.join().unwrap();
        assert!(seen || is_rung, "asleep for ever");
    });
}

#[test]
fn a_gateway_that_falls_asleep_sees_the_message_or_is_rung() {
    ring(true);
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn ringing_without_the_fence_is_caught() {
    ring(false);
}

#[test]
fn a_gateway_that_falls_asleep_again_is_rung_again() {
    explore(|| {
        let shared = Shared::new();
        let (doorbell, message, rung, fifo) = (0, 1, 2, 3);
        let writer = shared.clone();
        let thread = thread::spawn(move || {
            for number in [1, 2] {
                writer.words[message].store(number, Ordering::Release);
                after_publishing();
                if is_due(&writer.words[doorbell], &writer.words[rung]) {
                    writer.words[fifo].store(1, Ordering::Relaxed);
                }
            }
        });
        arm(&shared.words[doorbell]);
        disarm(&shared.words[doorbell]);
        shared.words[fifo].store(0, Ordering::Relaxed);
        arm(&shared.words[doorbell]);
        let seen = shared.words[message].load(Ordering::Acquire);
        thread.join().unwrap();
        let is_rung = shared.words[fifo].load(Ordering::Relaxed) == 1;
        assert!(seen == 2 || is_rung, "seen {seen} of 2, and asleep for ever");
    });
}

#[test]
fn two_writers_of_a_process_wake_a_gateway_that_neither_of_their_messages_reached() {
    explore(|| {
        let shared = Shared::new();
        let (doorbell, rung, fifo) = (0, 1, 2);
        let writers: Vec<_> = [3, 4]
            .map(|message| {
                let writer = shared.clone();
                thread::spawn(move || {
                    writer.words[message].store(1, Ordering::Release);
                    after_publishing();
                    if is_due(&writer.words[doorbell], &writer.words[rung]) {
                        writer.words[fifo].store(1, Ordering::Relaxed);
                    }
                })
            })
            .into();
        arm(&shared.words[doorbell]);
        let seen = [3, 4].map(|message| shared.words[message].load(Ordering::Acquire));
        for writer in writers {
            writer.join().unwrap();
        }
        let is_rung = shared.words[fifo].load(Ordering::Relaxed) == 1;
        assert!(seen == [1, 1] || is_rung, "seen {seen:?}, and asleep for ever");
    });
}

/// A thread writes while the worker of its process has the queue pair: it posts the message itself,
/// or leaves it to the worker and rings. The message is out, or the worker does not sleep for good.
fn post_or_ring(is_careful: bool) {
    explore(move || {
        let shared = Shared::new();
        let (doorbell, message, rung) = (0, 1, 2);
        // The message that the device has.
        let posted = Arc::new(loom::sync::Mutex::new(0_u64));
        let (writer, device) = (shared.clone(), posted.clone());
        let thread = thread::spawn(move || {
            writer.words[message].store(1, Ordering::Release);
            if let Ok(mut posted) = device.try_lock() {
                *posted = 1;
                return false;
            }
            if is_careful {
                after_publishing();
            }
            is_due(&writer.words[doorbell], &writer.words[rung])
        });
        // The worker tends the queue pair, arms the doorbell, and tends it once more.
        for is_armed in [false, true] {
            if is_armed {
                arm(&shared.words[doorbell]);
            }
            let mut posted = posted.lock().unwrap();
            let newest = shared.words[message].load(Ordering::Acquire);
            *posted = newest.max(*posted);
        }
        let is_rung = thread.join().unwrap();
        let is_out = *posted.lock().unwrap() == 1;
        assert!(is_out || is_rung, "asleep for ever");
    });
}

#[test]
fn a_message_that_its_writer_could_not_post_is_posted_by_the_worker() {
    post_or_ring(true);
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn leaving_a_message_to_the_worker_without_the_fence_is_caught() {
    post_or_ring(false);
}
