use super::*;
use crate::Window;
use crate::window::tests::window;

pub(crate) struct Pair {
    pub producer: RingProducer<Window>,
    pub consumer: RingConsumer<Window>,
    pub memory: Window,
    pub credit: Window,
}

pub(crate) fn pair(layout: Layout, start: u64) -> Pair {
    let memory = window(layout.required_bytes());
    let credit = window(CREDIT_BYTES);
    layout.prepare_credits(&mut credit.clone(), start).unwrap();
    let producer = RingProducer::new(memory.clone(), layout, start, credit.clone()).unwrap();
    let consumer = RingConsumer::new(memory.clone(), layout, start, credit.clone()).unwrap();
    Pair {
        producer,
        consumer,
        memory,
        credit,
    }
}

pub(crate) fn pop(consumer: &mut RingConsumer<Window>) -> Option<(Vec<u8>, u64)> {
    let message = consumer.peek().unwrap()?;
    let mut bytes = vec![0; message.len_bytes];
    consumer.copy(0, &mut bytes).unwrap();
    consumer.release().unwrap();
    Some((bytes, message.time_ns))
}

#[test]
fn messages_of_every_size_come_out_in_order_and_whole() {
    let mut pair = pair(Layout::new(8, 1024, 300).unwrap(), 5);
    for round in 0..if cfg!(miri) { 30 } else { 200_usize } {
        let message: Vec<u8> = (0..round * 13 % 301).map(|i| (i + round) as u8).collect();
        let cut = message.len() / 3;
        pair.producer
            .push(&[&message[..cut], &message[cut..]], round as u64)
            .unwrap();
        assert_eq!(pop(&mut pair.consumer), Some((message, round as u64)));
    }
    assert_eq!(pair.consumer.peek(), Ok(None));
}

#[test]
fn a_message_that_fits_its_wide_line_is_seen_after_one_write_where_commit_words_go_with_lines() {
    let layout = Layout::with_wide_lines(4, 192, 1024, 500).unwrap();
    let mut pair = pair(layout.with_checksum().unwrap().with_commit_in_line(), 5);
    for len_bytes in [0, 1, 168, 169, 500] {
        let message = vec![7; len_bytes];
        pair.producer.stage(&[&message], 9).unwrap();
        assert_eq!(pair.producer.staged(), 1);
        assert_eq!(pop(&mut pair.consumer), Some((message, 9)));
        pair.producer.commit().unwrap();
        assert_eq!(pair.producer.staged(), 0);
        pair.consumer.flush_credits().unwrap();
        assert_eq!(pair.producer.free_lines(), 4);
    }
    assert_eq!(pair.producer.counters().impossible_credits, 0);
}

#[test]
fn lines_of_an_impossible_width_are_refused() {
    for line_bytes in [0, 32, 65, 1 << 21] {
        assert_eq!(
            Layout::with_wide_lines(4, line_bytes, 0, 8),
            Err(LayoutError::LineBytes { line_bytes })
        );
    }
}

#[test]
fn a_ring_takes_as_many_messages_as_it_has_lines_then_is_full_until_one_is_released() {
    let mut pair = pair(Layout::new(4, 0, 40).unwrap(), u64::MAX - 1);
    pair.consumer = RingConsumer::new(
        pair.memory.clone(),
        *pair.producer.layout(),
        u64::MAX - 1,
        pair.credit.clone(),
    )
    .unwrap()
    .with_credit_batch(1);
    for number in 0..20_u8 {
        let before = pair.producer.free_lines();
        for extra in 0..before {
            pair.producer.push(&[&[number, extra as u8]], 0).unwrap();
        }
        assert_eq!(pair.producer.push(&[&[0]], 0), Err(PushError::Full));
        assert_eq!((pair.producer.free_lines(), pair.producer.unreleased()), (0, 4));
        pop(&mut pair.consumer).unwrap();
        assert_eq!(pair.producer.free_lines(), 1);
    }
    assert_eq!(pair.producer.counters().full, 20);
}

#[test]
fn staged_messages_are_invisible_until_they_are_committed_together() {
    let mut pair = pair(Layout::new(8, 512, 128).unwrap(), 3);
    for number in 0..3_u8 {
        pair.producer.stage(&[&[number; 100]], u64::from(number)).unwrap();
    }
    assert_eq!((pair.producer.staged(), pair.consumer.peek()), (3, Ok(None)));
    pair.producer.commit().unwrap();
    assert_eq!(pair.producer.staged(), 0);
    for number in 0..3_u8 {
        assert_eq!(
            pop(&mut pair.consumer),
            Some((vec![number; 100], u64::from(number)))
        );
    }
}

