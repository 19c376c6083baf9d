//! Sleepers wake.

use std::sync::mpsc;
use std::time::Duration;

use busway_transport::{Flushed, Refused, WaitFor};

use super::harness::{Buffer, Collector, LANE, Pair, queue, sleep_as_lane, sleep_on};
use super::{BusUnderTest, Side};

/// A receiver's lane sleeps before each message; the next one is sent only after it was delivered.
pub fn a_sleeping_receiver_wakes_for_a_message<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let channel = pair.open(Side::One, &queue(4, 1000));
    let (mut sender, mut receiver) = (channel.sender, channel.receiver);
    let mut bell = pair.host(Side::Two).link.doorbell(LANE);
    let (tell, told) = mpsc::channel();
    let lane = std::thread::spawn(move || {
        let mut sink = Collector::default();
        while sink.heads.len() < 200 {
            let delivered = receiver.poll(&mut sink, 100).expect("the receiver is well");
            if delivered > 0 {
                tell.send(delivered).expect("the test listens");
                continue;
            }
            let mut found = 0;
            sleep_as_lane(receiver.wait_for(), &mut bell, || {
                found = receiver.poll(&mut sink, 100).expect("the receiver is well");
                found > 0
            });
            if found > 0 {
                tell.send(found).expect("the test listens");
            }
        }
    });
    for sequence in 1..=200 {
        sender.send(Buffer::new(sequence, 0, 100)).expect("there is room");
        while sender.flush().expect("the sender is well") == Flushed::Waiting {}
        pair.until("the sleeper has woken", |_| told.try_recv().ok());
        if sequence % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    lane.join().expect("the lane ends well");
}

/// A sender's lane sleeps whenever the queue is full; the receiver first polls when it is full.
pub fn sender_waiting_for_room_is_woken<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let mut channel = pair.open(Side::One, &queue(2, 200_000));
    let mut bell = pair.host(Side::One).link.doorbell(LANE);
    let mut sender = channel.sender;
    let (tell, told) = mpsc::channel();
    let lane = std::thread::spawn(move || {
        for sequence in 1..=100 {
            let mut message = Buffer::new(sequence, 0, 150_000);
            loop {
                match sender.send(message) {
                    Ok(()) => break,
                    Err(Refused::Full(back)) => message = back,
                    Err(other) => panic!("{other:?}"),
                }
                sender.flush().expect("the sender is well");
                if sender.has_room(message.total_bytes()) {
                    continue;
                }
                // Nothing listens after the first time.
                let _ = tell.send(());
                sleep_as_lane(sender.wait_for(), &mut bell, || {
                    sender.flush().expect("the sender is well");
                    sender.has_room(150_048)
                });
            }
        }
        while sender.flush().expect("the sender is well") == Flushed::Waiting {
            sleep_as_lane(sender.wait_for(), &mut bell, || {
                sender.flush().expect("the sender is well") == Flushed::Idle
            });
        }
        sender
    });
    pair.until("the queue is full", |_| told.try_recv().ok());
    while channel.sink.heads.len() < 100 {
        channel
            .receiver
            .poll(&mut channel.sink, 1)
            .expect("the receiver is well");
        pair.poll();
        std::thread::sleep(Duration::from_micros(300));
    }
    drop(lane.join().expect("the lane ends well"));
    assert_eq!(channel.sink.sequences(), (1..=100).collect::<Vec<_>>());
}

/// A control thread that sleeps on the link's descriptor for as long as the link allows.
pub fn link_sleeping_on_descriptor_comes_up_and_receives<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    let Some(fd) = pair.host(Side::Two).link.fd() else {
        // Only time drives this link; how long it sleeps is tested by the lifecycle.
        return;
    };
    let fd = fd.try_clone_to_owned().expect("a second descriptor");
    pair.host(Side::One)
        .link
        .send_control(b"wake up")
        .expect("the link is up");
    let heard = loop {
        use std::os::fd::AsFd;
        assert!(sleep_on(fd.as_fd(), false), "nothing woke the link");
        pair.host(Side::Two).poll();
        if let Some(heard) = pair.host(Side::Two).take_control() {
            break heard;
        }
    };
    assert_eq!(heard, b"wake up");
}

/// Carries `messages` messages through a queue of one message between two threads that sleep as
/// lanes do. A missed wake-up shows as a sleep that never ends. Both ends must wait for doorbells.
pub fn sleeping_lanes_miss_nothing<B: BusUnderTest>(messages: u64) {
    let mut pair = Pair::<B>::up();
    let channel = pair.open(Side::One, &queue(1, 64));
    let (mut sender, mut receiver, mut sink) = (channel.sender, channel.receiver, channel.sink);
    let mut sender_bell = pair.host(Side::One).link.doorbell(LANE);
    let mut receiver_bell = pair.host(Side::Two).link.doorbell(LANE);
    assert_eq!(
        (sender.wait_for(), receiver.wait_for()),
        (WaitFor::Doorbell, WaitFor::Doorbell)
    );
    let receiving = std::thread::spawn(move || {
        while sink.heads.len() < messages as usize {
            if receiver.poll(&mut sink, 8).expect("well") == 0 {
                let wait_for = receiver.wait_for();
                sleep_as_lane(wait_for, &mut receiver_bell, || {
                    receiver.poll(&mut sink, 8).expect("well") > 0
                });
            }
        }
        sink.sequences()
    });
    for sequence in 1..=messages {
        while !sender.has_room(112) {
            let wait_for = sender.wait_for();
            sleep_as_lane(wait_for, &mut sender_bell, || sender.has_room(112));
        }
        sender.send(Buffer::new(sequence, 0, 64)).expect("room");
        sender.flush().expect("well");
    }
    assert!(receiving.join().expect("no panic").into_iter().eq(1..=messages));
}
