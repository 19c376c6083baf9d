//! Control groups (cgroup v2): one directory for the module, one in it for each partition.
//!
//! Contract: [`ModuleGroup::create`] finds and clears what a killed supervisor left, and refuses
//! while another one runs: a running supervisor holds a lock (flock) on the module's directory,
//! which the kernel releases when it dies. [`Group`] freezes, thaws and kills all processes of a
//! partition. Called by the supervisor and the scheduling threads; reading the state of a group and
//! changing it does not allocate.
//!
//! Only core files of cgroup v2 are needed (`cgroup.procs`, `cgroup.freeze`, `cgroup.events`),
//! which exist without any controller; `cgroup.kill` and the controller `cpuset` are used where
//! they are.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{pread, pwrite};
use rustix::process::{Pid, Signal, kill_process};

/// How long killed processes may take to go.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(10);
const CLEAR_STEP: Duration = Duration::from_millis(2);

/// Why there is no control group.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No cgroup v2.
    #[error(
        "/proc/self/mountinfo: no cgroup2 file system is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), \
         or name a directory of one with --cgroup"
    )]
    NotMounted,
    /// The directory can't be made or used.
    #[error(
        "{}: cannot {action}: {source}; run as root, or in a control group of your own: \
         systemd-run --user --scope -p Delegate=yes busway module run ..", path.display()
    )]
    Access {
        /// What failed.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another supervisor has it.
    #[error("{}: another `busway module run` runs this host's module; stop it first", path.display())]
    Running {
        /// The directory that it holds.
        path: PathBuf,
    },
    /// Processes that do not die.
    #[error(
        "{}: its processes do not end ({pids}), though they were killed; see in /proc/PID/stack what they wait for",
        path.display()
    )]
    Undead {
        /// The group.
        path: PathBuf,
        /// Identifiers of its processes.
        pids: String,
    },
}

fn access(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_path_buf();
    move |source| CgroupError::Access { action, path, source }
}

/// The directory of the control group that this process is in.
pub(crate) fn own_group() -> Result<PathBuf, CgroupError> {
    let read = |path: &str| fs::read_to_string(path).map_err(access("read", Path::new(path)));
    let mounts = read("/proc/self/mountinfo")?;
    let groups = read("/proc/self/cgroup")?;
    let (root, mount) = mount_of(&mounts).ok_or(CgroupError::NotMounted)?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // Without its part of the path, the mount is the group of a container.
    let below = own.and_then(|own| Path::new(own).strip_prefix(&root).ok().map(Path::to_path_buf));
    Ok(below.map_or_else(|| mount.clone(), |below| mount.join(below)))
}

/// Root and mount point of the first cgroup2 file system of a mountinfo.
fn mount_of(mounts: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3).map(unescape);
        Some((PathBuf::from(fields.next()?), PathBuf::from(fields.next()?)))
    })
}

/// mountinfo writes space, tab, line end and backslash as octal numbers.
fn unescape(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let replaced = escapes.iter();
    replaced.fold(field.to_owned(), |text, (code, character)| {
        text.replace(code, character)
    })
}

/// The module's directory, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ModuleGroup {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
    has_cpuset: bool,
}

impl ModuleGroup {
    /// Makes the directory `name` in the control group `base`. Processes that a killed supervisor
    /// left there are killed.
    pub(crate) fn create(base: &Path, name: &str) -> Result<Self, CgroupError> {
        if !base.join("cgroup.procs").exists() {
            let missing = io::Error::new(
                io::ErrorKind::NotFound,
                "it is no directory of a cgroup2 file system",
            );
            return Err(access("use", base)(missing));
        }
        let path = base.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(access("make a control group", &path)(error));
            }
            _ => {}
        }
        let lock = File::open(&path).map_err(access("open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(CgroupError::Running { path }),
            locked => locked.map_err(|error| access("lock", &path)(error.into()))?,
        }
        let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
        let has_cpuset = controllers.split_whitespace().any(|it| it == "cpuset")
            && fs::write(path.join("cgroup.subtree_control"), "+cpuset").is_ok();
        let module = Self {
            path,
            _lock: lock,
            has_cpuset,
        };
        module.clear_leftovers()?;
        Ok(module)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn clear_leftovers(&self) -> Result<(), CgroupError> {
        for left in children(&self.path) {
            let group = Group::open(left)?;
            let count = group.pids().len();
            group.clear()?;
            tracing::info!(
                group = %group.path.display(),
                processes = count,
                "cleared what a killed supervisor left"
            );
            group.remove()?;
        }
        Ok(())
    }

    /// Makes the group of a partition, frozen and empty.
    pub(crate) fn add(&self, name: &str, processors: &[usize]) -> Result<Group, CgroupError> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(access("make a control group", &path))?;
        if self.has_cpuset && !processors.is_empty() {
            let list: Vec<String> = processors.iter().map(ToString::to_string).collect();
            fs::write(path.join("cpuset.cpus"), list.join(","))
                .map_err(access("set the processors of the control group", &path))?;
        }
        let group = Group::open(path)?;
        group
            .set_frozen(true)
            .map_err(access("freeze the control group", &group.path))?;
        Ok(group)
    }
}

