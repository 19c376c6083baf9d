//! What one publisher costs that has subscribers on three hosts, and one ARINC 653 port with
//! destinations there, with and without a multicast group, in turn: real gateways, in a network
//! namespace (which needs root).
//!
//! `cargo build --release --workspace --bins`, then
//! `cargo run --release -p busway-tests --example multicast_cost`

use std::time::Duration;

use busway_tests::fan::{Fan, GROUP};
use busway_tests::own_network::in_own_network;
use busway_tests::port_fan::{GAP, Kind, PortFan};

/// Length of a sample in bytes, and the time between two in microseconds.
const ROWS: [(usize, u64); 4] = [(200, 200), (8192, 500), (65_536, 2000), (1 << 20, 20_000)];
const RUNS: usize = 3;
const TIME: Duration = Duration::from_secs(3);

fn main() {
    in_own_network(|| {
        println!(
            "| sample | group | samples/s | bytes sent for each byte | packets/sample | processor time of the sending gateway/sample |"
        );
        for (length_bytes, gap_us) in ROWS {
            for _ in 0..RUNS {
                measure(length_bytes, gap_us, "");
                measure(length_bytes, gap_us, GROUP);
            }
        }
        println!("| ports, 8 KiB | gap | bytes sent for each byte without a group | with a group |");
        for (kind, gap) in [
            (Kind::Sampling, GAP),
            (Kind::Overflow, GAP),
            (Kind::Wait, GAP),
            (Kind::Wait, Duration::ZERO),
        ] {
            for _ in 0..RUNS {
                let [without, with] =
                    ["", GROUP].map(|settings| PortFan::flowing(kind, 3, settings).sent_for_each(TIME, gap));
                println!("| {kind:?} | {gap:?} | {without:.2} | {with:.2} |");
            }
        }
    });
}

fn measure(length_bytes: usize, gap_us: u64, settings: &str) {
    let mut fan = Fan::flowing(3, settings, length_bytes, gap_us);
    let count = fan.count(TIME);
    fan.assert_complete();
    let published = count.published as f64;
    println!(
        "| {length_bytes} B | {} | {:.0} | {:.2} | {:.1} | {:.1} us |",
        if settings.is_empty() { "no" } else { "yes" },
        published / TIME.as_secs_f64(),
        count.bytes as f64 / published / length_bytes as f64,
        count.packets as f64 / published,
        count.cpu_ns as f64 / published / 1000.0
    );
}
