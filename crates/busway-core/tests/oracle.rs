//! The ring beside a `VecDeque` and the register beside a variable, through any sequence of
//! operations; and all reading roles on any memory. Runs under Miri too (fewer cases):
//! `MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" cargo +nightly miri test -p
//! busway-core --lib --test oracle` (the windows of the unit tests are leaked on purpose).
#![cfg(not(loom))]
#![allow(unsafe_code)] // Making a window of leaked memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use busway_core::register::{self, LastGood, ReadOutcome, RegisterReader, RegisterWriter};
use busway_core::ring::{self, PushError, RingConsumer, RingProducer};
use busway_core::{Medium, RemoteError, RemoteWrite, Window, control};
use proptest::prelude::*;

fn window_of(mut words: Vec<u64>) -> Window {
    let len_bytes = words.len() * 8;
    let base = words.as_mut_ptr().cast();
    // Leaked memory is a root for Miri only through a static; this keeps it reachable and simple.
    static KEPT: std::sync::Mutex<Vec<Vec<u64>>> = std::sync::Mutex::new(Vec::new());
    KEPT.lock().unwrap().push(words);
    // SAFETY: the vector lives in `KEPT` for ever, is never touched there, and its heap memory does
    // not move with it.
    unsafe { Window::from_raw_parts(base, len_bytes, Medium::Coherent) }
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 500 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..40_u64).prop_map(|below| u64::MAX - below),
        0..40_u64
    ]
}

#[derive(Debug, Clone)]
enum RingStep {
    Push(usize),
    Stage(usize),
    Commit,
    Pop,
    Peek,
    FlushCredits,
}

fn ring_steps() -> impl Strategy<Value = Vec<RingStep>> {
    let len = prop_oneof![0..=40_usize, 0..400_usize];
    let step = prop_oneof![
        3 => len.clone().prop_map(RingStep::Push),
        2 => len.prop_map(RingStep::Stage),
        1 => Just(RingStep::Commit),
        5 => Just(RingStep::Pop),
        1 => Just(RingStep::Peek),
        1 => Just(RingStep::FlushCredits),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 40 } else { 300 })
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number as usize * 31 + i) as u8).collect()
}

/// The ring with the queue that it must behave like: messages as (number, payload).
struct Ring {
    producer: RingProducer<Window>,
    consumer: RingConsumer<Window>,
    staged: VecDeque<(u64, Vec<u8>)>,
    queue: VecDeque<(u64, Vec<u8>)>,
    number: u64,
}

