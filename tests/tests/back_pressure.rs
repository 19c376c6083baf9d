//! With safe overflow off every message arrives, and the publisher waits for a slow reader on the
//! other host as it would for one at home; never for a reader that is gone, a link that is lost, or
//! the gateway itself.

use std::time::{Duration, Instant};

use busway_tests::role::{Role, Runner, Settings};
use busway_tests::stream::slow_stream;
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const LOSSLESS: Settings = Settings::lossless(4);

fn eager(service: &str, origin: u64, count: Option<u64>) -> Role {
    Role::Publish {
        service: service.to_owned(),
        settings: LOSSLESS,
        origin,
        lengths_bytes: vec![65_536],
        gap_us: 0,
        count,
        subscribers: 1,
    }
}

fn slow(service: &str) -> Role {
    Role::Subscribe {
        service: service.to_owned(),
        settings: LOSSLESS,
        gap_us: 5_000,
    }
}

fn every_message_reaches_a_slow_reader_in_order(bus: Bus) {
    let rig = Rig::pair(bus);
    let subscriber = rig.run(1, &slow("strict")).ready();
    let publisher = rig.run(0, &eager("strict", 1, Some(400)));
    let report = subscriber.until_seen("all arrive", |seen| seen.last == 400);
    let seen = report.seen[&1];
    assert_eq!(
        (
            seen.first,
            seen.received,
            seen.missing,
            seen.backwards,
            report.corrupt
        ),
        (1, 400, 0, 0, 0)
    );
    publisher.until("it knows that it has sent all", |report| report.done);
    rig.counter_becomes(0, "strict", "sent", 400);
    rig.counter_becomes(1, "strict", "received", 400);
    assert_eq!(rig.counter(1, "strict", "lost"), 0);
}

fn samples_of_ended_publisher_are_carried(bus: Bus) {
    let rig = Rig::pair(bus);
    let subscriber = rig.run(1, &slow("left")).ready();
    let publisher = rig.run(0, &eager("left", 1, None));
    all_that_is_left_behind_arrives(publisher, &subscriber);
}

fn all_that_is_left_behind_arrives(publisher: Runner, subscriber: &Runner) {
    subscriber.until_seen("data flows", |seen| seen.last > 50);
    let published = publisher.finish().sent;
    let report = subscriber.until_seen("the last message arrives", |seen| seen.last == published);
    assert_eq!(report.seen[&1].received, published, "{report:?}");
}

fn slow_reader_receives_all_deep_queues_of_ended_publisher(bus: Bus) {
    let rig = Rig::pair(bus);
    let deep = Settings {
        buffer: Some(500),
        ..LOSSLESS
    };
    let (publisher, subscriber) = slow_stream(&rig, "deep", deep);
    all_that_is_left_behind_arrives(publisher, &subscriber);
}

