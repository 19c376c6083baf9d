//! The register's reader on any memory that changes at any time: no panic, no access outside,
//! nothing longer than allowed.
#![no_main]

use busway_core::register::{LastGood, Layout, ReadOutcome, RegisterReader};
use libfuzzer_sys::fuzz_target;

mod memory;
use memory::Memory;

fuzz_target!(|input: (bool, u8, u64, &[u8], Vec<(u16, u64)>)| {
    let (checksum, slots, start, bytes, changes) = input;
    let layout = Layout::new(3 + usize::from(slots % 4), 100).expect("within the limits");
    let layout = if checksum { layout.with_checksum() } else { layout };
    let layout = if slots & 4 == 0 { layout } else { layout.with_index_in_slots() };
    let mut memory = Memory::new(layout.required_bytes(), bytes);
    let window = memory.window();
    let patience_bytes = if checksum { 1 << 10 } else { 0 };
    let mut reader = RegisterReader::new(window.clone(), layout, start)
        .expect("large enough")
        .with_patience_bytes(patience_bytes);
    let mut last_good = LastGood::new([[0; 100], [0; 100]]);
    let change = |(place, word): &(u16, u64)| {
        let words = window.len_bytes() / 8;
        window
            .store(usize::from(*place) % words * 8, *word)
            .expect("inside");
    };
    for changed in &changes {
        change(changed);
        if let Ok(ReadOutcome::New(sample)) = last_good.read(&mut reader) {
            assert!(sample.len_bytes <= 100 && sample.sequence != start);
        }
        if let Ok(Some(mut attempt)) = reader.begin() {
            change(changed);
            let mut copy = vec![0; attempt.sample().len_bytes];
            attempt.copy(0, &mut copy).expect("a length that was checked");
            let _ = attempt.validate();
        }
    }
});