impl Ring {
    fn stage(&mut self, len: usize) -> bool {
        let message = payload(self.number, len);
        let cut = len / 2;
        let layout = *self.producer.layout();
        match self
            .producer
            .stage(&[&message[..cut], &message[cut..]], self.number)
        {
            Ok(()) => {
                assert!(len <= layout.max_size_bytes());
                self.staged.push_back((self.number, message));
                self.number += 1;
                true
            }
            Err(PushError::TooLong { len_bytes, .. }) => {
                assert!(len_bytes > layout.max_size_bytes());
                false
            }
            Err(PushError::Full) => {
                let is_empty = self.queue.is_empty() && self.staged.is_empty();
                assert!(!is_empty, "an empty ring takes any message");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self, step: &RingStep) {
        match step {
            RingStep::Stage(len) => {
                self.stage(*len);
            }
            RingStep::Push(len) => {
                if self.stage(*len) {
                    self.step(&RingStep::Commit);
                }
            }
            RingStep::Commit => {
                self.producer.commit().unwrap();
                self.queue.append(&mut self.staged);
            }
            RingStep::Peek => {
                let message = self.consumer.peek().unwrap();
                let expected = self.queue.front();
                assert_eq!(
                    message.map(|it| (it.time_ns, it.len_bytes)),
                    expected.map(|(n, bytes)| (*n, bytes.len()))
                );
            }
            RingStep::Pop => {
                self.step(&RingStep::Peek);
                if let Some((_, expected)) = self.queue.pop_front() {
                    let mut bytes = vec![0; expected.len()];
                    let (first, second) = bytes.split_at_mut(expected.len() / 3);
                    self.consumer.copy(first.len(), second).unwrap();
                    self.consumer.copy(0, first).unwrap();
                    assert_eq!(bytes, expected);
                }
                self.consumer.release().unwrap();
            }
            RingStep::FlushCredits => self.consumer.flush_credits().unwrap(),
        }
        let under_way = self.queue.len() + self.staged.len();
        assert_eq!(self.producer.staged(), self.staged.len());
        assert!(self.producer.unreleased() >= under_way);
        assert!(self.producer.unreleased() <= self.producer.layout().lines());
        assert_eq!(self.producer.counters().impossible_credits, 0);
    }
}

/// A write that has not been placed: its offset and its bytes.
type UnderWay = (usize, Vec<u8>);

/// Far memory that places what is written in any order: RDMA WRITE over iWARP, by the letter.
#[derive(Clone)]
struct Unordered {
    window: Window,
    under_way: Rc<RefCell<Vec<UnderWay>>>,
}

impl Unordered {
    fn new(window: Window) -> Self {
        let under_way = Rc::default();
        Self { window, under_way }
    }

    /// Places one of the writes under way; `false` if there is none.
    fn place(&self, which: usize) -> bool {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.is_empty() {
            return false;
        }
        let index = which % under_way.len();
        let (offset, bytes) = under_way.swap_remove(index);
        self.window.write(offset, &[], &[&bytes]).unwrap();
        true
    }
}

impl RemoteWrite for Unordered {
    fn len_bytes(&self) -> usize {
        self.window.len_bytes()
    }
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = [&header, &parts.concat()[..]].concat();
        self.under_way.borrow_mut().push((offset, bytes));
        Ok(())
    }
    fn fence(&mut self) {}
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        self.write(offset, &[word], &[])
    }
}

#[derive(Debug, Clone)]
enum RegisterStep {
    Write(usize),
    Read,
    ReadTwoPhases,
    ReadLastGood,
}

