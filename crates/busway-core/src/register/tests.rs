use super::*;
use crate::Window;
use crate::window::tests::window;

pub(crate) fn pair(
    slots: usize,
    max_size_bytes: usize,
    start: u64,
) -> (RegisterWriter<Window>, RegisterReader, Window) {
    let layout = Layout::new(slots, max_size_bytes).unwrap();
    let window = window(layout.required_bytes());
    let writer = RegisterWriter::new(window.clone(), layout, start).unwrap();
    let reader = RegisterReader::new(window.clone(), layout, start).unwrap();
    (writer, reader, window)
}

#[test]
fn a_register_is_empty_until_the_first_message_of_its_session() {
    let (mut writer, mut reader, _) = pair(3, 64, 1 << 60);
    let mut buffer = [0; 64];
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::Empty));
    assert_eq!(reader.peek_sequence(), None);
    assert_eq!(writer.write(&[b"ab", b"c"], 7), Ok((1 << 60) + 1));
    let sample = Sample {
        sequence: (1 << 60) + 1,
        len_bytes: 3,
        time_ns: 7,
    };
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::New(sample)));
    assert_eq!(&buffer[..3], b"abc");
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::Unchanged(sample)));
    assert_eq!(reader.peek_sequence(), Some(sample.sequence));
}

#[test]
fn the_sequence_and_the_slots_go_on_over_the_wrap() {
    for slots in [3, 4, 5] {
        let (mut writer, mut reader, _) = pair(slots, 16, u64::MAX - 7);
        let mut buffer = [0; 16];
        for round in 1..=40_u64 {
            let sequence = writer.write(&[&round.to_ne_bytes()], round).unwrap();
            assert_eq!(sequence, (u64::MAX - 7).wrapping_add(round));
            if round % 3 == 0 {
                let sample = Sample {
                    sequence,
                    len_bytes: 8,
                    time_ns: round,
                };
                assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::New(sample)));
                assert_eq!(buffer[..8], round.to_ne_bytes());
            }
        }
    }
}

#[test]
fn what_an_earlier_session_left_behind_is_empty_and_then_overwritten() {
    let (mut old, _, window) = pair(3, 16, 1 << 60);
    let layout = *old.layout();
    for _ in 0..10 {
        old.write(&[b"old"], 1).unwrap();
    }
    for start in [5 << 60, 0, u64::MAX, (1 << 60) - (1 << 49)] {
        let mut reader = RegisterReader::new(window.clone(), layout, start).unwrap();
        assert_eq!(reader.read(&mut [0; 16]), Ok(ReadOutcome::Empty), "{start}");
        assert_eq!(reader.peek_sequence(), None);
    }
    layout.prepare(&mut window.clone(), (1 << 60) + 2).unwrap();
    let mut reader = RegisterReader::new(window.clone(), layout, (1 << 60) + 2).unwrap();
    assert_eq!(reader.read(&mut [0; 16]), Ok(ReadOutcome::Empty));
    let mut writer = RegisterWriter::new(window, layout, (1 << 60) + 2).unwrap();
    writer.write(&[b"new"], 2).unwrap();
    let mut buffer = [0; 16];
    assert!(matches!(reader.read(&mut buffer), Ok(ReadOutcome::New(_))));
    assert_eq!(&buffer[..3], b"new");
}

#[test]
fn an_attempt_is_refused_exactly_when_the_writer_may_have_reached_its_slot() {
    for slots in [3, 4, 7] {
        for advance in 0..2 * slots {
            let (mut writer, mut reader, _) = pair(slots, 8, 100);
            writer.write(&[&[1; 8]], 0).unwrap();
            let attempt = reader.begin().unwrap().unwrap();
            for _ in 0..advance {
                writer.write(&[&[2; 8]], 0).unwrap();
            }
            assert_eq!(
                attempt.validate(),
                Ok(advance <= slots - 2),
                "{slots} slots, {advance} later"
            );
        }
    }
}

#[test]
fn a_message_too_long_for_the_register_is_refused_and_costs_no_sequence() {
    let (mut writer, mut reader, _) = pair(3, 8, 0);
    let too_long = WriteError::TooLong {
        len_bytes: 9,
        max_size_bytes: 8,
    };
    assert_eq!(writer.write(&[&[0; 8], &[0]], 0), Err(too_long));
    assert_eq!(reader.read(&mut [0; 8]), Ok(ReadOutcome::Empty));
    assert_eq!(writer.write(&[&[0; 8]], 0), Ok(1));
    let too_small = ReadError::BufferTooSmall {
        len_bytes: 8,
        buffer_bytes: 7,
    };
    assert_eq!(reader.read(&mut [0; 7]), Err(too_small));
    assert!(
        matches!(reader.read(&mut [0; 8]), Ok(ReadOutcome::New(_))),
        "a read that failed consumes nothing"
    );
}

