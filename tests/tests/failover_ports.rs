//! Channels of ARINC 653 ports between two hosts with two links: each link is lost under load, in
//! both orders, and nothing is lost, repeated or out of order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_buses::is_one_sided;
use busway_port::QueuingDestination;
use busway_port::apex::Validity;
use busway_tests::outage::{Outage, comes_and_goes, cuts, other, start, two_links};
use busway_tests::ports::{Task, join, normal, queue_in, read, receive, run};
use busway_tests::{Bus, Rig, eventually, on_each_and_named_bus};

/// A second: far more than a message takes, far less than a test waits.
const REFRESH_NS: i64 = 1_000_000_000;

const SYSTEM: &str = r#"
[[partition]]
name = "source"
host = "a"
ports = [{ name = "OUT", kind = "queuing", direction = "source", max_size = 8, max_messages = 64 }]
[[partition]]
name = "sink"
host = "b"
ports = [{ name = "IN", kind = "queuing", direction = "destination", max_size = 8, max_messages = 64 }]
[[partition]]
name = "newest"
host = "a"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 8 }]
[[partition]]
name = "reader"
host = "b"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[channel]]
name = "queue"
source = "source/OUT"
destinations = ["sink/IN"]
[[channel]]
name = "variable"
source = "newest/OUT"
destinations = ["reader/IN"]
"#;

/// What a queue delivers, taken out as it comes: each message must be the one after the last.
struct Taken {
    last: AtomicU64,
    silence: Mutex<Duration>,
    is_over: AtomicBool,
}

/// Ends the taking, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Taken {
    fn take(&self, port: QueuingDestination<'_>) {
        let mut last = 0;
        let mut since = Instant::now();
        // Relaxed here and below: each is a value on its own.
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(next) = receive(port, Duration::from_millis(100)) else {
                continue;
            };
            assert_eq!(next, (last + 1, false));
            last += 1;
            let mut silence = self.silence.lock().expect("nobody panics with it");
            *silence = silence.max(since.elapsed());
            since = Instant::now();
            self.last.store(last, Ordering::Relaxed);
        }
    }

    fn flows(&self, when: &str) {
        let target = self.last.load(Ordering::Relaxed) + 100;
        eventually(&format!("messages arrive {when}"), || {
            (self.last.load(Ordering::Relaxed) > target).then_some(())
        });
    }

    fn longest_silence(&self) -> Duration {
        std::mem::take(&mut *self.silence.lock().expect("nobody panics with it"))
    }
}

fn takes(rig: &Rig, channel: &str, bus: Bus) {
    for host in [0, 1] {
        eventually(&format!("host {host} has {channel} over {}", bus.name()), || {
            let status = rig.status(host)?;
            let found = status.ports.iter().find(|port| port.channel == channel)?;
            (found.open && found.bus == bus.name()).then_some(())
        });
    }
}

fn through_the_queue(rig: &mut Rig, disturb: impl FnOnce(&Rig, &Taken)) {
    start(rig);
    let sink = join(&rig.system, "sink");
    let port = queue_in(&sink, "IN");
    normal(&sink);
    let forever = Task::Send {
        from: 1,
        to: u64::MAX,
    };
    let _source = run(rig, 0, "source", "OUT", forever);
    let taken = Taken {
        last: AtomicU64::new(0),
        silence: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let _end = End(&taken.is_over);
        scope.spawn(|| taken.take(port));
        taken.flows("at first");
        disturb(rig, &taken);
    });
}

fn queue_fails_over_and_returns_without_loss_or_repeat(preferred: Bus) {
    let Some(mut rig) = two_links(preferred, SYSTEM) else {
        return;
    };
    through_the_queue(&mut rig, |rig, taken| {
        for cut in 0..cuts() {
            // The link in use and the one that is not, in turn.
            let (link, bus, left) =
                [(0, preferred, other(preferred)), (1, other(preferred), preferred)][cut % 2];
            taken.longest_silence();
            let outage = Outage::begin(rig, link, bus);
            takes(rig, "queue", left);
            taken.flows("over the bus that is left");
            let silence = taken.longest_silence();
            outage.end(rig);
            takes(rig, "queue", preferred);
            taken.flows("with both again");
            let name = bus.name();
            let back = taken.longest_silence();
            println!("cut {cut}, of {name}: longest silence {silence:?}, on the way back {back:?}");
        }
    });
}

#[test]
fn queue_on_flapping_bus_loses_and_repeats_nothing() {
    for (period_ms, times) in [(20, 50), (1_200, 8)] {
        let mut rig = Rig::pair_with_one_link_and([Bus::Memory, Bus::Tcp], "", SYSTEM);
        through_the_queue(&mut rig, |rig, taken| {
            comes_and_goes(rig, Duration::from_millis(period_ms), times);
            takes(rig, "queue", Bus::Memory);
            taken.flows("when the bus stays");
        });
    }
}

fn sampling_port_stays_valid_during_fail_over_and_never_reverts(preferred: Bus) {
    // The channel names its own order, whichever link stands first in the file: over a one-sided
    // bus that is its first the source's process writes itself, and nothing can move.
    let [first, second] = if is_one_sided(preferred.name()) {
        [other(preferred), preferred]
    } else {
        [preferred, other(preferred)]
    };
    let order = format!("{SYSTEM}buses = [{:?}, {:?}]\n", first.name(), second.name());
    let Some(mut rig) = two_links(preferred, &order) else {
        return;
    };
    start(&mut rig);
    let reader = join(&rig.system, "reader");
    let port = reader.sampling_destination("IN", REFRESH_NS).expect("configured");
    normal(&reader);
    let _source = run(&rig, 0, "newest", "OUT", Task::Write);
    let mut newest = 0;
    let mut grows = |when: &str| {
        let target = newest + 50;
        eventually(when, || {
            let (number, read) = read(port)?;
            assert!(number >= newest, "{number} after {newest}");
            newest = number;
            (number > target && read.validity == Validity::Valid).then_some(())
        });
    };
    grows("at first");
    takes(&rig, "variable", first);
    let link = usize::from(preferred != first);
    for round in 0..2 {
        let outage = Outage::begin(&rig, link, first);
        grows(&format!("over the second bus, round {round}"));
        takes(&rig, "variable", second);
        outage.end(&rig);
        takes(&rig, "variable", first);
        grows(&format!("over the first bus again, round {round}"));
    }
}

on_each_and_named_bus!(
    queue_fails_over_and_returns_without_loss_or_repeat,
    sampling_port_stays_valid_during_fail_over_and_never_reverts,
);
