//! Changes in the iceoryx2 domain, reported by the kernel: no scanning, no cost while nothing
//! changes.
//!
//! iceoryx2 keeps one file a service in `services/`, one directory a node in `nodes/`, and in it
//! one tag file for each service that the node has open and for each port that it has. inotify
//! reports each that appears or disappears. A port's tag appears *before* the port is in the
//! registry, so the control thread checks again a few times after each event. A pidfd reports a
//! process that was killed.
//!
//! The control thread waits for [`Watch::fd`] and calls [`Watch::drain`].

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use iceoryx2::config::Config;
use rustix::event::epoll;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// What happened since the last call of [`Watch::drain`]. Services are named by their hash, which
/// is their file's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Services whose file came, was completed or went.
    pub services: HashSet<String>,
    /// Services of which some port may have come or gone.
    pub ports: HashSet<String>,
    /// A process that had a service open has ended.
    pub deaths: bool,
    /// Events were lost: everything must be looked at.
    pub everything: bool,
}

struct NodeDirectory {
    path: PathBuf,
    services: HashSet<String>,
}

/// The watch on one domain.
pub struct Watch {
    prefix: String,
    service_suffix: String,
    service_tag_suffix: String,
    port_tag_suffix: String,
    services_directory: PathBuf,
    nodes_directory: PathBuf,
    inotify: OwnedFd,
    epoll: OwnedFd,
    services_watch: i32,
    nodes_watch: i32,
    nodes: HashMap<i32, NodeDirectory>,
    processes: HashMap<i32, OwnedFd>,
}

/// Marks inotify in epoll's data; process ids are positive.
const INOTIFY: u64 = 0;

