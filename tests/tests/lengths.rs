//! Messages of one service take two buses of a link by their length: their order is kept, and
//! either bus may be lost.

use busway_tests::outage::{Outage, cuts, start};
use busway_tests::own_network::{in_own_network, sent};
use busway_tests::role::{Role, Runner, Settings};
use busway_tests::skip::skipped;
use busway_tests::stream::{DEEP, STRICT, conclude, flows, goes_over, losses_are_accounted_for};
use busway_tests::{Bus, Rig, eventually, publisher, subscriber};
use iceoryx2::prelude::*;

const SERVICE: &str = "mixed";
const LARGE: &str = "16KiB";
const LENGTHS_BYTES: [usize; 12] = [
    64, 64, 20_000, 64, 16_383, 16_384, 70_000, 70_000, 100, 64, 300_000, 16,
];

fn by_length(small: Bus, large: Bus) -> ([Bus; 2], String) {
    let (small_name, large_name) = (small.name(), large.name());
    let line = format!("large = {{ from = {LARGE:?}, buses = [{large_name:?}, {small_name:?}] }}");
    ([small, large], line)
}

fn mixed(rig: &Rig, settings: Settings, gap_us: u64, reader_gap_us: u64) -> (Runner, Runner) {
    let subscribe = Role::Subscribe {
        service: SERVICE.into(),
        settings,
        gap_us: reader_gap_us,
    };
    let subscriber = rig.run(1, &subscribe).ready();
    let publisher = rig.run(
        0,
        &Role::Publish {
            service: SERVICE.into(),
            settings,
            origin: 1,
            lengths_bytes: LENGTHS_BYTES.to_vec(),
            gap_us,
            count: None,
            subscribers: 1,
        },
    );
    flows(&publisher, &subscriber, "at first");
    (publisher, subscriber)
}

/// Bytes on the network for each byte published, with the large messages on one bus and the others
/// on the other one.
fn on_the_network(small: Bus, large: Bus) -> f64 {
    let (buses, line) = by_length(small, large);
    let mut rig = Rig::pair_with_one_link(buses, &line);
    start(&mut rig);
    let (publisher, subscriber) = mixed(&rig, STRICT, 200, 0);
    goes_over(&rig, SERVICE, &buses);
    let before = (publisher.report().sent, sent().0);
    subscriber.until_seen("500 more", |seen| seen.last > before.0 + 500);
    let (messages, bytes) = (subscriber.seen(1).last - before.0, sent().0 - before.1);
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
    let mean_bytes = LENGTHS_BYTES.iter().sum::<usize>() as f64 / LENGTHS_BYTES.len() as f64;
    bytes as f64 / (messages as f64 * mean_bytes)
}

#[test]
fn message_uses_bus_for_its_length_and_order_is_kept() {
    in_own_network(|| {
        let small = on_the_network(Bus::Tcp, Bus::Memory);
        assert!(
            small < 0.2,
            "{small} bytes for a byte, where large ones leave by memory"
        );
        let large = on_the_network(Bus::Memory, Bus::Tcp);
        assert!(
            large > 0.8,
            "{large} bytes for a byte, where large ones leave by tcp"
        );
    });
}

fn nothing_is_lost_where_the_reader_is_slow(small: Bus, large: Bus) {
    let (buses, line) = by_length(small, large);
    let mut rig = Rig::pair_with_one_link(buses, &line);
    start(&mut rig);
    let (publisher, subscriber) = mixed(&rig, STRICT, 0, 300);
    goes_over(&rig, SERVICE, &buses);
    subscriber.until_seen("2000 more", |seen| seen.received > 2000);
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
}

#[test]
fn publisher_waits_for_slow_reader_on_either_bus() {
    nothing_is_lost_where_the_reader_is_slow(Bus::Tcp, Bus::Memory);
    nothing_is_lost_where_the_reader_is_slow(Bus::Memory, Bus::Tcp);
    nothing_is_lost_where_the_reader_is_slow(Bus::Memory, Bus::Udp);
}

