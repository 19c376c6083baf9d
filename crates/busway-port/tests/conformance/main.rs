//! The rules of ARINC 653 for ports, one test a rule, for anything that has the services.
//!
//! A [`Bench`] gives processes of partitions of the shared module; a [`Process`] takes services as lines of text
//! (`examples/shared/script.rs`), so that another bus, another language or another binding is one more bench. Here: partitions in
//! one process, and each partition a process of its own.
#![cfg(not(loom))]

mod bench;
mod extensions;
mod modes;
mod queuing;
mod sampling;
#[path = "../support/mod.rs"]
mod support;

pub(crate) use bench::{Bench, HOUR_NS, Process, script, until};
use busway_port::{Partition, Store};
use support::{Shell, directory, shared, store};
use tempfile::TempDir;

/// All partitions in this process.
struct OneProcess {
    store: Store,
    _directory: TempDir,
}

/// A partition's handle, and the call that waits in a thread of its own.
struct Handle {
    partition: std::sync::Arc<Partition>,
    waiting: Option<std::thread::JoinHandle<String>>,
    /// Of the thread that waits.
    priority: String,
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
        Handle {
            partition: self.store.join(partition).expect("join").into(),
            waiting: None,
            priority: "set-priority 0".into(),
        }
    }
}

impl Process for Handle {
    fn ask(&mut self, line: &str) -> String {
        if line.starts_with("set-priority") {
            self.priority = line.into();
        }
        shared::script::answer(&self.partition, line)
    }

    fn begin(&mut self, line: &str) {
        let (partition, line, priority) = (self.partition.clone(), line.to_owned(), self.priority.clone());
        self.waiting = Some(std::thread::spawn(move || {
            shared::script::answer(&partition, &priority);
            shared::script::answer(&partition, &line)
        }));
    }

    fn end(&mut self) -> String {
        let waiting = self.waiting.take().expect("a call that waits");
        waiting.join().expect("the call returns")
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
