//! ARINC 653 ports over each bus of the registry that most machines lack: the end-to-end tests of
//! ports, which the host runs over memory, TCP and UDP, in one guest a device.
//!
//! Their two hosts are network namespaces of the guest where the bus works in those, or else two
//! domains of it. A new bus of the registry is run here by itself; one that needs a device has it
//! named in [`presets_of`].

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::Stage;
use crate::lab::builds::{Builds, Set};
use crate::lab::guest::{Guest, Plan, Wire};
use crate::lab::preset::{self, Preset, WINDOW_BYTES, WINDOW_SLOT, Windows};
use crate::lab::suite as test_binary;
use crate::lab::window::address;

/// The end-to-end tests run over these everywhere.
const ON_EVERY_MACHINE: [&str; 3] = ["memory", "tcp", "udp"];
/// Those that cut the bus come last: one that fails may leave it cut.
const SUITES: [&str; 5] = [
    "port_conformance",
    "ports",
    "port_waking",
    "port_faults",
    "failover_ports",
];
/// Services over this bus, whose gateways must not copy long messages.
const ZERO_COPY: (&str, &str) = ("rdma-send", "zero_copy");
/// What the tests start.
const PROGRAMS: [&str; 3] = ["busway", "busway-test-program", PORTS_PROGRAM];
const PORTS_PROGRAM: &str = "busway-test-ports";
/// The tests of the bus that `BUSWAY_BUS` names.
const OF_NAMED_BUS: &str = "over_named_bus";
/// Tests mostly wait, but each has two gateways, which the guest's one processor emulates.
const AT_A_TIME: &str = "--test-threads=3";
/// Suites that cut the bus, which may be one device for all tests: one at a time.
const ALONE: [&str; 2] = ["port_faults", "failover_ports"];
/// Many times what the longest suite takes.
const LIMIT: Duration = Duration::from_secs(600);
const MEMORY_MIB: u32 = 1024;
/// Where tests note that they could not run.
const SKIPPED: &str = "/tmp/skipped";
/// The network card by which the second host of a test reaches the first one.
const CARD_OF_SECOND_HOST: &str = "to-host-0";

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    stage.says("builds the tests and the programs");
    let buses = buses(stage.builds)?;
    let mut results = Map::new();
    for preset in presets(&buses, stage.is_named) {
        let rows: Vec<Row> = rows(&buses, preset)
            .into_iter()
            .filter(|row| row.shown.contains(stage.only))
            .collect();
        if rows.is_empty() {
            continue;
        }
        stage.says("starts a guest");
        let stand = start(stage, preset)?;
        for row in rows {
            let outcome = row.run(stage, &stand.guest, preset);
            results.insert(row.shown.clone(), stage.part(&row.shown, outcome));
        }
    }
    Ok(Value::Object(results))
}

struct Row<'a> {
    suite: &'static str,
    bus: &'a str,
    shown: String,
}

fn rows(buses: &[String], preset: Option<Preset>) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for bus in buses.iter().filter(|bus| presets_of(bus).contains(&preset)) {
        let zero_copy = (bus == ZERO_COPY.0).then_some(ZERO_COPY.1);
        rows.extend(zero_copy.into_iter().chain(SUITES).map(|suite| {
            let over = preset.map_or_else(|| bus.clone(), |preset| preset.shown(bus));
            Row {
                suite,
                bus,
                shown: format!("{suite} over {over}"),
            }
        }));
    }
    rows
}

/// The registry's buses but those that every machine has.
fn buses(builds: &Builds) -> Result<Vec<String>> {
    let program = builds.program(Set::Programs, PORTS_PROGRAM)?;
    let output = Command::new(&program).arg("buses").output();
    let output = output.with_context(|| format!("{} can't be started", program.display()))?;
    let all: Vec<String> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{PORTS_PROGRAM} buses says {output:?}"))?;
    Ok(all
        .into_iter()
        .filter(|bus| !ON_EVERY_MACHINE.contains(&bus.as_str()))
        .collect())
}

/// Devices of which the bus needs one; `None` if it needs no device.
fn presets_of(bus: &str) -> &'static [Option<Preset>] {
    match bus {
        "tipc" => &[Some(Preset::Tipc)],
        "pci" => &[Some(Preset::Pci)],
        "rdma-send" | "rdma-write" => &[Some(Preset::Roce), Some(Preset::Iwarp)],
        _ => &[None],
    }
}

