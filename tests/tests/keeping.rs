//! What a receiver slower than its sender gets, by rule, and that every message is accounted for.

use std::time::{Duration, Instant};

use busway_tests::rig::ServiceStatus;
use busway_tests::role::{Role, Runner, Settings};
use busway_tests::wait::DEADLINE;
use busway_tests::{Bus, Rig, on_each_bus};

const WIDE: Settings = Settings::overwriting(64);

struct Burst {
    rig: Rig,
    subscriber: Runner,
    // What it has published and nobody has taken lives as long as it does.
    _publisher: Runner,
}

const COUNT: u64 = 3_000;

impl Burst {
    fn begin(bus: Bus, rule: &str, settings: Settings) -> Burst {
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
        Burst {
            rig,
            subscriber,
            _publisher: publisher,
        }
    }

    fn newest_arrives(&self) {
        self.subscriber
            .until_seen("the newest message arrives", |seen| seen.last == COUNT);
    }

    /// Waits until the counters of both gateways, that of the sending one first, are as wanted, and
    /// stay so.
    fn accounts(&self, what: &str, wanted: impl Fn(&ServiceStatus, &ServiceStatus) -> bool) {
        let both = || [0, 1].map(|host| self.rig.service(host, "burst"));
        let mut last = both();
        let balance = |counters: &[Option<ServiceStatus>; 2]| match counters {
            [Some(from), Some(to)] => wanted(from, to),
            _ => false,
        };
        let begin = Instant::now();
        while !balance(&last) {
            assert!(begin.elapsed() < DEADLINE, "{what}: {last:?}");
            std::thread::sleep(Duration::from_millis(100));
            last = both();
        }
        let last = [0, 1].map(|host| Some(self.rig.newly_written_service(host, "burst")));
        assert!(balance(&last), "{what}, and no longer: {last:?}");
        let report = self.subscriber.report();
        assert_eq!((report.corrupt, report.seen[&1].backwards), (0, 0));
    }
}

fn keep_latest_ends_with_newest_message(bus: Bus) {
    let burst = Burst::begin(bus, "keep = \"latest\"", WIDE);
    burst.newest_arrives();
    burst.accounts("replaced is not lost", |_, to| {
        let known = to.counter("received") + to.counter("overwritten");
        to.counter("lost") == 0 && known > 0 && known <= COUNT
    });
}

fn drop_oldest_accounts_for_every_message(bus: Bus) {
    let burst = Burst::begin(bus, "keep = \"all\"\ndepth = 4\npolicy = \"drop-oldest\"", WIDE);
    burst.newest_arrives();
    burst.accounts("every message is accounted for", |from, to| {
        let counters = ["sent", "overflowed", "dropped_full", "dropped_link_down"];
        let sending: u64 = counters.iter().map(|name| from.counter(name)).sum();
        // What overflowed before the first message crossed, or while it was being taken, is the
        // sending side's alone.
        let receiving = to.counter("received") + to.counter("lost");
        sending == COUNT && receiving <= COUNT && receiving + from.counter("overflowed") >= COUNT
    });
}

fn drop_newest_accounts_for_every_crossed_message(bus: Bus) {
    let burst = Burst::begin(bus, "keep = \"all\"\ndepth = 4\npolicy = \"drop-newest\"", WIDE);
    burst.accounts("every message is accounted for", |from, to| {
        let kept = from.counter("sent");
        kept == to.counter("received")
            && kept + from.counter("dropped_full") + from.counter("overflowed") == COUNT
    });
}

fn block_loses_nothing_without_overflow(bus: Bus) {
    let strict = Settings {
        safe_overflow: Some(false),
        ..WIDE
    };
    let burst = Burst::begin(bus, "keep = \"all\"\ndepth = 4\npolicy = \"block\"", strict);
    burst.accounts("all arrive", |_, to| {
        to.counter("received") == COUNT && to.counter("lost") == 0
    });
}

on_each_bus!(
    keep_latest_ends_with_newest_message,
    drop_oldest_accounts_for_every_message,
    drop_newest_accounts_for_every_crossed_message,
    block_loses_nothing_without_overflow,
);
