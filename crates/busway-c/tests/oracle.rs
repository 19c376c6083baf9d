//! Register and ring between any two languages beside a variable and a queue, through any sequence
//! of operations.

use std::collections::VecDeque;

use busway_c::sides::LANGUAGES;
use busway_c::{Consumer, Language, Producer, Reader, RegisterShape, RingShape, Status, Writer};
use proptest::prelude::*;

/// Where counters carry into their high halves, wrap, and begin.
fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..40_u64).prop_map(|below| u64::MAX - below),
        (1..9_u64, 0..40_u64).prop_map(|(high, below)| (high << 32) - below),
        (1..9_u64, 0..40_u64).prop_map(|(high, below)| (high << 31) - below),
        (1..9_u64, 0..40_u64).prop_map(|(high, below)| (high << 26) - below),
    ]
}

fn languages() -> impl Strategy<Value = (Language, Language)> {
    (
        prop::sample::select(&LANGUAGES[..]),
        prop::sample::select(&LANGUAGES[..]),
    )
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes)
        .map(|at| (number as usize * 31 + at) as u8)
        .collect()
}

#[derive(Debug, Clone)]
enum RingStep {
    Push(usize),
    Stage(usize),
    Commit,
    Pop(usize),
    FlushCredits,
}

fn ring_step() -> impl Strategy<Value = RingStep> {
    let len = prop_oneof![0..=40_usize, 0..200_usize];
    prop_oneof![
        3 => len.clone().prop_map(RingStep::Push),
        2 => len.prop_map(RingStep::Stage),
        1 => Just(RingStep::Commit),
        1 => (0..100_usize).prop_map(RingStep::Pop),
        5 => Just(RingStep::Pop(200)),
        1 => Just(RingStep::FlushCredits),
    ]
}

fn run_ring((from, to): (Language, Language), shape: &RingShape, steps: &[RingStep]) {
    let memories = shape.memories(from);
    let mut producer = Producer::new(from, shape, &memories);
    let mut consumer = Consumer::new(to, shape, &memories);
    let (mut staged, mut queue) = (VecDeque::new(), VecDeque::new());
    let mut buffer = [0; 256];
    for (number, step) in steps.iter().enumerate() {
        let number = number as u64;
        match *step {
            RingStep::Push(len_bytes) | RingStep::Stage(len_bytes) => {
                let message = payload(number, len_bytes);
                let status = producer.stage(&message, number);
                if len_bytes > shape.max_size_bytes {
                    assert_eq!(status, Status::TooLong);
                } else if status == Status::Ok {
                    staged.push_back((number, message));
                } else {
                    assert_eq!(status, Status::Full);
                    let all = staged.len() + queue.len();
                    assert!(all > 0 || producer.unreleased() > 0, "full, and empty at once");
                }
                if matches!(step, RingStep::Push(_)) {
                    producer.commit();
                    queue.append(&mut staged);
                }
            }
            RingStep::Commit => {
                producer.commit();
                queue.append(&mut staged);
            }
            RingStep::Pop(room) => {
                let (status, found) = consumer.pop(&mut buffer[..room]);
                match queue.front() {
                    None => assert_eq!(status, Status::Empty),
                    Some((_, message)) if message.len() > room => assert_eq!(status, Status::BufferTooSmall),
                    Some((time_ns, message)) => {
                        assert_eq!((status, found.time_ns), (Status::Ok, *time_ns));
                        assert_eq!(buffer[..found.len_bytes], *message);
                        queue.pop_front();
                    }
                }
            }
            RingStep::FlushCredits => {
                consumer.flush_credits();
                assert_eq!(producer.unreleased(), staged.len() + queue.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_ring_between_any_two_languages_is_a_bounded_queue(
        languages in languages(),
        start in start(),
        lines in 1..5_u32,
        has_data in any::<bool>(),
        has_checksum in any::<bool>(),
        steps in prop::collection::vec(ring_step(), 1..200),
    ) {
        let (data_bytes, max_size_bytes) = if has_data { (512, 190) } else { (0, 40) };
        let shape = RingShape { lines: 1 << lines, data_bytes, max_size_bytes, has_checksum, start };
        run_ring(languages, &shape, &steps);
    }

    #[test]
    fn a_register_between_any_two_languages_is_a_variable(
        languages in languages(),
        start in start(),
        slots in 3..7_u32,
        has_checksum in any::<bool>(),
        steps in prop::collection::vec(prop_oneof![(0..120_usize).prop_map(Some), Just(None)], 1..60),
    ) {
        let shape = RegisterShape { slots, max_size_bytes: 100, has_checksum, start };
        let memory = shape.memory(languages.1);
        let mut writer = Writer::new(languages.0, &shape, &memory);
        let mut reader = Reader::new(languages.1, &shape, &memory);
        let (mut latest, mut sequence, mut seen) = (None, start, start);
        let mut buffer = [0; 100];
        for (number, step) in steps.iter().enumerate() {
            let number = number as u64;
            if let Some(len_bytes) = *step {
                let message = payload(number, len_bytes);
                let fits = len_bytes <= 100;
                prop_assert_eq!(writer.write(&message, number), if fits { Status::Ok } else { Status::TooLong });
                if fits {
                    sequence = sequence.wrapping_add(1);
                    latest = Some((number, message));
                }
                continue;
            }
            let (status, found) = reader.read(&mut buffer);
            match &latest {
                None => prop_assert_eq!(status, Status::Empty),
                Some((time_ns, message)) => {
                    prop_assert_eq!(status, if seen == sequence { Status::Unchanged } else { Status::Ok });
                    prop_assert_eq!((found.sequence, found.time_ns), (sequence, *time_ns));
                    prop_assert_eq!(&buffer[..found.len_bytes], &message[..]);
                    seen = sequence;
                }
            }
        }
    }
}
