//! Two hosts joined by two links, and ways to put one of the links out of order under load.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use busway_buses::needs_window;

use crate::rig::{Bus, Rig};
use crate::skip::skipped;
use crate::wait::eventually;
use crate::window::overwrite;

/// Offset in a window of the writer's conversation number (`busway-transport`, `memory/layout.rs`).
const CONVERSATION_AT: u64 = 40;
/// The two windows of the rig's memory link lie one behind the other.
const WINDOW_BYTES: u64 = 32 << 20;
/// Offset in such a window of the first channel's landing place (the same file), where its ring's
/// lines are; in a line, of its message's length (`busway-core`, `ring`).
const LANDING_AT: u64 = 206_848;
const LINE_BYTES: u64 = 64;
const LENGTH_IN_LINE: u64 = 8;
/// Lines of the ring of a service with short messages, whose depth is the greatest that a gateway
/// chooses by itself.
const LINES: u64 = 1_024;

/// Variables with the lines of shell that take the named bus from host 1, and give it back.
const CUT: &str = "BUSWAY_CUT";
const MEND: &str = "BUSWAY_MEND";

pub enum Outage {
    Cable,
    /// The lines of `BUSWAY_CUT` took the device, or what there is.
    Device,
    /// A firewall drops all TCP of this port.
    Connections(u16),
    /// A firewall keeps datagrams out of host 1, and nothing else.
    Datagrams,
    /// Somebody overwrites both headers of the window all the time. The gateways mend them, so the
    /// link comes up for moments.
    Headers(Arc<AtomicBool>, JoinHandle<()>),
    /// A directory lies where the window's file should be.
    NoWindow(PathBuf),
}

impl Outage {
    pub fn begin(rig: &Rig, link: usize, bus: Bus) -> Outage {
        let outage = if needs_window(bus.name()) {
            Outage::of_headers(rig, link, Duration::from_micros(200))
        } else {
            Outage::of_network(rig, link, bus)
        };
        outage.until_noticed(rig, bus)
    }

    fn of_network(rig: &Rig, link: usize, bus: Bus) -> Outage {
        let has_named = rig.buses.iter().any(|bus| matches!(bus, Bus::Named(_)));
        match bus {
            Bus::Named(_) => {
                shell(rig, CUT);
                Outage::Device
            }
            // The named bus may be on the same cable.
            Bus::Tcp if has_named => {
                let port = rig.addresses[link].expect("TCP has one").port();
                rig.hosts.set_connections(0, port, false).expect("root");
                Outage::Connections(port)
            }
            _ => {
                rig.hosts.set_cable(0, 1, false).expect("a cable");
                Outage::Cable
            }
        }
    }

    fn of_headers(rig: &Rig, link: usize, period: Duration) -> Outage {
        let overwrite_both = headers(rig, link);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let vandal = std::thread::spawn(move || {
            // Relaxed: a flag on its own.
            while !stopped.load(Ordering::Relaxed) {
                overwrite_both();
                std::thread::sleep(period);
            }
        });
        Outage::Headers(stop, vandal)
    }

    pub fn of_datagrams(rig: &Rig) -> Outage {
        Outage::of_datagrams_unnoticed(rig).until_noticed(rig, Bus::Udp)
    }

    pub fn of_datagrams_unnoticed(rig: &Rig) -> Outage {
        rig.hosts.set_datagrams(1, 0, false).expect("namespaces");
        Outage::Datagrams
    }

    pub fn until_noticed(self, rig: &Rig, bus: Bus) -> Outage {
        for host in [0, 1] {
            eventually(&format!("host {host} sees that its link is lost"), || {
                rig.is_up(host, bus).filter(|up| !up)
            });
        }
        self
    }

    pub fn from_the_start(rig: &Rig, link: usize, bus: Bus) -> Outage {
        match bus {
            Bus::Tcp | Bus::Udp => Outage::of_network(rig, link, bus),
            Bus::Named(_) => Outage::begin(rig, link, bus),
            Bus::Memory => {
                let path = rig.hosts.shared.join(format!("window{link}"));
                std::fs::create_dir(&path).expect("the directory is ours");
                Outage::NoWindow(path)
            }
        }
    }