#[test]
fn a_flipped_bit_anywhere_in_message_or_header_fails_the_checksum_or_the_header_check() {
    let layout = Layout::new(3, 24).unwrap().with_checksum();
    let window = window(layout.required_bytes());
    let mut writer = RegisterWriter::new(window.clone(), layout, 0).unwrap();
    writer.write(&[b"twenty-four bytes of it!"], 9).unwrap();
    let slot = layout.slot_offset(1);
    for bit in (0..(HEADER_BYTES + 24) * 8).step_by(if cfg!(miri) { 37 } else { 1 }) {
        let offset = slot + bit / 64 * 8;
        let word = window.load(offset).unwrap();
        window.store(offset, word ^ 1 << (bit % 64)).unwrap();
        let mut reader = RegisterReader::new(window.clone(), layout, 0).unwrap();
        assert!(
            matches!(reader.read(&mut [0; 24]), Err(ReadError::Corrupt(_))),
            "bit {bit}"
        );
        assert_eq!(reader.counters().corrupt, 1);
        window.store(offset, word).unwrap();
        assert!(matches!(reader.read(&mut [0; 24]), Ok(ReadOutcome::New(_))));
    }
}

#[test]
fn a_sequence_that_goes_back_is_an_error_and_counted() {
    let (mut writer, mut reader, window) = pair(3, 8, 0);
    writer.write(&[b"a"], 0).unwrap();
    writer.write(&[b"b"], 0).unwrap();
    reader.read(&mut [0; 8]).unwrap();
    window.store(LATEST, 1).unwrap();
    let back = Corrupt::Backwards { last: 2, latest: 1 };
    assert_eq!(reader.read(&mut [0; 8]), Err(back.into()));
    assert_eq!(reader.counters().stale, 1);
}

#[test]
fn a_writer_faster_than_every_retry_leaves_the_last_good_message_readable() {
    let (mut writer, mut reader, window) = pair(3, 8, 0);
    let mut last_good = LastGood::new([[0; 8], [0; 8]]);
    assert_eq!(last_good.message(), None);
    writer.write(&[b"good"], 5).unwrap();
    let Ok(ReadOutcome::New(sample)) = last_good.read(&mut reader) else {
        panic!("a message was written")
    };
    assert_eq!(last_good.read(&mut reader), Ok(ReadOutcome::Unchanged(sample)));
    // Every attempt finds that two more messages were written meanwhile.
    let mut outcome = Ok(true);
    for sequence in (2..202).step_by(2) {
        window.store(LATEST, sequence).unwrap();
        let attempt = reader.begin().unwrap().unwrap();
        window.store(LATEST, sequence + 2).unwrap();
        outcome = attempt.validate();
    }
    assert_eq!(outcome, Ok(false));
    assert_eq!(reader.counters().retries, 100);
    assert_eq!(last_good.message(), Some((sample, &b"good"[..])));
}

#[test]
fn a_copy_beyond_the_message_is_refused() {
    let (mut writer, mut reader, _) = pair(3, 64, 0);
    writer.write(&[&[9; 20]], 0).unwrap();
    let mut attempt = reader.begin().unwrap().unwrap();
    assert!(attempt.copy(20, &mut []).is_ok());
    assert!(attempt.copy(12, &mut [0; 9]).is_err());
    assert!(attempt.copy(usize::MAX, &mut [0; 2]).is_err());
    assert_eq!(attempt.validate(), Ok(true));
}

#[test]
fn impossible_layouts_and_too_little_memory_are_refused_with_numbers() {
    assert_eq!(Layout::new(2, 8), Err(LayoutError::Slots { slots: 2 }));
    assert_eq!(Layout::new(4097, 8), Err(LayoutError::Slots { slots: 4097 }));
    assert_eq!(
        Layout::new(3, usize::MAX),
        Err(LayoutError::Size {
            max_size_bytes: usize::MAX
        })
    );
    let layout = Layout::new(3, 40).unwrap();
    assert_eq!(
        layout.required_bytes(),
        128 + 3 * 64,
        "40 bytes and their header are one line"
    );
    let error = RegisterReader::new(window(200), layout, 0).map(|_| ());
    assert_eq!(
        error,
        Err(LayoutError::Memory {
            required_bytes: 320,
            available_bytes: 200
        })
    );
    assert!(RegisterWriter::new(window(200), layout, 0).is_err());
}

