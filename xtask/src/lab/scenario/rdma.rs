//! RDMA in software, over both of its media: the suites of its buses in one guest, gateways of two.

use anyhow::Result;
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateways, suites};
use crate::lab::preset::Preset;

pub(super) fn roce(stage: &Stage<'_>) -> Result<Value> {
    run(stage, Preset::Roce)
}

pub(super) fn iwarp(stage: &Stage<'_>) -> Result<Value> {
    run(stage, Preset::Iwarp)
}

fn run(stage: &Stage<'_>, preset: Preset) -> Result<Value> {
    let tests = ["contract_rdma_send", "contract_rdma_write", "rdma"];
    let suites = suites(stage, &[preset], &tests, &[])?;
    let gateways = gateways(stage, &[preset], &["rdma-send", "rdma-write"])?;
    Ok(json!({ "suites": suites, "gateways": gateways }))
}
