//! A stream of numbered messages from host 0 to host 1, and what both gateways count of it.

use std::time::Instant;

use crate::rig::{Bus, Rig, ServiceStatus};
use crate::role::{Role, Runner, Seen, Settings};
use crate::wait::eventually;

/// Safe overflow with a buffer that no pause of a busy machine fills (a second of
/// [`Role::publish`]): what a subscriber misses then got lost between the programs, not in its own
/// queue. Not more: iceoryx2 needs time for each place of a new connection.
pub const DEEP: Settings = Settings::overwriting(4_096);

/// Nothing may be lost, except with a link: publishers wait for room.
pub const STRICT: Settings = Settings::lossless(16);

pub fn stream(rig: &Rig, service: &str, settings: Settings) -> (Runner, Runner) {
    let subscriber = rig.run(1, &Role::subscribe(service, settings)).ready();
    let publisher = rig.run(0, &Role::publish(service, settings, 1));
    flows(&publisher, &subscriber, "at first");
    (publisher, subscriber)
}

pub fn slow_stream(rig: &Rig, service: &str, settings: Settings) -> (Runner, Runner) {
    let slow = Role::Subscribe {
        service: service.to_owned(),
        settings,
        gap_us: 2_500,
    };
    let subscriber = rig.run(1, &slow).ready();
    let mut eager = Role::publish(service, settings, 1);
    if let Role::Publish { gap_us, .. } = &mut eager {
        *gap_us = 0;
    }
    let publisher = rig.run(0, &eager);
    flows(&publisher, &subscriber, "at first");
    (publisher, subscriber)
}

/// Waits until messages of `publisher`, which is origin 1, published from now on arrive; says how
/// long that took.
///
/// # Panics
/// They don't, or some came twice, out of order, or changed.
pub fn flows(publisher: &Runner, subscriber: &Runner, when: &str) {
    flows_of(1, publisher, subscriber, when);
}

/// The same of another origin.
pub fn flows_of(origin: u64, publisher: &Runner, subscriber: &Runner, when: &str) {
    let begin = Instant::now();
    let target = publisher.report().sent + 20;
    let report = subscriber.until(&format!("data flows {when}"), |report| {
        report.seen.get(&origin).is_some_and(|seen| seen.last > target)
    });
    println!("data flows {when}: {:?}", begin.elapsed());
    let backwards = report.seen[&origin].backwards;
    assert_eq!(
        (report.corrupt, backwards),
        (0, 0),
        "changed, repeated or out of order: {report:?}"
    );
}

pub fn goes_over(rig: &Rig, service: &str, buses: &[Bus]) {
    for host in [0, 1] {
        eventually(&format!("{service} goes over {buses:?}, by host {host}"), || {
            let over = rig.service(host, service)?.over;
            let is_so = over.len() == buses.len()
                && buses.iter().all(|bus| over.iter().any(|name| name == bus.name()));
            is_so.then_some(())
        });
    }
}

/// What the sending gateway took from programs and did not hand to a bus.
pub fn kept_back(sending: &ServiceStatus) -> u64 {
    let counters = ["overflowed", "dropped_full", "dropped_link_down", "refused"];
    counters.iter().map(|name| sending.counter(name)).sum()
}

/// What the sending gateway took from programs, where one host wants it.
pub fn taken(sending: &ServiceStatus) -> u64 {
    sending.counter("sent") + kept_back(sending)
}

pub fn accounts(rig: &Rig, service: &str, taken_messages: u64, received: u64) -> [ServiceStatus; 2] {
    let what = format!("{taken_messages} messages of {service} are taken, {received} received");
    eventually(&what, || {
        let [sending, receiving] = [rig.service(0, service)?, rig.service(1, service)?];
        let settled = taken(&sending) == taken_messages && receiving.counter("received") == received;
        settled.then_some([sending, receiving])
    })
}

/// Ends the publisher and waits for its last message; everything is counted at the receiving end.
/// How many were published, and what was seen of them.
///
/// # Panics
/// Some came twice or out of order, or are unaccounted.
pub fn conclude(rig: &Rig, service: &str, publisher: Runner, subscriber: &Runner) -> (u64, Seen) {
    let published = publisher.finish().sent;
    let report = subscriber.until_seen(&format!("the last of {published} messages arrives"), |seen| {
        seen.last == published
    });
    let seen = report.seen[&1];
    assert_eq!((report.corrupt, seen.backwards), (0, 0), "{report:?}");
    eventually("all that arrived is accounted for", || {
        (rig.counter(1, service, "received") == seen.received).then_some(())
    });
    assert_eq!(rig.counter(1, service, "lost"), seen.missing, "{seen:?}");
    (published, seen)
}

/// Waits until what was missing is accounted for by the sending gateway, too.
///
/// # Panics
/// More is missing than it has counted. Not exact: while one side only knows of a loss, messages
/// are handed to both links.
pub fn losses_are_accounted_for(rig: &Rig, service: &str, published: u64, seen: &Seen) {
    let sending = eventually("each message is accounted for", || {
        rig.service(0, service)
            .filter(|sending| taken(sending) >= published)
    });
    let most = kept_back(&sending) + sending.counter("in_doubt");
    assert!(
        seen.missing <= most,
        "{most} counted by the sender: {seen:?} {sending:?}"
    );
}
