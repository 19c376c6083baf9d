//! A PREEMPT_RT kernel: the contract over TCP, and gateways whose lanes run at a real-time priority
//! on an isolated processor.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Stage;
use super::parts::suite;
use crate::lab::builds::Set;
use crate::lab::gateways::{Programs, end_to_end};
use crate::lab::guest::Plan;
use crate::lab::kernel::Flavor;
use crate::lab::pair::{Between, Pair};

/// Processor 1 is for lanes: no other thread, no timer, no interrupt that can be elsewhere.
const ISOLATED: &str = "isolcpus=nohz,domain,managed_irq,1 nohz_full=1 rcu_nocbs=1";
/// Below 50, at which the threads of interrupts run on such a kernel: a lane above them keeps the
/// network waiting that it waits for itself.
const LANE: &str =
    "[[lane]]\nname = \"control\"\nservices = [\"lab/*\"]\nwait = \"event\"\ncpu = 1\npriority = 40\n";

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    let contract = stage.builds.program(Set::TransportTests, "contract_tcp")?;
    stage.says("starts two guests");
    let pair = Pair::start(stage.store, &stage.logs, &[], Between::Wire, |plan: &mut Plan| {
        plan.flavor = Flavor::Rt;
        plan.processors = 2;
        plan.kernel_words = ISOLATED.to_owned();
        programs.place(plan);
        plan.test(&contract, "contract_tcp");
    })?;
    let facts = pair.guests[0].shell(
        "cat /sys/kernel/realtime /sys/devices/system/cpu/isolated; uname -v",
        Duration::from_secs(30),
    )?;
    let lines: Vec<&str> = facts.lines().collect();
    ensure!(
        lines.first() == Some(&"1") && lines.get(1) == Some(&"1"),
        "the kernel is no PREEMPT_RT one with processor 1 isolated: {facts}"
    );
    stage.notes(lines.get(2).unwrap_or(&""));
    let counts = suite(stage, &pair.guests[0], "contract_tcp", &[])?;
    stage.says("gateways over tcp");
    let gateways = end_to_end(pair.both(), "tcp", LANE)?;
    Ok(json!({ "kernel": lines.get(2), "suites": { "contract_tcp": counts }, "gateways": gateways }))
}
