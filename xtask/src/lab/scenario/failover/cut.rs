//! Ways to take one of two buses from two guests under load, and to give it back.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::Duration;

use anyhow::Result;

use super::hosts::Hosts;
use crate::lab::guest::Guest;
use crate::lab::preset::Preset;
use crate::lab::wire::Faults;

const LIMIT: Duration = Duration::from_secs(60);
/// Between two fillings of a window: hosts that have not noticed write on, where a dead link would
/// lose it.
const REFILL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Cable,
    Interface,
    /// One host's device of RDMA is deleted, its bearer of TIPC disabled, its PCI function removed:
    /// wires, addresses, memory stay.
    Device(Preset),
    /// All that is read from the window is ones.
    Ones,
}

impl Cut {
    /// Ways to cut the bus that has this device; TCP has none.
    pub(super) fn of(preset: Option<Preset>) -> Vec<Cut> {
        match preset {
            Some(Preset::Pci) => vec![Cut::Ones, Cut::Device(Preset::Pci)],
            // The kernel's soft RoCE panics when the interface comes up again (`rxe_skb_tx_dtor`):
            // a packet was waiting in it whose queue pair has gone.
            Some(Preset::Roce) => vec![Cut::Cable, Cut::Device(Preset::Roce)],
            Some(preset) => vec![Cut::Cable, Cut::Interface, Cut::Device(preset)],
            None => vec![Cut::Cable, Cut::Interface],
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Cut::Cable => "cable pulled",
            Cut::Interface => "interface down",
            Cut::Device(Preset::Tipc) => "bearer disabled",
            Cut::Device(Preset::Pci) => "function removed",
            Cut::Device(_) => "device deleted",
            Cut::Ones => "all ones",
        }
    }
}

pub(super) struct Outage<'scope> {
    cut: Cut,
    wire: usize,
    filling: Option<ScopedJoinHandle<'scope, Result<()>>>,
}

/// Cuts the bus on wire number `wire`; what happens to one host happens to `guest`. `is_over` is
/// for the threads of `scope`.
pub(super) fn begin<'scope, 'env>(
    (hosts, guest): (&'env Hosts, &Guest),
    cut: Cut,
    wire: usize,
    scope: &'scope Scope<'scope, 'env>,
    is_over: &'env AtomicBool,
) -> Result<Outage<'scope>> {
    let mut filling = None;
    match cut {
        Cut::Cable => hosts.relay(wire)?.set(Faults::CUT),
        Cut::Interface => shell(guest, &format!("ip link set eth{wire} down"))?,
        Cut::Device(preset) => preset.remove_device(guest)?,
        Cut::Ones => {
            filling = Some(scope.spawn(|| {
                // Relaxed: the flag orders nothing else; the thread is joined.
                while !is_over.load(Ordering::Relaxed) {
                    hosts.window.fill(0xff)?;
                    sleep(REFILL);
                }
                hosts.window.fill(0)
            }));
        }
    }
    Ok(Outage { cut, wire, filling })
}

impl Outage<'_> {
    pub(super) fn mend(self, hosts: &Hosts, guest: &Guest, is_over: &AtomicBool) -> Result<()> {
        match self.cut {
            Cut::Cable => hosts.relay(self.wire)?.set(Faults::NONE),
            Cut::Interface => shell(guest, &format!("ip link set eth{} up", self.wire))?,
            Cut::Device(preset) => preset.make_device(guest)?,
            Cut::Ones => is_over.store(true, Ordering::Relaxed),
        }
        match self.filling.map(ScopedJoinHandle::join) {
            Some(ended) => ended.unwrap_or_else(|panic| resume_unwind(panic)),
            None => Ok(()),
        }
    }
}

fn shell(guest: &Guest, line: &str) -> Result<()> {
    guest.shell(line, LIMIT).map(drop)
}
