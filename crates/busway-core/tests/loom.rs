//! Every interleaving, and every stale value that a weak memory model allows, of the register and
//! the ring themselves.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p busway-core --release --test loom`
//!
//! For each fence there is also a mutant that leaves it out. Loom must catch it, or the fence would
//! be unproven. Loom runs loads in program order, so that it cannot show a load that sinks below a
//! later store. The ring is therefore also shadowed by one `UnsafeCell` a line of memory, which
//! loom checks for accesses that nothing orders.
#![cfg(loom)]
#![allow(unsafe_code)] // Sharing the shadow cells.

use busway_core::register::{self, ReadOutcome, RegisterReader, RegisterWriter};
use busway_core::ring::{self, PushError, RingConsumer, RingProducer};
use busway_core::{RemoteError, RemoteWrite, Window};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// One cell for each 64 bytes of memory, accessed beside them. Loom panics where accesses to one
/// are not ordered.
struct Shadow(Vec<UnsafeCell<()>>);

// SAFETY: the cells hold nothing; whether accesses to them are ordered is what loom checks.
unsafe impl Sync for Shadow {}
// SAFETY: as above.
unsafe impl Send for Shadow {}

impl Shadow {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self((0..bytes / 64).map(|_| UnsafeCell::new(())).collect()))
    }
}

/// A window whose fences are left out where `skip` says so: entry `i % 2` for the `i`-th fence.
struct Mutant {
    window: Window,
    shadow: Option<Arc<Shadow>>,
    skip: [bool; 2],
    fences: usize,
}

impl Mutant {
    fn new(window: Window, skip: [bool; 2]) -> Self {
        Self {
            window,
            shadow: None,
            skip,
            fences: 0,
        }
    }
}

impl RemoteWrite for Mutant {
    fn len_bytes(&self) -> usize {
        self.window.len_bytes()
    }
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        if let Some(shadow) = &self.shadow {
            shadow.0[offset / 64].with_mut(|_| ());
        }
        RemoteWrite::write(&mut self.window, offset, header, parts)
    }
    fn fence(&mut self) {
        if !self.skip[self.fences % 2] {
            self.window.fence();
        }
        self.fences += 1;
    }
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        self.window.publish(offset, word)
    }
}

/// All interleavings, or those with at most so many preemptions.
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 100_000;
    builder.check(model);
}

/// `writes` messages of two equal words against `reads` reads. The reader must see whole messages,
/// in order.
fn register(start: u64, writes: u64, reads: usize, skip: [bool; 2]) {
    let layout = register::Layout::new(3, 16).unwrap();
    let window = Window::for_loom(layout.required_bytes() / 8);
    layout.prepare(&mut window.clone(), start).unwrap();
    let memory = Mutant::new(window.clone(), skip);
    let writer = thread::spawn(move || {
        let mut writer = RegisterWriter::new(memory, layout, start).unwrap();
        for _ in 0..writes {
            let bytes = writer.sequence().wrapping_add(1).to_ne_bytes();
            writer.write(&[&bytes, &bytes], writer.sequence()).unwrap();
        }
    });
    let mut reader = RegisterReader::new(window, layout, start)
        .unwrap()
        .with_retries(0);
    let mut last = start;
    for _ in 0..reads {
        let mut bytes = [0; 16];
        match reader.read(&mut bytes).unwrap() {
            ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample) => {
                let expected = sample.sequence.to_ne_bytes();
                assert_eq!(bytes[..8], expected, "torn");
                assert_eq!(bytes[8..], expected, "torn");
                assert_eq!(sample.time_ns, sample.sequence.wrapping_sub(1), "torn header");
                assert!(sample.sequence.wrapping_sub(last) <= writes, "back in time");
                last = sample.sequence;
            }
            ReadOutcome::Empty => assert_eq!(last, start),
            ReadOutcome::Contended => {}
            ReadOutcome::LastGood(_) => unreachable!("only from a LastGood"),
        }
    }
    writer.join().unwrap();
}

