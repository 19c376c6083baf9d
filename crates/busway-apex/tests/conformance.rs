//! The rules of ARINC 653 for ports, put to the C interface: the suite of `busway-port`, with each
//! partition a C program that finds its partition in the environment.

use program::Program;
use support::{Linking, System, build};

#[path = "../../busway-port/tests/conformance/bench.rs"]
mod bench;
#[path = "../../busway-port/tests/conformance/program.rs"]
mod program;
mod support;

pub(crate) use bench::{Bench, HOUR_NS, Process, script, until};

/// A test for each rule.
macro_rules! rules {
    ($($rule:ident)*) => {
        mod c {
            $(crate::rule! { $rule })*
        }
    };
}
macro_rules! rule {
    ($rule:ident) => {
        #[test]
        fn $rule() {
            super::$rule::<crate::Programs>();
        }
    };
}
pub(crate) use {rule, rules};

#[path = "../../busway-port/tests/conformance/extensions.rs"]
mod extensions;
#[path = "../../busway-port/tests/conformance/modes.rs"]
mod modes;
#[path = "../../busway-port/tests/conformance/queuing.rs"]
mod queuing;
#[path = "../../busway-port/tests/conformance/sampling.rs"]
mod sampling;

/// Each process of a partition is a run of `apex_shell.c`.
struct Programs(System);

impl Bench for Programs {
    type Process = Program;

    fn new() -> Self {
        Self(System::new())
    }

    fn process(&self, partition: &str) -> Program {
        Program::start(self.0.command(build("apex_shell", Linking::Shared), partition))
    }
}
