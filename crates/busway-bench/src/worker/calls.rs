//! What calls of sampling ports cost where nobody else is at the channel: both ends in this one
//! program.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::read_ns;
use crate::control::{Control, WorkerResult};
use crate::record::{Calls, Recorder};
use crate::technology::{MeetingPoint, Side, join, port_names, sampling_ports, start};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortCalls {
    pub place: MeetingPoint,
    pub payload_bytes: usize,
    pub seconds: f64,
}

/// Calls between two readings of the clock.
const BATCH: u64 = 100;

pub(super) fn calls(spec: &PortCalls, control: &Control) -> WorkerResult<Calls> {
    let (near, far) = (join(&spec.place, Side::Asks)?, join(&spec.place, Side::Answers)?);
    let ports = |partition, side| {
        let [source, destination] = port_names(spec.payload_bytes, side);
        sampling_ports(partition, &source, &destination)
    };
    let (source, _) = ports(&near, Side::Asks)?;
    let (_, destination) = ports(&far, Side::Answers)?;
    start(&near)?;
    start(&far)?;
    let message = vec![7; spec.payload_bytes];
    let mut buffer = vec![0; spec.payload_bytes];
    let write = || source.write(black_box(&message)).is_ok();
    let third_s = spec.seconds / 3.0;
    Ok(Calls {
        write_ns: call_ns(third_s, control, write)?,
        read_ns: call_ns(third_s, control, || {
            destination.read(black_box(&mut buffer)).is_ok()
        })?,
        write_and_read_ns: call_ns(third_s, control, || {
            write() && destination.read(black_box(&mut buffer)).is_ok()
        })?,
        clock_ns: read_ns(),
    })
}

fn call_ns(seconds: f64, control: &Control, mut call: impl FnMut() -> bool) -> WorkerResult<f64> {
    let mut batches = Recorder::default();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while !control.ended() {
        let begun = Instant::now();
        for _ in 0..BATCH {
            if !call() {
                return Err("a port refused a call that must succeed".into());
            }
        }
        batches.record(begun.elapsed().as_nanos() as u64);
        if begun >= end {
            break;
        }
    }
    let distribution = batches.distribution().unwrap_or_default();
    Ok(distribution.p50 as f64 / BATCH as f64)
}
