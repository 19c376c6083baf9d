//! One publisher on a host whose links to several others are udp: what leaves that host for each
//! sample. Shared by the tests and the measurement (`examples/multicast_cost.rs`); to be used in a
//! network of its own ([`crate::own_network`]).

use std::fmt::Write as _;
use std::time::Duration;

use crate::own_network::sent;
use crate::role::{Role, Runner, Settings};
use crate::{Rig, eventually};

const LOSSLESS: Settings = Settings::lossless(16);
pub const GROUP: &str = "multicast = \"239.192.7.1\"";
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Host `a` and this many others over UDP; `settings` are added to the tables of `a`.
pub fn links(others: usize, settings: &str) -> String {
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

#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub published: u64,
    pub bytes: u64,
    /// A batch that the kernel does not take apart is one.
    pub packets: u64,
    pub cpu_ns: u64,
}

#[derive(Debug)]
pub struct Fan {
    pub rig: Rig,
    pub readers: Vec<Runner>,
    publisher: Runner,
}

impl Fan {
    pub fn flowing(others: usize, settings: &str, length_bytes: usize, gap_us: u64) -> Fan {
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
            reader.until_seen("it flows", |seen| seen.received > 200);
        }
        Fan {
            rig,
            readers,
            publisher,
        }
    }

    fn cpu_ns(&mut self) -> u64 {
        let tasks = format!("/proc/{}/task", self.rig.gateway(0).id());
        let tasks = std::fs::read_dir(tasks).expect("it runs");
        let times = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        times.sum()
    }

    pub fn count(&mut self, time: Duration) -> Count {
        let now = |fan: &mut Fan| {
            // The reports' first: what is counted of the bytes is then as new as they are.
            let published = fan.publisher.next_report().sent;
            let (bytes, packets) = sent();
            (published, bytes, packets, fan.cpu_ns())
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

    pub fn assert_complete(&self) {
        for (reader, host) in self.readers.iter().zip(1..) {
            let seen = reader.seen(1);
            assert_eq!((seen.missing, seen.backwards), (0, 0), "host {host}: {seen:?}");
            let status = eventually("the status", || self.rig.service(host, "fan"));
            assert_eq!((status.counter("lost"), status.counter("echoes")), (0, 0));
        }
    }
}
