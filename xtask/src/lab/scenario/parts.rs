//! What scenarios have in common.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Stage;
use crate::lab::builds::Set;
use crate::lab::gateways::{Programs, end_to_end, is_broken_queue_pair};
use crate::lab::guest::{Guest, Plan, Wire};
use crate::lab::pair::{Between, Pair};
use crate::lab::preset::{self, Preset};
use crate::lab::suite as test_binary;

/// Many times what the longest suite takes.
const SUITE_LIMIT: Duration = Duration::from_secs(240);
/// RDMA in software sometimes breaks a queue pair on a machine that pauses guests ("remote invalid
/// request", "local QP operation error", without a wrong request). The gateways open a new channel
/// and count what was lost; only a try without that shows that nothing is lost. Each break is
/// reported.
const ATTEMPTS: u32 = 3;

pub(super) fn suites(stage: &Stage<'_>, presets: &[Preset], names: &[&str]) -> Result<Value> {
    let sockets = tempfile::tempdir()?;
    let [wire, _] = Wire::pair(sockets.path());
    let mut plan = Plan::new("a", 1);
    plan.wire = Some(wire);
    presets.iter().for_each(|preset| preset.prepare(&mut plan));
    suites_in(stage, plan, presets, names, &[])
}

/// The same in a guest of this plan, with variables of their environment.
pub(super) fn suites_in(
    stage: &Stage<'_>,
    mut plan: Plan,
    presets: &[Preset],
    names: &[&str],
    environment: &[(&str, &str)],
) -> Result<Value> {
    stage.says("builds the tests");
    for name in names {
        // The file has a number in its name. One that is missing fails in its turn.
        if let Ok(file) = stage.builds.program(Set::TransportTests, name) {
            plan.test(&file, name);
        }
    }
    stage.says("starts a guest");
    let guest = Guest::start(stage.store, plan, &stage.logs.join("suites"))?;
    preset::set_up(&guest, presets)?;
    let mut results = Map::new();
    for name in names {
        let known = stage.builds.program(Set::TransportTests, name);
        let outcome = known.and_then(|_| suite(stage, &guest, name, environment));
        results.insert((*name).to_owned(), stage.part(name, outcome));
    }
    Ok(Value::Object(results))
}

pub(super) fn suite(
    stage: &Stage<'_>,
    guest: &Guest,
    name: &str,
    environment: &[(&str, &str)],
) -> Result<Value> {
    stage.says(format!("{name} in guest {}", guest.plan.name));
    let counts = test_binary::run(guest, &Plan::test_path(name), &[], environment, SUITE_LIMIT)?;
    stage.notes(format!("{name}: {} tests passed", counts.passed));
    Ok(json!({ "passed": counts.passed }))
}

/// Two guests with the programs that [`gateways`] needs; `prepare` adds what else they have.
pub(super) fn gateway_pair(
    stage: &Stage<'_>,
    presets: &[Preset],
    prepare: impl Fn(&mut Plan),
) -> Result<Pair> {
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    stage.says("starts two guests");
    Pair::start(
        stage.store,
        &stage.logs.join("gateways"),
        presets,
        Between::Wire,
        |plan| {
            programs.place(plan);
            prepare(plan);
        },
    )
}

pub(super) fn gateways(stage: &Stage<'_>, pair: &Pair, buses: &[&str]) -> Value {
    let mut results = Vec::new();
    for bus in buses {
        stage.says(format!("gateways over {bus}"));
        let mut outcome = end_to_end(pair.both(), bus, "");
        for _ in 1..ATTEMPTS {
            let Err(error) = &outcome else { break };
            if !is_broken_queue_pair(error) {
                break;
            }
            stage.notes(format!(
                "gateways over {bus}: a queue pair broke, and they try again: {error:#}"
            ));
            outcome = end_to_end(pair.both(), bus, "");
        }
        if outcome.is_ok() {
            stage.notes(format!(
                "gateways over {bus}: all messages crossed, and again after either was killed"
            ));
        }
        results.push(stage.part(format!("gateways over {bus}"), outcome));
    }
    Value::Array(results)
}