/// Two messages are there; a writer goes on behind two more that it did not write, as one that was
/// killed has left it, while a reader reads. If `announces`, it moves `latest` up to them first.
fn gap(announces: bool) {
    let layout = register::Layout::new(3, 16).unwrap();
    let window = Window::for_loom(layout.required_bytes() / 8);
    let write = |writer: &mut RegisterWriter<Window>| {
        let bytes = writer.sequence().wrapping_add(1).to_ne_bytes();
        writer.write(&[&bytes, &bytes], 0).unwrap();
    };
    layout.prepare(&mut window.clone(), 7).unwrap();
    let mut first = RegisterWriter::new(window.clone(), layout, 7).unwrap();
    write(&mut first);
    write(&mut first);
    let mut memory = window.clone();
    let writer = thread::spawn(move || {
        if announces {
            layout.prepare(&mut memory, 11).unwrap();
        }
        // Message 12 goes to the slot that message 9 has.
        write(&mut RegisterWriter::resume(memory, layout, 7, 11).unwrap());
    });
    let mut reader = RegisterReader::new(window, layout, 7).unwrap().with_retries(0);
    let mut bytes = [0; 16];
    // Until the message is there, the announced one is not: an error, and nothing is accepted.
    if let Ok(ReadOutcome::New(sample)) = reader.read(&mut bytes) {
        assert!([9, 12].contains(&sample.sequence));
        let expected = sample.sequence.to_ne_bytes();
        assert_eq!((&bytes[..8], &bytes[8..]), (&expected[..], &expected[..]), "torn");
    }
    writer.join().unwrap();
}

#[test]
fn a_writer_that_announces_the_messages_that_are_missing_tears_none() {
    explore(None, || gap(true));
}

#[test]
#[should_panic(expected = "torn")]
fn without_the_announcement_a_message_is_torn() {
    explore(None, || gap(false));
}

