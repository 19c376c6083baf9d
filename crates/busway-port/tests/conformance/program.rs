//! A process of a partition that is a program: it takes lines on standard input, replies on
//! standard output, and has said `joined` first.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::bench::Process;

/// A running program, killed at the end.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("start the program");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut program = Self { child, input, output };
        assert_eq!(program.end(), "joined");
        program
    }
}

impl Process for Program {
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

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
