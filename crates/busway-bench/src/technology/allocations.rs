//! Shows that no path allocates while messages are exchanged: two threads of this process, whose
//! allocations are counted.
//!
//! Left out: ports, which join partitions by process (`busway-port` shows the same of them),
//! iceoryx 2.0, whose memory does not come from this allocator, and the published register, whose
//! readers may be deceived for ever where nobody asks again.
#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::message::Message;
use super::path::{Description, MeetingPoint, Opening, Path, Side, Stage, User};
use super::wait::Wait;
use super::{all, with_path};
use crate::control::{Control, WorkerResult};
use crate::hosts::Hosts;
use crate::record::Measured;
use crate::system::write_system_file;

const WARM_UP: u64 = 100;
const COUNTED: u64 = 500;
const PAYLOAD_BYTES: usize = 4096;
const TIME_LIMIT: Duration = Duration::from_secs(60);

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no more use for the count.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller vouches.
        unsafe { System.realloc(memory, layout, new_bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Program<'a> {
    side: Side,
    is_open: &'a AtomicBool,
    control: &'a Control,
}

impl User for Program<'_> {
    fn exchange(self, mut path: impl Path) -> WorkerResult<Measured> {
        let deadline = Instant::now() + TIME_LIMIT;
        let next = |path: &mut dyn FnMut() -> WorkerResult<Option<u64>>| loop {
            if let Some(number) = path()? {
                return Ok(Some(number));
            }
            if self.control.ended() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err("nothing came".to_owned());
            }
        };
        // Release: partner of the acquire in `exchange_over`; what the asking program opens is
        // there.
        self.is_open.store(true, Ordering::Release);
        let mut measured = Measured::default();
        let mut before = 0;
        for number in 1..=WARM_UP + COUNTED {
            if number == WARM_UP + 1 {
                before = ALLOCATIONS.get();
            }
            if self.side == Side::Asks {
                path.send(Message::numbered(number))?;
            }
            let came = next(&mut || Ok(path.receive()?.map(|received| received.message.number)))?;
            if came != Some(number) {
                return Err(format!("{came:?} came for message {number}"));
            }
            if self.side == Side::Answers {
                path.send(Message::numbered(number))?;
            }
            measured.received += 1;
        }
        measured.sent = ALLOCATIONS.get() - before;
        if self.side == Side::Answers {
            // Until the last answer has arrived. The asking program closes its end before it says
            // so: an end that is closed is no failure here, and answers that were lost with it are
            // missing over there.
            while !self.control.ended() && Instant::now() < deadline && path.receive().is_ok() {}
        }
        Ok(measured)
    }
}

fn allocations_over(technology: &Description, wait: Wait) -> [u64; 2] {
    let hosts = Hosts::domains(&["a", "b"]).expect("directories");
    let spare = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let system = match technology.stage {
        Stage::Link(bus) => Some(write_system_file(&hosts, bus, Some(wait)).expect("a file")),
        _ => None,
    };
    let place = |side: Side| MeetingPoint {
        name: "allocations".into(),
        directory: hosts.shared.clone(),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, spare.as_ref().expect("a free port").port())),
        iceoryx2: hosts.hosts[0].iceoryx2_config.clone(),
        system: system.clone(),
        host: hosts.hosts[side as usize].name.clone(),
        window: None,
    };
    let control = Control::silent();
    let is_open = AtomicBool::new(false);
    let run = |side: Side| {
        let opening = Opening {
            side,
            place: &place(side),
            payload_bytes: PAYLOAD_BYTES,
            wait,
            touched: true,
            timed: false,
            one_way: false,
            overwrites: false,
            control: &control,
            listening: &|_| {},
        };
        let program = Program {
            side,
            is_open: &is_open,
            control: &control,
        };
        with_path(&technology.name, &opening, program)
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| run(Side::Answers));
        // Where the answering program waits for somebody to connect it opens nothing before.
        let until = Instant::now() + Duration::from_millis(300);
        // Acquire: see `Program::exchange`.
        while !is_open.load(Ordering::Acquire) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let asked = run(Side::Asks);
        control.end();
        let answered = answering.join().expect("no panic");
        [asked, answered].map(|measured| {
            let measured = measured.unwrap_or_else(|error| panic!("{}: {error}", technology.name));
            assert_eq!(measured.received, WARM_UP + COUNTED, "{}", technology.name);
            measured.sent
        })
    })
}

#[test]
fn no_path_allocates_while_messages_are_exchanged() {
    let mut shown = 0;
    for technology in all() {
        let is_left_out = !matches!(technology.stage, Stage::Bare | Stage::Link(_))
            || ["iceoryx1", "begin-end-flags"].contains(&technology.name.as_str());
        if is_left_out || technology.missing.is_some() || technology.max_bytes < PAYLOAD_BYTES {
            continue;
        }
        for wait in &technology.waits {
            let allocations = allocations_over(&technology, *wait);
            // iceoryx2 0.10 itself allocates an object for each sample that it loans
            // (`ChunkMutSharedState::new`).
            let own = if technology.name == "iceoryx2" { COUNTED } else { 0 };
            assert_eq!(allocations, [own, own], "{} {}", technology.name, wait.word());
            shown += 1;
        }
    }
    assert!(shown > 10, "only {shown} were shown");
}

#[test]
fn an_allocation_is_counted() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
