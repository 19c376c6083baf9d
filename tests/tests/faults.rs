//! Processes die, cables are cut, peers send garbage, memory runs out: the rest continues, and data
//! flows again by itself.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use busway_tests::role::{Role, Settings};
use busway_tests::skip::skipped;
use busway_tests::stream::{flows, flows_of, stream};
use busway_tests::{Bus, Rig, eventually, on_each_bus, publisher, service, subscriber};
use iceoryx2::prelude::*;

const DEFAULTS: Settings = Settings::overwriting(16);

#[test]
fn garbage_on_tcp_port_disturbs_no_link() {
    let mut rig = Rig::pair(Bus::Tcp);
    let (publisher, subscriber) = stream(
        &rig,
        "garbage",
        Settings {
            safe_overflow: Some(false),
            ..DEFAULTS
        },
    );
    let address = rig.addresses[0].expect("TCP");
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut held = Vec::new();
    for round in 0..200usize {
        let mut socket = TcpStream::connect(address).expect("the gateway listens");
        let garbage: Vec<u8> = (0..(round * 37) % 3000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        let _ = socket.write_all(&garbage);
        if round % 4 == 0 {
            held.push(socket);
        }
    }
    flows(&publisher, &subscriber, "with garbage on the port");
    assert!(rig.gateway(0).ended().is_none() && rig.gateway(1).ended().is_none());
    let seen = subscriber.seen(1);
    assert_eq!(seen.missing, 0, "the stream itself must not suffer: {seen:?}");
}

#[test]
fn random_bytes_in_window_kill_no_gateway() {
    let mut rig = Rig::pair(Bus::Memory);
    let (_publisher, subscriber) = stream(&rig, "vandal", DEFAULTS);
    let window = std::fs::File::options()
        .write(true)
        .open(rig.hosts.shared.join("window0"))
        .expect("the window");
    let length = window.metadata().expect("its length").len();
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // Half of it where headers and rings lie.
        let at = (state >> 11) % if state & 1 == 0 { 65_536 } else { length - 64 };
        window.write_all_at(&state.to_le_bytes(), at).expect("written");
    }
    assert!(rig.gateway(0).ended().is_none() && rig.gateway(1).ended().is_none());
    let before = subscriber.seen(1).received;
    subscriber.until_seen("data flows once the vandal is gone", |seen| {
        seen.received > before + 20
    });
    assert!(rig.gateway(0).ended().is_none() && rig.gateway(1).ended().is_none());
}

fn patterns_choose_which_services_cross(bus: Bus) {
    let rig = Rig::pair_with(bus, "[gateway]\nallow = [\"yes/*\"]\ndeny = [\"yes/secret\"]\n");
    let (publisher, subscriber) = stream(&rig, "yes/open", DEFAULTS);
    let others: Vec<_> = ["yes/secret", "no"]
        .iter()
        .map(|name| {
            let reader = rig.run(1, &Role::subscribe(name, DEFAULTS)).ready();
            // Published although nobody is there: the role would wait for a subscriber.
            let mut role = Role::publish(name, DEFAULTS, 9);
            if let Role::Publish { subscribers, .. } = &mut role {
                *subscribers = 0;
            }
            (rig.run(0, &role), reader)
        })
        .collect();
    flows(&publisher, &subscriber, "where it is allowed");
    for (publisher, reader) in &others {
        publisher.until("it publishes", |report| report.sent > 500);
        assert!(reader.report().seen.is_empty());
    }
}

fn different_types_are_refused_in_one_line_naming_both(bus: Bus) {
    let mut rig = Rig::stopped(&["a", "b"], &[(0, 1, bus)], "");
    let (a, b) = (rig.node(0), rig.node(1));
    let name: ServiceName = "differs".try_into().expect("a name");
    // Both made before a gateway could mirror one of them, with ports, so that both are programs'
    // own.
    let home = service!(a, name, u64);
    let far = service!(b, name, u32);
    let _ports = (publisher!(home), subscriber!(far));
    rig.start_gateways();
    let line = eventually("somebody says so", || {
        [0, 1].into_iter().find_map(|host| {
            rig.log(host)
                .lines()
                .find(|line| line.contains("differs"))
                .map(str::to_owned)
        })
    });
    assert!(
        line.contains("u64") && line.contains("u32") && line.contains("\"a\"") && line.contains("\"b\""),
        "{line}"
    );
    let (_publisher, _subscriber) = stream(&rig, "goes-on", DEFAULTS);
    for host in [0, 1] {
        let said = rig
            .log(host)
            .lines()
            .filter(|line| line.contains("differs"))
            .count();
        assert!(said <= 1, "said {said} times on host {host}");
    }
}

