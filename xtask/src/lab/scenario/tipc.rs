//! TIPC in the kernel: the suites of its bus, and those of UDP on a kernel of 2022, in one guest,
//! many senders on the wire between two, gateways of two.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateway_pair, gateways, suites};
use crate::lab::builds::Set;
use crate::lab::guest::Plan;
use crate::lab::pair::{Between, Pair};
use crate::lab::preset::Preset;
use crate::lab::protocol::Job;

const CROWD: &str = "of_sixteen_senders_on_a_node_none_starves";
const CROWD_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let suites = stage.part(
        "suites",
        suites(
            stage,
            &[Preset::Tipc],
            &["contract_tipc", "tipc", "contract_udp", "udp"],
        ),
    );
    let crowd = stage.part("crowd", crowd(stage));
    let pair = gateway_pair(stage, &[Preset::Tipc], |_| ())?;
    let gateways = gateways(stage, &pair, &["tipc"]);
    Ok(json!({ "suites": suites, "crowd": crowd, "gateways": gateways }))
}

fn crowd(stage: &Stage<'_>) -> Result<Value> {
    let file = stage.builds.program(Set::TransportTests, "tipc")?;
    stage.says("many senders on the wire between two guests");
    let logs = stage.logs.join("crowd");
    let pair = Pair::start(stage.store, &logs, &[Preset::Tipc], Between::Wire, |plan| {
        plan.test(&file, "tipc");
    })?;
    let mut running = Vec::new();
    for (guest, side) in pair.guests.iter().zip(["one", "two"]) {
        let test = Plan::test_path("tipc");
        let words = [
            test.as_str(),
            "--include-ignored",
            "--nocapture",
            "--exact",
            CROWD,
        ];
        running.push(guest.spawn(Job {
            words: words.map(str::to_owned).to_vec(),
            environment: [("BUSWAY_TIPC_SIDE".to_owned(), side.to_owned())].into(),
            ..Job::default()
        })?);
    }
    let mut said = String::new();
    for program in running {
        let done = program.wait(CROWD_LIMIT).context(CROWD)?;
        ensure!(
            done.code == 0 && done.output.contains("1 passed"),
            "{CROWD} ended with {}: {}\n{}",
            done.code,
            done.output,
            done.error
        );
        said.extend(done.output.lines().filter(|line| line.contains(" senders, ")));
    }
    stage.notes(said.clone());
    Ok(json!(said))
}
