//! PCI windows: the suites of the bus over the device, gateways of two guests joined by nothing but
//! a window and of a guest and this host, faults; and, by name, figures.

mod faults;
mod found;
mod joined;
mod speed;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Stage;
use super::parts::suites_in;
use crate::lab::gateways::{Programs, end_to_end};
use crate::lab::guest::{Guest, Plan};
use crate::lab::preset::{Preset, Windows};
use crate::lab::window::{Window, address};

use joined::{Join, Joined};

pub(super) use speed::run as speed;

/// The settings of both hosts for the suite of the contract, which has both in one guest: tables
/// divided by `|`.
const TABLES: &str = "BUSWAY_PCI_TABLES";
/// Where the guest of the suites has a window without doorbells.
const PLAIN_SLOT: u8 = 0x12;
const WINDOW_BYTES: u64 = 16 << 20;

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let suites = stage.part("suites", suites(stage));
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    stage.says("starts two guests");
    let joined = Joined::start(stage, &programs)?;
    let mut ways = Map::new();
    for join in [Join::Shared, Join::Apart, Join::Rung] {
        stage.says(format!("gateways, {}", join.about()));
        let outcome = end_to_end(joined.guests(), "pci", &joined.tables(join));
        if outcome.is_ok() {
            stage.notes(format!("gateways, {}: all messages crossed", join.about()));
        }
        ways.insert(join.about().to_owned(), stage.part(join.about(), outcome));
    }
    stage.says("an idle receiver");
    let idle = stage.part(
        "an idle receiver",
        joined::idle(stage, &joined, joined.guests(), [Join::Shared, Join::Rung]),
    );
    stage.says("a guest and a program of this host");
    let here = stage.part("this host", with_this_host(stage, &joined, &programs));
    let faults = faults::run(stage, &joined);
    Ok(
        json!({ "suites": suites, "gateways": ways, "idle_percent": idle, "this_host": here, "faults": faults }),
    )
}

/// The contract over a resource, and what doorbells are for, in one guest that has both ends.
fn suites(stage: &Stage<'_>) -> Result<Value> {
    let windows = Windows::of(&[Preset::PciDoorbell])?;
    let plain = Window::new(WINDOW_BYTES)?;
    let mut plan = Plan::new("a", 1);
    windows.place(&mut plan);
    plain.place(&mut plan, PLAIN_SLOT);
    let (address, mib) = (address(PLAIN_SLOT), WINDOW_BYTES >> 20);
    let table = format!("device = {address:?}, resource = 2, length = \"{mib}MiB\"");
    let environment = [(TABLES, &*[&*table, &table].join("|"))];
    let names = ["contract_pci", "pci"];
    suites_in(stage, plan, &[Preset::PciDoorbell], &names, &environment)
}

fn with_this_host(stage: &Stage<'_>, joined: &Joined, programs: &Programs) -> Result<Value> {
    let here = Guest::here("b", &programs.files())?;
    let hosts = [&joined.a, &here];
    let mut ways = Map::new();
    for join in [Join::Here, Join::Served] {
        let outcome = end_to_end(hosts, "pci", &joined.tables(join))?;
        stage.notes(format!("gateways, {}: all messages crossed", join.about()));
        ways.insert(join.about().to_owned(), outcome);
    }
    let idle = joined::idle(stage, joined, hosts, [Join::Here, Join::Served])?;
    ways.insert("idle_percent".to_owned(), idle);
    Ok(Value::Object(ways))
}
