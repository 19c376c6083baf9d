//! Sampling ports of a partition as a [`Path`], and what a call costs where nobody else is.

use std::hint::black_box;
use std::time::{Duration, Instant};

use busway_port::apex::{OperatingMode, set_partition_mode};
use busway_port::system::{module_of, root_of};
use busway_port::{Partition, SamplingDestination, SamplingSource, Store};
use busway_system::System;

use super::{Costs, Path, PortsPlace, clock_ns};
use crate::worker::control::Control;
use crate::worker::figures::Latency;
use crate::worker::{PortCosts, WorkerResult};

/// Of every destination port; longer than any message is under way.
const REFRESH_PERIOD_NS: i64 = 1_000_000_000;

/// Calls between two readings of the clock.
const CALLS: u64 = 100;

/// Joins the partition of `place`.
pub(super) fn join(place: &PortsPlace) -> WorkerResult<Partition> {
    let name = &place.partition;
    let system = System::load(&place.system).map_err(|e| e.to_string())?;
    let partition = system
        .partition(name)
        .ok_or_else(|| format!("{} has no partition {name}", place.system.display()))?;
    let host = &partition.host;
    let store = Store::open(root_of(&system, host), module_of(&system, host));
    store
        .map_err(|e| e.to_string())?
        .join(name)
        .map_err(|e| e.to_string())
}

/// A source port and a destination port.
pub(super) struct Ports<'p> {
    source: SamplingSource<'p>,
    destination: SamplingDestination<'p>,
}

impl<'p> Ports<'p> {
    /// Creates both ports, and ends the start of the partition.
    pub(super) fn open(partition: &'p Partition, place: &PortsPlace) -> WorkerResult<Self> {
        let refused = |port: &str, refusal| format!("create {}/{port}: {refusal}", partition.name());
        let ports = Self {
            source: partition
                .sampling_source(&place.source)
                .map_err(|e| refused(&place.source, e))?,
            destination: partition
                .sampling_destination(&place.destination, REFRESH_PERIOD_NS)
                .map_err(|e| refused(&place.destination, e))?,
        };
        set_partition_mode(partition, OperatingMode::Normal)
            .map_err(|e| format!("start partition {}: {e}", partition.name()))?;
        Ok(ports)
    }
}

impl Path for Ports<'_> {
    #[inline]
    fn write(&mut self, message: &[u8]) -> WorkerResult<()> {
        self.source.write(message).map_err(|e| format!("write: {e}"))
    }

    #[inline]
    fn look(&mut self, message: &mut [u8]) -> WorkerResult<bool> {
        match self.destination.read_updated(message) {
            Ok(read) => Ok(read.length > 0),
            Err(refusal) => Err(format!("read: {refusal}")),
        }
    }
}

/// What a write and a read cost with nobody else at the channel: both ends in this one program.
pub(in super::super) fn costs(spec: &PortCosts, control: &Control) -> WorkerResult<Costs> {
    let (near, far) = (join(&spec.writer)?, join(&spec.reader)?);
    let (writer, reader) = (
        Ports::open(&near, &spec.writer)?,
        Ports::open(&far, &spec.reader)?,
    );
    let message = vec![7; spec.payload_bytes];
    let mut buffer = vec![0; spec.payload_bytes];
    let write = || writer.source.write(black_box(&message)).is_ok();
    let third_s = spec.seconds / 3.0;
    let write_ns = cost(third_s, control, write)?;
    let read_ns = cost(third_s, control, || {
        reader.destination.read(black_box(&mut buffer)).is_ok()
    })?;
    let both_ns = cost(third_s, control, || {
        write() && reader.destination.read(black_box(&mut buffer)).is_ok()
    })?;
    Ok(Costs {
        write_ns,
        read_ns,
        write_and_read_ns: both_ns,
        clock_ns: clock_ns() as f64,
    })
}

/// Median over batches of what a call costs in ns.
fn cost(seconds: f64, control: &Control, mut call: impl FnMut() -> bool) -> WorkerResult<f64> {
    let mut batches_ns = Latency::new();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while !control.ended() {
        let begun = Instant::now();
        for _ in 0..CALLS {
            if !call() {
                return Err("a port refused a call that must succeed".into());
            }
        }
        batches_ns.record(begun.elapsed().as_nanos() as u64);
        if begun >= end {
            break;
        }
    }
    let percentiles = batches_ns.percentiles().unwrap_or_default();
    Ok(percentiles.p50 as f64 / CALLS as f64)
}
