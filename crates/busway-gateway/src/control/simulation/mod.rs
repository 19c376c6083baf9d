//! Simulation of whole systems of decision cores in virtual time.
//!
//! Each run draws a system (hosts, links, buses, services, ports) and everything that happens in it
//! from one seed: programs come and go, links are cut and flap, gateways are killed, lanes and
//! catalogues are slow, buses refuse. After each step [`check::structure`] must hold; each missing
//! message must be accounted; once it is quiet, everything wanted flows over its best link; once
//! programs have left, nothing is left. Run more seeds with `BUSWAY_SIMULATION_RUNS=100000 cargo
//! test -p busway-gateway --release simulation`; a failure names its seed, and
//! `BUSWAY_SIMULATION_SEED=N` replays it with the facts and actions that led there
//! (`BUSWAY_SIMULATION_TRACE=1`).

mod cases;
mod check;
mod events;
mod lane;
mod pipe;
mod shell;
mod world;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use busway_system::System;

use world::{Fault, Options, World};

/// Nothing that a fault began lasts longer: the longest back-off, twice, and what follows it.
const SETTLE: Duration = Duration::from_secs(45);
/// Holds and unconfirmed offers end within this time.
const RELEASE: Duration = Duration::from_secs(140);

/// A system file of `hosts` hosts, each two of them joined by a link with `buses` buses, some of
/// them with another order for large messages.
fn system(hosts: usize, buses: usize, rng: &mut fastrand::Rng) -> System {
    let names = ["tipc", "tcp", "udp"];
    let mut text = String::new();
    for host in 0..hosts {
        writeln!(text, "[host.h{host}]").expect("text");
    }
    for one in 0..hosts {
        for other in one + 1..hosts {
            if other > one + 1 && rng.u32(0..3) == 0 {
                continue;
            }
            let port = 7400 + (one * 20 + other) * 4;
            let listed: Vec<_> = names[..buses].iter().map(|name| format!("{name:?}")).collect();
            writeln!(text, "[[link]]\nhosts = [\"h{one}\", \"h{other}\"]").expect("text");
            writeln!(text, "buses = [{}]", listed.join(", ")).expect("text");
            if buses > 1 {
                writeln!(text, "tcp.h{one} = {{ listen = \"127.0.0.{}:{port}\" }}", one + 1).expect("text");
            }
            if buses > 2 {
                let (one_at, other_at) = (one + 1, other + 1);
                writeln!(text, "udp.h{one} = {{ listen = \"127.0.1.{one_at}:{port}\" }}").expect("text");
                writeln!(text, "udp.h{other} = {{ address = \"127.0.1.{other_at}\" }}").expect("text");
            }
            if buses > 1 && rng.bool() {
                writeln!(text, "large = {{ from = \"64KiB\", buses = [\"tcp\"] }}").expect("text");
            }
        }
    }
    System::parse(&text, Path::new("simulation.toml")).expect("a system file of our own")
}

/// Draws what a run is like.
fn options(rng: &mut fastrand::Rng) -> Options {
    let hosts = match rng.u32(0..10) {
        0..6 => 2,
        6..8 => 3,
        8 => rng.usize(4..=6),
        _ => rng.usize(7..=16),
    };
    Options {
        hosts,
        buses: rng.usize(1..=3),
        services: if hosts > 6 { 1 } else { rng.usize(1..=3) },
        ports: rng.usize(0..=2),
        cuts: rng.u32(0..4) > 0,
        restarts: rng.u32(0..4) == 0,
        refusals: rng.u32(0..3) == 0,
        busy: if hosts > 6 {
            Duration::from_secs(6)
        } else {
            Duration::from_secs(20)
        },
        fault: None,
    }
}

/// What a run came to.
struct Outcome {
    delivered: u64,
    missing: u64,
    failure: Option<String>,
}

/// One run; the same seed is the same run.
fn run(seed: u64, fault: Option<Fault>) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut options = options(&mut rng);
    options.fault = fault;
    let system = system(options.hosts, options.buses, &mut rng);
    let mut world = World::new(&system, options, rng.u64(..));
    world.live();
    let outcome = (world.checks.delivered, world.checks.missing);
    let failure = world.checks.violations.first().map(|first| {
        format!(
            "seed {seed}: {first}\n{:?}\n{:#?}\n{}",
            world.options,
            world.counters(),
            world.checks.trace()
        )
    });
    Outcome {
        delivered: outcome.0,
        missing: outcome.1,
        failure,
    }
}

impl World<'_> {
    /// Busy for a while, then quiet, then without programs.
    fn live(&mut self) {
        for host in 0..self.hosts.len() {
            if self.options.restarts {
                let after = Duration::from_secs(2) + self.delay(8000);
                self.at(after, world::Event::Restart { host });
            }
        }
        let mut end = self.options.busy;
        self.run_until(end);
        self.is_busy = false;
        for wire in 0..self.wires.len() {
            if self.wires[wire].is_cut {
                self.repair(wire);
            }
        }
        end += SETTLE;
        self.run_until(end);
        if self.checks.violations.is_empty() {
            check::settled(self);
        }
        for host in 0..self.hosts.len() {
            for service in 0..self.options.services {
                self.set_programs(host, service, 0, 0);
            }
        }
        end += RELEASE;
        self.run_until(end);
        if self.checks.violations.is_empty() {
            check::released(self);
        }
    }
}

fn number_from(variable: &str, otherwise: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn seeded_systems_route_deliver_account_and_release_every_message() {
    if let Ok(seed) = std::env::var("BUSWAY_SIMULATION_SEED") {
        let outcome = run(seed.parse().expect("a seed is a number"), None);
        assert!(
            outcome.failure.is_none(),
            "{}",
            outcome.failure.unwrap_or_default()
        );
        return;
    }
    let (mut delivered, mut missing) = (0, 0);
    for seed in 0..number_from("BUSWAY_SIMULATION_RUNS", 3000) {
        let outcome = run(seed, None);
        assert!(
            outcome.failure.is_none(),
            "{}",
            outcome.failure.unwrap_or_default()
        );
        delivered += outcome.delivered;
        missing += outcome.missing;
    }
    println!("{delivered} messages delivered, {missing} missing and accounted");
    assert!(
        missing > 0 && delivered > missing * 10,
        "the runs were too quiet or too broken"
    );
}

#[test]
fn same_seed_is_the_same_run() {
    let of = |seed| (run(seed, None).delivered, run(seed, None).missing);
    assert_eq!(of(7), of(7));
}

/// The simulation finds a fault within this many seeds.
fn finds(fault: Fault) {
    let found = (0..300).find_map(|seed| run(seed, Some(fault)).failure);
    assert!(found.is_some(), "no run of 300 found {fault:?}");
}

#[test]
fn dropped_subscriber_at_a_channel_end_is_found() {
    finds(Fault::NoHold);
}

#[test]
fn receiving_end_that_never_ends_is_found() {
    finds(Fault::NoEndReceiver);
}

#[test]
fn landing_place_reused_too_early_is_found() {
    finds(Fault::EarlyReuse);
}

#[test]
fn unconfirmed_end_of_a_sender_is_found() {
    finds(Fault::NoClosed);
}

#[test]
fn move_without_draining_is_found() {
    finds(Fault::NoDrain);
}

#[test]
fn channel_that_the_bus_keeps_is_found() {
    finds(Fault::NoCloseChannel);
}