fn publisher_waits_for_slow_reader(bus: Bus) {
    let rig = Rig::pair_with(bus, "[[service]]\nname = \"*\"\nkeep = \"all\"\ndepth = 8\n");
    let subscriber = rig.run(1, &slow("held")).ready();
    let publisher = rig.run(0, &eager("held", 1, None));
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut furthest = 0;
    while Instant::now() < deadline {
        // In this order: what is received between the two looks makes the distance look smaller,
        // never larger.
        let sent = publisher.report().sent;
        furthest = furthest.max(sent.saturating_sub(subscriber.seen(1).last));
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = subscriber.until_seen("some arrive", |seen| seen.last > 20).seen[&1];
    // 4 in each of two subscribers, 8 in the channel, a few in hand, what the socket buffers of TCP
    // hold, and what the subscriber took since its last report, which on a busy machine may be a
    // second old; the publisher alone would send tens of thousands in this time.
    println!("run-ahead at most {furthest} messages of 64 KiB");
    assert!(furthest < 1_000, "the publisher ran {furthest} messages ahead");
    assert_eq!(seen.missing, 0);
}

fn publisher_continues_when_reader_is_killed(bus: Bus) {
    let rig = Rig::pair(bus);
    let mut subscriber = rig.run(1, &slow("reader-dies")).ready();
    let publisher = rig.run(0, &eager("reader-dies", 1, None));
    subscriber.until("some arrive", |report| !report.seen.is_empty());
    subscriber.0.kill();
    goes_on(&publisher, "after the reader's death");
    // And another reader gets its messages in order again.
    let next = rig.run(1, &Role::subscribe("reader-dies", LOSSLESS)).ready();
    let seen = next.until_seen("it flows again", |seen| seen.received > 50).seen[&1];
    assert_eq!((seen.missing, seen.backwards), (0, 0));
}

fn publisher_continues_when_reader_leaves(bus: Bus) {
    let rig = Rig::pair(bus);
    let subscriber = rig.run(1, &slow("reader-leaves")).ready();
    let publisher = rig.run(0, &eager("reader-leaves", 1, None));
    subscriber.until("some arrive", |report| !report.seen.is_empty());
    subscriber.finish();
    goes_on(&publisher, "after the reader left");
}

fn publisher_continues_when_gateway_is_lost(bus: Bus) {
    let mut rig = Rig::pair(bus);
    let subscriber = rig.run(1, &slow("link-lost")).ready();
    let publisher = rig.run(0, &eager("link-lost", 1, None));
    subscriber.until("some arrive", |report| !report.seen.is_empty());
    rig.gateway(1).kill();
    goes_on(&publisher, "after the far gateway's death");
    // A dead subscriber at home holds a publisher up until somebody clears it away: the next
    // gateway does.
    rig.gateway(0).kill();
    rig.start_gateway(0);
    goes_on(&publisher, "after its own gateway's death and return");
}

fn goes_on(publisher: &busway_tests::role::Runner, when: &str) {
    let sent = publisher.report().sent;
    // More than all buffers on the way could take without anybody reading.
    publisher.until(&format!("the publisher goes on {when}"), |report| {
        report.sent > sent + 2_000
    });
}

fn hosts_publishing_both_ways_do_not_deadlock(bus: Bus) {
    const COUNT: u64 = 3_000;
    let rig = Rig::pair(bus);
    let readers = [0, 1].map(|host| rig.run(host, &Role::subscribe("both", LOSSLESS)).ready());
    let publishers = [0, 1].map(|host| {
        let mut role = eager("both", host as u64 + 1, Some(COUNT));
        if let Role::Publish {
            subscribers,
            lengths_bytes,
            ..
        } = &mut role
        {
            *subscribers = 2;
            *lengths_bytes = vec![4_096];
        }
        rig.run(host, &role)
    });
    for (host, reader) in readers.iter().enumerate() {
        let report = reader.until(&format!("all arrive on host {host}"), |report| {
            [1, 2]
                .iter()
                .all(|origin| report.seen.get(origin).is_some_and(|seen| seen.last == COUNT))
        });
        assert_eq!(report.corrupt, 0);
        for (origin, seen) in report.seen {
            assert_eq!(
                (seen.first, seen.received, seen.missing, seen.backwards),
                (1, COUNT, 0, 0),
                "origin {origin} on host {host}"
            );
        }
    }
    drop(publishers);
    for host in [0, 1] {
        let status = eventually("the status", || rig.service(host, "both"));
        assert_eq!((status.counter("echoes"), status.counter("lost")), (0, 0));
    }
}

on_each_bus!(
    every_message_reaches_a_slow_reader_in_order,
    samples_of_ended_publisher_are_carried,
    slow_reader_receives_all_deep_queues_of_ended_publisher,
    publisher_waits_for_slow_reader,
    publisher_continues_when_reader_is_killed,
    publisher_continues_when_reader_leaves,
    publisher_continues_when_gateway_is_lost,
    hosts_publishing_both_ways_do_not_deadlock,
);
