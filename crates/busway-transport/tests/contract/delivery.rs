//! Every message arrives whole, in order, in the memory that its sink provides.

use busway_transport::{HEAD_BYTES, Verdict};

use super::harness::{Buffer, Pair, queue};
use super::{BusUnderTest, Side};

pub fn payloads_up_to_8_mib_arrive_unchanged_with_user_headers<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(4, 8 << 20));
    let sizes = [
        0,
        1,
        7,
        8,
        39,
        40,
        41,
        64,
        1000,
        4096,
        16_336,
        16_337,
        65_536,
        262_145,
        1 << 20,
        8 << 20,
    ];
    for (at, size) in sizes.into_iter().enumerate() {
        for user_header_bytes in [0, 1, 24, 4096] {
            channel.send(Buffer::new((at * 10 + 1) as u64, user_header_bytes, size));
        }
    }
    channel.until_delivered(sizes.len() * 4);
}

pub fn messages_longer_than_planned_arrive<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::Two, &queue(2, 256));
    for sequence in 1..=20 {
        channel.send(Buffer::new(
            sequence,
            8,
            if sequence % 3 == 0 { 1 << 20 } else { 64 },
        ));
    }
    channel.until_delivered(20);
    assert_eq!(channel.sink.sequences(), (1..=20).collect::<Vec<_>>());
}

pub fn messages_of_mixed_sizes_arrive_in_order<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(64, 64 << 10));
    let mut state = 1u64;
    for sequence in 1..=2000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = match state >> 61 {
            0 => (state >> 33) as usize % 200_000,
            1 | 2 => (state >> 33) as usize % 20_000,
            _ => (state >> 33) as usize % 300,
        };
        channel.send(Buffer::new(sequence, (state >> 20) as usize % 40, size));
    }
    channel.until_delivered(2000);
    assert_eq!(channel.sink.sequences(), (1..=2000).collect::<Vec<_>>());
}

pub fn heads_arrive_unchanged<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(4, 4096));
    let mut sent = Vec::new();
    for sequence in [1, 63, u64::from(u32::MAX), u64::MAX / 1000] {
        let message = Buffer::new(sequence, 3, 5);
        sent.push(message.head);
        channel.send(message);
    }
    channel.until_delivered(sent.len());
    assert_eq!(channel.sink.heads, sent);
}

pub fn a_budget_bounds_the_messages_of_one_poll<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(64, 1024));
    for sequence in 1..=50 {
        channel
            .sender
            .send(Buffer::new(sequence, 0, 100))
            .expect("there is room");
    }
    channel.sender.flush().expect("the sender is well");
    while channel.sink.heads.len() < 50 {
        let before = channel.sink.heads.len();
        let delivered = channel
            .receiver
            .poll(&mut channel.sink, 3)
            .expect("the receiver is well");
        assert!(delivered <= 3);
        assert_eq!(channel.sink.heads.len(), before + delivered);
    }
}

pub fn a_discarded_message_is_skipped_and_the_next_arrives<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(4, 4096));
    channel.sink.verdicts = [
        Verdict::Discard,
        Verdict::Land,
        Verdict::Discard,
        Verdict::Discard,
        Verdict::Land,
    ]
    .into();
    for (sequence, size) in [(1, 100), (2, 200), (3, 3 << 20), (4, 0), (5, 100_000), (6, 1)] {
        channel.send(Buffer::new(sequence, 16, size));
    }
    channel.until_delivered(3);
    assert_eq!(channel.sink.sequences(), [2, 5, 6]);
}

pub fn postponed_message_arrives_later_unchanged<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    for size in [10, 100_000] {
        let mut channel = pair.open(Side::Two, &queue(4, 100_000));
        channel.sink.verdicts = [Verdict::Later; 3].into();
        for sequence in 1..=3 {
            channel.send(Buffer::new(sequence, 5, size));
        }
        channel.until_delivered(3);
        assert_eq!(channel.sink.sequences(), [1, 2, 3]);
        assert!(
            channel.sink.verdicts.is_empty(),
            "the sink was asked again each time"
        );
    }
}

pub fn channels_flow_both_ways_at_once<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut there = pair.open(Side::One, &queue(16, 4096));
    let mut back = pair.open(Side::Two, &queue(16, 4096));
    for sequence in 1..=500 {
        there.send(Buffer::new(sequence, 0, 4096 - HEAD_BYTES));
        back.send(Buffer::new(sequence, 8, 64));
        pair.poll();
    }
    there.until_delivered(500);
    back.until_delivered(500);
}

pub fn many_channels_flow_while_one_is_stuck<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut stuck = pair.open(Side::One, &queue(4, 64 << 10));
    stuck.sink.then = Some(Verdict::Later);
    let mut others: Vec<_> = (0..12).map(|_| pair.open(Side::One, &queue(8, 4096))).collect();
    let mut stuck_sequence = 0;
    for sequence in 1..=200 {
        while stuck.sender.has_room(stuck_bytes()) {
            stuck_sequence += 1;
            stuck
                .sender
                .send(Buffer::new(stuck_sequence, 0, 60_000))
                .expect("there is room");
        }
        stuck.turn();
        for channel in &mut others {
            channel.send(Buffer::new(sequence, 0, 3000));
        }
        pair.poll();
    }
    for channel in &mut others {
        channel.until_delivered(200);
    }
    assert_eq!(stuck.sink.heads, []);
    assert!(stuck_sequence >= 1, "the stuck channel took something");
    stuck.sink.then = None;
    stuck.until_delivered(stuck_sequence as usize);
    assert_eq!(stuck.sink.sequences(), (1..=stuck_sequence).collect::<Vec<_>>());
}

fn stuck_bytes() -> u64 {
    60_000 + HEAD_BYTES as u64
}