#[test]
fn gateway_with_unknown_host_exits_and_lists_hosts() {
    let mut rig = Rig::stopped(&["a", "b"], &[(0, 1, Bus::Tcp)], "");
    let system = rig.system.clone();
    rig.start_gateway_as(0, "c", &system);
    assert!(!rig.gateway(0).wait().success());
    let log = eventually("it says why", || {
        Some(rig.log(0)).filter(|log| log.contains("a, b"))
    });
    assert!(log.contains("\"c\""), "{log}");
}

#[test]
fn gateways_recover_after_cut_cable() {
    let mut rig = match Rig::isolated_pair(Bus::Tcp, "") {
        Ok(rig) => rig,
        Err(what) => return skipped(&what),
    };
    rig.start_gateways();
    let (publisher, subscriber) = stream(&rig, "cable", DEFAULTS);
    for outage in [Duration::from_millis(300), Duration::from_secs(5)] {
        rig.hosts.set_cable(0, 1, false).expect("a cable");
        let sent = publisher.report().sent;
        std::thread::sleep(outage);
        publisher.until("the publisher goes on without the link", |report| {
            report.sent > sent
        });
        rig.hosts.set_cable(0, 1, true).expect("a cable");
        flows(
            &publisher,
            &subscriber,
            &format!("after the cable was out for {outage:?}"),
        );
    }
    assert!(rig.gateway(0).ended().is_none() && rig.gateway(1).ended().is_none());
    let sent = publisher.finish().sent;
    subscriber.until_seen("the last one arrives", |seen| seen.last == sent);
    // Neither gateway was restarted, so each number is accounted for to the message, at both ends.
    eventually("every loss is counted", || {
        let (here, there) = (rig.service(0, "cable")?, rig.service(1, "cable")?);
        let counters = ["sent", "overflowed", "dropped_full", "dropped_link_down"];
        let sending: u64 = counters.iter().map(|name| here.counter(name)).sum();
        let receiving = there.counter("received") + there.counter("lost");
        // What was published before the first message crossed is the sending side's alone.
        let first = subscriber.seen(1).first;
        (sending == sent && receiving <= sent && receiving + first > sent).then_some(())
    });
}

#[test]
fn gateways_recover_after_full_dev_shm() {
    let mut rig = match Rig::isolated_pair(Bus::Tcp, "") {
        Ok(rig) => rig,
        Err(what) => return skipped(&what),
    };
    let shell = |rig: &Rig, script: &str| {
        let mut command = rig.hosts.hosts[1]
            .command(std::path::Path::new("/bin/sh"))
            .expect("a shell");
        command.args(["-c", script]).output().expect("it runs")
    };
    let remounted = shell(&rig, "mount -o remount,size=24m /dev/shm");
    assert!(remounted.status.success(), "{remounted:?}");
    rig.start_gateways();
    let (small, subscriber) = stream(&rig, "small", DEFAULTS);
    // Another service must now find no memory.
    shell(&rig, "dd if=/dev/zero of=/dev/shm/ballast bs=64k");
    let large = |origin| Role::Publish {
        service: "large".into(),
        settings: DEFAULTS,
        origin,
        lengths_bytes: vec![1 << 20],
        gap_us: 20_000,
        count: None,
        subscribers: 1,
    };
    let publisher = rig.run(0, &large(7));
    flows(&small, &subscriber, "although /dev/shm is full");
    shell(&rig, "rm /dev/shm/ballast");
    let reader = rig.run(1, &Role::subscribe("large", DEFAULTS)).ready();
    shell(&rig, "dd if=/dev/zero of=/dev/shm/ballast bs=64k");
    flows(&small, &subscriber, "although /dev/shm is full again");
    assert!(rig.gateway(1).ended().is_none(), "the gateway must survive");
    shell(&rig, "rm /dev/shm/ballast");
    flows_of(7, &publisher, &reader, "once there is room");
    drop(publisher);
}

on_each_bus!(
    patterns_choose_which_services_cross,
    different_types_are_refused_in_one_line_naming_both,
);
