//! Several hosts on one machine, for measurements and end-to-end tests: each with an iceoryx2
//! domain of its own and, as root, network and mount namespaces of its own (own `/dev/shm` and
//! `/tmp`, a veth pair to each other host).
//!
//! Nothing is left behind: namespaces live as long as [`Hosts`] and the processes in them, files
//! are removed on drop.
#![allow(unsafe_code)] // what a child does between fork and exec, and leaving the namespaces of a thread

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use busway_buses::missing;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Where the directory lies that all hosts see: memory, and short enough for socket names.
const SHARED_ROOT: &str = "/dev/shm";

/// Numbers of protocols for `ip`, which has no names where `/etc/protocols` is missing.
const TCP: u8 = 6;
const UDP: u8 = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Namespaces,
    Domains,
}

impl Isolation {
    pub fn describe(self) -> &'static str {
        match self {
            Self::Namespaces => "network and mount namespaces, own /dev/shm and /tmp, veth pair",
            Self::Domains => "two iceoryx2 domains on one host, loopback (not isolated: needs root)",
        }
    }
}

#[derive(Debug)]
pub struct Hosts {
    pub hosts: Vec<Host>,
    pub shared: PathBuf,
    pub isolation: Isolation,
    prefix: String,
}

/// Also what a follower says of its host, whose namespaces stay there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub directory: PathBuf,
    /// iceoryx2 configuration file of its domain. Programs that look for `config/iceoryx2.toml` in
    /// their working directory find it too.
    pub iceoryx2_config: PathBuf,
    #[serde(skip)]
    namespaces: Option<Arc<Namespaces>>,
}

#[derive(Debug)]
struct Namespaces {
    network: OwnedFd,
    mount: OwnedFd,
}

/// The variable that says by which address of this machine its hosts reach each other, where that
/// is not 127.0.0.1: an RDMA device has addresses of its own.
const OWN_ADDRESS: &str = "BUSWAY_OWN_ADDRESS";

/// The address by which hosts that are domains of this machine reach each other; 127.0.0.1 unless
/// `BUSWAY_OWN_ADDRESS` says otherwise.
pub fn own_address() -> IpAddr {
    let said = std::env::var(OWN_ADDRESS).ok().and_then(|text| text.parse().ok());
    said.unwrap_or(Ipv4Addr::LOCALHOST.into())
}

