//! RDMA in software, over both of its media: the suites of its buses in one guest, gateways of two,
//! and a device that goes away while messages flow.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::Stage;
use super::parts::{gateway_pair, gateways, suites};
use crate::lab::gateways::{Gateways, Stream, end, flows, with_logs};
use crate::lab::guest::Program;
use crate::lab::pair::Pair;
use crate::lab::preset::Preset;

const BUSES: [&str; 2] = ["rdma-send", "rdma-write"];
/// Long enough for messages to be sent into the void.
const WITHOUT_DEVICE: Duration = Duration::from_secs(2);

pub(super) fn roce(stage: &Stage<'_>) -> Result<Value> {
    run(stage, Preset::Roce)
}

pub(super) fn iwarp(stage: &Stage<'_>) -> Result<Value> {
    run(stage, Preset::Iwarp)
}

fn run(stage: &Stage<'_>, preset: Preset) -> Result<Value> {
    let tests = ["contract_rdma_send", "contract_rdma_write", "rdma", "rdma_alone"];
    let suites = stage.part("suites", suites(stage, &[preset], &tests));
    let pair = gateway_pair(stage, &[preset], |_| ())?;
    let gateways = gateways(stage, &pair, &BUSES);
    let mut removed = Vec::new();
    for bus in BUSES {
        stage.says(format!("a device is removed under {bus}"));
        let outcome = device_removed_under_load(&pair, preset, bus);
        if outcome.is_ok() {
            stage.notes(format!(
                "a device was removed under {bus}: messages flow again once it is back"
            ));
        }
        removed.push(stage.part(
            format!("a device removed under {bus}"),
            outcome.map(|()| json!(bus)),
        ));
    }
    Ok(json!({ "suites": suites, "gateways": gateways, "device_removed_under": removed }))
}

/// Takes the receiving host's device away while messages flow, then the sending host's; both
/// gateways must live on, and messages flow again once it is back.
fn device_removed_under_load(pair: &Pair, preset: Preset, bus: &str) -> Result<()> {
    let gateways = Gateways::start(pair.both(), &[bus], "")?;
    let stream = Stream {
        service: "lab/removal",
        lengths_bytes: &[64, 20_000],
        ..Stream::STEADY
    };
    let [a, b] = &pair.guests;
    let (subscriber, publisher) = (stream.subscriber(b)?, stream.publisher(a)?);
    with_logs(flows(&publisher, &subscriber, "at first"), &gateways)?;
    for guest in [b, a] {
        preset.remove_device(guest)?;
        sleep(WITHOUT_DEVICE);
        preset.make_device(guest)?;
        let when = format!(
            "after the device of {} was removed and came back",
            guest.plan.name
        );
        if gateways.running.iter().any(Program::has_ended) {
            return with_logs(Err(anyhow!("a gateway ended {when}")), &gateways);
        }
        with_logs(flows(&publisher, &subscriber, &when), &gateways)?;
    }
    end(&[&publisher, &subscriber])?;
    gateways.finish()
}
