//! What several hosts are due leaves once: one host that sends, and others that receive, in a network namespace of the test's own, whose counters
//! tell what was sent. Needs root.
#![allow(unsafe_code)] // filters on the receivers' sockets

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod fan;
#[path = "../../../tests/src/own_network.rs"]
mod own_network;

use std::time::{Duration, Instant};

use busway_transport::ChannelSpec;
use contract::harness::{PATIENCE, latest, queue};
use contract::skip;
use fan::{Fan, listeners, lose};
use own_network::{in_own_network, ip, sent};

/// Settings with a group of this number; tests that look for sockets have one of their own.
fn group(number: u8) -> String {
    format!("multicast = '{}'\nmtu = 1500", address(number))
}

fn address(number: u8) -> std::net::IpAddr {
    [239, 192, 7, number].into()
}

fn spec() -> ChannelSpec {
    queue(16, 40_000)
}

/// Bytes of a message of mixed sizes.
fn mixed(sequence: u64) -> usize {
    [64, 900, 3000, 40_000][sequence as usize % 4] + sequence as usize % 7
}

/// Bytes on the wire, answers included, for each byte of these messages, while they were sent to all.
fn sent_for_each(fan: &mut Fan, count: u64) -> f64 {
    let (before, _) = sent();
    let bytes = fan.send_all(count, mixed);
    (sent().0 - before) as f64 / bytes as f64
}

/// Sends until what all are due leaves in no more than so many times its bytes.
fn warm_up(fan: &mut Fan, most: f64) {
    let give_up_at = Instant::now() + PATIENCE;
    while sent_for_each(fan, 8) > most {
        assert!(Instant::now() < give_up_at, "not all hear the group");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn three_receivers_get_one_transmission() {
    in_own_network(|| {
        let mut apart = Fan::open("mtu = 1500", 3, &spec());
        let without = sent_for_each(&mut apart, 1000);
        apart.assert_complete(&[0, 1, 2]);
        drop(apart);
        let mut fan = Fan::open(&group(1), 3, &spec());
        warm_up(&mut fan, 1.5);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 1, 2]);
        assert!(without > 3.0, "{without} times the bytes without a group");
        assert!(with < 1.5, "{with} times the bytes with a group");
    });
}

#[test]
fn three_receivers_get_one_transmission_over_ipv6() {
    in_own_network(|| {
        // IPv6 has no multicast over the loopback interface.
        for command in [
            "link add one type veth peer name two",
            "link set one up",
            "link set two up",
            "addr add 2001:db8::1/64 dev one nodad",
        ] {
            ip(command);
        }
        let address = "2001:db8::1".parse().expect("good");
        let settings = "multicast = 'ff15::7:1'\nmtu = 1500";
        let mut fan = Fan::open_at(address, settings, 3, &spec());
        warm_up(&mut fan, 1.5);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 1, 2]);
        assert!(with < 1.5, "{with} times the bytes");
    });
}

#[test]
fn ten_receivers_get_two_transmissions() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(3), 10, &spec());
        warm_up(&mut fan, 3.5);
        let with = sent_for_each(&mut fan, 500);
        fan.assert_complete(&(0..10).collect::<Vec<_>>());
        assert!((2.0..3.5).contains(&with), "{with} times the bytes");
    });
}

#[test]
fn loss_at_one_receiver_retransmits_to_it_only() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(4), 3, &spec());
        warm_up(&mut fan, 1.5);
        lose(listeners(address(4))[1], 2);
        let with = sent_for_each(&mut fan, 2000);
        fan.assert_complete(&[0, 1, 2]);
        // At worst it gets everything by itself, and only it.
        assert!(with < 2.2, "{with} times the bytes");
    });
}

#[test]
fn stopped_receiver_does_not_delay_the_others() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(5), 3, &spec());
        warm_up(&mut fan, 1.5);
        fan.outs[1].is_stopped = true;
        let stopped = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 2]);
        fan.outs[1].kill();
        let killed = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 2]);
        assert!(
            stopped < 1.7 && killed < 1.5,
            "{stopped} and {killed} times the bytes"
        );
    });
}

