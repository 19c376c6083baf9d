//! Both roles of the ring on any memory that changes at any time: no panic, no access outside,
//! nothing longer than allowed.
#![no_main]

use busway_core::ring::{CREDIT_BYTES, Layout, RingConsumer, RingProducer};
use libfuzzer_sys::fuzz_target;

mod memory;
use memory::Memory;

fuzz_target!(|input: (bool, u64, &[u8], &[u8], Vec<(u16, u64, u8)>)| {
    let (checksum, start, bytes, credits, steps) = input;
    let line_bytes = if start & 1 == 0 { 64 } else { 128 };
    let mut layout = Layout::with_wide_lines(4, line_bytes, 256, 100).expect("a possible layout");
    if checksum {
        layout = layout.with_checksum().expect("short enough");
    }
    if start & 2 != 0 {
        layout = layout.with_commit_in_line();
    }
    let (mut memory, mut credit_memory) = (
        Memory::new(layout.required_bytes(), bytes),
        Memory::new(CREDIT_BYTES, credits),
    );
    let (window, credit) = (memory.window(), credit_memory.window());
    let mut consumer = RingConsumer::new(window.clone(), layout, start, credit.clone())
        .expect("large enough")
        .with_patience_bytes(1 << 10);
    let mut producer =
        RingProducer::new(window.clone(), layout, start, credit.clone()).expect("large enough");
    for (place, word, action) in steps {
        let place = usize::from(place);
        match action % 4 {
            0 => window
                .store(place % (window.len_bytes() / 8) * 8, word)
                .expect("inside"),
            1 => credit.store(place % 2 * 8, word).expect("inside"),
            2 => {
                let _ = producer.push(&[&[7; 120][..place % 121]], word);
                assert!(producer.free_lines() <= 4 && producer.free_bytes() <= 256);
            }
            _ => {
                if let Ok(Some(message)) = consumer.peek() {
                    assert!(message.len_bytes <= 100);
                    consumer
                        .copy(0, &mut vec![0; message.len_bytes])
                        .expect("a length that was checked");
                    consumer.release().expect("credits");
                }
            }
        }
    }
});
