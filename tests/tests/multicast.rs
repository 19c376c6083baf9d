//! One publisher, subscribers on two other hosts, real gateways: with a multicast group samples leave once.

use std::fmt::Write as _;
use std::time::Duration;

use busway_tests::own_network::{in_own_network, sent};
use busway_tests::role::{Role, Settings};
use busway_tests::{Rig, eventually};

const LOSSLESS: Settings = Settings {
    safe_overflow: Some(false),
    history: None,
    buffer: Some(16),
};
const LENGTH_BYTES: usize = 8192;

/// Hosts `a`, `b` and `c` over UDP; `settings` are added to the table of `a`.
fn links(settings: &str) -> String {
    let mut text = String::new();
    for (number, host) in ["b", "c"].into_iter().enumerate() {
        let port = 7400 + number;
        let _ = writeln!(
            text,
            "[[link]]\nhosts = [\"a\", {host:?}]\nbuses = [\"udp\"]\n\
             udp.a = {{ listen = \"127.0.0.1:{port}\", mtu = 1500, {settings} }}\n\
             udp.{host} = {{ address = \"127.0.0.1\" }}"
        );
    }
    text
}

/// Bytes on the wire for each byte that a program published, once it flows to both hosts; each gets every sample in order.
fn sent_for_each(settings: &str) -> f64 {
    let mut rig = Rig::stopped(&["a", "b", "c"], &[], &links(settings));
    rig.start_gateways();
    (0..3).for_each(|host| rig.links_up(host));
    let readers = [1, 2].map(|host| rig.run(host, &Role::subscribe("fan", LOSSLESS)).ready());
    let mut role = Role::publish_of("fan", LOSSLESS, 1, LENGTH_BYTES);
    if let Role::Publish { gap_us, .. } = &mut role {
        *gap_us = 500;
    }
    let publisher = rig.run(0, &role);
    for reader in &readers {
        reader.until("it flows", |report| {
            report.seen.get(&1).is_some_and(|seen| seen.received > 1000)
        });
    }
    let (published, (bytes, _)) = (publisher.report().sent, sent());
    std::thread::sleep(Duration::from_secs(2));
    let (now_published, (now_bytes, _)) = (publisher.report().sent, sent());
    for (reader, host) in readers.iter().zip(1..) {
        let seen = reader.seen(1);
        assert_eq!((seen.missing, seen.backwards), (0, 0), "{seen:?}");
        let status = eventually("the status", || rig.service(host, "fan"));
        assert_eq!((status.counter("lost"), status.counter("echoes")), (0, 0));
    }
    let published = (now_published - published) * LENGTH_BYTES as u64;
    (now_bytes - bytes) as f64 / published as f64
}

#[test]
fn samples_for_two_hosts_leave_once_with_a_group_and_twice_without() {
    in_own_network(|| {
        let without = sent_for_each("");
        let with = sent_for_each("multicast = \"239.192.7.1\"");
        assert!(without > 2.0, "{without} times the bytes without a group");
        assert!(with < 1.4, "{with} times the bytes with a group");
    });
}
