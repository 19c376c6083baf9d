//! The rules of ARINC 653 for ports, put to the traits of `a653rs`: the suite of `busway-port`,
//! with each partition a program that calls nothing else (`examples/a653rs_shell.rs`).
//!
//! The rules of Part 2 are not here: the traits have none of its services.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

#[path = "../../busway-port/tests/conformance/bench.rs"]
mod bench;
#[path = "../../busway-port/tests/conformance/program.rs"]
mod program;
#[path = "../../busway-port/examples/shared/mod.rs"]
mod shared;

pub(crate) use bench::{Bench, HOUR_NS, Process, script, until};
use program::Program;

/// A test for each rule that the traits can express.
macro_rules! rules {
    ($($rule:ident)*) => {
        mod a653rs {
            $(crate::rule! { $rule })*
        }
    };
}
macro_rules! rule {
    // A process gets its priority when it is created and keeps it, and none can be created once the
    // partition is normal.
    (receivers_wait_by_priority_if_the_port_says_so) => {
        crate::rule! { not receivers_wait_by_priority_if_the_port_says_so }
    };
    // A warm start executes the program anew, so it is a cold one: nothing is kept.
    (a_warm_start_out_of_a_cold_start_is_invalid_mode) => {
        crate::rule! { not a_warm_start_out_of_a_cold_start_is_invalid_mode }
    };
    // The mode `Idle` ends the program, so nobody is there to be refused.
    (nothing_is_created_in_idle_mode) => {
        crate::rule! { not nothing_is_created_in_idle_mode }
    };
    (not $rule:ident) => {
        const _: fn() = super::$rule::<crate::Programs>;
    };
    ($rule:ident) => {
        #[test]
        fn $rule() {
            super::$rule::<crate::Programs>();
        }
    };
}
pub(crate) use {rule, rules};

#[path = "../../busway-port/tests/conformance/modes.rs"]
mod modes;
#[path = "../../busway-port/tests/conformance/queuing.rs"]
mod queuing;
#[path = "../../busway-port/tests/conformance/sampling.rs"]
mod sampling;

/// Each process of a partition is a run of `a653rs_shell`.
struct Programs(TempDir);

impl Bench for Programs {
    type Process = Shell;

    fn new() -> Self {
        let place = tempfile::tempdir_in("/dev/shm").expect("make a directory");
        let text = format!("[host.local]\n{}", shared::toml::text(|_| "local"));
        std::fs::write(place.path().join("system.toml"), text).expect("write the system file");
        Self(place)
    }

    fn process(&self, partition: &str) -> Shell {
        let mut command = Command::new(example("a653rs_shell"));
        command.env("BUSWAY_SYSTEM", self.0.path().join("system.toml"));
        command.env("BUSWAY_STORE", self.0.path().join("store"));
        command.env("BUSWAY_PARTITION", partition);
        let mut shell = Shell(Program::start(command));
        // Joins with its first service: a process has joined before the next is started.
        assert!(shell.ask("partition-status").starts_with("NO_ERROR"));
        shell
    }
}

/// A run of `a653rs_shell`.
struct Shell(Program);

impl Process for Shell {
    fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        self.end()
    }

    fn begin(&mut self, line: &str) {
        self.0.begin(line);
    }

    /// A program that a start mode has executed anew says that it has joined: that is what the
    /// service should do.
    fn end(&mut self) -> String {
        match self.0.end().as_str() {
            "joined" => "NO_ERROR".into(),
            reply => reply.into(),
        }
    }
}

/// Path of an example of this crate, which `cargo test` builds.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.parent().and_then(Path::parent).expect("a build folder");
    folder.join("examples").join(name)
}
