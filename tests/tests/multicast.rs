//! One publisher, or one ARINC 653 port, for several hosts, real gateways: with a multicast group
//! messages leave once.

use std::time::Duration;

use busway_tests::fan::{Fan, GROUP};
use busway_tests::own_network::in_own_network;
use busway_tests::port_fan::{GAP, Kind, PortFan};

fn sent_for_each(settings: &str) -> f64 {
    const LENGTH_BYTES: usize = 8192;
    let mut fan = Fan::flowing(2, settings, LENGTH_BYTES, 500);
    let count = fan.count(Duration::from_secs(2));
    fan.assert_complete();
    count.bytes as f64 / (count.published * LENGTH_BYTES as u64) as f64
}

#[test]
fn multicast_group_sends_each_sample_once_instead_of_twice() {
    in_own_network(|| {
        let without = sent_for_each("");
        let with = sent_for_each(GROUP);
        // Twice or once, each with heads and answers: a busy machine delays what is counted, so not
        // to the percent.
        assert!(without > 1.6, "{without} times the bytes without a group");
        assert!(with < 1.5, "{with} times the bytes with a group");
    });
}

#[test]
fn host_with_killed_gateway_recovers_and_other_host_loses_nothing() {
    in_own_network(|| {
        let mut fan = Fan::flowing(2, GROUP, 4096, 500);
        fan.rig.gateway(2).kill();
        let before = fan.readers[0].seen(1).received;
        fan.readers[0].until_seen("it goes on", |seen| seen.received > before + 2000);
        fan.rig.start_gateway(2);
        let before = fan.readers[1].seen(1).received;
        fan.readers[1].until_seen("it comes back", |seen| seen.received > before + 2000);
        let seen = fan.readers[0].seen(1);
        assert_eq!((seen.missing, seen.backwards), (0, 0), "{seen:?}");
        assert_eq!(fan.readers[1].seen(1).backwards, 0);
    });
}

/// A port's messages for two hosts leave twice without a group, and once with one.
fn assert_leaves_once(kind: Kind) {
    let time = Duration::from_secs(2);
    for (settings, is_once) in [("", false), (GROUP, true)] {
        let mut fan = PortFan::flowing(kind, 2, settings);
        let ratio = fan.sent_for_each(time, GAP);
        assert_eq!(ratio < 1.5, is_once, "{ratio} times the bytes with {settings:?}");
        if kind != Kind::Sampling {
            assert_eq!((fan.seen(0).missing, fan.seen(1).missing), (0, 0), "{fan:?}");
        }
    }
}

#[test]
fn sampling_port_with_multicast_group_sends_each_message_once() {
    in_own_network(|| assert_leaves_once(Kind::Sampling));
}

#[test]
fn queuing_port_with_multicast_group_sends_each_message_once() {
    in_own_network(|| {
        assert_leaves_once(Kind::Wait);
        assert_leaves_once(Kind::Overflow);
    });
}

/// Messages for the other host go on while one has no gateway, and for that one afterwards; leaves
/// once again, or not.
fn assert_survives(kind: Kind, leaves_once_afterwards: bool) {
    let mut fan = PortFan::flowing(kind, 2, GROUP);
    fan.rig.gateway(2).kill();
    fan.ignored = Some(1);
    let before = fan.seen(0);
    fan.until(0, "it goes on", |seen| seen.received > before.received + 1000);
    fan.rig.start_gateway(2);
    let before = fan.seen(1).received;
    fan.until(1, "it comes back", |seen| seen.received > before + 1000);
    fan.ignored = None;
    if kind != Kind::Sampling {
        assert_eq!(fan.seen(0).missing, 0, "{fan:?}");
    }
    let ratio = fan.sent_for_each(Duration::from_secs(2), GAP);
    assert_eq!(ratio < 1.5, leaves_once_afterwards, "{ratio} times the bytes");
}

#[test]
fn port_host_with_killed_gateway_recovers_and_other_host_loses_nothing() {
    in_own_network(|| {
        assert_survives(Kind::Sampling, true);
        // Its queue has lost messages that the other has not, so they are not the same any more.
        assert_survives(Kind::Overflow, false);
    });
}
