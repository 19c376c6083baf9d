//! TCP, which every kernel has: what holds over the other buses is held against this, in guests of
//! the same kind.

use anyhow::Result;
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateway_pair, gateways, suites};

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let suites = stage.part("suites", suites(stage, &[], &["contract_tcp"]));
    let pair = gateway_pair(stage, &[], |_| ())?;
    let gateways = gateways(stage, &pair, &["tcp"]);
    Ok(json!({ "suites": suites, "gateways": gateways }))
}
