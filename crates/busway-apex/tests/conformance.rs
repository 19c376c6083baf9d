//! The rules of ARINC 653 for ports, put to the C interface: the suite of `busway-port`, with each
//! partition a C program that finds its partition in the environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use support::{Linking, System, build};

#[path = "../../busway-port/tests/conformance/bench.rs"]
mod bench;
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
    type Process = Shell;

    fn new() -> Self {
        Self(System::new())
    }

    fn process(&self, partition: &str) -> Shell {
        let mut command = self.0.command(build("apex_shell", Linking::Shared), partition);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start apex_shell");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut shell = Shell { child, input, output };
        assert_eq!(shell.end(), "joined");
        shell
    }
}

/// A run of `apex_shell.c`, killed at the end.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process for Shell {
    fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        self.end()
    }

    fn begin(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the program lives");
    }

    fn end(&mut self) -> String {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).expect("read a reply");
        assert!(length > 0, "the program has ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
