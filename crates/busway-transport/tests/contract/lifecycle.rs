//! Coming up, closing, restarting.

use std::time::Instant;

use busway_transport::{ChannelError, ChannelId, Flushed, LinkEvent, OpenError, PeerHello};

use super::harness::{Buffer, Collector, PATIENCE, Pair, queue};
use super::{BusUnderTest, Side};

pub fn hosts_connect_in_either_order<B: BusUnderTest>() {
    for first in Side::BOTH {
        let mut pair = Pair::<B>::empty();
        pair.start(first);
        for _ in 0..20 {
            pair.poll();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!pair.host(first).is_up, "nobody is there");
        pair.start(first.other());
        pair.wait_up();
        for side in Side::BOTH {
            let expected = PeerHello {
                host: side.other().name().into(),
                session: pair.host(side.other()).session,
                application: format!("app of {}", side.other().name()),
            };
            let hello = pair.host(side).take(|event| match event {
                LinkEvent::Up(hello) => Ok(hello),
                other => Err(other),
            });
            assert_eq!(hello, Some(expected));
        }
    }
}

pub fn control_messages_arrive_in_order<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let sent: Vec<Vec<u8>> = (0..200usize).map(|n| vec![n as u8; (n * 37) % 5000]).collect();
    for side in Side::BOTH {
        for message in &sent {
            pair.host(side)
                .link
                .send_control(message)
                .expect("the link is up");
            pair.poll();
        }
    }
    for side in Side::BOTH {
        for message in &sent {
            let heard = pair.until("the next control message is here", |pair| {
                pair.host(side).take_control()
            });
            assert!(&heard == message, "each one whole and in order");
        }
    }
}

pub fn messages_of_dropped_sender_arrive_before_channel_ends<B: BusUnderTest>() {
    for (count, size) in [(1, 10), (30, 1000), (4, 1 << 20)] {
        let mut pair = Pair::<B>::up();
        let mut channel = pair.open(Side::One, &queue(32, 1 << 20));
        for sequence in 1..=count {
            channel.send(Buffer::new(sequence, 0, size));
        }
        let (mut sender, mut receiver, mut sink) = (channel.sender, channel.receiver, channel.sink);
        while sender.flush().expect("the sender is well") == Flushed::Waiting {
            receiver
                .poll(&mut sink, usize::MAX)
                .expect("the receiver is well");
        }
        drop(sender);
        pair.host(Side::One)
            .link
            .close(busway_transport::Direction::Send, channel.id);
        let error = pair.until("the channel ends", |_| receiver.poll(&mut sink, usize::MAX).err());
        assert!(matches!(error, ChannelError::Closed), "{error:?}");
        assert_eq!(sink.sequences(), (1..=count).collect::<Vec<_>>());
        assert_eq!(sink.abandoned, 0);
        pair.host(Side::Two)
            .link
            .close(busway_transport::Direction::Receive, channel.id);
    }
}

pub fn sender_of_dropped_receiver_fails<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let channel = pair.open(Side::One, &queue(4, 1000));
    let mut sender = channel.sender;
    drop(channel.receiver);
    pair.stop(Side::Two);
    let mut sequence = 0;
    pair.until("the sender fails", |_| {
        sequence += 1;
        let _ = sender.send(Buffer::new(sequence, 0, 100));
        sender.flush().err()
    });
    assert!(sender.flush().is_err(), "it stays failed");
}

pub fn closed_channel_can_be_reopened<B: BusUnderTest>() {
    use busway_transport::Direction;
    let mut pair = Pair::<B>::up();
    for round in 0..40 {
        let from = Side::BOTH[round % 2];
        let mut channel = pair.open(from, &queue(8, 300_000));
        channel.send(Buffer::new(1, 0, 200_000));
        channel.until_delivered(1);
        let id = channel.id;
        drop(channel);
        pair.host(from).link.close(Direction::Send, id);
        pair.host(from.other()).link.close(Direction::Receive, id);
        pair.poll();
    }
}

pub fn either_host_restarts_and_new_channels_work<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    for side in [Side::One, Side::Two, Side::One] {
        let mut old = pair.open(side, &queue(4, 1000));
        old.send(Buffer::new(1, 0, 500));
        old.until_delivered(1);
        pair.stop(side);
        pair.start(side);
        let why = pair.until("the other one says that the link went down", |pair| {
            pair.host(side.other()).take_down()
        });
        assert!(!why.is_empty());
        pair.wait_up();
        for from in Side::BOTH {
            let mut channel = pair.open(from, &queue(4, 100_000));
            for sequence in 1..=20 {
                channel.send(Buffer::new(sequence, 3, 50_000));
            }
            channel.until_delivered(20);
        }
    }
}

pub fn a_channel_of_an_earlier_session_fails<B: BusUnderTest>() {
    for restarted in Side::BOTH {
        for from in Side::BOTH {
            let mut pair = Pair::<B>::up();
            let channel = pair.open(from, &queue(4, 1000));
            let (mut sender, mut receiver) = (channel.sender, channel.receiver);
            let mut sink = Collector::default();
            pair.stop(restarted);
            pair.start(restarted);
            pair.until("the other one goes down", |pair| {
                pair.host(restarted.other()).take_down()
            });
            pair.wait_up();
            // The end on the host that stayed; the other one would have gone with its process.
            if restarted == from {
                pair.until("the old receiver fails", |_| {
                    receiver.poll(&mut sink, usize::MAX).err()
                });
                assert_eq!(sink.heads, []);
            } else {
                pair.until("the old sender fails", |_| {
                    let _ = sender.send(Buffer::new(1, 0, 10));
                    sender.flush().err()
                });
            }
        }
    }
}

pub fn link_that_is_down_opens_no_channel<B: BusUnderTest>() {
    let mut pair = Pair::<B>::empty();
    pair.start(Side::One);
    pair.poll();
    let link = &mut pair.host(Side::One).link;
    assert!(matches!(link.send_control(b"hello"), Err(OpenError::Down)));
    assert!(matches!(
        link.open_receiver(ChannelId(1), &queue(1, 64), 0),
        Err(OpenError::Down)
    ));
}

/// Over one second of silence a link asks to be polled for its heartbeats and little else.
pub fn an_idle_link_is_polled_rarely<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let begin = Instant::now();
    let mut polls = 0;
    while begin.elapsed().as_millis() < 1000 {
        let mut wait = PATIENCE;
        for side in Side::BOTH {
            pair.host(side).poll();
            polls += 1;
            wait = wait.min(pair.host(side).link.poll_within(Instant::now()));
        }
        std::thread::sleep(wait.min(std::time::Duration::from_secs(1)));
    }
    // Heartbeats of two hosts every 20 ms, seen by both loops.
    assert!(polls < 1000, "{polls} polls in a second");
    for side in Side::BOTH {
        assert!(pair.host(side).is_up);
    }
}
