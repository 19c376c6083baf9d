//! All interleavings of a lane that falls asleep and a peer that writes to it, under loom:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p busway-transport --release --test loom
//! ```
//!
//! The file under test is included here, since the rest of the crate makes system calls.
#![cfg(loom)]

#[path = "../src/window/armed.rs"]
#[allow(dead_code, missing_docs)]
mod armed;
#[path = "../src/window/sync.rs"]
#[allow(missing_docs)]
mod sync;

use armed::{Armed, Watch};
use busway_core::Window;
use loom::thread;

/// Never: message published, no ring, and the sleeper saw nothing.
fn sleeps_without_being_rung(arm: fn(&mut Armed, &Window)) {
    loom::model(move || {
        let (word, message) = (Window::for_loom(8), Window::for_loom(8));
        let (mut armed, mut watch) = (Armed::new(word.clone(), 0), Watch::new(word.clone()));
        let publisher = {
            let message = message.clone();
            thread::spawn(move || {
                message.store(0, 1).expect("inside");
                message.write_fence();
                watch.must_ring()
            })
        };
        arm(&mut armed, &word);
        let seen = message.load_acquire(0).expect("inside") == 1;
        let rung = publisher.join().expect("no panic");
        assert!(seen || rung, "the lane sleeps for ever");
    });
}

#[test]
fn no_wake_up_is_lost() {
    sleeps_without_being_rung(|armed, _| {
        armed.arm();
    });
}

#[test]
#[should_panic(expected = "the lane sleeps for ever")]
fn without_the_sleepers_fence_a_wake_up_is_lost() {
    sleeps_without_being_rung(|_, word| word.store(0, 1).expect("inside"));
}

#[test]
fn a_lane_that_arms_again_is_rung_again() {
    loom::model(|| {
        let [word, message, bell] = [(); 3].map(|()| Window::for_loom(8));
        let (mut armed, mut watch) = (Armed::new(word.clone(), 0), Watch::new(word));
        let publisher = {
            let (message, bell) = (message.clone(), bell.clone());
            thread::spawn(move || {
                for sequence in [1, 2] {
                    message.store(0, sequence).expect("inside");
                    message.write_fence();
                    if watch.must_ring() {
                        bell.store(0, 1).expect("inside");
                    }
                }
            })
        };
        armed.arm();
        armed.disarm();
        bell.store(0, 0).expect("inside");
        armed.arm();
        let seen = message.load_acquire(0).expect("inside");
        publisher.join().expect("no panic");
        let rung = bell.load(0).expect("inside") == 1;
        assert!(
            seen == 2 || rung,
            "it has seen {seen} of 2 messages and sleeps for ever"
        );
    });
}
