//! Multicast over UDP: one host sends, others receive, in a network namespace of the test's own,
//! whose counters tell how many bytes were sent. Needs root.
#![allow(unsafe_code)] // filters on the receivers' sockets

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod fan;
#[path = "../../../tests/src/own_network.rs"]
mod own_network;
mod packet_loss;
mod udp_links;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use contract::harness::{PATIENCE, latest, queue};
use contract::skip;
use fan::{Fan, listeners};
use own_network::{in_own_network, ip, sent};
use packet_loss::lose;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The group with this number; each test has its own.
fn address(number: u8) -> IpAddr {
    [239, 192, 7, number].into()
}

fn group(number: u8) -> String {
    format!("multicast = '{}'\nmtu = 1500", address(number))
}

/// Channels to this many hosts, with these settings.
fn open(settings: &str, receivers: usize) -> Fan {
    Fan::open(LOOPBACK, settings, receivers, &queue(16, 40_000))
}

/// Reliable channels by a group that already reaches all hosts.
fn open_warm(number: u8, receivers: usize) -> Fan {
    let mut fan = open(&group(number), receivers);
    warm_up(&mut fan, 1.5);
    fan
}

/// Bytes of a message of mixed sizes.
fn mixed(sequence: u64) -> usize {
    [64, 900, 3000, 40_000][sequence as usize % 4] + sequence as usize % 7
}

/// Sends messages to all; returns the bytes on the wire, acknowledgements included, for each byte
/// of the messages.
fn send(fan: &mut Fan, count: u64, size: impl Fn(u64) -> usize) -> f64 {
    let (before, _) = sent();
    let bytes = fan.send_all(count, size);
    (sent().0 - before) as f64 / bytes as f64
}

