//! A stream of numbered messages from host 0 to host 1, and the books of both gateways about it.

use std::time::Instant;

use crate::rig::{Rig, ServiceStatus};
use crate::role::{Role, Runner, Settings};
use crate::wait::eventually;

/// Safe overflow with a buffer that no pause of a busy machine fills (a second of [`Role::publish`]): what a subscriber misses
/// then got lost between the programs, not in its own queue. Not more: iceoryx2 needs time for each place of a new connection.
pub const DEEP: Settings = Settings {
    safe_overflow: None,
    history: None,
    buffer: Some(4_096),
};

/// Starts the stream, from origin 1, and waits until it flows: publisher and subscriber.
pub fn stream(rig: &Rig, service: &str, settings: Settings) -> (Runner, Runner) {
    let subscriber = rig.run(1, &Role::subscribe(service, settings)).ready();
    let publisher = rig.run(0, &Role::publish(service, settings, 1));
    flows(&publisher, &subscriber, 1, "at first");
    (publisher, subscriber)
}

/// Waits until messages of `origin`, which is `publisher`, published from now on arrive; says how long that took.
///
/// # Panics
/// They don't, or some came twice, out of order, or changed.
pub fn flows(publisher: &Runner, subscriber: &Runner, origin: u64, when: &str) {
    let begin = Instant::now();
    let target = publisher.report().sent + 20;
    let report = subscriber.until(&format!("data flows {when}"), |report| {
        report.seen.get(&origin).is_some_and(|seen| seen.last > target)
    });
    println!("data flows {when}: {:?}", begin.elapsed());
    assert_eq!(report.corrupt, 0);
    assert_eq!(
        report.seen[&origin].backwards, 0,
        "repeated or out of order: {report:?}"
    );
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

/// Waits until the sending gateway has `taken` so many messages and the receiving one has given the subscriber all that it
/// has `received`; the books of both.
pub fn books(rig: &Rig, service: &str, taken_messages: u64, received: u64) -> [ServiceStatus; 2] {
    let what = format!("{taken_messages} messages of {service} are taken, {received} received");
    eventually(&what, || {
        let [sending, receiving] = [rig.service(0, service)?, rig.service(1, service)?];
        let settled = taken(&sending) == taken_messages && receiving.counter("received") == received;
        settled.then_some([sending, receiving])
    })
}
