//! What a receiver slower than its sender gets, by rule, and that every message is accounted for.

use busway_tests::role::{Role, Seen, Settings};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const WIDE: Settings = Settings {
    safe_overflow: None,
    history: None,
    buffer: Some(64),
};

/// Publishes a burst of large messages, far more than the way holds, and returns what its subscriber has seen in the end.
fn burst(bus: Bus, rule: &str, settings: Settings) -> (Rig, u64, Seen) {
    const COUNT: u64 = 3_000;
    let rig = Rig::pair_with(bus, &format!("[[service]]\nname = \"burst\"\n{rule}\n"));
    let subscriber = rig
        .run(
            1,
            &Role::Subscribe {
                service: "burst".into(),
                settings,
                gap_us: 2_000,
            },
        )
        .ready();
    let publisher = rig.run(
        0,
        &Role::Publish {
            service: "burst".into(),
            settings,
            origin: 1,
            lengths_bytes: vec![32_768],
            gap_us: 20,
            count: Some(COUNT),
            subscribers: 1,
        },
    );
    publisher.until("all are published", |report| report.done);
    // Whatever still comes has come once the receiving gateway's count stands still for two of its reports.
    let mut last = (0, 0);
    eventually("it settles", || {
        let status = rig.service(1, "burst")?;
        let now = (
            status.counter("received"),
            status.counter("lost") + status.counter("overwritten"),
        );
        let settled = now == last && now.0 > 0;
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        settled.then_some(())
    });
    let report = subscriber.report();
    assert_eq!((report.corrupt, report.seen[&1].backwards), (0, 0));
    (rig, COUNT, report.seen[&1])
}

fn latest_ends_with_the_newest_message(bus: Bus) {
    let (rig, count, seen) = burst(bus, "keep = \"latest\"", WIDE);
    assert_eq!(seen.last, count, "the newest message must arrive");
    let (from, to) = (
        rig.service(0, "burst").expect("status"),
        rig.service(1, "burst").expect("status"),
    );
    println!("{from:?}\n{to:?}");
    assert_eq!(to.counter("lost"), 0, "replaced is not lost");
    assert!(to.counter("received") + to.counter("overwritten") <= count);
}

fn all_with_drop_oldest_accounts_for_every_message(bus: Bus) {
    let (rig, count, seen) = burst(bus, "keep = \"all\"\ndepth = 4\npolicy = \"drop-oldest\"", WIDE);
    assert_eq!(seen.last, count, "the newest message must arrive");
    let (from, to) = (
        rig.service(0, "burst").expect("status"),
        rig.service(1, "burst").expect("status"),
    );
    let counters = ["sent", "overflowed", "dropped_full", "dropped_link_down"];
    let sending: u64 = counters.iter().map(|name| from.counter(name)).sum();
    assert_eq!(sending, count, "{from:?}");
    // What overflowed before the first message crossed, or while it was being taken, is the sending side's alone.
    let receiving = to.counter("received") + to.counter("lost");
    assert!(
        receiving <= count && receiving + from.counter("overflowed") >= count,
        "{seen:?} {from:?} {to:?}"
    );
}

fn all_with_drop_newest_accounts_for_every_message_that_crossed(bus: Bus) {
    let (rig, count, _) = burst(bus, "keep = \"all\"\ndepth = 4\npolicy = \"drop-newest\"", WIDE);
    let (from, to) = (
        rig.service(0, "burst").expect("status"),
        rig.service(1, "burst").expect("status"),
    );
    assert_eq!(from.counter("sent"), to.counter("received"), "{from:?} {to:?}");
    assert_eq!(
        from.counter("sent") + from.counter("dropped_full") + from.counter("overflowed"),
        count,
        "{from:?}"
    );
}

fn all_with_block_loses_nothing_where_the_service_does_not_overflow(bus: Bus) {
    let strict = Settings {
        safe_overflow: Some(false),
        ..WIDE
    };
    let (rig, count, _) = burst(bus, "keep = \"all\"\ndepth = 4\npolicy = \"block\"", strict);
    rig.counter_becomes(1, "burst", "received", count);
    assert_eq!(rig.counter(1, "burst", "lost"), 0);
}

on_each_bus!(
    latest_ends_with_the_newest_message,
    all_with_drop_oldest_accounts_for_every_message,
    all_with_drop_newest_accounts_for_every_message_that_crossed,
    all_with_block_loses_nothing_where_the_service_does_not_overflow,
);
