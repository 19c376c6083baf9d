//! Two links between two hosts: one is lost under load, the other takes over, and nothing breaks when the first one is back.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use busway_tests::role::{Runner, Seen, Settings};
use busway_tests::skip::skipped;
use busway_tests::stream::{DEEP, flows, kept_back, stream, taken};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const SERVICE: &str = "failover";
/// Offset in a window of the writer's conversation number (`busway-transport`, `memory/layout.rs`).
const CONVERSATION_AT: u64 = 40;
/// The two windows of the rig's memory link lie one behind the other.
const WINDOW_BYTES: u64 = 32 << 20;

/// One of the two links, out of order until it is mended.
enum Outage {
    Cable,
    /// Somebody overwrites both headers of the window all the time. The gateways mend them, so the link comes up for moments.
    Header(Arc<AtomicBool>, JoinHandle<()>),
    /// A directory lies where the window's file should be.
    NoWindow(PathBuf),
}

impl Outage {
    fn begin(rig: &Rig, link: usize, bus: Bus) -> Outage {
        let outage = match bus {
            Bus::Tcp => {
                rig.hosts.set_cable(0, 1, false).expect("a cable");
                Outage::Cable
            }
            Bus::Memory => {
                let path = rig.hosts.shared.join(format!("window{link}"));
                let window = std::fs::File::options()
                    .write(true)
                    .open(path)
                    .expect("the window");
                let stop = Arc::new(AtomicBool::new(false));
                let stopped = stop.clone();
                let vandal = std::thread::spawn(move || {
                    // Relaxed: a flag on its own.
                    while !stopped.load(Ordering::Relaxed) {
                        for start in [0, WINDOW_BYTES] {
                            window
                                .write_all_at(&[0; 8], start + CONVERSATION_AT)
                                .expect("written");
                        }
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
                Outage::Header(stop, vandal)
            }
        };
        for host in [0, 1] {
            eventually(&format!("host {host} sees that its link is lost"), || {
                rig.is_up(host, bus).filter(|up| !up)
            });
        }
        outage
    }

    /// The link is out of order from the beginning, before gateways start.
    fn from_the_start(rig: &Rig, link: usize, bus: Bus) -> Outage {
        match bus {
            Bus::Tcp => {
                rig.hosts.set_cable(0, 1, false).expect("a cable");
                Outage::Cable
            }
            Bus::Memory => {
                let path = rig.hosts.shared.join(format!("window{link}"));
                std::fs::create_dir(&path).expect("the directory is ours");
                Outage::NoWindow(path)
            }
        }
    }

    fn end(self, rig: &Rig) {
        match self {
            Outage::NoWindow(path) => std::fs::remove_dir(path).expect("it is empty"),
            Outage::Cable => rig.hosts.set_cable(0, 1, true).expect("a cable"),
            Outage::Header(stop, vandal) => {
                stop.store(true, Ordering::Relaxed);
                vandal.join().expect("it only writes");
            }
        }
        for host in [0, 1] {
            rig.links_up(host);
        }
    }
}

fn other(bus: Bus) -> Bus {
    match bus {
        Bus::Memory => Bus::Tcp,
        Bus::Tcp => Bus::Memory,
    }
}

/// Two links, the one over `preferred` first, and no gateway yet; `None` where there is no cable to cut.
fn two_links(preferred: Bus) -> Option<Rig> {
    let links = [(0, 1, preferred), (0, 1, other(preferred))];
    let rig = Rig::isolated_pair_over(&links, "");
    rig.map_err(|what| skipped(&what)).ok()
}

fn start(rig: &mut Rig) {
    rig.start_gateways();
    for host in [0, 1] {
        rig.links_up(host);
    }
}

/// Ends the publisher and waits for its last message; everything is counted at the receiving end.
fn conclude(rig: &Rig, publisher: Runner, subscriber: &Runner) -> (u64, Seen) {
    let published = publisher.finish().sent;
    let report = subscriber.until("the last message arrives", |report| {
        report.seen.get(&1).is_some_and(|seen| seen.last == published)
    });
    let seen = report.seen[&1];
    assert_eq!((report.corrupt, seen.backwards), (0, 0), "{report:?}");
    eventually("all that arrived is in the books", || {
        (rig.counter(1, SERVICE, "received") == seen.received).then_some(())
    });
    assert_eq!(rig.counter(1, SERVICE, "lost"), seen.missing, "{seen:?}");
    (published, seen)
}

fn data_continues_over_the_other_link_and_every_loss_is_counted(preferred: Bus) {
    let Some(mut rig) = two_links(preferred) else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, DEEP);
    for round in 0..2 {
        let outage = Outage::begin(&rig, 0, preferred);
        flows(
            &publisher,
            &subscriber,
            1,
            &format!("over the other link, round {round}"),
        );
        outage.end(&rig);
        flows(
            &publisher,
            &subscriber,
            1,
            &format!("with both links again, round {round}"),
        );
    }
    let (published, seen) = conclude(&rig, publisher, &subscriber);
    // Not exact at the sending end: while one side only knows of the loss, messages are handed to both links.
    let sending = eventually("each message is in the books", || {
        rig.service(0, SERVICE)
            .filter(|sending| taken(sending) >= published)
    });
    let most = kept_back(&sending) + sending.counter("in_doubt");
    assert!(
        seen.missing <= most,
        "{most} counted by the sender: {seen:?} {sending:?}"
    );
}

fn losing_the_link_that_is_not_used_loses_nothing(preferred: Bus) {
    let Some(mut rig) = two_links(preferred) else {
        return;
    };
    start(&mut rig);
    let (publisher, subscriber) = stream(&rig, SERVICE, STRICT);
    let outage = Outage::begin(&rig, 1, other(preferred));
    flows(&publisher, &subscriber, 1, "over the link that is left");
    outage.end(&rig);
    flows(&publisher, &subscriber, 1, "with both links again");
    let (published, seen) = conclude(&rig, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
}

const STRICT: Settings = Settings {
    safe_overflow: Some(false),
    history: None,
    buffer: Some(16),
};

fn a_link_that_comes_back_costs_a_service_without_overflow_nothing(preferred: Bus) {
    let Some(mut rig) = two_links(preferred) else {
        return;
    };
    let outage = Outage::from_the_start(&rig, 0, preferred);
    rig.start_gateways();
    let (publisher, subscriber) = stream(&rig, SERVICE, STRICT);
    assert_ne!(rig.is_up(1, preferred), Some(true));
    outage.end(&rig);
    flows(&publisher, &subscriber, 1, "with both links");
    let (published, seen) = conclude(&rig, publisher, &subscriber);
    assert_eq!((seen.first, seen.received), (1, published), "{seen:?}");
}

on_each_bus!(
    data_continues_over_the_other_link_and_every_loss_is_counted,
    losing_the_link_that_is_not_used_loses_nothing,
    a_link_that_comes_back_costs_a_service_without_overflow_nothing,
);