impl Drop for ModuleGroup {
    fn drop(&mut self) {
        for left in children(&self.path) {
            let _ = fs::remove_dir(left);
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            tracing::warn!(
                "{}: cannot remove the control group: {error}",
                self.path.display()
            );
        }
    }
}

/// Moves this process into the group `path`.
pub(crate) fn enter(path: &Path) -> Result<(), CgroupError> {
    let file = path.join("cgroup.procs");
    // The kernel takes 0 for the process that writes.
    fs::write(&file, "0").map_err(access("join the control group by", &file))
}

fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// The control group of one partition.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    freeze: File,
    events: File,
}

impl Group {
    fn open(path: PathBuf) -> Result<Self, CgroupError> {
        let file = |name: &str, is_written: bool| {
            let file = path.join(name);
            let opened = OpenOptions::new().read(!is_written).write(is_written).open(&file);
            opened.map_err(access("open", &file))
        };
        Ok(Self {
            freeze: file("cgroup.freeze", true)?,
            events: file("cgroup.events", false)?,
            path,
        })
    }

    /// The file by which a process joins, for writing.
    pub(crate) fn entrance(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.procs"))
    }

    /// Begins to freeze, or thaws. Freezing is complete when [`is_frozen`](Self::is_frozen).
    pub(crate) fn set_frozen(&self, is_frozen: bool) -> io::Result<()> {
        let word: &[u8] = if is_frozen { b"1" } else { b"0" };
        pwrite(&self.freeze, word, 0)?;
        Ok(())
    }

    /// Whether no process of the group runs, since all are frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.has_event(b"frozen 1")
    }

    pub(crate) fn is_populated(&self) -> bool {
        self.has_event(b"populated 1")
    }

    fn has_event(&self, event: &[u8]) -> bool {
        let mut bytes = [0; 128];
        let length = pread(self.events.as_fd(), &mut bytes, 0).unwrap_or(0);
        bytes[..length].windows(event.len()).any(|part| part == event)
    }

    /// Moves its processes to the group `base`. One that ends meanwhile needs no place; one that
    /// forks meanwhile is met by the next look.
    pub(crate) fn move_all_to(&self, base: &Path) {
        let deadline = Instant::now() + CLEAR_TIMEOUT;
        while self.is_populated() && Instant::now() < deadline {
            for pid in self.pids() {
                let _ = fs::write(base.join("cgroup.procs"), pid.as_raw_nonzero().to_string());
            }
        }
    }

    fn pids(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    }

    /// Asks all processes to end (SIGTERM). A frozen one reads the signal in its next window.
    pub(crate) fn terminate(&self) {
        for pid in self.pids() {
            // Fails if it has just ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills all processes, frozen ones too.
    pub(crate) fn kill(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Linux before 5.14. A process that forks meanwhile is met by the next call.
        for pid in self.pids() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Kills all processes and waits for their end.
    fn clear(&self) -> Result<(), CgroupError> {
        let deadline = Instant::now() + CLEAR_TIMEOUT;
        while self.is_populated() {
            self.kill();
            if Instant::now() > deadline {
                let pids: Vec<String> = self
                    .pids()
                    .iter()
                    .map(|pid| pid.as_raw_nonzero().to_string())
                    .collect();
                return Err(CgroupError::Undead {
                    path: self.path.clone(),
                    pids: pids.join(", "),
                });
            }
            std::thread::sleep(CLEAR_STEP);
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), CgroupError> {
        fs::remove_dir(&self.path).map_err(access("remove the control group", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_cgroup2_is_found_beside_cgroup1_and_unescaped() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      41 31 0:38 /docker/x /sys/fs/cgroup/uni\\040fied rw shared:9 - cgroup2 cgroup2 rw\n";
        let found = mount_of(mounts);
        let expected = ("/docker/x".into(), "/sys/fs/cgroup/uni fied".into());
        assert_eq!(found, Some(expected));
        assert_eq!(mount_of("32 31 0:29 / /cpu rw - cgroup cgroup rw,cpu\n"), None);
    }
}