fn register_steps() -> impl Strategy<Value = Vec<RegisterStep>> {
    let step = prop_oneof![
        3 => (0..120_usize).prop_map(RegisterStep::Write),
        1 => Just(RegisterStep::Read),
        1 => Just(RegisterStep::ReadTwoPhases),
        1 => Just(RegisterStep::ReadLastGood),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 40 } else { 200 })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_ring_is_a_bounded_vec_deque(
        steps in ring_steps(),
        start in start(),
        lines in prop::sample::select(vec![2_usize, 4, 16]),
        max_size in prop::sample::select(vec![8_usize, 40, 64, 100, 256]),
        line_bytes in prop::sample::select(vec![64_usize, 128, 192]),
        spare in 0..2_u32,
        checksum: bool,
    ) {
        let fits_line = max_size + ring::LINE_HEAD_BYTES <= line_bytes;
        let data_bytes = if fits_line { 0 } else { (2 * max_size.next_multiple_of(64)).next_power_of_two() << spare };
        let layout = ring::Layout::with_wide_lines(lines, line_bytes, data_bytes, max_size).unwrap();
        let layout = if checksum { layout.with_checksum().unwrap() } else { layout };
        let memory = window_of(vec![0; layout.required_bytes() / 8]);
        let credit = window_of(vec![0; ring::CREDIT_BYTES / 8]);
        layout.prepare_credits(&mut credit.clone(), start).unwrap();
        let producer = RingProducer::new(memory.clone(), layout, start, credit.clone()).unwrap();
        let consumer = RingConsumer::new(memory, layout, start, credit).unwrap();
        let mut ring = Ring { producer, consumer, staged: VecDeque::new(), queue: VecDeque::new(), number: 0 };
        for step in &steps {
            ring.step(step);
        }
    }

    #[test]
    fn a_ring_with_checksums_over_memory_without_order_loses_doubles_and_tears_nothing(
        lens in prop::collection::vec(0..=100_usize, 1..if cfg!(miri) { 10 } else { 60 }),
        order in prop::collection::vec(any::<usize>(), 16..17),
        start in start(), commit_in_line: bool, line_bytes in prop::sample::select(vec![64_usize, 128]),
    ) {
        let layout = ring::Layout::with_wide_lines(4, line_bytes, 512, 100).unwrap().with_checksum().unwrap();
        let layout = if commit_in_line { layout.with_commit_in_line() } else { layout };
        let (memory, credit) = (window_of(vec![0; layout.required_bytes() / 8]), window_of(vec![0; 8]));
        layout.prepare_credits(&mut credit.clone(), start).unwrap();
        let far = Unordered::new(memory.clone());
        let mut producer = RingProducer::new(far.clone(), layout, start, credit.clone()).unwrap();
        let mut consumer = RingConsumer::new(memory, layout, start, credit).unwrap();
        let mut order = order.iter().cycle();
        let (mut sent, mut received) = (0, 0);
        while received < lens.len() {
            if sent < lens.len() && producer.push(&[&payload(sent as u64, lens[sent])], sent as u64).is_ok() {
                sent += 1;
            }
            let is_placed = far.place(*order.next().unwrap());
            let Some(message) = consumer.peek().unwrap() else {
                prop_assert!(is_placed || sent < lens.len() && producer.unreleased() < 4, "lost");
                continue;
            };
            let mut bytes = vec![0; message.len_bytes];
            consumer.copy(0, &mut bytes).unwrap();
            prop_assert_eq!((message.time_ns, bytes), (received as u64, payload(received as u64, lens[received])));
            consumer.release().unwrap();
            consumer.flush_credits().unwrap();
            received += 1;
        }
        prop_assert_eq!(consumer.counters().corrupt, 0);
    }

    #[test]
    fn a_register_with_checksums_over_memory_without_order_is_never_torn_and_never_goes_back(
        lens in prop::collection::vec(0..=100_usize, 1..if cfg!(miri) { 10 } else { 60 }),
        order in prop::collection::vec((any::<usize>(), 0..4_u8), 16..17),
        start in start(), index_in_slots: bool,
    ) {
        let layout = register::Layout::new(3, 100).unwrap().with_checksum();
        let layout = if index_in_slots { layout.with_index_in_slots() } else { layout };
        let window = window_of(vec![0; layout.required_bytes() / 8]);
        layout.prepare(&mut window.clone(), start).unwrap();
        let far = Unordered::new(window.clone());
        let mut writer = RegisterWriter::new(far.clone(), layout, start).unwrap();
        let mut reader = RegisterReader::new(window, layout, start).unwrap().with_patience_bytes(1 << 30);
        let mut last = 0;
        let mut order = order.iter().cycle();
        for (number, len) in (1..).zip(&lens) {
            writer.write(&[&payload(number, *len)], number).unwrap();
            let (which, count) = order.next().unwrap();
            for _ in 0..*count {
                far.place(*which);
                let mut bytes = [0; 100];
                if let ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample) = reader.read(&mut bytes).unwrap() {
                    prop_assert!(sample.time_ns >= last, "back in time");
                    last = sample.time_ns;
                    prop_assert_eq!(sample.sequence, start.wrapping_add(last));
                    prop_assert_eq!(&bytes[..sample.len_bytes], payload(last, lens[last as usize - 1]));
                }
            }
        }
        prop_assert_eq!(reader.counters().corrupt, 0);
    }

    #[test]
    fn the_register_is_a_variable(
        steps in register_steps(), start in start(), slots in 3..6_usize, checksum: bool,
    ) {
        let layout = register::Layout::new(slots, 100).unwrap();
        let layout = if checksum { layout.with_checksum() } else { layout };
        let window = window_of(vec![0; layout.required_bytes() / 8]);
        layout.prepare(&mut window.clone(), start).unwrap();
        let mut writer = RegisterWriter::new(window.clone(), layout, start).unwrap();
        let mut reader = RegisterReader::new(window.clone(), layout, start).unwrap();
        let mut second_reader = RegisterReader::new(window, layout, start).unwrap();
        let mut last_good = LastGood::new([[0; 100], [0; 100]]);
        let mut variable: Option<(u64, Vec<u8>)> = None;
        let mut seen = None;
        for (number, step) in steps.iter().enumerate() {
            match *step {
                RegisterStep::Write(len) => {
                    let bytes = payload(number as u64, len);
                    let written = writer.write(&[&bytes[..len / 2], &bytes[len / 2..]], number as u64);
                    prop_assert_eq!(written.is_ok(), len <= 100);
                    if let Ok(sequence) = written {
                        variable = Some((sequence, bytes));
                    }
                }
                RegisterStep::Read => {
                    let mut buffer = [0; 100];
                    let outcome = reader.read(&mut buffer).unwrap();
                    let Some((sequence, bytes)) = &variable else {
                        prop_assert_eq!(outcome, ReadOutcome::Empty);
                        continue;
                    };
                    let sample = match outcome {
                        ReadOutcome::New(sample) if seen != Some(*sequence) => sample,
                        ReadOutcome::Unchanged(sample) if seen == Some(*sequence) => sample,
                        other => panic!("{other:?}"),
                    };
                    seen = Some(*sequence);
                    prop_assert_eq!((sample.sequence, &buffer[..sample.len_bytes]), (*sequence, &bytes[..]));
                }
                RegisterStep::ReadTwoPhases => {
                    let Some(mut attempt) = reader.begin().unwrap() else {
                        prop_assert!(variable.is_none());
                        continue;
                    };
                    let (sequence, bytes) = variable.as_ref().unwrap();
                    let mut copy = vec![0; attempt.sample().len_bytes];
                    let (first, second) = copy.split_at_mut(bytes.len() / 3);
                    attempt.copy(first.len(), second).unwrap();
                    attempt.copy(0, first).unwrap();
                    prop_assert_eq!(attempt.validate(), Ok(true));
                    prop_assert_eq!(&copy, bytes);
                    seen = Some(*sequence);
                }
                RegisterStep::ReadLastGood => {
                    last_good.read(&mut second_reader).unwrap();
                    let found = last_good.message().map(|(sample, bytes)| (sample.sequence, bytes.to_vec()));
                    prop_assert_eq!(&found, &variable);
                }
            }
        }
    }

    #[test]
    fn no_memory_makes_a_register_reader_accept_more_than_the_layout_allows(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0..70_u64], 40..41), checksum: bool, start in 0..3_u64,
    ) {
        let layout = register::Layout::new(3, 40).unwrap();
        let layout = if checksum { layout.with_checksum() } else { layout };
        let mut reader = RegisterReader::new(window_of(words), layout, start).unwrap();
        let mut buffer = [0; 40];
        for _ in 0..3 {
            if let Ok(ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample)) = reader.read(&mut buffer) {
                prop_assert!(sample.len_bytes <= 40 && sample.sequence != start);
            }
        }
        prop_assert!(reader.read(&mut [0; 3]).is_ok() || reader.counters().reads <= 3);
    }

    #[test]
    fn no_memory_makes_a_ring_leave_its_bounds(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0..130_u64], 64..65),
        credits in prop::collection::vec(prop_oneof![any::<u64>(), 0..300_u64], 8..9),
        start in 0..3_u64, checksum: bool,
    ) {
        let layout = ring::Layout::new(4, 256, 100).unwrap();
        let layout = if checksum { layout.with_checksum().unwrap() } else { layout };
        let (memory, credit) = (window_of(words), window_of(credits));
        let mut consumer = RingConsumer::new(memory.clone(), layout, start, credit.clone()).unwrap();
        for _ in 0..10 {
            let Ok(Some(message)) = consumer.peek() else { break };
            prop_assert!(message.len_bytes <= 100);
            consumer.copy(0, &mut [0; 100][..message.len_bytes]).unwrap();
            consumer.release().unwrap();
        }
        let mut producer = RingProducer::new(memory, layout, start, credit).unwrap();
        for len in [1, 100, 41, 100, 40] {
            let _ = producer.push(&[&[0; 100][..len]], 0);
            prop_assert!(producer.free_lines() <= 4 && producer.free_bytes() <= 256);
        }
    }

    #[test]
    fn no_bytes_make_the_control_decoders_panic_or_stand_still(
        bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_u8, length in 0..80_u8, frame: bool,
    ) {
        let mut bytes = bytes;
        if frame && bytes.len() >= 12 {
            bytes[..12].copy_from_slice(&[b'B', b'U', b'S', b'W', kind, 0, 0, 0, length, 0, 0, 0]);
        }
        let _ = control::decode(&bytes);
        let mut decoder = control::StreamDecoder::new([0; 64]);
        let mut rest = &bytes[..];
        loop {
            let space = decoder.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            decoder.filled(count);
            rest = &rest[count..];
            let mut frames = 0;
            while !matches!(decoder.next_frame(), Ok(None)) {
                frames += 1;
                prop_assert!(frames <= 64, "every frame or error takes at least one byte");
            }
            if rest.is_empty() {
                break;
            }
        }
    }
}