/// Sends until messages take at most this many times their bytes.
fn warm_up(fan: &mut Fan, most: f64) {
    let fails_at = Instant::now() + PATIENCE;
    while send(fan, 8, mixed) > most {
        assert!(Instant::now() < fails_at, "the group does not reach all");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends messages to all by multicast and checks that these hosts have everything.
fn assert_multicast(fan: &mut Fan, hosts: &[usize]) {
    let ratio = send(fan, 1000, mixed);
    fan.assert_complete(hosts);
    assert!(ratio < 1.5, "{ratio} times the bytes");
}

#[test]
fn three_receivers_get_one_transmission() {
    in_own_network(|| {
        let mut unicast = open("mtu = 1500", 3);
        let ratio = send(&mut unicast, 1000, mixed);
        unicast.assert_complete(&[0, 1, 2]);
        assert!(ratio > 3.0, "{ratio} times the bytes without a group");
        drop(unicast);
        assert_multicast(&mut open_warm(1, 3), &[0, 1, 2]);
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
        let mut fan = Fan::open(address, settings, 3, &queue(16, 40_000));
        warm_up(&mut fan, 1.5);
        assert_multicast(&mut fan, &[0, 1, 2]);
    });
}

#[test]
fn ten_receivers_get_two_transmissions() {
    in_own_network(|| {
        let mut fan = open(&group(3), 10);
        warm_up(&mut fan, 3.5);
        let ratio = send(&mut fan, 500, mixed);
        fan.assert_complete(&(0..10).collect::<Vec<_>>());
        assert!((2.0..3.5).contains(&ratio), "{ratio} times the bytes");
    });
}

#[test]
fn loss_at_one_receiver_retransmits_to_it_only() {
    in_own_network(|| {
        let mut fan = open_warm(4, 3);
        lose(listeners(address(4))[1], 2);
        let ratio = send(&mut fan, 2000, mixed);
        fan.assert_complete(&[0, 1, 2]);
        // At worst it gets everything by unicast, and only it.
        assert!(ratio < 2.2, "{ratio} times the bytes");
    });
}

#[test]
fn stopped_receiver_does_not_delay_the_others() {
    in_own_network(|| {
        let mut fan = open_warm(5, 3);
        fan.outs[1].is_stopped = true;
        let ratio = send(&mut fan, 1000, mixed);
        fan.assert_complete(&[0, 2]);
        assert!(ratio < 1.7, "{ratio} times the bytes");
        fan.outs[1].kill();
        assert_multicast(&mut fan, &[0, 2]);
    });
}

#[test]
fn resumed_receiver_returns_to_multicast() {
    in_own_network(|| {
        let mut fan = open_warm(6, 3);
        fan.outs[1].is_stopped = true;
        fan.send_all(200, mixed);
        fan.outs[1].is_stopped = false;
        warm_up(&mut fan, 1.5);
        assert_multicast(&mut fan, &[0, 2]);
        fan.assert_ordered();
        fan.assert_same_newest();
    });
}

#[test]
fn late_receiver_joins_multicast() {
    in_own_network(|| {
        let mut fan = open_warm(7, 2);
        fan.send_all(500, mixed);
        fan.add();
        fan.send_all(500, mixed);
        warm_up(&mut fan, 1.5);
        assert_multicast(&mut fan, &[0, 1, 2]);
    });
}

#[test]
fn receivers_that_cannot_join_get_unicast() {
    in_own_network(|| {
        std::fs::write("/proc/sys/net/ipv4/igmp_max_memberships", "0").expect("a setting of the namespace");
        let mut fan = open(&group(8), 3);
        // Enough for several invitations.
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            fan.send_all(1, mixed);
        }
        assert_eq!(listeners(address(8)), []);
        let ratio = send(&mut fan, 500, mixed);
        fan.assert_complete(&[0, 1, 2]);
        assert!(ratio > 3.0, "{ratio} times the bytes");
    });
}

#[test]
fn group_that_fails_is_suspended_until_a_probe_arrives() {
    in_own_network(|| {
        let mut fan = open_warm(9, 3);
        let listeners = listeners(address(9));
        assert_eq!(listeners.len(), 3);
        listeners.iter().for_each(|fd| lose(*fd, 100));
        fan.send_all(100, mixed);
        let ratio = send(&mut fan, 100, mixed);
        fan.assert_complete(&[0, 1, 2]);
        assert!((3.0..3.5).contains(&ratio), "{ratio} times the bytes");
        listeners.iter().for_each(|fd| lose(*fd, 0));
        warm_up(&mut fan, 1.5);
        assert_multicast(&mut fan, &[0, 1, 2]);
    });
}

#[test]
fn best_effort_loses_nothing_while_two_paths_mix() {
    in_own_network(|| {
        let mut fan = open(&format!("{}\ndelivery = 'best-effort'", group(10)), 3);
        // From the first message on, so that all change from unicast to multicast under load.
        fan.send_all(2000, mixed);
        assert_multicast(&mut fan, &[0, 1, 2]);
    });
}

#[test]
fn best_effort_loss_at_one_receiver_stays_there() {
    in_own_network(|| {
        let mut fan = open(&format!("{}\ndelivery = 'best-effort'", group(11)), 3);
        warm_up(&mut fan, 1.5);
        lose(listeners(address(11))[0], 10);
        let received = |fan: &Fan| [0, 1, 2].map(|at: usize| fan.outs[at].sink.heads.len());
        // How many it has so far depends on how soon the group reached it.
        let before = received(&fan);
        let ratio = send(&mut fan, 2000, mixed);
        let after = received(&fan);
        let got = [0, 1, 2].map(|at: usize| after[at] - before[at]);
        let complete = got.iter().filter(|got| **got == 2000).count();
        assert_eq!(complete, 2, "one host has lost something: {got:?}");
        assert!(got.iter().all(|got| *got > 1000), "{got:?}");
        fan.assert_ordered();
        // As for a reliable channel.
        assert!(ratio < 2.2, "{ratio} times the bytes");
    });
}

#[test]
fn sampling_is_multicast_and_never_goes_back() {
    in_own_network(|| {
        let mut fan = Fan::open(LOOPBACK, &group(12), 3, &latest(3000));
        warm_up(&mut fan, 2.0);
        let ratio = send(&mut fan, 500, |_| 3000);
        fan.assert_ordered();
        fan.assert_same_newest();
        assert!(ratio < 1.7, "{ratio} times the bytes");
    });
}
