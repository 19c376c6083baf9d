//! TIPC in the kernel: the suites of its bus in one guest, gateways of two.

use anyhow::Result;
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateways, suites};
use crate::lab::preset::Preset;

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let suites = suites(stage, &[Preset::Tipc], &["contract_tipc", "tipc"], &[])?;
    let gateways = gateways(stage, &[Preset::Tipc], &["tipc"])?;
    Ok(json!({ "suites": suites, "gateways": gateways }))
}
