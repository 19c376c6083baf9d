//! One publisher, subscribers on other hosts, real gateways: with a multicast group samples leave once.

use std::time::Duration;

use busway_tests::fan::{Fan, GROUP};
use busway_tests::own_network::in_own_network;

/// Bytes on the wire for each byte that was published.
fn sent_for_each(settings: &str) -> f64 {
    const LENGTH_BYTES: usize = 8192;
    let mut fan = Fan::flowing(2, settings, LENGTH_BYTES, 500);
    let count = fan.count(Duration::from_secs(2));
    fan.assert_complete();
    count.bytes as f64 / (count.published * LENGTH_BYTES as u64) as f64
}

#[test]
fn samples_for_two_hosts_leave_once_with_a_group_and_twice_without() {
    in_own_network(|| {
        let without = sent_for_each("");
        let with = sent_for_each(GROUP);
        assert!(without > 2.0, "{without} times the bytes without a group");
        assert!(with < 1.5, "{with} times the bytes with a group");
    });
}

#[test]
fn a_host_whose_gateway_is_killed_costs_the_other_one_nothing_and_comes_back() {
    in_own_network(|| {
        let mut fan = Fan::flowing(2, GROUP, 4096, 500);
        fan.rig.gateway(2).kill();
        let before = fan.readers[0].seen(1).received;
        fan.readers[0].until("it goes on", |report| report.seen[&1].received > before + 2000);
        fan.rig.start_gateway(2);
        let before = fan.readers[1].seen(1).received;
        fan.readers[1].until("it comes back", |report| report.seen[&1].received > before + 2000);
        let seen = fan.readers[0].seen(1);
        assert_eq!((seen.missing, seen.backwards), (0, 0), "{seen:?}");
        assert_eq!(fan.readers[1].seen(1).backwards, 0);
    });
}