impl Hosts {
    /// Hosts in namespaces of their own.
    ///
    /// # Errors
    ///
    /// [`BenchError::Needs`] without root or without `ip` (iproute2), and `tipc` (of the same)
    /// where the kernel has TIPC.
    pub fn isolated(names: &[&str]) -> Result<Self, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Err(BenchError::Needs("root, for network and mount namespaces".into()));
        }
        let mut hosts = Self::domains(names)?;
        hosts.isolation = Isolation::Namespaces;
        for host in &mut hosts.hosts {
            let shared = hosts.shared.clone();
            // A thread of its own, so that only it leaves the namespaces; the two descriptors keep
            // the new ones.
            let namespaces = std::thread::spawn(move || new_namespaces(&shared))
                .join()
                .expect("the thread does not panic")?;
            host.namespaces = Some(Arc::new(namespaces));
            host.ip(&["link", "set", "lo", "up"])?;
        }
        for a in 0..names.len() {
            for b in a + 1..names.len() {
                hosts.join(a, b)?;
            }
        }
        Ok(hosts)
    }

    /// Hosts that are iceoryx2 domains only; no privileges needed.
    pub fn domains(names: &[&str]) -> Result<Self, BenchError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number must differ, nothing else.
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("bw{}-{n}-", std::process::id());
        let shared = Path::new(SHARED_ROOT).join(format!("busway-{}-{n}", std::process::id()));
        let made = |path: &Path| BenchError::io(format!("make directory {}", path.display()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&shared)
            .map_err(made(&shared))?;
        let mut this = Self {
            hosts: Vec::new(),
            shared,
            isolation: Isolation::Domains,
            prefix,
        };
        for (i, name) in names.iter().enumerate() {
            let directory = this.shared.join(name);
            let config_dir = directory.join("config");
            fs::create_dir_all(&config_dir).map_err(made(&config_dir))?;
            let iceoryx2_config = config_dir.join("iceoryx2.toml");
            let text = format!(
                "[global]\nroot-path = \"{}/iox2\"\nprefix = \"{}{i}_\"\n",
                directory.display(),
                this.prefix
            );
            fs::write(&iceoryx2_config, text)
                .map_err(BenchError::io(format!("write {}", iceoryx2_config.display())))?;
            this.hosts.push(Host {
                name: (*name).to_owned(),
                directory,
                iceoryx2_config,
                namespaces: None,
            });
        }
        Ok(this)
    }

    /// Isolated hosts where that is possible, otherwise domains; in that case says what was
    /// missing.
    pub fn best(names: &[&str]) -> Result<(Self, Option<String>), BenchError> {
        match Self::isolated(names) {
            Ok(hosts) => Ok((hosts, None)),
            Err(BenchError::Needs(what)) => Ok((Self::domains(names)?, Some(what))),
            Err(error) => Err(error),
        }
    }

    pub fn address(&self, of: usize, seen_from: usize) -> IpAddr {
        match self.isolation {
            Isolation::Domains => own_address(),
            Isolation::Namespaces => address(of, seen_from),
        }
    }

    /// Takes the cable between two isolated hosts out (`false`) or puts it back in.
    ///
    /// # Errors
    ///
    /// [`BenchError::Needs`] where the hosts are domains of one host, which no cable joins.
    pub fn set_cable(&self, a: usize, b: usize, plugged: bool) -> Result<(), BenchError> {
        self.need_namespaces()?;
        self.hosts[a].ip(&["link", "set", &interface(b), if plugged { "up" } else { "down" }])
    }

    /// Has a firewall drop without a word what comes over UDP from isolated host `b` to `a`
    /// (`false`), or let it pass again.
    ///
    /// # Errors
    ///
    /// As [`set_cable`](Self::set_cable).
    pub fn set_datagrams(&self, a: usize, b: usize, pass: bool) -> Result<(), BenchError> {
        self.need_namespaces()?;
        let dropped = format!("iif {} ipproto {UDP}", interface(b));
        self.set_dropped(a, &[dropped], pass)
    }

    /// Has a firewall drop without a word what host `a` sends and receives over TCP from or to this
    /// port (`false`), or let it pass again. Where the hosts are domains, that is all of this
    /// machine.
    ///
    /// # Errors
    ///
    /// `ip` fails, without root for example.
    pub fn set_connections(&self, a: usize, port: u16, pass: bool) -> Result<(), BenchError> {
        let dropped = ["sport", "dport"].map(|end| format!("ipproto {TCP} {end} {port}"));
        self.set_dropped(a, &dropped, pass)
    }

    fn set_dropped(&self, a: usize, dropped: &[String], pass: bool) -> Result<(), BenchError> {
        let rule = |words: &str| {
            let words: Vec<&str> = ["rule"].into_iter().chain(words.split(' ')).collect();
            self.hosts[a].ip(&words)
        };
        // The table of the host's own addresses comes first otherwise.
        if pass {
            rule("add pref 0 lookup local")?;
            rule("del pref 2")?;
        }
        let word = if pass { "del" } else { "add" };
        for what in dropped {
            rule(&format!("{word} pref 1 {what} blackhole"))?;
        }
        if !pass {
            rule("add pref 2 lookup local")?;
            rule("del pref 0")?;
        }
        Ok(())
    }

    fn need_namespaces(&self) -> Result<(), BenchError> {
        match self.isolation {
            Isolation::Namespaces => Ok(()),
            Isolation::Domains => Err(BenchError::Needs(
                "hosts in namespaces of their own (root)".into(),
            )),
        }
    }

    fn join(&self, a: usize, b: usize) -> Result<(), BenchError> {
        let (here, there) = (&self.hosts[a], &self.hosts[b]);
        let Some(namespaces) = &there.namespaces else {
            return Ok(());
        };
        let peer = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            namespaces.network.as_raw_fd()
        );
        here.ip(&[
            "link",
            "add",
            &interface(b),
            "type",
            "veth",
            "peer",
            "name",
            &interface(a),
            "netns",
            &peer,
        ])?;
        for (host, of, to) in [(here, a, b), (there, b, a)] {
            let network = format!("{}/30", address(of, to));
            host.ip(&["addr", "add", &network, "dev", &interface(to)])?;
            host.ip(&["link", "set", &interface(to), "up"])?;
            host.enable_tipc(&interface(to))?;
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // What killed programs left in the domain's shared memory; in a namespace it goes with the
        // namespace.
        for entry in fs::read_dir(SHARED_ROOT).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(self.prefix.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.shared) {
            tracing::warn!(path = %self.shared.display(), %error, "a directory is left behind");
        }
    }
}

/// The network of hosts `a` and `b` is 10.99.x.0/30 with x from both numbers.
fn address(of: usize, seen_from: usize) -> IpAddr {
    let (low, high) = (of.min(seen_from) as u8, of.max(seen_from) as u8);
    Ipv4Addr::new(10, 99, low * 16 + high, if of < seen_from { 1 } else { 2 }).into()
}