impl Watch {
    /// Watches the domain's directories (which are made if they are missing, as iceoryx2 would).
    ///
    /// # Errors
    /// The directories can't be made or watched (the limit is `fs.inotify.max_user_watches`).
    pub fn new(config: &Config) -> io::Result<Watch> {
        let services_directory = PathBuf::from(config.global.service_dir().to_string());
        let nodes_directory = PathBuf::from(config.global.node_dir().to_string());
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &inotify,
            epoll::EventData::new_u64(INOTIFY),
            epoll::EventFlags::IN,
        )?;
        let watch_directory = |path: &Path, flags: WatchFlags| {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(path)?;
            inotify::add_watch(&inotify, path, flags).map_err(io::Error::from)
        };
        let services_watch = watch_directory(
            &services_directory,
            WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::DELETE | WatchFlags::MOVED_TO,
        )?;
        let nodes_watch = watch_directory(&nodes_directory, WatchFlags::CREATE | WatchFlags::ONLYDIR)?;
        let mut watch = Watch {
            prefix: config.global.prefix.to_string(),
            service_suffix: config.global.service.static_config_storage_suffix.to_string(),
            service_tag_suffix: config.global.node.service_tag_suffix.to_string(),
            port_tag_suffix: config.global.node.port_tag_suffix.to_string(),
            services_directory,
            nodes_directory,
            inotify,
            epoll,
            services_watch,
            nodes_watch,
            nodes: HashMap::new(),
            processes: HashMap::new(),
        };
        let mut changes = Changes::default();
        for entry in std::fs::read_dir(&watch.nodes_directory)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                watch.add_node(&entry.path(), &mut changes);
            }
        }
        Ok(watch)
    }

    /// Readable when [`drain`](Self::drain) has something to report.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The hashes of all services that exist now.
    pub fn list(&self) -> HashSet<String> {
        let Ok(entries) = std::fs::read_dir(&self.services_directory) else {
            return HashSet::new();
        };
        entries
            .flatten()
            .filter_map(|entry| self.service_hash(&entry.file_name().to_string_lossy(), &self.service_suffix))
            .collect()
    }

    /// Where the description of a service is.
    pub fn service_file(&self, hash: &str) -> PathBuf {
        self.services_directory
            .join(format!("{}{hash}{}", self.prefix, self.service_suffix))
    }

    /// Reports the end of this process from now on. A process that has already ended counts as a
    /// death.
    pub fn follow(&mut self, process: i32) -> Result<(), io::Error> {
        if self.processes.contains_key(&process) {
            return Ok(());
        }
        let Some(pid) = Pid::from_raw(process) else {
            return Ok(());
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        epoll::add(
            &self.epoll,
            &pidfd,
            epoll::EventData::new_u64(process as u64),
            epoll::EventFlags::IN,
        )?;
        self.processes.insert(process, pidfd);
        Ok(())
    }

    /// What happened since the last call. Never blocks.
    pub fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        let mut ready = [const { MaybeUninit::<epoll::Event>::uninit() }; 32];
        const NOW: Option<&rustix::time::Timespec> = Some(&rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        });
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut ready, NOW) else {
            return changes;
        };
        for event in ready.iter() {
            match event.data.u64() {
                INOTIFY => self.read_inotify(&mut changes),
                process => {
                    self.processes.remove(&(process as i32)); // closing the pidfd takes it out of epoll
                    changes.deaths = true;
                }
            }
        }
        changes
    }

    fn read_inotify(&mut self, changes: &mut Changes) {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 8192];
        let mut events: Vec<(i32, ReadFlags, String)> = Vec::new();
        {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            while let Ok(event) = reader.next() {
                let name = event.file_name().map(CStr::to_string_lossy).unwrap_or_default();
                events.push((event.wd(), event.events(), name.into_owned()));
            }
        }
        for (watch, flags, name) in events {
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.everything = true;
            } else if watch == self.services_watch {
                changes
                    .services
                    .extend(self.service_hash(&name, &self.service_suffix));
            } else if watch == self.nodes_watch {
                if flags.contains(ReadFlags::ISDIR) {
                    self.add_node(&self.nodes_directory.join(&name), changes);
                }
            } else if flags.contains(ReadFlags::IGNORED) {
                self.remove_node(watch, changes);
            } else {
                self.node_event(watch, flags, &name, changes);
            }
        }
    }

    fn add_node(&mut self, path: &Path, changes: &mut Changes) {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        // A node that is gone again needs no watch; one that can't be watched is seen by the slow
        // look at everything.
        let Ok(watch) = inotify::add_watch(&self.inotify, path, flags) else {
            return;
        };
        self.nodes.insert(
            watch,
            NodeDirectory {
                path: path.into(),
                services: HashSet::new(),
            },
        );
        // What came before the watch stood.
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            self.node_event(
                watch,
                ReadFlags::CREATE,
                &entry.file_name().to_string_lossy(),
                changes,
            );
        }
    }

    fn remove_node(&mut self, watch: i32, changes: &mut Changes) {
        if let Some(node) = self.nodes.remove(&watch) {
            tracing::trace!(node = %node.path.display(), "node gone");
            changes.ports.extend(node.services);
        }
    }

    fn node_event(&mut self, watch: i32, flags: ReadFlags, name: &str, changes: &mut Changes) {
        let tag = self.service_hash(name, &self.service_tag_suffix);
        let Some(node) = self.nodes.get_mut(&watch) else {
            return;
        };
        if let Some(hash) = tag {
            changes.ports.insert(hash.clone());
            if flags.contains(ReadFlags::DELETE) {
                node.services.remove(&hash);
            } else {
                node.services.insert(hash);
            }
        } else if name.ends_with(&self.port_tag_suffix) {
            changes.ports.extend(node.services.iter().cloned());
        }
    }

    fn service_hash(&self, file: &str, suffix: &str) -> Option<String> {
        file.strip_prefix(&self.prefix)?
            .strip_suffix(suffix)
            .map(str::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iox::domain;

    #[test]
    fn services_ports_and_their_ends_are_told_and_quiet_is_quiet() {
        let (_temporary, config) = domain::tests::temporary("watch");
        let mut watch = Watch::new(&config).expect("watches");
        assert_eq!(watch.drain(), Changes::default());

        let node = domain::tests::program(&config);
        let service = node
            .service_builder(&"A".try_into().expect("valid"))
            .publish_subscribe::<u64>()
            .create()
            .expect("service");
        let changes = watch.drain();
        assert_eq!(changes.services.len(), 1);
        assert_eq!(changes.services, watch.list());
        let hash: String = changes.services.into_iter().next().expect("one");
        assert!(watch.service_file(&hash).exists());

        watch.drain();
        let publisher = service.publisher_builder().create().expect("publisher");
        assert!(watch.drain().ports.contains(&hash));
        assert_eq!(watch.drain(), Changes::default());
        drop(publisher);
        assert!(watch.drain().ports.contains(&hash));
        drop(service);
        assert!(watch.drain().services.contains(&hash));
        assert!(watch.list().is_empty());
    }

    #[test]
    fn the_death_of_a_followed_process_is_told_once() {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let config = domain::config(&busway_system::Iceoryx2Domain {
            root_path: Some(temporary.path().into()),
            ..Default::default()
        })
        .expect("valid");
        let mut watch = Watch::new(&config).expect("watches");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        watch.follow(child.id() as i32).expect("followed");
        assert!(!watch.drain().deaths);
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(watch.drain().deaths);
        assert!(!watch.drain().deaths);
    }
}