#[test]
fn keep_latest_delivers_only_newer_messages() {
    let (buses, line) = by_length(Bus::Tcp, Bus::Memory);
    let rule = format!("[[service]]\nname = {SERVICE:?}\nkeep = \"latest\"\n");
    let mut rig = Rig::pair_with_one_link_and(buses, &line, &rule);
    start(&mut rig);
    let (publisher, subscriber) = mixed(&rig, DEEP, 100, 0);
    goes_over(&rig, SERVICE, &buses);
    flows(&publisher, &subscriber, "over both");
    subscriber.until_seen("1000 more", |seen| seen.received > 1000);
    let report = publisher.finish();
    let seen = subscriber.seen(1);
    assert_eq!(seen.backwards, 0, "{seen:?}");
    assert!(report.sent >= seen.last);
    assert_eq!(rig.counter(1, SERVICE, "duplicates"), 0);
}

fn either_bus_is_lost_under_load_and_every_loss_is_counted(small: Bus, large: Bus) {
    let (buses, line) = by_length(small, large);
    let mut rig = match Rig::isolated_pair_with_one_link(buses, &line) {
        Ok(rig) => rig,
        Err(what) => return skipped(&what),
    };
    start(&mut rig);
    let (publisher, subscriber) = mixed(&rig, DEEP, 200, 0);
    goes_over(&rig, SERVICE, &buses);
    for cut in 0..cuts() {
        let link = cut % 2;
        let outage = Outage::begin(&rig, link, buses[link]);
        flows(
            &publisher,
            &subscriber,
            &format!("over the bus that is left, cut {cut}"),
        );
        goes_over(&rig, SERVICE, &[buses[1 - link]]);
        outage.end(&rig);
        goes_over(&rig, SERVICE, &buses);
        flows(&publisher, &subscriber, &format!("by length again, cut {cut}"));
    }
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    losses_are_accounted_for(&rig, SERVICE, published, &seen);
}

#[test]
fn fail_over_of_either_bus_with_large_messages_on_memory() {
    either_bus_is_lost_under_load_and_every_loss_is_counted(Bus::Tcp, Bus::Memory);
}

#[test]
fn fail_over_of_either_bus_with_large_messages_on_tcp() {
    either_bus_is_lost_under_load_and_every_loss_is_counted(Bus::Memory, Bus::Tcp);
}

#[test]
fn fail_over_of_either_bus_with_large_messages_on_udp() {
    either_bus_is_lost_under_load_and_every_loss_is_counted(Bus::Memory, Bus::Udp);
}

#[test]
fn restarted_gateway_uses_both_buses_again() {
    let (buses, line) = by_length(Bus::Memory, Bus::Tcp);
    let mut rig = Rig::pair_with_one_link(buses, &line);
    start(&mut rig);
    let (publisher, subscriber) = mixed(&rig, DEEP, 200, 0);
    goes_over(&rig, SERVICE, &buses);
    for host in [1, 0] {
        rig.gateway(host).kill();
        rig.start_gateway(host);
        flows(&publisher, &subscriber, "with another gateway");
        goes_over(&rig, SERVICE, &buses);
        flows(&publisher, &subscriber, "over both buses");
    }
}

#[test]
fn fixed_size_service_uses_one_bus() {
    let (buses, line) = by_length(Bus::Tcp, Bus::Memory);
    let mut rig = Rig::pair_with_one_link(buses, &line);
    start(&mut rig);
    let name: ServiceName = SERVICE.try_into().expect("a name");
    let [from, to] = [0, 1].map(|host| rig.node(host));
    let open = |node: &Node<ipc::Service>| {
        let builder = node.service_builder(&name).publish_subscribe::<[u8; 20_000]>();
        builder.open_or_create().expect("opened")
    };
    let (there, here) = (open(&from), open(&to));
    let subscriber = subscriber!(here);
    let publisher = publisher!(there);
    goes_over(&rig, SERVICE, &[Bus::Memory]);
    eventually("a message arrives", || {
        publisher.send_copy([7; 20_000]).expect("sent");
        let sample = subscriber.receive().expect("received")?;
        assert_eq!(*sample, [7; 20_000]);
        Some(())
    });
}

#[test]
fn best_effort_bus_carries_all_lengths_or_none() {
    let best_effort = "udp.delivery = \"best-effort\"\n";
    let (buses, line) = by_length(Bus::Udp, Bus::Memory);
    let mut rig = Rig::pair_with_one_link(buses, &format!("{line}\n{best_effort}"));
    start(&mut rig);
    let (_publisher, _subscriber) = mixed(&rig, STRICT, 200, 0);
    goes_over(&rig, SERVICE, &[Bus::Memory]);
}
