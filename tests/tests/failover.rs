//! Two links between two hosts: one is lost under load, the other takes over, and nothing breaks
//! when the first one is back.

use std::time::Duration;

use busway_tests::outage::{
    Outage, comes_and_goes, cuts, links_over, other, overwrite_lengths, start, two_links,
};
use busway_tests::role::{Role, Runner, Settings};
use busway_tests::stream::{
    DEEP, STRICT, conclude, flows, goes_over, losses_are_accounted_for, slow_stream, stream,
};
use busway_tests::{Bus, Rig, eventually, holds_for, on_each_bus};

const SERVICE: &str = "failover";

fn lost_link_fails_over_and_every_loss_is_counted(preferred: Bus) {
    let Some(mut rig) = two_links(preferred, "") else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    for cut in 0..cuts() {
        // The link in use and the one that is not, in turn.
        let (link, bus) = [(0, preferred), (1, other(preferred))][cut % 2];
        let outage = Outage::begin(&rig, link, bus);
        flows(
            &publisher,
            &subscriber,
            &format!("over the link that is left, cut {cut}"),
        );
        outage.end(&rig);
        goes_over(&rig, SERVICE, &[preferred]);
        flows(
            &publisher,
            &subscriber,
            &format!("with both links again, cut {cut}"),
        );
    }
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    losses_are_accounted_for(&rig, SERVICE, published, &seen);
}

#[test]
fn bus_with_dropped_datagrams_fails_over_and_is_used_again() {
    let Some(mut rig) = links_over([Bus::Udp, Bus::Tcp], "") else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    for cut in 0..2 {
        goes_over(&rig, SERVICE, &[Bus::Udp]);
        let outage = Outage::of_datagrams(&rig);
        goes_over(&rig, SERVICE, &[Bus::Tcp]);
        flows(&publisher, &subscriber, &format!("over TCP, cut {cut}"));
        let status = rig.status(1).expect("it runs");
        let reason = status.links[0].reason.as_deref().unwrap_or_default();
        assert!(reason.contains("does a firewall keep UDP out?"), "{reason}");
        outage.end(&rig);
    }
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    losses_are_accounted_for(&rig, SERVICE, published, &seen);
}

#[test]
fn flapping_bus_accounts_for_every_lost_message() {
    // The second period is longer than what a link must stand to be trusted again: the channel
    // moves twice each time, and the second move begins before the first is done.
    for (period_ms, times) in [(20, 50), (1_200, 8)] {
        for settings in [DEEP, STRICT] {
            let mut rig = Rig::pair_with_one_link([Bus::Memory, Bus::Tcp], "");
            start(&mut rig);
            let (publisher, subscriber) = stream(&rig, SERVICE, settings);
            comes_and_goes(&rig, Duration::from_millis(period_ms), times);
            goes_over(&rig, SERVICE, &[Bus::Memory]);
            flows(&publisher, &subscriber, "when the bus stays");
            let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
            losses_are_accounted_for(&rig, SERVICE, published, &seen);
        }
    }
}

#[test]
fn channel_without_room_uses_next_link() {
    let mut rig = Rig::pair_with_one_link([Bus::Memory, Bus::Tcp], "");
    let system = std::fs::read_to_string(&rig.system).expect("the system file");
    // Each window has room for seven channels.
    let small = system.replace("length = \"64MiB\"", "length = \"64KiB\"");
    assert_ne!(system, small);
    std::fs::write(&rig.system, small).expect("the directory is ours");
    start(&mut rig);
    let names: Vec<String> = (0..8).map(|number| format!("{SERVICE}/{number}")).collect();
    let streams: Vec<_> = names.iter().map(|name| stream(&rig, name, STRICT)).collect();
    goes_over(&rig, &names[0], &[Bus::Memory]);
    goes_over(&rig, &names[7], &[Bus::Tcp]);
    for (name, (publisher, subscriber)) in names.iter().zip(streams) {
        let (published, seen) = conclude(&rig, name, publisher, &subscriber);
        assert_eq!((seen.first, seen.received), (1, published), "{name}: {seen:?}");
    }
}

#[test]
fn messages_lost_before_return_to_better_bus_are_counted() {
    // Of all buses UDP alone can lose what it carries while its conversation, by which the move is
    // agreed on, stands.
    let Some(mut rig) = links_over([Bus::Memory, Bus::Udp], "") else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    let memory = Outage::begin(&rig, 0, Bus::Memory);
    goes_over(&rig, SERVICE, &[Bus::Udp]);
    let datagrams = Outage::of_datagrams_unnoticed(&rig);
    memory.mend(&rig);
    goes_over(&rig, SERVICE, &[Bus::Memory]);
    datagrams.until_noticed(&rig, Bus::Udp).end(&rig);
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    losses_are_accounted_for(&rig, SERVICE, published, &seen);
}

const PATIENT: Settings = Settings::lossless(1_000);