/// A new session begins over the messages of an old one while its reader reads.
#[test]
fn a_session_that_begins_over_another_one_tears_no_message_of_it() {
    explore(None, || {
        let layout = register::Layout::new(3, 16).unwrap();
        let window = Window::for_loom(layout.required_bytes() / 8);
        let whole = |sequence: u64| sequence.to_ne_bytes();
        layout.prepare(&mut window.clone(), 7).unwrap();
        let mut old = RegisterWriter::new(window.clone(), layout, 7).unwrap();
        old.write(&[&whole(8), &whole(8)], 0).unwrap();
        let mut memory = window.clone();
        let writer = thread::spawn(move || {
            let start = 1 << 60;
            layout.prepare(&mut memory, start).unwrap();
            let mut new = RegisterWriter::resume(memory, layout, start, start).unwrap();
            new.write(&[&whole(start + 1), &whole(start + 1)], 0).unwrap();
        });
        let mut reader = RegisterReader::new(window, layout, 7).unwrap().with_retries(0);
        let mut bytes = [0; 16];
        if let Ok(ReadOutcome::New(sample)) = reader.read(&mut bytes) {
            assert_eq!(sample.sequence, 8);
            assert_eq!((&bytes[..8], &bytes[8..]), (&whole(8)[..], &whole(8)[..]), "torn");
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_register_is_never_torn_and_never_goes_back() {
    explore(None, || register(7, 4, 1, [false, false]));
}

#[test]
fn two_reads_of_a_register_whose_sequence_wraps_are_in_order() {
    explore(Some(4), || register(u64::MAX - 2, 4, 2, [false, false]));
}

#[test]
#[should_panic(expected = "Corrupt(Sequence")]
fn a_register_without_the_fence_before_its_index_is_caught() {
    explore(None, || register(7, 4, 1, [true, false]));
}

#[test]
#[should_panic(expected = "torn")]
fn a_register_without_the_fence_behind_its_index_is_caught() {
    explore(None, || register(7, 4, 1, [false, true]));
}

#[derive(Clone, Copy)]
struct RingCase {
    lines: usize,
    line_bytes: usize,
    data_bytes: usize,
    message_bytes: usize,
    pushes: usize,
    peeks: usize,
    start: u64,
    producer_fences: bool,
    credit_fences: bool,
}

const INLINE: RingCase = RingCase {
    lines: 2,
    line_bytes: 64,
    data_bytes: 0,
    message_bytes: 16,
    pushes: 4,
    peeks: 3,
    start: u64::MAX - 1,
    producer_fences: true,
    credit_fences: true,
};

/// Payloads of 48 bytes take a data area of two places, so that messages wrap and wait for data
/// credits.
const LONG: RingCase = RingCase {
    data_bytes: 128,
    message_bytes: 48,
    pushes: 3,
    peeks: 2,
    ..INLINE
};

/// The producer tries `case.pushes` times and the consumer `case.peeks` times meanwhile (a loop
/// that waits would be endless here, where every load may be stale); then the consumer takes the
/// rest.
fn ring(case: RingCase) {
    let layout =
        ring::Layout::with_wide_lines(case.lines, case.line_bytes, case.data_bytes, case.message_bytes)
            .unwrap();
    let memory = Window::for_loom(layout.required_bytes() / 8);
    let credit = Window::for_loom(ring::CREDIT_BYTES / 8);
    layout.prepare_credits(&mut credit.clone(), case.start).unwrap();
    let shadow = Shadow::new(layout.required_bytes());
    let mut far = Mutant::new(memory.clone(), [!case.producer_fences; 2]);
    far.shadow = Some(shadow.clone());
    let back = Mutant::new(credit.clone(), [!case.credit_fences; 2]);
    let mut consumer = RingConsumer::new(memory, layout, case.start, back)
        .unwrap()
        .with_credit_batch(1);
    let producer = thread::spawn(move || {
        let mut producer = RingProducer::new(far, layout, case.start, credit).unwrap();
        let mut sent = 0_u64;
        for _ in 0..case.pushes {
            let message: Vec<u8> = sent.to_ne_bytes().repeat(case.message_bytes / 8);
            match producer.push(&[&message], sent) {
                Ok(()) => sent += 1,
                Err(PushError::Full) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(producer.counters().impossible_credits, 0);
        sent
    });
    let mut received = 0;
    for _ in 0..case.peeks {
        received += u64::from(take(&mut consumer, case, &shadow, received));
    }
    let sent = producer.join().unwrap();
    while take(&mut consumer, case, &shadow, received) {
        received += 1;
    }
    assert_eq!(received, sent, "lost");
}

/// Takes and checks message `number` if it has come.
fn take(consumer: &mut RingConsumer<Mutant>, case: RingCase, shadow: &Shadow, number: u64) -> bool {
    let Some(message) = consumer.peek().expect("corrupt") else {
        return false;
    };
    assert_eq!(
        (message.len_bytes, message.time_ns),
        (case.message_bytes, number),
        "corrupt"
    );
    let position = case.start.wrapping_add(number) as usize;
    shadow.0[position % case.lines * (case.line_bytes / 64)].with(|_| ());
    if case.data_bytes > 0 {
        shadow.0[case.lines + position % (case.data_bytes / 64)].with(|_| ());
    }
    let mut bytes = vec![0; case.message_bytes];
    consumer.copy(0, &mut bytes).unwrap();
    assert_eq!(
        bytes,
        number.to_ne_bytes().repeat(case.message_bytes / 8),
        "corrupt"
    );
    consumer.release().unwrap();
    true
}

#[test]
fn a_full_ring_whose_position_wraps_delivers_every_message_whole_and_in_order() {
    explore(None, || ring(INLINE));
}

#[test]
fn payloads_in_wide_lines_are_delivered_whole_and_in_order() {
    explore(None, || {
        ring(RingCase {
            line_bytes: 128,
            message_bytes: 48,
            pushes: 3,
            peeks: 2,
            ..INLINE
        })
    });
}

#[test]
fn payloads_in_the_data_area_are_delivered_whole_and_in_order() {
    explore(None, || ring(LONG));
}

#[test]
#[should_panic(expected = "corrupt")]
fn a_ring_without_the_fence_before_its_commit_word_is_caught() {
    explore(None, || {
        ring(RingCase {
            producer_fences: false,
            ..INLINE
        })
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_ring_without_the_fence_before_its_credits_is_caught() {
    explore(None, || {
        ring(RingCase {
            credit_fences: false,
            ..INLINE
        })
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_data_area_without_the_fence_before_its_credits_is_caught() {
    explore(None, || {
        ring(RingCase {
            credit_fences: false,
            lines: 8,
            ..LONG
        })
    });
}