#[test]
fn the_longest_message_fits_an_empty_ring_at_every_place_without_any_flush_of_credits() {
    for data_bytes in [256, 512, 1024] {
        let mut pair = pair(Layout::new(16, data_bytes, 128).unwrap(), 0);
        for round in 0..if cfg!(miri) { 15 } else { 100_usize } {
            // Small messages move the place on; drained, whatever credits are still owed, the
            // longest must fit.
            for _ in 0..round % 7 {
                pair.producer.push(&[&[1; 60]], 0).unwrap();
                pop(&mut pair.consumer).unwrap();
            }
            assert_eq!(
                pair.producer.push(&[&[2; 128]], 0),
                Ok(()),
                "{data_bytes} {round}"
            );
            assert_eq!(pop(&mut pair.consumer), Some((vec![2; 128], 0)));
        }
    }
}

#[test]
fn a_ring_for_a_depth_holds_that_many_of_the_longest_messages_at_every_place() {
    let cases: &[_] = if cfg!(miri) {
        &[(1, 1), (3, 41)]
    } else {
        &[(1, 1), (3, 41), (5, 100), (8, 64), (10, 1000)]
    };
    for &(depth, size) in cases {
        let layout = Layout::for_messages(depth, size).unwrap();
        let mut pair = pair(layout, 77);
        for round in 0..layout.data_bytes() / 64 + 2 {
            for _ in 0..depth {
                pair.producer.push(&[&vec![1; size]], 0).unwrap();
            }
            for _ in 0..depth {
                pop(&mut pair.consumer).unwrap();
            }
            pair.producer.push(&[&vec![1; size.min(round)]], 0).unwrap();
            pop(&mut pair.consumer).unwrap();
            pair.consumer.flush_credits().unwrap();
        }
    }
}

#[test]
fn a_message_may_be_copied_in_pieces_until_it_is_released_but_not_beyond_its_end() {
    let mut pair = pair(Layout::new(4, 512, 200).unwrap(), 0);
    assert!(pair.consumer.copy(0, &mut [0]).is_err(), "nothing was peeked");
    let message: Vec<u8> = (0..200).collect();
    pair.producer.push(&[&message], 0).unwrap();
    pair.consumer.peek().unwrap();
    let mut piece = [0; 30];
    pair.consumer.copy(101, &mut piece).unwrap();
    assert_eq!(piece, message[101..131]);
    assert!(pair.consumer.copy(171, &mut piece).is_err());
    assert!(pair.consumer.copy(usize::MAX, &mut piece).is_err());
    pair.consumer.release().unwrap();
    assert!(pair.consumer.copy(0, &mut piece).is_err());
    pair.consumer.release().unwrap();
    assert_eq!(
        pair.consumer.counters().messages,
        1,
        "a second release does nothing"
    );
}

#[test]
fn zeroed_memory_and_that_of_an_earlier_session_holds_no_message() {
    let layout = Layout::new(4, 0, 40).unwrap();
    let mut old = pair(layout, 1 << 40);
    for _ in 0..4 {
        old.producer.push(&[b"old"], 0).unwrap();
    }
    for start in [0, 1, 2 << 40, u64::MAX] {
        let mut consumer = RingConsumer::new(old.memory.clone(), layout, start, old.credit.clone()).unwrap();
        assert_eq!(consumer.peek(), Ok(None));
        assert_eq!(pair(layout, start).consumer.peek(), Ok(None));
    }
}

#[test]
fn credits_of_an_earlier_session_or_for_more_than_was_sent_are_not_believed() {
    let layout = Layout::new(4, 512, 100).unwrap();
    let mut pair = pair(layout, 1 << 40);
    for wrong in [0, 7, 5 << 40, (1 << 40) - 1, (1 << 40) + 3, u64::MAX] {
        pair.credit.store(CREDIT_LINES, wrong).unwrap();
        pair.credit.store(CREDIT_DATA, wrong).unwrap();
        assert_eq!(
            (pair.producer.free_lines(), pair.producer.free_bytes()),
            (4, 512),
            "{wrong}"
        );
    }
    assert_eq!(
        pair.producer.counters().impossible_credits,
        12,
        "each wrong word once"
    );
    for _ in 0..2 {
        pair.producer.push(&[&[0; 100]], 0).unwrap();
    }
    pair.credit.store(CREDIT_LINES, (1 << 40) + 2).unwrap();
    assert_eq!(pair.producer.free_lines(), 4);
    pair.credit.store(CREDIT_LINES, (1 << 40) + 1).unwrap();
    assert_eq!(pair.producer.free_lines(), 4, "credits do not go back");
}

