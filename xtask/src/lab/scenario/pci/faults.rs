//! What happens to a window under load: its other host is reset, and its link dies, so that all
//! that is read is ones.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::Stage;
use super::joined::{Join, Joined};
use crate::lab::gateways::{Gateways, Stream, end, flows, report, seen, with_logs};

const LIMIT: Duration = Duration::from_secs(60);
/// Between two fillings: hosts that have not noticed write on, where a real link would lose it.
const REFILL: Duration = Duration::from_millis(20);

const STREAM: Stream = Stream {
    service: "lab/faults",
    lengths_bytes: &[64, 20_000],
    ..Stream::STEADY
};

pub(super) fn run(stage: &Stage<'_>, joined: &Joined) -> Value {
    stage.says("the window reads all ones");
    let ones = stage.part("a window that reads all ones", dead_link(stage, joined));
    stage.says("a host is reset");
    let reset = stage.part("a host that is reset", reset(stage, joined));
    json!({ "all_ones": ones, "reset": reset })
}

/// Fills the window with ones while messages flow; the gateway that notices first must report it,
/// and messages flow again once the window is valid.
fn dead_link(stage: &Stage<'_>, joined: &Joined) -> Result<Value> {
    let [a, b] = joined.guests();
    let gateways = Gateways::start([a, b], &["pci"], &joined.tables(Join::Shared))?;
    let (subscriber, publisher) = (STREAM.subscriber(b)?, STREAM.publisher(a)?);
    with_logs(flows(&publisher, &subscriber, "at first"), &gateways)?;
    let before = [0, 1].map(|host| gateways.downs(host).len());
    let is_back = AtomicBool::new(false);
    let reasons = std::thread::scope(|scope| {
        let dead = scope.spawn(|| {
            // Relaxed: the flag orders nothing else; the thread is joined.
            while !is_back.load(Ordering::Relaxed) {
                joined.shared().fill(0xff)?;
                sleep(REFILL);
            }
            Ok::<_, anyhow::Error>(())
        });
        let reasons = recognised(&gateways, before);
        is_back.store(true, Ordering::Relaxed);
        dead.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        reasons
    })?;
    joined.shared().fill(0)?;
    let back = Instant::now();
    with_logs(gateways.linked(), &gateways)?;
    with_logs(
        flows(&publisher, &subscriber, "after the window read all ones"),
        &gateways,
    )?;
    let back_ms = back.elapsed().as_millis() as u64;
    end(&[&publisher, &subscriber])?;
    let missing = seen(&report(&subscriber.output_so_far()), "missing");
    gateways.finish()?;
    stage.notes(format!(
        "the window read all ones: noticed ({}), back after {back_ms} ms, {missing} messages lost",
        reasons
            .iter()
            .find(|reason| reason.contains("all ones"))
            .and_then(|reason| reason.rsplit(" is down: ").next())
            .unwrap_or_default()
    ));
    Ok(json!({ "reasons": reasons, "back_after_ms": back_ms, "missing": missing }))
}

/// Waits until both gateways have reported that the link is down, and one of them the reason, in
/// lines after the ones given.
fn recognised(gateways: &Gateways<'_>, before: [usize; 2]) -> Result<Vec<String>> {
    // Who looks between two fillings may see what the other one wrote then, which a dead link would
    // have lost.
    let is_known =
        |reason: &String| reason.contains("all ones") || reason.contains("has begun a new conversation");
    let deadline = Instant::now() + LIMIT;
    loop {
        let said = [0, 1].map(|host| gateways.downs(host).split_off(before[host]));
        let is_noticed = said.iter().all(|reasons| !reasons.is_empty());
        let reasons = said.concat();
        if is_noticed && reasons.iter().any(|reason| reason.contains("all ones")) {
            ensure!(
                reasons.iter().all(is_known),
                "the links are down, but not because of what was read: {reasons:?}"
            );
            return Ok(reasons);
        }
        ensure!(
            Instant::now() < deadline,
            "the gateways do not recognise a window of all ones: {reasons:?}"
        );
        sleep(REFILL);
    }
}

/// Switches the receiving host off while messages flow, and on again: the other one says that the
/// link is down, and messages flow again.
fn reset(stage: &Stage<'_>, joined: &Joined) -> Result<Value> {
    let [a, b] = joined.guests();
    let again;
    let mut gateways = Gateways::start([a, b], &["pci"], &joined.tables(Join::Shared))?;
    let (subscriber, publisher) = (STREAM.subscriber(b)?, STREAM.publisher(a)?);
    with_logs(flows(&publisher, &subscriber, "at first"), &gateways)?;
    b.power_off();
    let off = Instant::now();
    let reason = gateways.down(0)?;
    let noticed_ms = off.elapsed().as_millis() as u64;
    let status = gateways.status(0)?;
    again = joined.again(stage)?;
    gateways.replace(1, &again)?;
    let subscriber = STREAM.subscriber(&again)?;
    with_logs(
        flows(&publisher, &subscriber, "after a host was reset"),
        &gateways,
    )?;
    end(&[&publisher, &subscriber])?;
    gateways.finish()?;
    stage.notes(format!(
        "a host was reset: noticed after {noticed_ms} ms ({}), messages flow again",
        reason.rsplit(" is down: ").next().unwrap_or_default()
    ));
    Ok(json!({ "noticed_after_ms": noticed_ms, "reason": reason, "status_while_down": status["links"] }))
}
