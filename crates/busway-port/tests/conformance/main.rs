//! The rules of ARINC 653 for ports, one test a rule, for anything that has the services.
//!
//! A [`Bench`] gives processes of partitions of the shared module; a [`Process`] takes services as
//! lines of text (`examples/shared/script.rs`), so that another bus, another language or another
//! binding is one more bench. Here: partitions in one process, and each partition a process of its
//! own.
#![cfg(not(loom))]

mod bench;
mod extensions;
mod handle;
mod modes;
mod queuing;
mod sampling;
#[path = "../support/mod.rs"]
mod support;

pub(crate) use bench::{Bench, HOUR_NS, Process, script, until};
use busway_port::Store;
use handle::Handle;
pub(crate) use support::shared;
use support::{Shell, directory, store};
use tempfile::TempDir;

/// All partitions in this process.
struct OneProcess {
    store: Store,
    _directory: TempDir,
}

impl Bench for OneProcess {
    type Process = Handle;

    fn new() -> Self {
        let directory = directory();
        Self {
            store: store(&directory),
            _directory: directory,
        }
    }

    fn process(&self, partition: &str) -> Handle {
        Handle::new(self.store.join(partition).expect("join"))
    }
}

/// Each process of a partition is one of the system.
struct ManyProcesses(TempDir);

impl Bench for ManyProcesses {
    type Process = Shell;

    fn new() -> Self {
        Self(directory())
    }

    fn process(&self, partition: &str) -> Shell {
        Shell::start(&self.0, partition)
    }
}

impl Process for Shell {
    fn ask(&mut self, line: &str) -> String {
        self.say(line)
    }

    fn begin(&mut self, line: &str) {
        self.tell(line);
    }

    fn end(&mut self) -> String {
        self.reply().expect("the process lives")
    }
}

/// One test for each rule and bench.
macro_rules! rules {
    ($($rule:ident)*) => {
        mod one_process {
            $(#[test] fn $rule() { super::$rule::<crate::OneProcess>(); })*
        }
        mod many_processes {
            $(#[test] fn $rule() { super::$rule::<crate::ManyProcesses>(); })*
        }
    };
}
pub(crate) use rules;