#[test]
fn impossible_lengths_and_places_are_errors_again_and_again() {
    let mut pair = pair(Layout::new(4, 512, 100).unwrap(), 0);
    pair.producer.push(&[&[0; 100]], 0).unwrap();
    pair.memory.store(PAYLOAD, 64).unwrap();
    let data = Corrupt::Data {
        position: 0,
        found: 64,
        expected: 0,
    };
    assert_eq!(pair.consumer.peek(), Err(data.into()));
    for len_bytes in [101, u64::MAX, 1 << 32] {
        pair.memory.store(LENGTH, len_bytes).unwrap();
        let length = Corrupt::Length {
            position: 0,
            len_bytes,
            max_size_bytes: 100,
        };
        assert_eq!(pair.consumer.peek(), Err(length.into()));
    }
    assert_eq!(pair.consumer.counters().corrupt, 4);
    assert!(pair.consumer.copy(0, &mut [0]).is_err());
}

#[test]
fn a_message_whose_bytes_do_not_fit_its_checksum_has_not_arrived_until_patience_is_over() {
    let layout = Layout::new(4, 512, 100).unwrap().with_checksum().unwrap();
    for (len, wrong_at) in [
        (100, layout.data_offset(0)),
        (40, PAYLOAD),
        (0, TIME),
        (40, LENGTH),
    ] {
        let mut pair = pair(layout, 0);
        pair.producer.push(&[&vec![7; len]], 9).unwrap();
        let right = pair.memory.load(wrong_at).unwrap();
        pair.memory.store(wrong_at, !right).unwrap();
        for _ in 0..3 {
            assert_eq!(pair.consumer.peek(), Ok(None), "{len}");
        }
        assert_eq!(pair.consumer.counters().doubtful, 3);
        pair.memory.store(wrong_at, right).unwrap();
        assert_eq!(pop(&mut pair.consumer), Some((vec![7; len], 9)));

        pair.producer.push(&[&vec![8; len]], 9).unwrap();
        let line = layout.line_offset(1);
        pair.memory.store(line + TIME, 10).unwrap();
        pair.consumer = pair.consumer.with_patience_bytes(3 * LINE_BYTES as u64 + 300);
        let found = (0..100).find_map(|_| pair.consumer.peek().err());
        assert!(
            matches!(
                found,
                Some(ReceiveError::Corrupt(Corrupt::Checksum { position: 1, .. }))
            ),
            "{len}: {found:?}"
        );
    }
}

#[test]
fn impossible_layouts_and_too_little_memory_are_refused_with_numbers() {
    assert_eq!(Layout::new(3, 0, 8), Err(LayoutError::Lines { lines: 3 }));
    assert_eq!(Layout::new(1, 0, 8), Err(LayoutError::Lines { lines: 1 }));
    let data = |data_bytes, max_size_bytes, least_bytes| {
        Err(LayoutError::Data {
            data_bytes,
            max_size_bytes,
            least_bytes,
        })
    };
    assert_eq!(Layout::new(4, 0, 41), data(0, 41, 128));
    assert_eq!(Layout::new(4, 64, 64), data(64, 64, 128));
    assert_eq!(Layout::new(4, 192, 64), data(192, 64, 128));
    assert_eq!(Layout::new(4, 32, 0), data(32, 0, 0));
    assert_eq!(
        Layout::new(4, 0, usize::MAX),
        Err(LayoutError::Size {
            max_size_bytes: usize::MAX
        })
    );
    assert_eq!(
        Layout::for_messages(usize::MAX, 8),
        Err(LayoutError::Lines { lines: usize::MAX })
    );
    assert_eq!(
        Layout::for_messages(4, usize::MAX),
        Err(LayoutError::Size {
            max_size_bytes: usize::MAX
        })
    );
    let layout = Layout::new(4, 0, 40).unwrap();
    let credit = window(CREDIT_BYTES);
    assert!(RingProducer::new(window(255), layout, 0, credit.clone()).is_err());
    assert!(RingConsumer::new(window(255), layout, 0, credit).is_err());
    assert!(RingProducer::new(window(256), layout, 0, window(63)).is_err());
}

/// Far memory that refuses as a bus does that is busy or down.
struct Refusing {
    window: Window,
    accepts: usize,
}

impl RemoteWrite for Refusing {
    fn len_bytes(&self) -> usize {
        self.window.len_bytes()
    }
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        self.accepts = self.accepts.checked_sub(1).ok_or(RemoteError::Busy)?;
        RemoteWrite::write(&mut self.window, offset, header, parts)
    }
    fn fence(&mut self) {
        self.window.fence();
    }
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        self.accepts = self.accepts.checked_sub(1).ok_or(RemoteError::Busy)?;
        self.window.publish(offset, word)
    }
}