fn interface(to: usize) -> String {
    format!("to-host-{to}")
}

impl Host {
    /// A command that runs `program` on this host, in a process group of its own, and is killed
    /// when the calling *thread* ends.
    ///
    /// The program is opened now and here, so that it may lie where the host sees something else.
    pub fn command(&self, program: &Path) -> Result<Command, BenchError> {
        let executable =
            File::open(program).map_err(BenchError::io(format!("open {}", program.display())))?;
        let mut command = Command::new(format!("/proc/self/fd/{}", executable.as_raw_fd()));
        command.arg0(program).process_group(0).stdin(Stdio::null());
        let directory =
            CString::new(self.directory.as_os_str().as_bytes()).expect("made from text without NUL");
        let namespaces = self.namespaces.clone();
        let parent = rustix::process::getpid();
        let prepare = move || {
            if let Some(namespaces) = &namespaces {
                move_into_link_name_space(namespaces.network.as_fd(), Some(LinkNameSpaceType::Network))?;
                move_into_link_name_space(namespaces.mount.as_fd(), Some(LinkNameSpaceType::Mount))?;
            }
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            rustix::process::chdir(directory.as_c_str())?;
            // Keeps the descriptor open until `exec` has looked it up.
            let _ = &executable;
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes system calls on values made before, and
        // neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        Ok(command)
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), BenchError> {
        self.tool("ip", arguments)
    }

    fn enable_tipc(&self, interface: &str) -> Result<(), BenchError> {
        let arguments = ["bearer", "enable", "media", "eth", "device", interface];
        match missing("tipc") {
            None => self.tool("tipc", &arguments),
            Some(_) => Ok(()),
        }
    }

    fn tool(&self, name: &str, arguments: &[&str]) -> Result<(), BenchError> {
        let what = format!("{name} {} on host {}", arguments.join(" "), self.name);
        let program = find_on_path(OsStr::new(name))
            .ok_or_else(|| BenchError::Needs(format!("`{name}` (package iproute2)")))?;
        let output = self
            .command(&program)?
            .args(arguments)
            .output()
            .map_err(BenchError::io(&what))?;
        if output.status.success() {
            return Ok(());
        }
        Err(BenchError::Ended {
            program: what,
            reason: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Looks for an executable of this name in the directories of `PATH`.
pub fn find_on_path(name: &OsStr) -> Option<PathBuf> {
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Moves the calling thread into new namespaces: empty `/dev/shm` and `/tmp`, but `shared` where it
/// was.
fn new_namespaces(shared: &Path) -> Result<Namespaces, BenchError> {
    // SAFETY: only namespaces are left, no descriptor table; the thread ends after this function.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET) }
        .map_err(|e| BenchError::Needs(format!("the right to make namespaces ({e})")))?;
    let failed = |what: &str| BenchError::os(format!("{what} in a new mount namespace"));
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(failed("make mounts private"))?;
    let seen = File::open(shared).map_err(BenchError::io(format!("open {}", shared.display())))?;
    for directory in [SHARED_ROOT, "/tmp"] {
        mount(
            "tmpfs",
            directory,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=1777",
        )
        .map_err(failed(&format!("mount {directory}")))?;
    }
    fs::create_dir(shared).map_err(BenchError::io(format!("make {}", shared.display())))?;
    mount_bind(format!("/proc/thread-self/fd/{}", seen.as_raw_fd()), shared)
        .map_err(failed(&format!("bind {}", shared.display())))?;
    // In the new network namespace sysfs still shows the old one's devices; nothing here looks
    // there.
    let open = |kind: &str| -> Result<OwnedFd, BenchError> {
        let path = format!("/proc/thread-self/ns/{kind}");
        Ok(File::open(&path)
            .map_err(BenchError::io(format!("open {path}")))?
            .into())
    };
    Ok(Namespaces {
        network: open("net")?,
        mount: open("mnt")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(host: &Host, script: &str) -> String {
        let mut command = host.command(Path::new("/bin/sh")).unwrap();
        let output = command.args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn domains_have_different_configurations_and_leave_nothing() {
        let hosts = Hosts::domains(&["a", "b"]).unwrap();
        let shared = hosts.shared.clone();
        let read = |i: usize| fs::read_to_string(&hosts.hosts[i].iceoryx2_config).unwrap();
        assert_ne!(read(0), read(1));
        assert_eq!(
            output(&hosts.hosts[0], "pwd").trim(),
            hosts.hosts[0].directory.to_str().unwrap()
        );
        drop(hosts);
        assert!(!shared.exists());
    }
}
