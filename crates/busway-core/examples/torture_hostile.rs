//! Torture: a peer that writes random words to all of the file, at all times. Ends when killed, or
//! when its parent is gone.
//!
//! `torture_hostile register|ring PATH SIZE_BYTES`
//!
//! Half of the words are such as the protocols could have written, so that checks behind the first
//! ones are reached.

#[path = "shared/mod.rs"]
mod shared;
use shared::{Random, START, begin_in_file, file_bytes, map, register_layout, ring_layout};

fn main() {
    shared::pin(0);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, path, size] = arguments.as_slice() else {
        panic!("usage: torture_hostile ROLE PATH SIZE_BYTES")
    };
    let size_bytes: usize = size.parse().expect("SIZE_BYTES is a number");
    let len_bytes = file_bytes(size_bytes);
    let window = map(path, 0, len_bytes, true);
    let target_bytes = match role.as_str() {
        "register" => register_layout(size_bytes).required_bytes(),
        _ => ring_layout(size_bytes).required_bytes(),
    };
    let begin = begin_in_file(target_bytes);
    let parent = std::os::unix::process::parent_id();
    let mut random = Random(u64::from(std::process::id()) | 1 << 40);
    for round in 0_u64.. {
        let choice = random.next();
        // Half of the words go to the first lines: `latest`, the headers and the commit words that
        // a peer looks at first.
        let (from, reach) = if choice & 8 == 0 {
            (begin, 4096.min(target_bytes))
        } else {
            (0, len_bytes)
        };
        let offset = from + (random.next() % (reach as u64 / 8)) as usize * 8;
        let word = match choice % 8 {
            0..4 => random.next(),
            4 => START.wrapping_add(random.next() % 64),
            5 => START.wrapping_add(random.next() % 64) << 1 | 1,
            6 => random.next() % (2 * size_bytes as u64 + 2),
            _ => START.wrapping_add(random.next() % 64).wrapping_mul(64),
        };
        window.store(offset, word).expect("inside");
        if round % (1 << 20) == 0 && std::os::unix::process::parent_id() != parent {
            return;
        }
    }
}
