//! One publisher, subscribers on other hosts, real gateways: with a multicast group samples leave once.

use std::fmt::Write as _;
use std::time::Duration;

use busway_tests::own_network::{in_own_network, sent};
use busway_tests::role::{Role, Runner, Settings};
use busway_tests::{Rig, eventually};

const LOSSLESS: Settings = Settings {
    safe_overflow: Some(false),
    history: None,
    buffer: Some(16),
};
const GROUP: &str = "multicast = \"239.192.7.1\"";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Host `a` and so many others over UDP; `settings` are added to the tables of `a`.
fn links(others: usize, settings: &str) -> String {
    let mut text = String::new();
    for (number, host) in NAMES[1..=others].iter().enumerate() {
        let port = 7400 + number;
        let _ = writeln!(
            text,
            "[[link]]\nhosts = [\"a\", {host:?}]\nbuses = [\"udp\"]\n\
             udp.a = {{ listen = \"127.0.0.1:{port}\", mtu = 1500, {settings} }}\n\
             udp.{host} = {{ address = \"127.0.0.1\" }}"
        );
    }
    text
}

/// What was counted while samples were published.
struct Count {
    published: u64,
    bytes: u64,
    packets: u64,
    /// Of the gateway of `a`.
    cpu_ns: u64,
}

struct Fan {
    rig: Rig,
    readers: Vec<Runner>,
    publisher: Runner,
}

impl Fan {
    /// A publisher on `a`, whose samples reach a subscriber on each of the others.
    fn flowing(others: usize, settings: &str, length_bytes: usize, gap_us: u64) -> Fan {
        let mut rig = Rig::stopped(&NAMES[..=others], &[], &links(others, settings));
        rig.start_gateways();
        (0..=others).for_each(|host| rig.links_up(host));
        let readers: Vec<Runner> = (1..=others)
            .map(|host| rig.run(host, &Role::subscribe("fan", LOSSLESS)).ready())
            .collect();
        let mut role = Role::publish_of("fan", LOSSLESS, 1, length_bytes);
        if let Role::Publish { gap_us: gap, .. } = &mut role {
            *gap = gap_us;
        }
        let publisher = rig.run(0, &role);
        for reader in &readers {
            reader.until("it flows", |report| {
                report.seen.get(&1).is_some_and(|seen| seen.received > 200)
            });
        }
        Fan {
            rig,
            readers,
            publisher,
        }
    }

    /// Processor time of all threads of the gateway of `a`.
    fn cpu_ns(&mut self) -> u64 {
        let tasks = format!("/proc/{}/task", self.rig.gateway(0).id());
        let tasks = std::fs::read_dir(tasks).expect("it runs");
        let times = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        times.sum()
    }

    fn count(&mut self, time: Duration) -> Count {
        let now = |fan: &mut Fan| {
            let (bytes, packets) = sent();
            (fan.publisher.report().sent, bytes, packets, fan.cpu_ns())
        };
        let before = now(self);
        std::thread::sleep(time);
        let after = now(self);
        Count {
            published: after.0 - before.0,
            bytes: after.1 - before.1,
            packets: after.2 - before.2,
            cpu_ns: after.3 - before.3,
        }
    }

    /// Each got every sample in order, and no gateway missed one.
    fn assert_complete(&self) {
        for (reader, host) in self.readers.iter().zip(1..) {
            let seen = reader.seen(1);
            assert_eq!((seen.missing, seen.backwards), (0, 0), "host {host}: {seen:?}");
            let status = eventually("the status", || self.rig.service(host, "fan"));
            assert_eq!((status.counter("lost"), status.counter("echoes")), (0, 0));
        }
    }
}

/// Bytes on the wire for each byte that was published.
fn sent_for_each(settings: &str) -> f64 {
    const LENGTH_BYTES: usize = 8192;
    let mut fan = Fan::flowing(2, settings, LENGTH_BYTES, 500);
    let count = fan.count(Duration::from_secs(2));
    fan.assert_complete();
    count.bytes as f64 / (count.published * LENGTH_BYTES as u64) as f64
}

#[test]
fn samples_for_two_hosts_leave_once_with_a_group_and_twice_without() {
    in_own_network(|| {
        let without = sent_for_each("");
        let with = sent_for_each(GROUP);
        assert!(without > 2.0, "{without} times the bytes without a group");
        assert!(with < 1.5, "{with} times the bytes with a group");
    });
}

#[test]
fn a_host_whose_gateway_is_killed_costs_the_other_one_nothing_and_comes_back() {
    in_own_network(|| {
        let mut fan = Fan::flowing(2, GROUP, 4096, 500);
        fan.rig.gateway(2).kill();
        let before = fan.readers[0].seen(1).received;
        fan.readers[0].until("it goes on", |report| report.seen[&1].received > before + 2000);
        fan.rig.start_gateway(2);
        let before = fan.readers[1].seen(1).received;
        fan.readers[1].until("it comes back", |report| report.seen[&1].received > before + 2000);
        let seen = fan.readers[0].seen(1);
        assert_eq!((seen.missing, seen.backwards), (0, 0), "{seen:?}");
        assert_eq!(fan.readers[1].seen(1).backwards, 0);
    });
}

/// Not a test: what one publisher costs that has subscribers on three hosts, with and without a group, in turn.
/// `cargo test --release -p busway-tests --test multicast -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_three_subscribers_cost() {
    in_own_network(|| {
        println!(
            "| sample | group | samples/s | bytes sent for each byte | packets/sample | processor time of the sending gateway/sample |"
        );
        for (length_bytes, gap_us) in [(200, 200), (8192, 500), (65_536, 2000), (1 << 20, 20_000)] {
            for _ in 0..3 {
                for settings in ["", GROUP] {
                    let time = Duration::from_secs(3);
                    let mut fan = Fan::flowing(3, settings, length_bytes, gap_us);
                    let count = fan.count(time);
                    fan.assert_complete();
                    let published = count.published as f64;
                    println!(
                        "| {length_bytes} B | {} | {:.0} | {:.2} | {:.1} | {:.1} us |",
                        if settings.is_empty() { "no" } else { "yes" },
                        published / time.as_secs_f64(),
                        count.bytes as f64 / published / length_bytes as f64,
                        count.packets as f64 / published,
                        count.cpu_ns as f64 / published / 1000.0
                    );
                }
            }
        }
    });
}
