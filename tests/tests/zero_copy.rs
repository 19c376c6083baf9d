//! Gateways copy no long message over `rdma-send`, in either direction, though the programs know
//! nothing of RDMA: their samples are sent from and received into iceoryx2's own memory.
//!
//! `BUSWAY_BUS` must name `rdma-send`, the bus that does so.

use busway_tests::role::{Role, Settings};
use busway_tests::stream::{STRICT, accounts};
use busway_tests::{Bus, Rig};

/// The default of `zero_copy_from` (`busway-transport`, `rdma/settings.rs`).
const THRESHOLD_BYTES: usize = 128 << 10;
const MESSAGES: u64 = 60;

/// How many of [`MESSAGES`] of these lengths each gateway copied.
fn copied(rig: &Rig, service: &str, settings: Settings, lengths_bytes: &[usize]) -> [u64; 2] {
    let subscriber = rig.run(1, &Role::subscribe(service, settings)).ready();
    let publish = Role::Publish {
        service: service.to_owned(),
        settings,
        origin: 1,
        lengths_bytes: lengths_bytes.to_vec(),
        gap_us: 500,
        count: Some(MESSAGES),
        subscribers: 1,
    };
    let publisher = rig.run(0, &publish);
    let report = subscriber.until_seen("the last message arrives", |seen| seen.last == MESSAGES);
    let seen = report.seen[&1];
    assert_eq!(
        (seen.received, seen.backwards, report.corrupt),
        (MESSAGES, 0, 0),
        "{report:?}"
    );
    let [sending, receiving] = accounts(rig, service, MESSAGES, MESSAGES);
    assert_eq!(sending.over, ["rdma-send"]);
    publisher.finish();
    [
        sending.counter("sent_copied"),
        receiving.counter("received_copied"),
    ]
}

#[test]
#[ignore = "needs RDMA: cargo xtask lab runs it"]
fn messages_from_threshold_up_cross_without_copy_over_named_bus() {
    let rig = Rig::pair(Bus::named());
    let lengths_bytes = [THRESHOLD_BYTES, THRESHOLD_BYTES + 1, 4 * THRESHOLD_BYTES];
    assert_eq!(copied(&rig, "long", STRICT, &lengths_bytes), [0, 0]);
    // The counters count: each shorter message is copied at both ends.
    assert_eq!(
        copied(&rig, "short", STRICT, &[64, THRESHOLD_BYTES - 1]),
        [MESSAGES, MESSAGES]
    );
}
