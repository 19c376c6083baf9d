//! TIPC in the kernel: the suites of its bus in one guest, gateways of two.

use anyhow::Result;
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateway_pair, gateways, suites};
use crate::lab::preset::Preset;

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let suites = stage.part(
        "suites",
        suites(stage, &[Preset::Tipc], &["contract_tipc", "tipc"]),
    );
    let pair = gateway_pair(stage, &[Preset::Tipc])?;
    let gateways = gateways(stage, &pair, &["tipc"]);
    Ok(json!({ "suites": suites, "gateways": gateways }))
}
