//! Two guests, `a` and `b`, on one wire.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::guest::{Guest, Plan, Wire};
use super::preset::{self, Preset};
use super::store::Store;
use super::wire::Relay;

#[derive(Debug)]
pub struct Pair {
    /// `a`, address 10.77.0.1, and `b`, address 10.77.0.2.
    pub guests: [Guest; 2],
    /// What makes the wire imperfect, where that was asked for.
    pub relay: Option<Relay>,
    _directory: tempfile::TempDir,
}

impl Pair {
    #[must_use]
    pub fn both(&self) -> [&Guest; 2] {
        self.guests.each_ref()
    }
}

/// Between the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    Wire,
    /// A relay with this seed.
    Relay(u64),
}

impl Pair {
    pub fn start(
        store: &Store,
        logs: &Path,
        presets: &[Preset],
        between: Between,
        prepare: impl Fn(&mut Plan),
    ) -> Result<Pair> {
        let directory = tempfile::Builder::new().prefix("busway-wire-").tempdir()?;
        let (relay, wires) = match between {
            Between::Wire => (None, Wire::pair(directory.path())),
            Between::Relay(seed) => {
                let (relay, wires) = Relay::start(directory.path(), seed)?;
                (Some(relay), wires)
            }
        };
        let [wire_a, wire_b] = wires;
        let start = |name: &str, number: u8, wire: Wire| {
            let mut plan = Plan::new(name, number);
            plan.wire = Some(wire);
            presets.iter().for_each(|preset| preset.prepare(&mut plan));
            prepare(&mut plan);
            Guest::start(store, plan, logs)
        };
        // Both boot at once, on a processor each.
        let guests = [start("a", 1, wire_a)?, start("b", 2, wire_b)?];
        let pair = Pair {
            guests,
            relay,
            _directory: directory,
        };
        for guest in &pair.guests {
            preset::set_up(guest, presets)?;
        }
        pair.guests[0].shell(
            "for try in $(seq 100); do ping -c 1 -W 1 10.77.0.2 > /dev/null 2>&1 && exit 0; done; exit 1",
            Duration::from_secs(120),
        )?;
        Ok(pair)
    }
}
