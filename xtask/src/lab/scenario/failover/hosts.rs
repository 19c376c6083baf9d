//! Two guests with a wire for TCP, another one for the bus beside it, and a PCI window.

use anyhow::{Context, Result};

use super::super::Stage;
use crate::lab::gateways::Programs;
use crate::lab::guest::Plan;
use crate::lab::pair::{Between, Pair};
use crate::lab::preset::{Preset, WINDOW_SLOT};
use crate::lab::window::{Window, address};
use crate::lab::wire::Relay;

/// The window's length: an overwriting of all of it takes little.
const WINDOW_MIB: u64 = 2;
/// The wire of TCP is the second one of each guest.
pub(in crate::lab::scenario) const TCP_WIRE: usize = 1;

pub(in crate::lab::scenario) struct Hosts {
    pub(in crate::lab::scenario) pair: Pair,
    pub(super) window: Window,
    second: Relay,
    // Of the second wire's sockets.
    _directory: tempfile::TempDir,
}

impl Hosts {
    pub(super) fn start(stage: &Stage<'_>, programs: &Programs, preset: Preset) -> Result<Hosts> {
        Hosts::start_with(stage, programs, preset, |_| ())
    }

    /// As `start`; `prepare` adds what else the guests have.
    pub(in crate::lab::scenario) fn start_with(
        stage: &Stage<'_>,
        programs: &Programs,
        preset: Preset,
        prepare: impl Fn(&mut Plan),
    ) -> Result<Hosts> {
        let directory = tempfile::Builder::new().prefix("busway-wire-").tempdir()?;
        let (second, ends) = Relay::start(directory.path(), stage.seed)?;
        let window = Window::new(WINDOW_MIB << 20)?;
        let logs = stage.logs.join(format!("{preset:?}").to_lowercase());
        let pair = Pair::start(
            stage.store,
            &logs,
            &[preset],
            Between::Relay(stage.seed),
            |plan| {
                programs.place(plan);
                window.place(plan, WINDOW_SLOT);
                prepare(plan);
                let end = &ends[usize::from(plan.number) - 1];
                plan.qemu_words.extend(end.words(plan.number, TCP_WIRE as u8));
            },
        )?;
        for guest in &pair.guests {
            let line = format!(
                "ip addr add 10.78.0.{}/24 dev eth{TCP_WIRE}\nip link set eth{TCP_WIRE} up",
                guest.plan.number
            );
            guest.shell(&line, super::LIMIT)?;
        }
        Ok(Hosts {
            pair,
            window,
            second,
            _directory: directory,
        })
    }

    /// What is between the guests on their wire of this number.
    pub(in crate::lab::scenario) fn relay(&self, wire: usize) -> Result<&Relay> {
        if wire == TCP_WIRE {
            return Ok(&self.second);
        }
        self.pair.relay.as_ref().context("the wire has a relay")
    }

    /// The lines that TCP and PCI windows need in a link.
    pub(in crate::lab::scenario) fn lines(bus: &str) -> String {
        let mut lines = "tcp.a = { listen = \"10.78.0.1:7400\" }\n".to_owned();
        if bus == "pci" {
            for host in ["a", "b"] {
                lines += &format!(
                    "pci.{host} = {{ device = \"{}\", resource = 2, length = \"{WINDOW_MIB}MiB\" }}\n",
                    address(WINDOW_SLOT)
                );
            }
        }
        lines
    }
}
