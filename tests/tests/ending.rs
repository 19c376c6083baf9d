//! A gateway that is asked to end, by Ctrl-C or by a service manager, ends well under load and
//! leaves nothing behind.

use busway_tests::role::Settings;
use busway_tests::stream::{flows, stream};
use busway_tests::{Bus, Rig, eventually, on_each_bus, publisher, service};
use iceoryx2::node::NodeState;
use iceoryx2::prelude::*;
use iceoryx2::service::Service as _;
use iceoryx2::service::ipc::Service;
use rustix::process::Signal;

const SETTINGS: Settings = Settings::overwriting(16);

fn exists(rig: &Rig, host: usize, service: &ServiceName) -> bool {
    Service::does_exist(service, &rig.config(host), MessagingPattern::PublishSubscribe)
        .expect("a readable domain")
}

fn nodes(rig: &Rig, host: usize) -> (usize, usize) {
    let mut count = (0, 0);
    let listed = Node::<Service>::list(&rig.config(host), |node| {
        match node {
            NodeState::Alive(_) => count.0 += 1,
            _ => count.1 += 1,
        }
        CallbackProgression::Continue
    });
    listed.expect("a readable domain");
    count
}

fn ends(bus: Bus, signal: Signal) {
    let mut rig = Rig::pair(bus);
    let (publisher, subscriber) = stream(&rig, "loaded", SETTINGS);
    for host in [0, 1] {
        // A service that is on this host only as the mirror of another one.
        let name: ServiceName = format!("mirrored-on-{host}").as_str().try_into().expect("a name");
        let other = rig.node(1 - host);
        let origin = service!(other, name, u64);
        let _port = publisher!(origin);
        eventually("it is mirrored", || exists(&rig, host, &name).then_some(()));
        rig.gateway(host).signal(signal);
        let status = rig.gateway(host).wait();
        assert_eq!(status.code(), Some(0), "{status}: {}", rig.log(host));
        assert!(rig.log(host).contains("ends"), "{}", rig.log(host));
        assert_eq!(
            nodes(&rig, host),
            (1, 0),
            "nodes on host {host}, and remains of dead ones"
        );
        assert!(
            !exists(&rig, host, &name),
            "the mirror is left behind on host {host}"
        );
        let node = rig.node(host);
        let service = node.service_builder(&"loaded".try_into().expect("a name"));
        let service = service.publish_subscribe::<[u8]>().open().expect("the program's");
        let ports = service.dynamic_config();
        let expected = if host == 0 { (1, 0) } else { (0, 1) };
        assert_eq!(
            (ports.number_of_publishers(), ports.number_of_subscribers()),
            expected,
            "ports on host {host}: the program's own"
        );
        drop((service, node));
        assert!(
            rig.gateway(1 - host).ended().is_none(),
            "the other gateway goes on"
        );
        rig.start_gateway(host);
        flows(&publisher, &subscriber, &format!("once gateway {host} is back"));
        eventually("it is mirrored again", || exists(&rig, host, &name).then_some(()));
    }
}

fn ctrl_c_under_load_leaves_nothing_behind(bus: Bus) {
    ends(bus, Signal::INT);
}

fn sigterm_under_load_leaves_nothing_behind(bus: Bus) {
    ends(bus, Signal::TERM);
}

on_each_bus!(
    ctrl_c_under_load_leaves_nothing_behind,
    sigterm_under_load_leaves_nothing_behind,
);
