//! What reading a sampling port does not do: it makes no system call and does not allocate, inside
//! a host and from another host's window.
#![cfg(not(loom))]
#![allow(unsafe_code)] // An allocator that counts, and a filter of system calls.

use std::alloc::{GlobalAlloc, Layout, System as Allocator};
use std::cell::Cell;
use std::io::Read;
use std::process::{Command, Stdio};

use busway_port::apex;
use busway_port::system::{module_of, root_of};
use busway_port::{Partition, SamplingDestination, Store};
use busway_system::System;

/// The system's allocator, and how often it was asked.
struct Counting;

thread_local! {
    /// Of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller has promised.
        unsafe { Allocator.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { Allocator.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SYSTEM: &str = r#"
[host.a]
ports = "DIRECTORY/a"
[host.b]
ports = "DIRECTORY/b"
[[link]]
hosts = ["a", "b"]
buses = ["memory"]
memory = { path = "DIRECTORY/window", length = "1MiB" }
CLOCK
[[partition]]
name = "source"
host = "a"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 64 }]
[[partition]]
name = "near"
host = "a"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1s" }]
[[partition]]
name = "far"
host = "b"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1s" }]
[[channel]]
source = "source/OUT"
destinations = ["near/IN", "far/IN"]
"#;

fn join(system: &System, host: &str, partition: &str) -> Partition {
    let store = Store::open(root_of(system, host), module_of(system, host)).expect("a store");
    store.join(partition).expect("a partition")
}

/// From here on the kernel kills this process for any system call of this thread but write. (The
/// kernel's strict mode would also forbid reading the CPU's counter, which clocks do.)
fn forbid_system_calls() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut steps = [
        // The number of the system call is the first word of what the filter is given.
        step(LOAD, 0, 0),
        step(IF_EQUAL, 1, libc::SYS_write as u32),
        step(RETURN, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: numbers only.
    let is_set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0
        // SAFETY: the filter and its steps outlive the call, which copies them.
        && unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) } == 0;
    assert!(is_set, "no filter: {}", std::io::Error::last_os_error());
}

/// Every kind of read, of messages that are new, unchanged or being written.
fn read_all(partition: &Partition, port: SamplingDestination<'_>) {
    let mut buffer = [0; 64];
    for _ in 0..20_000 {
        let _ = port.read(&mut buffer);
        let _ = port.read_updated(&mut buffer);
        let _ = apex::read_sampling_message_conditional(partition, port.id(), 0, &mut buffer);
    }
}

/// Not a test of its own: the reader that [`reading_makes_no_system_call_and_does_not_allocate`]
/// starts.
#[test]
fn the_reader_that_may_not() {
    let Ok(text) = std::env::var("BUSWAY_TEST_READING_SYSTEM") else {
        return;
    };
    let system = System::parse(&text, "system.toml".as_ref()).expect("right");
    let (near, far) = (join(&system, "a", "near"), join(&system, "b", "far"));
    let [one, other] = [&near, &far].map(|partition| {
        partition
            .sampling_destination("IN", 1_000_000_000)
            .expect("configured")
    });
    let stderr = std::io::stderr();
    let before = ALLOCATIONS.get();
    forbid_system_calls();
    read_all(&near, one);
    read_all(&far, other);
    let is_same = ALLOCATIONS.get() == before;
    // So that the filter is not one that forbids nothing.
    if std::env::var_os("BUSWAY_TEST_READING_TRANSGRESS").is_some() {
        let _ = rustix::process::getpid();
    }
    let said: &[u8] = if is_same { b"<nothing>" } else { b"<allocated>" };
    let _ = rustix::io::write(&stderr, said);
    // To end takes a system call that is not allowed: the parent does it.
    loop {
        std::hint::spin_loop();
    }
}

/// What the reader says before it ends, while messages are written without pause.
fn reader_says(clock: &str, transgresses: bool) -> String {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let at = directory.path().display().to_string();
    let text = SYSTEM.replace("DIRECTORY", &at).replace("CLOCK", clock);
    let system = System::parse(&text, "system.toml".as_ref()).expect("right");
    let source = join(&system, "a", "source");
    let out = source.sampling_source("OUT").expect("configured");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "the_reader_that_may_not", "--nocapture"])
        .env("BUSWAY_TEST_READING_SYSTEM", &text)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if transgresses {
        command.env("BUSWAY_TEST_READING_TRANSGRESS", "1");
    }
    let mut child = command.spawn().expect("started");
    let mut errors = child.stderr.take().expect("piped");
    let listener = std::thread::spawn(move || {
        let (mut said, mut bytes) = (Vec::new(), [0; 256]);
        // Until it has said its word, or was killed.
        while !said.ends_with(b">") {
            match errors.read(&mut bytes) {
                Ok(count) if count > 0 => said.extend_from_slice(&bytes[..count]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    });
    let mut count = 0_u64;
    while !listener.is_finished() {
        count += 1;
        out.write(&count.to_ne_bytes()).expect("written");
    }
    let _ = child.kill();
    let _ = child.wait();
    listener.join().expect("the listener")
}

#[test]
fn reading_makes_no_system_call_and_does_not_allocate() {
    for clock in ["", "clock = \"ptp\""] {
        let said = reader_says(clock, false);
        assert!(
            said.ends_with("<nothing>"),
            "{clock}: killed for a system call, or: {said:?}"
        );
    }
}

#[test]
fn a_reader_that_made_a_system_call_would_be_found() {
    assert_eq!(reader_says("", true), "");
}