#[test]
fn writers_that_take_turns_go_on_where_the_last_one_stopped_even_in_the_middle_of_a_slot() {
    for start in [0, u64::MAX - 4] {
        let layout = Layout::new(3, 16).unwrap();
        let window = window(layout.required_bytes());
        layout.prepare(&mut window.clone(), start).unwrap();
        let mut reader = RegisterReader::new(window.clone(), layout, start).unwrap();
        for turn in 1..=10_u64 {
            let latest = reader.peek_sequence().unwrap_or(start);
            // A writer that died before it published: its bytes lie in the slot that comes next.
            let slot = latest.wrapping_sub(start).wrapping_add(1) % 3;
            let torn = layout.slot_offset(slot as usize);
            window.store(torn, u64::MAX).unwrap();
            let mut writer = RegisterWriter::resume(window.clone(), layout, start, latest).unwrap();
            writer.write(&[&turn.to_ne_bytes()], turn).unwrap();
            let mut bytes = [0; 16];
            let Ok(ReadOutcome::New(sample)) = reader.read(&mut bytes) else {
                panic!("turn {turn} is not to be read");
            };
            assert_eq!(sample.sequence, start.wrapping_add(turn));
            assert_eq!((&bytes[..8], sample.time_ns), (&turn.to_ne_bytes()[..], turn));
        }
    }
}

#[test]
fn a_register_without_an_index_is_read_by_what_its_slots_say() {
    let layout = Layout::new(3, 100).unwrap().with_checksum().with_index_in_slots();
    for start in [0, 5, u64::MAX - 1] {
        let window = window(layout.required_bytes());
        layout.prepare(&mut window.clone(), start).unwrap();
        let mut writer = RegisterWriter::new(window.clone(), layout, start).unwrap();
        let reader = RegisterReader::new(window.clone(), layout, start).unwrap();
        let mut reader = reader.with_patience_bytes(10_000);
        let mut buffer = [0; 100];
        assert_eq!(
            (reader.peek_sequence(), reader.read(&mut buffer)),
            (None, Ok(ReadOutcome::Empty))
        );
        for number in 1..10_u64 {
            let sequence = writer.write(&[&[number as u8; 60]], number).unwrap();
            if number % 4 == 3 {
                continue;
            }
            assert_eq!(reader.peek_sequence(), Some(sequence));
            let outcome = reader.read(&mut buffer);
            assert!(
                matches!(outcome, Ok(ReadOutcome::New(sample)) if sample.time_ns == number),
                "{outcome:?}"
            );
            assert_eq!(buffer[..60], [number as u8; 60]);
        }
        assert_eq!(window.load(LATEST).unwrap(), start, "nobody writes it");
        assert!(matches!(reader.read(&mut buffer), Ok(ReadOutcome::Unchanged(_))));
    }
}

#[test]
fn what_makes_no_sense_is_corrupt_at_once_or_when_patience_is_over() {
    for patience_bytes in [0, 1000] {
        let (mut writer, reader, _) = pair(3, 64, 0);
        let mut reader = reader.with_patience_bytes(patience_bytes);
        writer.write(&[&[9; 20]], 0).unwrap();
        let attempts = (1..100).take_while(|_| {
            let attempt = reader.begin().unwrap().unwrap();
            attempt.validate_sense(false) == Ok(false)
        });
        assert_eq!(attempts.count() > 0, patience_bytes > 0);
        assert_eq!(reader.counters().corrupt, 1);
    }
}

#[test]
fn a_patient_reader_takes_what_does_not_fit_together_for_what_has_not_arrived_yet() {
    let layout = Layout::new(3, 100).unwrap().with_checksum();
    let window = window(layout.required_bytes());
    let mut writer = RegisterWriter::new(window.clone(), layout, 5).unwrap();
    let reader = RegisterReader::new(window.clone(), layout, 5).unwrap();
    let mut reader = reader.with_patience_bytes(10_000);
    let mut buffer = [0; 100];
    writer.write(&[&[1; 100]], 1).unwrap();
    assert!(matches!(reader.read(&mut buffer), Ok(ReadOutcome::New(_))));
    writer.write(&[&[2; 100]], 2).unwrap();
    let wrong_at = layout.slot_offset(2) + HEADER_BYTES;
    window.store(wrong_at, 0).unwrap();
    assert_eq!(reader.read(&mut buffer), Ok(ReadOutcome::Contended));
    window.store(LATEST, 5).unwrap();
    assert_eq!(
        reader.read(&mut buffer),
        Ok(ReadOutcome::Empty),
        "latest went back"
    );
    window.store(LATEST, 7).unwrap();
    window.store(wrong_at, u64::from_ne_bytes([2; 8])).unwrap();
    assert!(matches!(reader.read(&mut buffer), Ok(ReadOutcome::New(_))));
    assert!(reader.counters().doubtful > 1);
    window.store(wrong_at, 0).unwrap();
    let found = (0..20).find_map(|_| reader.read(&mut buffer).err());
    assert!(
        matches!(found, Some(ReadError::Corrupt(Corrupt::Checksum { .. }))),
        "{found:?}"
    );
}