#[test]
fn resumed_receiver_returns_to_multicast() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(6), 3, &spec());
        warm_up(&mut fan, 1.5);
        fan.outs[1].is_stopped = true;
        fan.send_all(200, mixed);
        fan.outs[1].is_stopped = false;
        warm_up(&mut fan, 1.5);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 2]);
        let sequences = fan.outs[1].sink.sequences();
        assert!(sequences.is_sorted_by(|a, b| a < b), "in order, none twice");
        assert_eq!(sequences.last(), fan.outs[0].sink.sequences().last());
        assert!(with < 1.5, "{with} times the bytes");
    });
}

#[test]
fn late_receiver_joins_multicast() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(7), 2, &spec());
        warm_up(&mut fan, 1.5);
        fan.send_all(500, mixed);
        fan.add();
        fan.send_all(500, mixed);
        warm_up(&mut fan, 1.5);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 1, 2]);
        assert!(with < 1.5, "{with} times the bytes");
    });
}

#[test]
fn receivers_that_cannot_join_get_unicast() {
    in_own_network(|| {
        std::fs::write("/proc/sys/net/ipv4/igmp_max_memberships", "0").expect("a setting of the namespace");
        let mut fan = Fan::open(&group(8), 3, &spec());
        // Enough for several invitations.
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            fan.send_all(1, mixed);
        }
        assert_eq!(listeners(address(8)), []);
        let with = sent_for_each(&mut fan, 500);
        fan.assert_complete(&[0, 1, 2]);
        assert!(with > 3.0, "{with} times the bytes");
    });
}

#[test]
fn group_that_fails_is_suspended_until_a_probe_arrives() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(9), 3, &spec());
        warm_up(&mut fan, 1.5);
        let listeners = listeners(address(9));
        assert_eq!(listeners.len(), 3);
        listeners.iter().for_each(|fd| lose(*fd, 100));
        fan.send_all(100, mixed);
        let without = sent_for_each(&mut fan, 100);
        fan.assert_complete(&[0, 1, 2]);
        assert!((3.0..3.5).contains(&without), "{without} times the bytes");
        listeners.iter().for_each(|fd| lose(*fd, 0));
        warm_up(&mut fan, 1.5);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 1, 2]);
        assert!(with < 1.5, "{with} times the bytes");
    });
}

#[test]
fn best_effort_loses_nothing_while_two_paths_mix() {
    in_own_network(|| {
        let settings = format!("{}\ndelivery = 'best-effort'", group(10));
        let mut fan = Fan::open(&settings, 3, &spec());
        // From the first message on, so that all change from one way to the other under load.
        fan.send_all(2000, mixed);
        let with = sent_for_each(&mut fan, 1000);
        fan.assert_complete(&[0, 1, 2]);
        assert!(with < 1.5, "{with} times the bytes");
    });
}

#[test]
fn best_effort_loss_at_one_receiver_stays_there() {
    in_own_network(|| {
        let settings = format!("{}\ndelivery = 'best-effort'", group(11));
        let mut fan = Fan::open(&settings, 3, &spec());
        warm_up(&mut fan, 1.5);
        lose(listeners(address(11))[0], 10);
        let received =
            |fan: &Fan| -> Vec<usize> { fan.outs.iter().map(|out| out.sink.heads.len()).collect() };
        // How many it has until now depends on how soon the group was heard.
        let before = received(&fan);
        let with = sent_for_each(&mut fan, 2000);
        let got: Vec<usize> = received(&fan)
            .iter()
            .zip(before)
            .map(|(all, before)| all - before)
            .collect();
        let complete = got.iter().filter(|got| **got == 2000).count();
        assert_eq!(complete, 2, "one host has lost something: {got:?}");
        assert!(got.iter().all(|got| *got > 1000), "{got:?}");
        for out in &fan.outs {
            let sequences = out.sink.sequences();
            assert!(sequences.is_sorted_by(|a, b| a < b), "in order, none twice");
        }
        // As above.
        assert!(with < 2.2, "{with} times the bytes");
    });
}

#[test]
fn sampling_is_multicast_and_never_goes_back() {
    in_own_network(|| {
        let mut fan = Fan::open(&group(12), 3, &latest(3000));
        warm_up(&mut fan, 2.0);
        let (before, _) = sent();
        let bytes = fan.send_all(500, |_| 3000);
        let with = (sent().0 - before) as f64 / bytes as f64;
        for out in &fan.outs {
            let sequences = out.sink.sequences();
            assert!(sequences.is_sorted_by(|a, b| a < b), "in order, none twice");
            assert_eq!(sequences.last(), fan.outs[0].sink.sequences().last());
        }
        assert!(with < 1.7, "{with} times the bytes");
    });
}