    pub fn end(self, rig: &Rig) {
        self.mend(rig);
        for host in [0, 1] {
            rig.links_up(host);
        }
    }

    pub fn mend(self, rig: &Rig) {
        match self {
            Outage::NoWindow(path) => std::fs::remove_dir(path).expect("it is empty"),
            Outage::Cable => rig.hosts.set_cable(0, 1, true).expect("a cable"),
            Outage::Device => shell(rig, MEND),
            Outage::Connections(port) => rig.hosts.set_connections(0, port, true).expect("root"),
            Outage::Datagrams => rig.hosts.set_datagrams(1, 0, true).expect("namespaces"),
            Outage::Headers(stop, vandal) => {
                stop.store(true, Ordering::Relaxed);
                vandal.join().expect("it only writes");
            }
        }
    }
}

pub fn other(bus: Bus) -> Bus {
    match bus {
        Bus::Memory => Bus::Tcp,
        Bus::Tcp | Bus::Udp => Bus::Memory,
        Bus::Named(_) => Bus::Tcp,
    }
}

/// Runs the lines of this variable on host 1.
fn shell(rig: &Rig, variable: &str) {
    let lines = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} says how to cut the bus"));
    let mut command = rig.hosts.hosts[1].command(Path::new("/bin/sh")).expect("a shell");
    let status = command.args(["-ec", &lines]).status().expect("a shell");
    assert!(status.success(), "{variable}={lines:?}: {status}");
}

/// How often a link is cut under load; continuous integration has time for a few, `BUSWAY_CUTS=100`
/// for a long run.
pub fn cuts() -> usize {
    std::env::var("BUSWAY_CUTS").map_or(4, |cuts| cuts.parse().expect("BUSWAY_CUTS is a number"))
}

/// Two links, the one over `preferred` first, with more lines in the system file, and no gateway
/// yet; `None` where there is no cable to cut.
pub fn two_links(preferred: Bus, more: &str) -> Option<Rig> {
    links_over([preferred, other(preferred)], more)
}

/// The same over these buses, the first one preferred.
pub fn links_over<const N: usize>(buses: [Bus; N], more: &str) -> Option<Rig> {
    let links = buses.map(|bus| (0, 1, bus));
    let rig = Rig::isolated_pair_over(&links, more);
    rig.map_err(|what| skipped(&what)).ok()
}

/// Makes the memory link, which is the first one, go down at each `period`, `times` times; it comes
/// up as soon as the gateways have repaired it. Waits until both have all links.
pub fn comes_and_goes(rig: &Rig, period: Duration, times: usize) {
    let outage = Outage::of_headers(rig, 0, period);
    eventually("the bus comes and goes", || {
        let log = rig.log(1);
        (log.matches("over memory is down").count() >= times).then_some(())
    });
    outage.end(rig);
}

/// Spoils what waits in the first channel that host 0 sends over the memory link, which is the
/// first one: no message has such a length.
pub fn overwrite_lengths(rig: &Rig) {
    let window = window(rig, 0);
    for line in 0..LINES {
        let at = WINDOW_BYTES + LANDING_AT + line * LINE_BYTES + LENGTH_IN_LINE;
        window.write_all_at(&[0xff; 8], at).expect("written");
    }
}

/// Overwrites the headers of the link's two windows.
fn headers(rig: &Rig, link: usize) -> Box<dyn Fn() + Send> {
    if let Some(given) = rig.windows.first() {
        let written = given.written();
        return Box::new(move || {
            for (memory, _) in &written {
                overwrite(memory, CONVERSATION_AT as usize, &[0; 8]);
            }
        });
    }
    let window = window(rig, link);
    Box::new(move || {
        for start in [0, WINDOW_BYTES] {
            window
                .write_all_at(&[0; 8], start + CONVERSATION_AT)
                .expect("written");
        }
    })
}

fn window(rig: &Rig, link: usize) -> File {
    let path = rig.hosts.shared.join(format!("window{link}"));
    File::options().write(true).open(path).expect("the window")
}

pub fn start(rig: &mut Rig) {
    rig.start_gateways();
    for host in [0, 1] {
        rig.links_up(host);
    }
}
