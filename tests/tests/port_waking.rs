//! A gateway that has nothing to carry sleeps, and is woken by who writes, sends or receives: shown
//! by what it counts, not by the clock.

use std::time::Duration;

use busway_port::system::crossings_of;
use busway_system::{Carrier, System};
use busway_tests::ports::{join, normal, queue_in, queue_out, read, receive};
use busway_tests::{Bus, Rig, eventually, on_each_and_named_bus};

on_each_and_named_bus!(
    single_message_wakes_idle_gateway,
    room_in_full_queue_wakes_waiting_gateway,
);

const SYSTEM: &str = r#"
[[partition]]
name = "source"
host = "a"
ports = [
  { name = "LATEST", kind = "sampling", direction = "source", max_size = 8 },
  { name = "QUEUE", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
]
[[partition]]
name = "sink"
host = "b"
ports = [
  { name = "LATEST", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
  { name = "QUEUE", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
]
[[channel]]
name = "latest"
source = "source/LATEST"
destinations = ["sink/LATEST"]
[[channel]]
name = "queue"
source = "source/QUEUE"
destinations = ["sink/QUEUE"]
"#;

const COUNT: u64 = 40;

/// Long enough for a lane to fall asleep, far shorter than its sleep: for 50 ms it looks for
/// credits that it owes or awaits.
const PAUSE: Duration = Duration::from_millis(80);

const PATIENCE_NS: i64 = 30_000_000_000;

/// A counter of a channel, as soon as the gateway's status says that `moved` messages went through
/// it.
fn counted(rig: &Rig, host: usize, channel: &str, (moving, moved): (&str, u64), counter: &str) -> u64 {
    eventually("the status tells of all messages", || {
        let status = rig.status(host)?;
        let port = status.ports.into_iter().find(|port| port.channel == channel)?;
        (port.counters[moving] >= moved).then(|| port.counters[counter])
    })
}

fn single_message_wakes_idle_gateway(bus: Bus) {
    let rig = Rig::pair_moved_by_gateways(bus, SYSTEM);
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let latest = source.sampling_source("LATEST").expect("configured");
    let queue = queue_out(&source, "QUEUE");
    let latest_in = sink.sampling_destination("LATEST", i64::MAX).expect("configured");
    let queue_in = queue_in(&sink, "QUEUE");
    normal(&source);
    normal(&sink);
    let system = System::load(&rig.system).expect("the test's own");
    let moved = crossings_of(&system, "a")
        .into_iter()
        .filter(|it| it.carrier == Carrier::Gateways);
    let moved: Vec<String> = moved.map(|it| it.channel).collect();
    let mut before = vec![0; moved.len()];
    most_are_rung_for(|round| {
        for number in round * COUNT + 1..=(round + 1) * COUNT {
            std::thread::sleep(PAUSE);
            latest.write(&number.to_le_bytes()).expect("a source port");
            eventually("the message arrives", || {
                read(latest_in).filter(|(read, _)| *read == number)
            });
            std::thread::sleep(PAUSE);
            queue.send(&number.to_le_bytes(), 0).expect("room");
            assert_eq!(receive(queue_in, Duration::from_secs(30)), Some((number, false)));
        }
        let since_then = moved.iter().zip(&mut before).map(|(channel, before)| {
            let unrung = counted(&rig, 0, channel, ("sent", (round + 1) * COUNT), "unrung");
            unrung - std::mem::replace(before, unrung)
        });
        since_then.max().unwrap_or(0)
    });
}

/// Does `round` until few of its [`COUNT`] messages were found by looking, at most three times. One
/// that comes just when a sleep has run its time is found so before its bell is rung; on a machine
/// that gives the lane no processor then, that time is long, and such a round says nothing. A bell
/// that is not rung fails in all.
fn most_are_rung_for(mut round: impl FnMut(u64) -> u64) {
    let mut found = Vec::new();
    let is_well = (0..3).any(|number| {
        found.push(round(number));
        found[found.len() - 1] <= COUNT / 10
    });
    assert!(is_well, "of {COUNT} each time, found by looking: {found:?}");
}

fn room_in_full_queue_wakes_waiting_gateway(bus: Bus) {
    let rig = Rig::pair_moved_by_gateways(bus, SYSTEM);
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let queue = queue_out(&source, "QUEUE");
    let queue_in = queue_in(&sink, "QUEUE");
    normal(&source);
    normal(&sink);
    // Four fill the queue over there, four the one here.
    let mut sent = 0_u64;
    while sent < 8 {
        queue
            .send(&(sent + 1).to_le_bytes(), PATIENCE_NS)
            .expect("room, soon");
        sent += 1;
    }
    let mut before = counted(&rig, 1, "queue", ("received", 4), "unrung");
    most_are_rung_for(|round| {
        for number in round * COUNT + 1..=(round + 1) * COUNT {
            std::thread::sleep(PAUSE);
            assert_eq!(receive(queue_in, Duration::from_secs(30)), Some((number, false)));
            // There is room as soon as the gateway over there has given the next one, and the one
            // here knows.
            queue
                .send(&(sent + 1).to_le_bytes(), PATIENCE_NS)
                .expect("room, soon");
            sent += 1;
        }
        let unrung = counted(&rig, 1, "queue", ("received", (round + 1) * COUNT), "unrung");
        unrung - std::mem::replace(&mut before, unrung)
    });
}
