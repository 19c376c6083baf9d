//! The far side's service has the settings of its origin, and the gateway takes no place that a
//! program could need.

use std::time::Duration;

use busway_tests::{
    Bus, Rig, arrives, eventually, existing_service, holds_for, name, on_each_bus, publisher, received,
    service, subscriber, subscribers_become,
};
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;
use iceoryx2::service::Service as _;
use iceoryx2::service::ipc::Service;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as PublishSubscribe;

fn exists(node: &Node<Service>, service: &str) -> bool {
    Service::does_exist(&name(service), node.config(), MessagingPattern::PublishSubscribe)
        .expect("a readable domain")
}

fn appears(node: &Node<Service>, service: &str) {
    eventually("the service appears", || exists(node, service).then_some(()));
}

fn remote_service_opens_with_exact_requirements(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let attributes = AttributeSpecifier::new()
        .define(
            &"camera".try_into().expect("a key"),
            &"front left".try_into().expect("a value"),
        )
        .expect("one more");
    let settings = |node: &Node<Service>| {
        let builder = node.service_builder(&name("settings")).publish_subscribe::<u64>();
        builder
            .max_publishers(3)
            .max_subscribers(5)
            .max_nodes(7)
            .history_size(4)
            .subscriber_max_buffer_size(11)
            .subscriber_max_borrowed_samples(6)
            .enable_safe_overflow(false)
    };
    let home = settings(&a).create_with_attributes(&attributes).expect("new");
    appears(&b, "settings");
    let required = AttributeVerifier::new()
        .require(
            &"camera".try_into().expect("a key"),
            &"front left".try_into().expect("a value"),
        )
        .expect("one more");
    let far = settings(&b)
        .open_with_attributes(&required)
        .expect("the far service has just these settings");
    assert_eq!(far.static_config(), home.static_config());
}

fn unused_mirror_vanishes_with_last_program(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let home = service!(a, name("brief"), u64);
    let publisher = publisher!(home);
    appears(&b, "brief");
    drop((publisher, home));
    eventually("the service vanishes there", || {
        (!exists(&b, "brief")).then_some(())
    });
    eventually("and at home", || (!exists(&a, "brief")).then_some(()));
}

fn carried_mirror_vanishes_with_last_program(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let home = service!(a, name("carried"), u64);
    let publisher = publisher!(home);
    appears(&b, "carried");
    let far = existing_service!(b, name("carried"), u64);
    let subscriber = subscriber!(far);
    subscribers_become!(home, 1);
    publisher.send_copy(7).expect("sent");
    arrives!(subscriber);
    drop((publisher, home, subscriber, far));
    for (node, host) in [(&a, "a"), (&b, "b")] {
        eventually(&format!("the service vanishes on {host}"), || {
            (!exists(node, "carried")).then_some(())
        });
    }
}

fn late_joiners_receive_history(bus: Bus) {
    let rig = Rig::running(&["a", "b", "c"], &[(0, 1, bus), (0, 2, bus)], "");
    let (a, b, c) = (rig.node(0), rig.node(1), rig.node(2));
    let home = service!(
        a,
        name("history"),
        u64,
        history_size(4),
        subscriber_max_buffer_size(8)
    );
    let publisher = publisher!(home);
    for number in 1..=10 {
        publisher.send_copy(number).expect("sent");
    }
    // One after the other: the second on b finds a gateway that has received already, c another
    // gateway.
    let mut joined = Vec::new();
    for node in [&b, &b, &c] {
        appears(node, "history");
        let far = node.service_builder(&name("history")).publish_subscribe::<u64>();
        let far = far
            .history_size(4)
            .subscriber_max_buffer_size(8)
            .open()
            .expect("the far service has a history");
        let subscriber = subscriber!(far);
        let mut got = Vec::new();
        while got.len() < 4 {
            // A late joiner gets the history when a publisher looks at its connections; ours sends
            // nothing more.
            publisher.update_connections().expect("connected");
            got.push(eventually("the history arrives", || {
                publisher.update_connections().expect("connected");
                received!(subscriber).map(|sample| *sample)
            }));
        }
        assert_eq!(got, [7, 8, 9, 10], "late joiner {}", joined.len());
        holds_for(Duration::from_millis(100), "nothing comes twice", || {
            received!(subscriber).is_none()
        });
        joined.push((far, subscriber));
    }
    publisher.send_copy(11).expect("sent");
    for (_, subscriber) in &joined {
        let next = arrives!(subscriber);
        assert_eq!(*next, 11);
    }
}

/// A service with places for one publisher, one subscriber and their two programs.
fn smallest(node: &Node<Service>, service: &str) -> PublishSubscribe<Service, u64, ()> {
    let builder = node.service_builder(&name(service)).publish_subscribe::<u64>();
    builder
        .max_publishers(1)
        .max_subscribers(1)
        .max_nodes(2)
        .open_or_create()
        .expect("same")
}

fn smallest_service_works_across_hosts(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let home = smallest(&a, "narrow");
    let publisher = publisher!(home);
    appears(&b, "narrow");
    let far = smallest(&b, "narrow");
    let subscriber = subscriber!(far);
    subscribers_become!(home, 1);
    for number in 1..=5 {
        publisher.send_copy(number).expect("sent");
        let got = arrives!(subscriber);
        assert_eq!(*got, number);
    }
}

fn full_local_service_is_not_disturbed(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, second) = (rig.node(0), rig.node(0));
    let b = rig.node(1);
    rig.links_up(0);
    let home = smallest(&a, "full");
    appears(&b, "full");
    // The gateway knows the service and has offered it; every place is still free for programs.
    let publisher = publisher!(home);
    let other = smallest(&second, "full");
    let subscriber = subscriber!(other);
    for number in 1..=100 {
        publisher.send_copy(number).expect("sent");
        assert_eq!(*received!(subscriber).expect("at once"), number);
    }
    assert_eq!(home.dynamic_config().number_of_subscribers(), 1);
    assert_eq!(home.dynamic_config().number_of_publishers(), 1);
    assert_eq!(rig.counter(0, "full", "sent"), 0);
}

fn unwanted_services_do_not_cross(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let home = service!(a, name("unheard"), u64);
    let publisher = publisher!(home);
    appears(&b, "unheard");
    for number in 0..200 {
        publisher.send_copy(number).expect("sent");
    }
    holds_for(Duration::from_millis(300), "nobody subscribes", || {
        home.dynamic_config().number_of_subscribers() == 0
    });
    let status = eventually("the gateway's status", || rig.service(0, "unheard"));
    assert_eq!((status.counter("sent"), status.sends_to.len()), (0, 0));
    // Wanted: it crosses. No longer wanted: the gateway leaves again.
    let far = existing_service!(b, name("unheard"), u64);
    let subscriber = subscriber!(far);
    subscribers_become!(home, 1);
    publisher.send_copy(7).expect("sent");
    arrives!(subscriber);
    drop(subscriber);
    subscribers_become!(home, 0);
    eventually("its publisher too", || {
        (far.dynamic_config().number_of_publishers() == 0).then_some(())
    });
}

on_each_bus!(
    remote_service_opens_with_exact_requirements,
    unused_mirror_vanishes_with_last_program,
    carried_mirror_vanishes_with_last_program,
    late_joiners_receive_history,
    smallest_service_works_across_hosts,
    full_local_service_is_not_disturbed,
    unwanted_services_do_not_cross,
);
