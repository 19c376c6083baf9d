//! A companion event service: a subscriber that sleeps on its listener is woken across hosts, and
//! events do not run in circles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use busway_tests::{Bus, Rig, eventually, on_each_bus, publisher, received, service, subscriber};
use iceoryx2::port::BackpressureAction;
use iceoryx2::prelude::*;

/// The event service `name` on `node`.
macro_rules! events {
    ($node:expr, $name:expr) => {
        $node
            .service_builder(&$name)
            .event()
            .open_or_create()
            .expect("same")
    };
}

fn companion_event_wakes_remote_subscriber(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let name: ServiceName = "woken".try_into().expect("a name");
    let (there, events_there) = (service!(b, name, u64), events!(b, name));
    let (home, events_home) = (service!(a, name, u64), events!(a, name));
    let subscriber = subscriber!(there);
    let listener = events_there.listener_builder().create().expect("a listener");
    let publisher = publisher!(home);
    let notifier = events_home.notifier_builder().create().expect("a notifier");
    eventually("the gateways are between them", || {
        let ready = home.dynamic_config().number_of_subscribers() == 1
            && there.dynamic_config().number_of_publishers() == 1
            && events_home.dynamic_config().number_of_listeners() == 1
            && events_there.dynamic_config().number_of_notifiers() == 1;
        ready.then_some(())
    });
    for (number, event) in [(1u64, 5usize), (2, 0), (3, 31)] {
        publisher.send_copy(number).expect("sent");
        notifier
            .notify_with_custom_event_id(EventId::new(event))
            .expect("raised");
        // Asleep: nothing but the event ends the wait before its long timeout.
        let mut heard = Vec::new();
        listener
            .timed_wait(
                |activation| heard.push(activation.id.as_value()),
                Duration::from_secs(20),
            )
            .expect("the listener works");
        assert_eq!(heard, [event], "message {number}");
        assert_eq!(*received!(subscriber).expect("before its event"), number);
    }
}

/// At home the publisher's events come before the message that has to wait for room, and a reader
/// that knows nothing else makes room only after them.
fn sleeping_reader_with_full_queue_is_woken(bus: Bus, depth: usize) {
    const COUNT: u64 = 3000;
    const LONG: Duration = Duration::from_secs(20);
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let name: ServiceName = "strict".try_into().expect("a name");
    macro_rules! open {
        ($node:expr) => {
            (
                service!(
                    $node,
                    name,
                    u64,
                    enable_safe_overflow(false),
                    subscriber_max_buffer_size(depth)
                ),
                events!($node, name),
            )
        };
    }
    let ((there, events_there), (home, events_home)) = (open!(b), open!(a));
    let subscriber = subscriber!(there);
    let listener = events_there.listener_builder().create().expect("a listener");
    let (may_start, has_ended) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (starts, [gives_up, all_read]) = (may_start.clone(), [has_ended.clone(), has_ended.clone()]);
    let publisher = std::thread::spawn(move || {
        let publisher = publisher!(
            home,
            set_backpressure_handler(move |_| if gives_up.load(Ordering::Relaxed) {
                BackpressureAction::DiscardData
            } else {
                BackpressureAction::Retry
            })
        );
        let notifier = events_home.notifier_builder().create().expect("a notifier");
        eventually("the gateways are between them", || {
            let ready = home.dynamic_config().number_of_subscribers() == 1
                && events_home.dynamic_config().number_of_listeners() == 1
                && starts.load(Ordering::Relaxed);
            ready.then_some(())
        });
        for number in 1..=COUNT {
            publisher.send_copy(number).expect("sent");
            notifier.notify().expect("raised");
        }
        eventually("the reader has all", || {
            all_read.load(Ordering::Relaxed).then_some(())
        });
    });
    eventually("the other gateway publishes and notifies", || {
        let ready = there.dynamic_config().number_of_publishers() == 1
            && events_there.dynamic_config().number_of_notifiers() == 1;
        ready.then_some(())
    });
    // The first call connects a subscriber: iceoryx2 waits for no other.
    assert!(received!(subscriber).is_none());
    may_start.store(true, Ordering::Relaxed);
    let mut last = 0;
    while last < COUNT {
        // Asleep: nothing but an event ends the wait before its long timeout.
        let asleep = Instant::now();
        listener.timed_wait(|_| (), LONG).expect("the listener works");
        if asleep.elapsed() >= LONG {
            break;
        }
        while let Some(sample) = received!(subscriber) {
            assert_eq!(*sample, last + 1, "in order, none missing");
            last = *sample;
        }
    }
    has_ended.store(true, Ordering::Relaxed);
    publisher.join().expect("the publisher ends");
    assert_eq!(last, COUNT, "a reader with messages in its queue slept on");
}

