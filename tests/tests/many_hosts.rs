//! Several hosts and several links: every message arrives once at each other host, and never at
//! home again.

use busway_tests::outage::other;
use busway_tests::role::{Role, Settings};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const LOSSLESS: Settings = Settings::lossless(16);
const COUNT: u64 = 1_500;

fn triangle_delivers_each_message_once_to_each_host(bus: Bus) {
    let rig = Rig::running(&["a", "b", "c"], &[(0, 1, bus), (1, 2, bus), (0, 2, bus)], "");
    for host in 0..3 {
        rig.links_up(host);
    }
    let readers = [0, 1, 2].map(|host| rig.run(host, &Role::subscribe("triangle", LOSSLESS)).ready());
    let publishers = [0, 1, 2].map(|host| {
        let mut role = Role::publish("triangle", LOSSLESS, host as u64 + 1);
        if let Role::Publish {
            count,
            subscribers,
            gap_us,
            ..
        } = &mut role
        {
            // Its own host's reader and the gateway, which serves both other hosts.
            (*count, *subscribers, *gap_us) = (Some(COUNT), 2, 100);
        }
        rig.run(host, &role)
    });
    // The gateway's subscriber may be there for one of the hosts before it is for the other: what
    // was published until then may be missing at the beginning, nowhere else.
    for (host, reader) in readers.iter().enumerate() {
        let report = reader.until(&format!("all arrive on host {host}"), |report| {
            [1, 2, 3]
                .iter()
                .all(|origin| report.seen.get(origin).is_some_and(|seen| seen.last == COUNT))
        });
        assert_eq!(report.corrupt, 0);
        for (origin, seen) in report.seen {
            assert_eq!(
                (seen.missing, seen.backwards),
                (0, 0),
                "origin {origin} on host {host}: {seen:?}"
            );
            assert_eq!(
                seen.received,
                COUNT - seen.first + 1,
                "origin {origin} on host {host}"
            );
        }
    }
    drop(publishers);
    for host in 0..3 {
        let status = eventually("the status", || rig.service(host, "triangle"));
        assert_eq!(
            (status.counter("echoes"), status.counter("lost")),
            (0, 0),
            "host {host}"
        );
        // Origin by origin: two other hosts' messages, none of them twice.
        assert!(status.counter("received") <= 2 * COUNT, "host {host}: {status:?}");
    }
}

fn parallel_links_duplicate_nothing(bus: Bus) {
    let rig = Rig::running(&["a", "b"], &[(0, 1, bus), (0, 1, other(bus))], "");
    rig.links_up(0);
    let reader = rig.run(1, &Role::subscribe("parallel", LOSSLESS)).ready();
    let publisher = rig.run(0, &Role::publish("parallel", LOSSLESS, 1));
    reader.until_seen("it flows", |seen| seen.received > 1_000);
    let seen = reader.seen(1);
    assert_eq!((seen.missing, seen.backwards), (0, 0), "{seen:?}");
    // A status is up to a second old: the first one that has the channel decides.
    let status = eventually("a status with the channel", || {
        rig.service(1, "parallel")
            .filter(|status| !status.receives_from.is_empty())
    });
    assert_eq!(
        status.receives_from,
        ["a"],
        "one channel although there are two links"
    );
    drop(publisher);
}

on_each_bus!(
    triangle_delivers_each_message_once_to_each_host,
    parallel_links_duplicate_nothing,
);
