//! The rules of ARINC 653 for ports, one test a rule, for anything that has the services.
//!
//! A [`Bench`] gives processes of partitions of the shared module; a [`Process`] takes services as lines of text
//! (`examples/shared/script.rs`), so that another bus, another language or another binding is one more bench. Here: partitions in
//! one process, and each partition a process of its own.
#![cfg(not(loom))]

mod extensions;
mod modes;
mod queuing;
mod sampling;
#[path = "../support/mod.rs"]
mod support;

use busway_port::{Partition, Store};
use support::{Shell, directory, shared, store};
use tempfile::TempDir;

/// An hour in ns: nothing of a test grows older.
const HOUR_NS: &str = "3600000000000";

/// Where rules are put to the test.
trait Bench {
    type Process: Process;

    /// A bench of its own, with nothing written and no port created.
    fn new() -> Self;

    /// One more process of `partition`.
    fn process(&self, partition: &str) -> Self::Process;
}

/// One process of a partition. Dropping it ends it.
trait Process {
    /// Calls a service and returns its reply.
    fn ask(&mut self, line: &str) -> String;

    /// Calls a service that is to wait.
    fn begin(&mut self, line: &str);

    /// The reply to what [`begin`](Self::begin) called.
    fn end(&mut self) -> String;
}

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

/// Says each line to its process, and compares the reply: all of it, or its beginning if `...` follows.
#[track_caller]
fn script<P: Process>(process: &mut P, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        let reply = process.ask(line);
        match expected.strip_suffix("...") {
            Some(beginning) => assert!(reply.starts_with(beginning), "{line}: {reply}, not {expected}"),
            None => assert_eq!(reply, *expected, "{line}"),
        }
    }
}

/// Waits until `line` is answered with `expected`, for what another process does in its own time.
#[track_caller]
fn until<P: Process>(process: &mut P, line: &str, expected: &str) {
    let mut reply = String::new();
    for _ in 0..10_000 {
        reply = process.ask(line);
        if reply == expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{line}: {reply} for ten seconds, not {expected}");
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
