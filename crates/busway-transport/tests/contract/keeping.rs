//! What a channel does when its receiver is slower than its sender.

use std::time::{Duration, Instant};

use busway_transport::{Flushed, HEAD_BYTES, Head, Kind, Refused, Verdict};

use super::harness::{Buffer, PATIENCE, Pair, latest, queue};
use super::{BusUnderTest, Side};

pub fn full_queue_refuses_until_receiver_takes<B: BusUnderTest>() {
    for (depth, size) in [(1, 64), (5, 64), (32, 3000), (3, 500_000)] {
        let mut pair = Pair::<B>::up();
        let mut channel = pair.open(Side::One, &queue(depth, size));
        channel.sink.then = Some(Verdict::Later);
        let total_bytes = size + HEAD_BYTES as u64;
        let mut taken = 0;
        for _ in 0..200 {
            if channel.sender.has_room(total_bytes) {
                channel
                    .sender
                    .send(Buffer::new(taken + 1, 0, size as usize))
                    .expect("there is room");
                taken += 1;
            }
            channel.turn();
        }
        assert!(
            taken <= u64::from(depth),
            "{taken} messages on their way in a queue of {depth}"
        );
        assert!(taken >= 1);
        assert_eq!(channel.sender.outstanding(), taken);
        match channel.sender.send(Buffer::new(taken + 1, 0, size as usize)) {
            Err(Refused::Full(message)) => assert_eq!(message.head.sequence, taken + 1),
            other => panic!("a full queue gives the message back, not {other:?}"),
        }
        channel.sink.then = None;
        channel.send(Buffer::new(taken + 1, 0, size as usize));
        channel.until_delivered(taken as usize + 1);
        assert_eq!(channel.sink.sequences(), (1..=taken + 1).collect::<Vec<_>>());
    }
}

pub fn message_is_taken_after_has_room<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::Two, &queue(7, 1 << 20));
    let mut sequence = 0;
    for round in 0..300 {
        let size = [10, 10_000, 700_000][round % 3];
        if channel.sender.has_room(size as u64 + HEAD_BYTES as u64) {
            sequence += 1;
            channel
                .sender
                .send(Buffer::new(sequence, 0, size))
                .expect("room was promised");
        }
        channel.turn();
    }
    channel.until_delivered(sequence as usize);
}

pub fn a_full_queue_loses_nothing<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(3, 200_000));
    let mut refused = 0;
    let mut sequence = 1;
    while sequence <= 100 {
        match channel.sender.send(Buffer::new(sequence, 1, 150_000)) {
            Ok(()) => sequence += 1,
            Err(Refused::Full(_)) => {
                refused += 1;
                channel.turn();
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    channel.until_delivered(100);
    assert!(refused > 0, "the test has filled the queue");
    assert_eq!(channel.sink.sequences(), (1..=100).collect::<Vec<_>>());
    assert_eq!(channel.sender.overwritten(), 0);
}

pub fn taken_messages_are_acknowledged_to_waiting_sender<B: BusUnderTest>() {
    // Too few messages for credits that are given back by the quarter of a queue.
    for spec in [queue(64, 3000), latest(3000)] {
        let mut pair = Pair::<B>::up();
        let mut channel = pair.open(Side::Two, &spec);
        for sequence in 1..=5 {
            channel.send(Buffer::new(sequence, 0, 2000));
            channel.until_delivered(sequence as usize);
        }
        channel.receiver.acknowledge();
        let give_up_at = Instant::now() + PATIENCE;
        while channel.sender.outstanding() > 0 {
            channel.sender.flush().expect("the sender is well");
            std::thread::sleep(Duration::from_micros(20));
            let left = channel.sender.outstanding();
            assert!(
                Instant::now() < give_up_at,
                "{left} of 5 messages are not confirmed"
            );
        }
    }
}

pub fn latest_message_replaces_older_ones_and_counts_them<B: BusUnderTest>() {
    for size in [64, 9000, 400_000] {
        let mut pair = Pair::<B>::up();
        let mut channel = pair.open(Side::One, &latest(size as u64 + 100));
        for sequence in 1..=100 {
            assert!(
                channel.sender.has_room(size as u64 + HEAD_BYTES as u64),
                "the latest always has room"
            );
            channel
                .sender
                .send(Buffer::new(sequence, 0, size))
                .expect("the latest is always taken");
            channel.sender.flush().expect("the sender is well");
        }
        while channel.sink.heads.last().is_none_or(|head| head.sequence < 100) {
            channel.turn();
        }
        // The sender does not see a register in memory being read: at most what did not arrive was
        // replaced.
        let delivered = channel.sink.heads.len() as u64;
        // What was taken is known once a credit has come.
        pair.until("no more is counted as replaced than did not arrive", |_| {
            channel.turn();
            channel.sender.flush().expect("the sender is well");
            (channel.sender.overwritten() <= 100 - delivered).then_some(())
        });
        while channel.sender.flush().expect("the sender is well") == Flushed::Waiting {
            channel.turn();
        }
        channel.turn();
        assert_eq!(channel.sink.heads.last().map(|head| head.sequence), Some(100));
    }
}

pub fn events_replace_no_latest_message<B: BusUnderTest>() {
    for size in [64, 9000] {
        let mut pair = Pair::<B>::up();
        let mut channel = pair.open(Side::One, &latest(size as u64 + 100));
        for sequence in 1..=20 {
            let data = Buffer::new(sequence, 0, size);
            channel.sender.send(data).expect("the latest is always taken");
            let mut events = Buffer::new(sequence, 0, 0);
            events.head.kind = Kind::Notify;
            let refused = channel.sender.send(events);
            assert!(matches!(refused, Ok(()) | Err(Refused::Full(_))), "{refused:?}");
            channel.sender.flush().expect("the sender is well");
        }
        let is_last = |head: &Head| head.kind == Kind::Data && head.sequence == 20;
        pair.until("the last message arrives", |_| {
            channel.turn();
            channel.sink.heads.iter().any(is_last).then_some(())
        });
    }
}

pub fn latest_message_never_goes_back<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::Two, &latest(2000));
    for sequence in 1..=5000u64 {
        channel.send(Buffer::new(sequence, 2, 1000));
        if sequence % 3 == 0 {
            channel.sender.flush().expect("the sender is well");
        }
        if sequence % 7 == 0 {
            channel.turn();
        }
    }
    while channel.sink.heads.last().is_none_or(|head| head.sequence < 5000) {
        channel.turn();
    }
    let sequences = channel.sink.sequences();
    assert!(
        sequences.is_sorted_by(|a, b| a < b),
        "every delivered message is newer than the one before"
    );
}