#[test]
fn a_write_that_the_bus_refuses_at_any_point_may_be_repeated_and_nothing_is_lost_or_doubled() {
    let layout = Layout::new(4, 512, 100).unwrap();
    let (memory, credit) = (window(layout.required_bytes()), window(CREDIT_BYTES));
    let far = Refusing {
        window: memory.clone(),
        accepts: 0,
    };
    let mut producer = RingProducer::new(far, layout, 0, credit.clone()).unwrap();
    let mut consumer = RingConsumer::new(memory, layout, 0, credit).unwrap();
    for number in 0..30_u8 {
        let mut is_staged = false;
        for accepts in 0.. {
            producer.memory.accepts = accepts;
            is_staged = is_staged || producer.stage(&[&[number; 100]], 0).is_ok();
            if is_staged && producer.commit().is_ok() {
                break;
            }
        }
        assert_eq!(pop(&mut consumer), Some((vec![number; 100], 0)));
    }
}

#[test]
fn a_ring_goes_on_when_its_positions_pass_zero_with_every_line_in_use() {
    let mut pair = pair(Layout::new(2, 128, 64).unwrap(), u64::MAX - 6);
    for number in 0..20 {
        for _ in 0..2 {
            pair.producer.push(&[&[7; 64]], number).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(pop(&mut pair.consumer), Some((vec![7; 64], number)));
        }
    }
    assert_eq!(pair.producer.counters().impossible_credits, 0);
}

#[test]
fn producers_and_consumers_that_take_turns_lose_and_repeat_nothing() {
    let layout = Layout::for_messages(3, 100).unwrap();
    let Pair {
        producer,
        consumer,
        memory,
        credit,
    } = pair(layout, u64::MAX - 5);
    let (mut sent, mut taken) = (producer.position(), consumer.position());
    let (mut next_in, mut next_out) = (0_u8, 0_u8);
    for round in 0..40 {
        for _ in 0..round % 5 {
            let mut producer = RingProducer::resume(memory.clone(), layout, sent, credit.clone()).unwrap();
            let message = vec![next_in; usize::from(next_in) % 101];
            if producer.push(&[&message], 0) == Err(PushError::Full) {
                assert!(producer.unreleased() >= 3, "full with room for a message");
                break;
            }
            (sent, next_in) = (producer.position(), next_in + 1);
        }
        let mut consumer = RingConsumer::resume(memory.clone(), layout, taken, credit.clone()).unwrap();
        if let Some(message) = consumer.peek().unwrap() {
            let mut bytes = vec![0; message.len_bytes];
            consumer.copy(0, &mut bytes).unwrap();
            assert_eq!(bytes, vec![next_out; usize::from(next_out) % 101]);
            assert!(consumer.release_later());
            (taken, next_out) = (consumer.position(), next_out + 1);
            // Every third consumer dies here: the next one writes the credits.
        }
        if round % 3 != 0 {
            consumer.flush_credits().unwrap();
        }
    }
    assert!(next_out > 30, "only {next_out} messages came through");
}

#[test]
fn messages_behind_a_missing_one_are_taken_back_and_those_before_it_stay() {
    let layout = Layout::for_messages(4, 40).unwrap();
    let mut pair = pair(layout, u64::MAX - 1);
    for number in 0..4_u8 {
        pair.producer.push(&[&[number; 40]], 0).unwrap();
    }
    let first = u64::MAX - 1;
    let missing = first.wrapping_add(2);
    pair.memory.store(layout.line_offset(missing), 0).unwrap();
    assert!(layout.is_committed(&pair.memory, first) && !layout.is_committed(&pair.memory, missing));
    assert_eq!(layout.erase_from(&pair.memory, missing), 1, "the fourth message");
    assert_eq!(layout.erase_from(&pair.memory, missing), 0);
    for number in 0..2_u8 {
        assert_eq!(pop(&mut pair.consumer), Some((vec![number; 40], 0)));
    }
    // Another producer goes on where the missing message belongs.
    let position = pair.consumer.position();
    pair.consumer.flush_credits().unwrap();
    let mut next = RingProducer::resume(pair.memory.clone(), layout, position, pair.credit.clone()).unwrap();
    next.push(&[&[9; 40]], 0).unwrap();
    assert_eq!(pop(&mut pair.consumer), Some((vec![9; 40], 0)));
    assert_eq!(pair.consumer.peek(), Ok(None));
}
