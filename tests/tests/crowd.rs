//! Many services at once: all are carried, and a stream beside them does not suffer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use busway_tests::rig::ServiceStatus;
use busway_tests::role::{Role, Runner, Settings};
use busway_tests::stream::{flows, stream};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const STRICT: Settings = Settings::lossless(16);

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two hosts whose link times out after 10 s of silence, not 1.5 s: this test is not about a busy
/// machine.
fn patient_pair(bus: Bus) -> Rig {
    let mut rig = Rig::stopped(&["a", "b"], &[(0, 1, bus)], "");
    let mut text = std::fs::read_to_string(&rig.system).expect("the rig's own file");
    text = text.replace("length = \"64MiB\"", "length = \"64MiB\", timeout = \"10s\"");
    let patient = |line: &str| match line.strip_suffix(" }") {
        Some(begin) if line.contains("listen = ") => format!("{begin}, timeout = \"10s\" }}\n"),
        _ => format!("{line}\n"),
    };
    text = text.lines().map(patient).collect();
    if bus == Bus::Tcp {
        // The host that connects has no table yet.
        text.push_str("tcp.b = { timeout = \"10s\" }\n");
    }
    std::fs::write(&rig.system, text).expect("the rig's own file");
    rig.start_gateways();
    rig
}

fn crowd(rig: &Rig, count: usize, talks: bool) -> [Runner; 2] {
    [(1, false), (0, true)]
        .map(|(host, publishes)| {
            let role = Role::Hold {
                services: "crowd/".into(),
                count,
                publishes,
                talks,
            };
            rig.run(host, &role)
        })
        .map(Runner::ready)
}

fn services_become(rig: &Rig, what: &str, count: usize, is_so: impl Fn(&ServiceStatus) -> bool) {
    let begin = Instant::now();
    eventually(what, || {
        let services = rig.status(1)?.services;
        let crowd = services
            .iter()
            .filter(|service| service.name.starts_with("crowd/"));
        (crowd.filter(|service| is_so(service)).count() == count).then_some(())
    });
    println!("{what}: {:?}", begin.elapsed());
}

fn two_hundred_active_services_are_carried(bus: Bus) {
    let _alone = alone();
    let rig = patient_pair(bus);
    let (publisher, subscriber) = stream(&rig, "steady", STRICT);
    let holders = crowd(&rig, 200, true);
    services_become(&rig, "all 200 are carried", 200, |service| {
        service.counter("received") > 0
    });
    flows(&publisher, &subscriber, "beside 200 services");
    for holder in holders {
        holder.finish();
    }
    services_become(&rig, "their mirrors vanish", 0, |service| service.mirror);
}

fn stream_beside_thousand_idle_services_loses_nothing(bus: Bus) {
    let _alone = alone();
    let rig = patient_pair(bus);
    let (publisher, subscriber) = stream(&rig, "steady", STRICT);
    let holders = crowd(&rig, 1_000, false);
    services_become(&rig, "all 1,000 have a channel", 1_000, |service| {
        service.receives_from == ["a"]
    });
    flows(&publisher, &subscriber, "beside 1,000 services");
    let published = publisher.finish().sent;
    let report = subscriber.until_seen("the last message arrives", |seen| seen.last == published);
    let seen = report.seen[&1];
    assert_eq!(
        (seen.first, seen.received, seen.backwards, report.corrupt),
        (1, published, 0, 0)
    );
    for holder in holders {
        holder.finish();
    }
    services_become(&rig, "their mirrors vanish", 0, |service| service.mirror);
}

on_each_bus!(
    two_hundred_active_services_are_carried,
    stream_beside_thousand_idle_services_loses_nothing,
);