fn slow_stream_over_the_other(rig: &mut Rig, preferred: Bus) -> (Outage, Runner, Runner) {
    let outage = Outage::from_the_start(rig, 0, preferred);
    rig.start_gateways();
    let (publisher, subscriber) = slow_stream(rig, SERVICE, PATIENT);
    (outage, publisher, subscriber)
}

#[test]
fn losses_of_overwritten_channel_memory_are_counted() {
    let mut rig = Rig::pair_with_one_link([Bus::Memory, Bus::Tcp], "");
    start(&mut rig);
    let (publisher, subscriber) = slow_stream(&rig, SERVICE, PATIENT);
    goes_over(&rig, SERVICE, &[Bus::Memory]);
    overwrite_lengths(&rig);
    eventually("the channel fails", || {
        rig.log(1).contains("channel from \"a\" failed").then_some(())
    });
    flows(&publisher, &subscriber, "over the next one");
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    losses_are_accounted_for(&rig, SERVICE, published, &seen);
}

fn returning_link_loses_nothing_for_slow_reader_without_overflow(preferred: Bus) {
    let Some(mut rig) = two_links(preferred, "") else {
        return;
    };
    let (outage, publisher, subscriber) = slow_stream_over_the_other(&mut rig, preferred);
    outage.end(&rig);
    goes_over(&rig, SERVICE, &[preferred]);
    flows(&publisher, &subscriber, "over the preferred link");
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
}

fn slow_reader_leaving_during_move_blocks_nobody(preferred: Bus) {
    let Some(mut rig) = two_links(preferred, "") else {
        return;
    };
    let (outage, publisher, subscriber) = slow_stream_over_the_other(&mut rig, preferred);
    outage.end(&rig);
    // It takes the reader seconds more to move.
    holds_for(Duration::from_millis(500), "the channel moves", || true);
    subscriber.finish();
    let sent = publisher.report().sent;
    publisher.until("the publisher goes on", |report| report.sent > sent + 10_000);
}

fn rule(buses: &[Bus]) -> String {
    let names: Vec<&str> = buses.iter().map(|bus| bus.name()).collect();
    format!("[[service]]\nname = {SERVICE:?}\nbuses = {names:?}\n")
}

fn service_uses_buses_in_order_of_its_rule(first: Bus) {
    // The link over the other bus comes first in the file.
    let Some(mut rig) = links_over([other(first), first], &rule(&[first, other(first)])) else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, STRICT);
    let outage = Outage::begin(&rig, 0, other(first));
    flows(&publisher, &subscriber, "over the bus that the rule names first");
    outage.end(&rig);
    let (published, seen) = conclude(&rig, SERVICE, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
}

fn service_waits_for_only_bus_of_its_rule(only: Bus) {
    let Some(mut rig) = two_links(only, &rule(&[only])) else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    let outage = Outage::begin(&rig, 0, only);
    // A bus that is out of order may come up for moments. A status is up to a second old, and a
    // peer that is back has two seconds to ask for the service: none of these moments may be the
    // last word on that, else what is published later is unaccounted.
    let other = other(only).name();
    holds_for(Duration::from_millis(3500), "nothing takes the other bus", || {
        let status = rig.service(1, SERVICE);
        status.is_none_or(|status| !status.over.iter().any(|bus| bus == other))
    });
    outage.end(&rig);
    flows(&publisher, &subscriber, "once the bus is back");
    conclude(&rig, SERVICE, publisher, &subscriber);
}

#[test]
fn large_messages_use_their_bus_and_fail_over_to_next() {
    let large = "large = { from = \"4KiB\", buses = [\"memory\", \"tcp\"] }";
    let mut rig = Rig::pair_with_one_link([Bus::Tcp, Bus::Memory], large);
    start(&mut rig);
    let streams = [("small", 64), ("large", 4096)].map(|(service, length_bytes)| {
        let subscriber = rig.run(1, &Role::subscribe(service, DEEP)).ready();
        let publisher = rig.run(0, &Role::publish_of(service, DEEP, 1, length_bytes));
        flows(&publisher, &subscriber, service);
        (publisher, subscriber)
    });
    let take = |buses: [&[Bus]; 2]| {
        for (service, buses) in ["small", "large"].into_iter().zip(buses) {
            goes_over(&rig, service, buses);
        }
        for (publisher, subscriber) in &streams {
            flows(publisher, subscriber, &format!("over {buses:?}"));
        }
    };
    // A service of slices may have short messages as well, for which it keeps the other channel.
    let both = [Bus::Tcp, Bus::Memory];
    take([&[Bus::Tcp], &both]);
    let outage = Outage::begin(&rig, 1, Bus::Memory);
    take([&[Bus::Tcp], &[Bus::Tcp]]);
    outage.end(&rig);
    take([&[Bus::Tcp], &both]);
}

on_each_bus!(
    service_uses_buses_in_order_of_its_rule,
    service_waits_for_only_bus_of_its_rule,
    lost_link_fails_over_and_every_loss_is_counted,
    returning_link_loses_nothing_for_slow_reader_without_overflow,
    slow_reader_leaving_during_move_blocks_nobody,
);
