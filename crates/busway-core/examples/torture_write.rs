//! Torture: the writing side, in a process of its own. Never pauses; ends when killed, or when its
//! parent is gone.
//!
//! `torture_write register|register-varied|ring PATH SIZE_BYTES`

use busway_core::register::RegisterWriter;
use busway_core::ring::{PushError, RingProducer};

#[path = "shared/mod.rs"]
mod shared;
use shared::{Pattern, START, map, map_ring, register_layout, ring_layout, time_of, wait};

fn main() {
    shared::pin(0);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, path, size] = arguments.as_slice() else {
        panic!("usage: torture_write ROLE PATH SIZE_BYTES")
    };
    let size_bytes: usize = size.parse().expect("SIZE_BYTES is a number");
    let parent = std::os::unix::process::parent_id();
    let orphaned = || std::os::unix::process::parent_id() != parent;
    let pattern = Pattern::new(size_bytes);
    match role.as_str() {
        "register" | "register-varied" => {
            write_register(path, size_bytes, &pattern, role == "register-varied", orphaned)
        }
        "ring" => write_ring(path, size_bytes, &pattern, orphaned),
        _ => panic!("unknown role {role}"),
    }
}

fn write_register(
    path: &str,
    size_bytes: usize,
    pattern: &Pattern,
    varied: bool,
    orphaned: impl Fn() -> bool,
) {
    let layout = register_layout(size_bytes);
    let window = map(path, 0, layout.required_bytes(), true);
    let mut writer = RegisterWriter::new(window, layout, START).expect("writer");
    for number in START.. {
        let number = number.wrapping_add(1);
        write_one(&mut writer, pattern, number, varied);
        if number == u64::MAX {
            break;
        }
    }
    // Past the wrap, for the rest of the run.
    for number in 0.. {
        write_one(&mut writer, pattern, number, varied);
        if number % 65_536 == 0 && orphaned() {
            return;
        }
    }
}

fn write_one(writer: &mut RegisterWriter<busway_core::Window>, pattern: &Pattern, number: u64, varied: bool) {
    let sequence = writer
        .write(&[pattern.message(number, varied)], time_of(number))
        .expect("write");
    assert_eq!(sequence, number);
}

fn write_ring(path: &str, size_bytes: usize, pattern: &Pattern, orphaned: impl Fn() -> bool) {
    let layout = ring_layout(size_bytes);
    let (window, credit) = map_ring(path, &layout, true);
    let mut producer = RingProducer::new(window, layout, START, credit).expect("producer");
    for number in 0.. {
        let message = pattern.message(number, true);
        let (first, second) = message.split_at(message.len() / 3);
        let mut waits = 0_u64;
        loop {
            match producer.push(&[first, second], time_of(number)) {
                Ok(()) => break,
                Err(PushError::Full) => wait(&mut waits),
                Err(error) => panic!("{error}"),
            }
            if waits.is_multiple_of(1 << 20) && orphaned() {
                return;
            }
        }
    }
}
