use super::*;
use crate::contract::Access;
use crate::window::medium::Medium;
use crate::window::region::WindowRegion;
use crate::window::source::Source;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::AtomicU32;

fn prefix() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("/dev/shm/busway-bell-{}-{count}", std::process::id()).into()
}

/// A window of 64 KiB in a file that is gone at once.
fn window() -> (Mapped, WindowLayout) {
    let path = with_suffix(&prefix(), "-window");
    let place = WindowRegion {
        source: Source::File(path.clone()),
        offset: 0,
        length: 65_536,
        file_length: 65_536,
        medium: Medium::Coherent,
    };
    let mapped = Mapped::open(&place, Access::Writes).expect("room");
    std::fs::remove_file(path).expect("there");
    (mapped, WindowLayout::new(65_536).expect("long enough"))
}

fn is_readable(fd: BorrowedFd<'_>, patience_s: i64) -> bool {
    let timeout = Timespec {
        tv_sec: patience_s,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

#[test]
fn stale_fifo_is_reused_and_removed_at_the_end() {
    let path = prefix();
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    assert!(PeerDoorbell::open(&path).is_err(), "nobody listens");
    let bell = OwnDoorbell::create(path.clone()).expect("it serves again");
    let ringer = PeerDoorbell::open(&path).expect("somebody listens");
    assert!(!is_readable(bell.fd(), 0));
    ringer.ring();
    assert!(is_readable(bell.fd(), 0));
    bell.clear();
    assert!(!is_readable(bell.fd(), 0));
    drop(bell);
    assert!(!path.exists());
    ringer.ring();
}

#[test]
fn other_file_in_place_of_fifo_is_left_alone() {
    let path = prefix();
    std::fs::write(&path, b"mine").expect("writable");
    assert!(OwnDoorbell::create(path.clone()).is_err());
    assert!(PeerDoorbell::open(&path).is_err());
    assert_eq!(std::fs::read(&path).expect("still there"), b"mine");
    std::fs::remove_file(path).expect("there");
}

#[test]
fn full_fifo_never_blocks_the_peer() {
    let path = prefix();
    let bell = OwnDoorbell::create(path.clone()).expect("made");
    let ringer = PeerDoorbell::open(&path).expect("somebody listens");
    (0..100_000).for_each(|_| ringer.ring());
    bell.clear();
    assert!(!is_readable(bell.fd(), 0));
}

#[test]
fn armed_lane_is_rung_once_an_arming() {
    let path = prefix();
    let bell = Arc::new(OwnDoorbell::create(path.clone()).expect("made"));
    let (mapped, layout) = window();
    let mut lane = LaneDoorbell::new(Arc::clone(&bell), &mapped, &layout, 2).expect("it has an entry");
    let armed = mapped
        .window
        .sub(layout.lane_at(2).expect("an entry"), 64)
        .expect("inside");
    let mut wake = LaneWaker::new(
        Arc::new(PeerDoorbell::open(&path).expect("somebody listens")),
        armed,
    );
    wake.wake();
    assert!(!is_readable(lane.fd(), 0));
    for _ in 0..3 {
        lane.arm();
        wake.wake();
        assert!(is_readable(lane.fd(), 0));
        bell.clear();
        wake.wake();
        assert!(!is_readable(lane.fd(), 0), "once is enough");
        lane.disarm();
        wake.wake();
        assert!(!is_readable(lane.fd(), 0));
    }
}

#[test]
fn no_wake_up_is_lost() {
    const MESSAGES: u64 = 50_000;
    let path = prefix();
    let bell = Arc::new(OwnDoorbell::create(path.clone()).expect("made"));
    let (mapped, layout) = window();
    let mut lane = LaneDoorbell::new(bell, &mapped, &layout, 0).expect("it has an entry");
    let armed = mapped
        .window
        .sub(layout.lane_at(0).expect("an entry"), 64)
        .expect("inside");
    let mut wake = LaneWaker::new(
        Arc::new(PeerDoorbell::open(&path).expect("somebody listens")),
        armed,
    );
    let message = mapped.window.sub(layout.landing_at, 64).expect("inside");
    let answer = mapped.window.sub(layout.landing_at + 128, 64).expect("inside");
    let (to_lane, from_lane) = (message.clone(), answer.clone());
    let sleeper = std::thread::spawn(move || {
        for expected in 1..=MESSAGES {
            while message.load_acquire(0) != Ok(expected) {
                lane.arm();
                if message.load_acquire(0) != Ok(expected) {
                    assert!(
                        is_readable(lane.fd(), 20),
                        "the wake-up for message {expected} was lost"
                    );
                }
                lane.disarm();
            }
            answer.store(0, expected).expect("inside");
        }
    });
    for sequence in 1..=MESSAGES {
        to_lane.store(0, sequence).expect("inside");
        wake.wake();
        while from_lane.load_acquire(0) != Ok(sequence) {
            if sleeper.is_finished() {
                return sleeper.join().expect("no wake-up is lost");
            }
            std::hint::spin_loop();
        }
        // Different delays, so that the store hits every step of the sleeper.
        (0..sequence % 400).for_each(|_| std::hint::spin_loop());
    }
    sleeper.join().expect("no wake-up is lost");
}