/// For Miri above all, which sees a race that is no atomic access, and gives loads stale values.
#[test]
fn a_writer_and_a_reader_in_two_threads_share_a_register_without_a_data_race() {
    let writes = if cfg!(miri) { 60 } else { 20_000 };
    let layout = register::Layout::new(3, 80).unwrap();
    let window = window_of(vec![0; layout.required_bytes() / 8]);
    let mut writer = RegisterWriter::new(window.clone(), layout, 0).unwrap();
    let mut reader = RegisterReader::new(window, layout, 0).unwrap();
    let thread = std::thread::spawn(move || {
        for number in 1..=writes {
            writer.write(&[&payload(number, 80)], number).unwrap();
        }
    });
    let mut last = 0;
    while last < writes {
        let mut buffer = [0; 80];
        if let ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample) = reader.read(&mut buffer).unwrap() {
            assert!(sample.sequence >= last && sample.time_ns == sample.sequence);
            assert_eq!(buffer[..], payload(sample.sequence, 80));
            last = sample.sequence;
        }
        std::thread::yield_now();
    }
    thread.join().unwrap();
}

#[test]
fn a_producer_and_a_consumer_in_two_threads_share_a_ring_without_a_data_race() {
    let messages = if cfg!(miri) { 40 } else { 20_000 };
    let layout = ring::Layout::new(4, 256, 100).unwrap();
    let (memory, credit) = (
        window_of(vec![0; layout.required_bytes() / 8]),
        window_of(vec![0; 8]),
    );
    let mut producer = RingProducer::new(memory.clone(), layout, 0, credit.clone()).unwrap();
    let mut consumer = RingConsumer::new(memory, layout, 0, credit).unwrap();
    let thread = std::thread::spawn(move || {
        for number in 0..messages {
            let message = payload(number, number as usize % 101);
            while producer.push(&[&message], number) == Err(PushError::Full) {
                std::thread::yield_now();
            }
        }
    });
    for number in 0..messages {
        let message = loop {
            match consumer.peek().unwrap() {
                Some(message) => break message,
                None => std::thread::yield_now(),
            }
        };
        let mut bytes = vec![0; message.len_bytes];
        consumer.copy(0, &mut bytes).unwrap();
        assert_eq!(
            (message.time_ns, bytes),
            (number, payload(number, number as usize % 101))
        );
        consumer.release().unwrap();
    }
    thread.join().unwrap();
}
