//! A module under `busway module run`: its system file, the supervisor, what it reports, and what
//! it leaves.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::Program;
use crate::rig::beside_the_test;
use crate::wait::eventually;

/// A system of one host, `only`, in a directory of its own.
#[derive(Debug)]
pub struct Module {
    directory: TempDir,
}

/// The last line that a partition's program has written in each of its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub pid: u32,
    pub mode: String,
    pub condition: String,
    pub processors: String,
    /// `SCHED_OTHER` 0, `SCHED_FIFO` 1, `SCHED_RR` 2.
    pub policy: u32,
    pub priority: u32,
    pub more: String,
}

impl Module {
    /// `host` are keys of the host, `partitions` the rest of the file. In it, `RUN(` stands for the
    /// beginning of a command that runs the test's program, as in `command = RUN("exit", "x",
    /// "3"]`.
    pub fn new(host: &str, partitions: &str) -> Module {
        let directory = tempfile::tempdir_in("/dev/shm").expect("make a directory");
        let program = beside_the_test("busway-test-partition");
        let run = format!("[{program:?}, ");
        let store = directory.path().join("store");
        let text = format!(
            "[host.only]\nports = {store:?}\n{host}\n{}",
            partitions.replace("RUN(", &run)
        );
        let module = Module { directory };
        std::fs::write(module.file("system.toml"), text).expect("write the system file");
        module
    }

    /// A file in the module's directory, in which its programs run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command that runs it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(beside_the_test("busway"));
        command.args(["module", "run", "--log", "debug", "--status"]);
        command
            .arg(self.file("status.json"))
            .arg(self.file("system.toml"));
        command
    }

    pub fn start(&self) -> Program {
        Program::start(self.command(), "busway module run")
    }

    /// What the supervisor has reported last.
    pub fn status(&self) -> Option<serde_json::Value> {
        let text = std::fs::read_to_string(self.file("status.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The lives of the partition whose program writes into `name`.
    pub fn lives(&self, name: &str) -> Vec<Life> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(life).collect()
    }

    /// Waits until it has had so many.
    pub fn has_lived(&self, name: &str, count: usize) -> Vec<Life> {
        eventually(&format!("{count} lives in {name}"), || {
            Some(self.lives(name)).filter(|lives| lives.len() >= count)
        })
    }
}

fn life(line: &str) -> Life {
    let mut fields = line.split(' ').map(str::to_owned);
    let mut next = || fields.next().unwrap_or_default();
    Life {
        pid: next().parse().expect("a process"),
        mode: next(),
        condition: next(),
        processors: next(),
        policy: next().parse().expect("a policy"),
        priority: next().parse().expect("a priority"),
        more: next(),
    }
}

/// Whether a process is there, and no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// The directory of this process's control group in cgroup v2, if root can make others in it.
pub fn cgroup() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mount = Path::new(mount.split(' ').nth(4)?);
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = mount.join(own);
    (rustix::process::geteuid().is_root() && group.join("cgroup.procs").exists()).then_some(group)
}