/// The devices, a guest each. `is_named`: all of them, otherwise one for each bus.
fn presets(buses: &[String], is_named: bool) -> Vec<Option<Preset>> {
    let mut presets: Vec<Option<Preset>> = Vec::new();
    for bus in buses {
        let of_bus = presets_of(bus);
        presets.extend(if is_named { of_bus } else { &of_bus[..1] });
    }
    presets.sort_unstable();
    presets.dedup();
    presets
}

struct Stand {
    guest: Guest,
    // What QEMU has open.
    _windows: Windows,
    _sockets: tempfile::TempDir,
}

fn start(stage: &Stage<'_>, preset: Option<Preset>) -> Result<Stand> {
    let sockets = tempfile::tempdir()?;
    let [wire, _] = Wire::pair(sockets.path());
    let mut plan = Plan::new("a", 1);
    plan.wire = Some(wire);
    plan.memory_mib = MEMORY_MIB;
    let presets: Vec<Preset> = preset.into_iter().collect();
    presets.iter().for_each(|preset| preset.prepare(&mut plan));
    let windows = Windows::of(&presets)?;
    windows.place(&mut plan);
    for suite in SUITES.into_iter().chain([ZERO_COPY.1]) {
        plan.test(&stage.builds.program(Set::PortTests, suite)?, suite);
    }
    for name in PROGRAMS {
        plan.program_of_tests(&stage.builds.program(Set::Programs, name)?);
    }
    let name = preset.map_or("none".to_owned(), |preset| format!("{preset:?}").to_lowercase());
    let guest = Guest::start(stage.store, plan, &stage.logs.join(name))?;
    preset::set_up(&guest, &presets)?;
    Ok(Stand {
        guest,
        _windows: windows,
        _sockets: sockets,
    })
}

impl Row<'_> {
    fn run(&self, stage: &Stage<'_>, guest: &Guest, preset: Option<Preset>) -> Result<Value> {
        stage.says(&self.shown);
        let began_at = Instant::now();
        let owned = environment(self.bus, preset, &guest.plan);
        let environment: Vec<(&str, &str)> = owned
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let program = Plan::test_path(self.suite);
        let threads = if ALONE.contains(&self.suite) {
            "--test-threads=1"
        } else {
            AT_A_TIME
        };
        let counts = test_binary::run(guest, &program, &[OF_NAMED_BUS, threads], &environment, LIMIT)?;
        let skipped = guest.shell(&format!("cat {SKIPPED} 2> /dev/null || true"), LIMIT)?;
        ensure!(skipped.is_empty(), "tests could not run: {skipped}");
        let took_s = began_at.elapsed().as_secs();
        stage.notes(format!(
            "{}: {} tests passed in {took_s} s",
            self.shown, counts.passed
        ));
        Ok(json!({ "passed": counts.passed, "took_s": took_s }))
    }
}

/// What the tests need to know of the guest.
fn environment(bus: &str, preset: Option<Preset>, plan: &Plan) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("BUSWAY_BUS", bus.to_owned()),
        ("BUSWAY_SKIPPED", SKIPPED.to_owned()),
    ];
    let Some(preset) = preset else {
        return variables;
    };
    let mut card = "eth0";
    match preset {
        Preset::Tipc => card = CARD_OF_SECOND_HOST,
        // Soft RDMA devices work in the guest's own network only.
        Preset::Roce | Preset::Iwarp => variables.push(("BUSWAY_OWN_ADDRESS", plan.address())),
        Preset::Pci | Preset::PciDoorbell => {
            let (address, mib) = (address(WINDOW_SLOT), WINDOW_BYTES >> 20);
            let table = format!("device = {address:?}, resource = 2, length = \"{mib}MiB\"");
            variables.push(("BUSWAY_PCI_TABLES", [&*table, &table].join("|")));
            // The tests overwrite the window to cut it.
            return variables;
        }
    }
    variables.push(("BUSWAY_CUT", preset.removal(card)));
    variables.push(("BUSWAY_MEND", preset.return_of(card)));
    variables
}