fn sleeping_reader_with_room_for_one_is_woken(bus: Bus) {
    sleeping_reader_with_full_queue_is_woken(bus, 1);
}

fn sleeping_reader_with_room_for_several_is_woken(bus: Bus) {
    sleeping_reader_with_full_queue_is_woken(bus, 16);
}

fn events_between_publishing_hosts_do_not_loop(bus: Bus) {
    const COUNT: u64 = 50;
    let rig = Rig::pair(bus);
    let name: ServiceName = "circle".try_into().expect("a name");
    let nodes = [rig.node(0), rig.node(1)];
    let mut ends = Vec::new();
    for node in &nodes {
        let data = service!(node, name, u64);
        let events = events!(node, name);
        let ports = (
            subscriber!(data),
            events.listener_builder().create().expect("a listener"),
            publisher!(data),
            events.notifier_builder().create().expect("a notifier"),
        );
        ends.push((data, events, ports));
    }
    for (data, events, _) in &ends {
        eventually("the gateways are between them", || {
            let ready = data.dynamic_config().number_of_subscribers() == 2
                && events.dynamic_config().number_of_listeners() == 2;
            ready.then_some(())
        });
    }
    // By listening host and event; host 0 raises event 0, host 1 event 1, so that one from there is
    // not taken for one from home.
    let mut heard = [[0u64; 2]; 2];
    let listen = |heard: &mut [[u64; 2]; 2]| {
        for (host, (_, _, (subscriber, listener, ..))) in ends.iter().enumerate() {
            while received!(subscriber).is_some() {}
            let note = |activation: EventActivation| heard[host][activation.id.as_value()] += 1;
            listener.try_wait(note).expect("the listener works");
        }
    };
    for number in 1..=COUNT {
        for (host, (_, _, (_, _, publisher, notifier))) in ends.iter().enumerate() {
            publisher.send_copy(number).expect("sent");
            notifier
                .notify_with_custom_event_id(EventId::new(host))
                .expect("raised");
        }
        eventually("both events are heard on both hosts", || {
            listen(&mut heard);
            let all = heard.iter().flatten().all(|heard| *heard >= number);
            all.then_some(())
        });
    }
    let end = std::time::Instant::now() + Duration::from_secs(1);
    while std::time::Instant::now() < end {
        listen(&mut heard);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(
        heard, [[COUNT; 2]; 2],
        "each event once on each host, none of them again"
    );
}

/// A channel that keeps the latest message has no room for most of these.
fn event_does_not_replace_the_latest_message(bus: Bus) {
    const COUNT: u64 = 500;
    let rig = Rig::pair_with(bus, "[[service]]\nname = \"*\"\nkeep = \"latest\"\n");
    let (a, b) = (rig.node(0), rig.node(1));
    let name: ServiceName = "newest".try_into().expect("a name");
    let (there, home) = (service!(b, name, [u64; 4096]), service!(a, name, [u64; 4096]));
    let events = events!(a, name);
    let subscriber = subscriber!(there);
    let publisher = publisher!(home);
    let notifier = events.notifier_builder().create().expect("a notifier");
    eventually("the gateways are between them", || {
        let ready = home.dynamic_config().number_of_subscribers() == 1
            && there.dynamic_config().number_of_publishers() == 1
            && events.dynamic_config().number_of_listeners() == 1;
        ready.then_some(())
    });
    for round in 1..=20 {
        let last = round * COUNT;
        for number in last - COUNT + 1..=last {
            publisher.send_copy([number; 4096]).expect("sent");
            notifier.notify().expect("raised");
        }
        eventually("the last message arrives", || {
            let sample = received!(subscriber)?;
            (sample[4095] == last).then_some(())
        });
    }
}

on_each_bus!(
    event_does_not_replace_the_latest_message,
    companion_event_wakes_remote_subscriber,
    sleeping_reader_with_room_for_one_is_woken,
    sleeping_reader_with_room_for_several_is_woken,
    events_between_publishing_hosts_do_not_loop,
);
