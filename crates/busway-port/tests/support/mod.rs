//! What the tests share: a store of their own, and partitions as processes of their own.
#![allow(dead_code)] // Each test program uses a part of this.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use busway_port::Store;
use tempfile::TempDir;

#[path = "../../examples/shared/mod.rs"]
pub mod shared;
pub mod two_hosts;

/// An empty directory in shared memory, removed at the end.
pub fn directory() -> TempDir {
    let place = Path::new("/dev/shm");
    let place = if place.is_dir() {
        place.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("busway-port-test-")
        .tempdir_in(place)
        .expect("make a directory")
}

/// The shared module's store in `directory`.
pub fn store(directory: &TempDir) -> Store {
    Store::open(directory.path(), shared::module()).expect("open the store")
}

/// What becomes of a word that a vandal strikes.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Anything(u64),
    /// As much more than it was.
    Moved(i64),
}

impl Value {
    /// Writes it into the word at `offset` of `file`.
    pub fn write(self, file: &File, offset: u64) {
        let mut now = [0; 8];
        file.read_exact_at(&mut now, offset).expect("inside");
        let value = match self {
            Value::Anything(value) => value,
            Value::Moved(by) => u64::from_ne_bytes(now).wrapping_add_signed(by),
        };
        file.write_all_at(&value.to_ne_bytes(), offset).expect("inside");
    }
}

/// Path of an example of this crate, which `cargo test` builds.
pub fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.parent().and_then(Path::parent).expect("a build folder");
    let path = folder.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build -p busway-port --examples`",
        path.display()
    );
    Command::new(path)
}

/// A process of a partition: the example `partition_shell`. Killed at the end.
pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    pub fn start(directory: &TempDir, partition: &str) -> Self {
        Self::start_with(directory, partition, None)
    }

    /// A process that kills itself at `crash`.
    pub fn start_with(directory: &TempDir, partition: &str, crash: Option<&str>) -> Self {
        let mut command = example("partition_shell");
        if let Some(crash) = crash {
            command.env("BUSWAY_PORT_CRASH", crash);
        }
        let mut child = command
            .arg(directory.path())
            .arg(partition)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start partition_shell");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut shell = Self { child, input, output };
        assert_eq!(shell.reply().as_deref(), Some("joined"));
        shell
    }

    /// A process that has created a port by `create`.
    #[track_caller]
    pub fn start_after(directory: &TempDir, partition: &str, create: &str) -> Self {
        let mut shell = Self::start(directory, partition);
        assert!(shell.say(create).starts_with("NO_ERROR"), "{create}");
        shell
    }

    /// Says `command` and returns the reply; `None` if the process ended instead.
    pub fn ask(&mut self, command: &str) -> Option<String> {
        self.tell(command);
        self.reply()
    }

    /// As [`ask`](Self::ask) of a process that lives on.
    pub fn say(&mut self, command: &str) -> String {
        self.ask(command)
            .unwrap_or_else(|| panic!("the process ended over `{command}`"))
    }

    /// Says `command` and expects `reply`.
    #[track_caller]
    pub fn replies(&mut self, command: impl AsRef<str>, reply: impl AsRef<str>) {
        let command = command.as_ref();
        assert_eq!(self.say(command), reply.as_ref(), "the reply to `{command}`");
    }

    /// Says `command` without waiting for the reply.
    pub fn tell(&mut self, command: &str) {
        // A process that killed itself is noticed by its missing reply.
        let _ = writeln!(self.input, "{command}");
    }

    pub fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).expect("read a reply");
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// Kills the process, as `kill -9` does, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the process");
        self.child.wait().expect("wait for the process");
    }

    /// Waits for the end of a process that ends by itself.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("wait for the process")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
