//! Where the programs of an experiment run: on a host of this machine, or at a follower.

use std::path::{Path, PathBuf};

use crate::BenchError;
use crate::follower::{Follower, RemoteGateway};
use crate::hosts::Host;
use crate::processes::{Process, Worker, start_gateway};
use crate::worker::Role;

/// One of the two sides.
#[derive(Clone, Copy)]
pub(crate) enum Site<'a> {
    /// A host of this machine, and the binary to start there.
    Here(&'a Host, &'a Path),
    /// Another machine.
    There(&'a Follower),
}

impl<'a> Site<'a> {
    pub(crate) fn host(&self) -> &'a Host {
        match *self {
            Self::Here(host, _) => host,
            Self::There(follower) => follower.host(),
        }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        match self {
            Self::Here(host, _) => {
                let path = host.directory.join(name);
                std::fs::write(&path, text).map_err(BenchError::io(format!("write {}", path.display())))?;
                Ok(path)
            }
            Self::There(follower) => follower.write(name, text),
        }
    }

    pub(crate) fn worker(&self, role: &Role) -> Result<Worker, BenchError> {
        match self {
            Self::Here(host, program) => Worker::start(program, host, role),
            Self::There(follower) => follower.worker(role),
        }
    }

    /// Starts the gateway of this host. `system` is a file that [`write`](Self::write) gave.
    pub(crate) fn gateway(&self, system: &Path) -> Result<Gateway, BenchError> {
        match self {
            Self::Here(host, program) => start_gateway(program, host, system).map(Gateway::Here),
            Self::There(follower) => follower.gateway(system).map(Gateway::There),
        }
    }
}

/// A gateway that runs until it is dropped.
pub(crate) enum Gateway {
    Here(Process),
    There(RemoteGateway),
}

impl Gateway {
    /// CPU time used so far in s; to 10 ms.
    pub(crate) fn cpu_s(&mut self) -> f64 {
        match self {
            Self::Here(process) => process.cpu_s(),
            Self::There(gateway) => gateway.cpu_s(),
        }
    }

    pub(crate) fn process_id(&self) -> Option<u32> {
        match self {
            Self::Here(process) => Some(process.id()),
            Self::There(_) => None,
        }
    }

    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Here(process) => process.check(),
            Self::There(gateway) => gateway.check(),
        }
    }

    pub(crate) fn last_words(&self) -> String {
        match self {
            Self::Here(process) => process.last_words(),
            Self::There(_) => String::new(),
        }
    }
}
