//! Doorbells: file descriptors that wake a sleeping lane or control thread.
//!
//! A host waits with poll(2) or epoll until its doorbell becomes readable. For two hosts on one
//! kernel that is a FIFO beside the window that the host reads
//! (`docs/decisions/002-doorbell-fifo.md`). Across a PCI bus it is the eventfd of an interrupt
//! ([`super::pci::doorbell`]) or one from an ivshmem server ([`super::ivshmem`]). [`super::armed`]
//! decides when to ring.
//!
//! Contract: never blocks. Called by the link, by channel ends and by lanes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use busway_core::Window;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::armed::{Armed, Watch};
use super::layout::WindowLayout;
use super::mapping::Mapped;
use super::pci::interrupts::{Interrupts, Lease};
use super::register::Register;
use super::settings::DoorbellKind;
use crate::contract::Doorbell;

/// Suffix of the control thread's FIFO.
const CONTROL_SUFFIX: &str = "-control";

/// A FIFO or eventfd that this host reads; a FIFO's name is removed when the last holder drops it.
#[derive(Debug)]
pub struct OwnDoorbell {
    fd: OwnedFd,
    /// The FIFO's.
    path: Option<PathBuf>,
    /// Keeps the interrupts for this doorbell.
    _lease: Option<Arc<Lease>>,
    /// Number of the last arming, see [`Armed`]. Only the sleeper writes it.
    generation: AtomicU64,
}

impl OwnDoorbell {
    fn create(path: PathBuf) -> io::Result<OwnDoorbell> {
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o660), 0) {
            // One left over from a process that was killed serves again.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // For writing as well, so that it never reports a hang-up when a peer closes its end.
        let fifo = open_fifo(&path, OFlags::RDWR)?;
        let bell = OwnDoorbell {
            fd: fifo,
            path: Some(path),
            _lease: None,
            generation: AtomicU64::new(0),
        };
        bell.clear();
        Ok(bell)
    }

    fn of_interrupt(eventfd: OwnedFd, lease: Arc<Lease>) -> OwnDoorbell {
        OwnDoorbell {
            fd: eventfd,
            path: None,
            _lease: Some(lease),
            generation: AtomicU64::new(0),
        }
    }

    /// Readable after a ring.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes the rings that have come. (An eventfd gives its count, 8 bytes, at once.)
    pub fn clear(&self) {
        let mut rings = [0_u8; 512];
        while matches!(rustix::io::read(&self.fd, &mut rings), Ok(count) if count == rings.len()) {}
    }
}

impl Drop for OwnDoorbell {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing to be done if it fails: the next start uses the FIFO again.
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// The far side of a [`OwnDoorbell`].
#[derive(Debug)]
pub enum PeerDoorbell {
    /// Of a host on the same kernel.
    Fifo(OwnedFd),
    /// Of a host whose interrupt comes when this value is stored.
    Register(Arc<Register>, u32),
    /// Of virtual machines, by the eventfds that an ivshmem server gave for them.
    Peers(Vec<Arc<OwnedFd>>),
}

impl PeerDoorbell {
    fn open(path: &Path) -> io::Result<PeerDoorbell> {
        // Fails without a reader: a stale FIFO, or one of another kernel.
        drop(open_fifo(path, OFlags::WRONLY)?);
        // For reading as well, so that ringing a peer that has gone does not raise SIGPIPE.
        Ok(PeerDoorbell::Fifo(open_fifo(path, OFlags::RDWR)?))
    }

    /// Rings. A full FIFO is as good: its owner has not looked yet.
    pub fn ring(&self) {
        match self {
            PeerDoorbell::Fifo(fifo) => {
                let _ = rustix::io::write(fifo, &[1]);
            }
            PeerDoorbell::Register(register, value) => register.store(*value),
            PeerDoorbell::Peers(eventfds) => {
                for eventfd in eventfds {
                    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
                }
            }
        }
    }
}

fn open_fifo(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fifo = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fifo)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} is no FIFO", path.display()),
        ));
    }
    Ok(fifo)
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// What the name of a FIFO ends with.
fn suffix(lane: Option<u32>) -> String {
    lane.map_or_else(|| CONTROL_SUFFIX.to_owned(), |lane| format!("-{lane}"))
}

/// Number of an interrupt: 0 wakes the control thread, 1 the first lane, and so on.
fn vector(lane: Option<u32>) -> u32 {
    lane.map_or(0, |lane| lane.saturating_add(1))
}

/// The doorbell of a lane's interrupt; `bells` is filled at the first call.
fn vector_bell(
    bells: &mut Vec<Arc<OwnDoorbell>>,
    lane: Option<u32>,
    open: impl FnOnce() -> Result<Interrupts, String>,
) -> Option<Arc<OwnDoorbell>> {
    if bells.is_empty() {
        match open() {
            Ok(Interrupts { eventfds, lease }) => {
                let bell = |eventfd| Arc::new(OwnDoorbell::of_interrupt(eventfd, Arc::clone(&lease)));
                *bells = eventfds.into_iter().map(bell).collect();
            }
            Err(error) => tracing::warn!(%error, "no interrupts; this host polls"),
        }
    }
    // A lane without a vector polls: it could not share one without taking the other's rings.
    bells.get(vector(lane) as usize).cloned()
}

/// This host's doorbells, by lane, and those of the peer that were found.
#[derive(Debug)]
pub struct Doorbells {
    own: DoorbellKind,
    peer: DoorbellKind,
    /// An epoll descriptor with the control thread's doorbell in it: it stays the same although the
    /// doorbell may be made later.
    watch: Option<OwnedFd>,
    control: Option<Arc<OwnDoorbell>>,
    lanes: HashMap<u32, Arc<OwnDoorbell>>,
    /// All doorbells of a host woken by interrupts: the control thread's, then the lanes'.
    vectors: Vec<Arc<OwnDoorbell>>,
    /// What rings a host that interrupts wake.
    register: Option<Arc<Register>>,
    ringers: HashMap<u32, Arc<PeerDoorbell>>,
    control_ringer: Option<Arc<PeerDoorbell>>,
}

impl Doorbells {
    /// Makes the control thread's doorbell, if settings and file system allow it.
    pub fn new(own: DoorbellKind, peer: DoorbellKind) -> Doorbells {
        let watch = match own {
            DoorbellKind::None => None,
            _ => epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
        };
        let mut doorbells = Doorbells {
            own,
            peer,
            watch,
            control: None,
            lanes: HashMap::new(),
            vectors: Vec::new(),
            register: None,
            ringers: HashMap::new(),
            control_ringer: None,
        };
        if matches!(doorbells.own, DoorbellKind::Prefix(_)) {
            doorbells.make_control();
        }
        doorbells
    }

    /// Releases the PCI functions behind the doorbells, which are gone or must be opened again.
    pub fn release_functions(&mut self) {
        if matches!(self.own, DoorbellKind::Vectors(_) | DoorbellKind::Server(_)) {
            if let (Some(bell), Some(watch)) = (self.control.take(), &self.watch) {
                // An eventfd that others have, too, would stay watched after it was closed here.
                let _ = epoll::delete(watch, bell.fd());
            }
            self.lanes.clear();
            self.vectors.clear();
        }
        if matches!(self.peer, DoorbellKind::Register(_) | DoorbellKind::Server(_)) {
            self.ringers.clear();
            self.control_ringer = None;
            self.register = None;
        }
    }

    /// Makes the control thread's doorbell if there is none yet.
    pub fn make_control(&mut self) {
        if self.control.is_none()
            && let Some(bell) = self.create(None)
            && let Some(watch) = &self.watch
        {
            let added = epoll::add(
                watch,
                bell.fd(),
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN,
            );
            self.control = added.is_ok().then_some(bell);
        }
    }

    /// Readable after a ring for the control thread; `None` if it has no doorbell.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Makes the doorbell of a lane, or of the control thread.
    fn create(&mut self, lane: Option<u32>) -> Option<Arc<OwnDoorbell>> {
        match &self.own {
            DoorbellKind::None | DoorbellKind::Register(_) => None,
            DoorbellKind::Prefix(prefix) => {
                let path = with_suffix(prefix, &suffix(lane));
                match OwnDoorbell::create(path.clone()) {
                    Ok(bell) => Some(Arc::new(bell)),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "no doorbell can be made here; this host polls");
                        None
                    }
                }
            }
            DoorbellKind::Vectors(vectors) => {
                let open = || vectors.open().map_err(|error| error.to_string());
                vector_bell(&mut self.vectors, lane, open)
            }
            DoorbellKind::Server(server) => {
                let open = || server.interrupts().map_err(|error| error.to_string());
                vector_bell(&mut self.vectors, lane, open)
            }
        }
    }

    /// The control thread's doorbell.
    pub fn control(&self) -> Option<&Arc<OwnDoorbell>> {
        self.control.as_ref()
    }

    /// The doorbell of one of this host's lanes, made at the first call. `None` without a control
    /// doorbell, by which the peer decides whether it can ring.
    pub fn lane(&mut self, lane: u32) -> Option<Arc<OwnDoorbell>> {
        self.control.as_ref()?;
        if let Some(bell) = self.lanes.get(&lane) {
            return Some(Arc::clone(bell));
        }
        let bell = self.create(Some(lane))?;
        self.lanes.insert(lane, Arc::clone(&bell));
        Some(bell)
    }

    /// Looks for the peer's control doorbell, for a new conversation; whether it was found.
    pub fn find_peer(&mut self) -> bool {
        self.ringers.clear();
        self.control_ringer = self.open_ringer(None).ok().map(Arc::new);
        self.control_ringer.is_some()
    }

    /// Rings the peer's control thread.
    pub fn ring_control(&self) {
        if let Some(ringer) = &self.control_ringer {
            ringer.ring();
        }
    }

    /// The means to ring one of the peer's lanes.
    pub fn ringer(&mut self, lane: u32) -> io::Result<Arc<PeerDoorbell>> {
        if let Some(ringer) = self.ringers.get(&lane) {
            return Ok(Arc::clone(ringer));
        }
        let ringer = Arc::new(self.open_ringer(Some(lane))?);
        self.ringers.insert(lane, Arc::clone(&ringer));
        Ok(ringer)
    }

    fn open_ringer(&mut self, lane: Option<u32>) -> io::Result<PeerDoorbell> {
        match &self.peer {
            DoorbellKind::None | DoorbellKind::Vectors(_) => Err(io::ErrorKind::NotFound.into()),
            DoorbellKind::Prefix(prefix) => PeerDoorbell::open(&with_suffix(prefix, &suffix(lane))),
            DoorbellKind::Server(server) => {
                let peers = server.join().map_err(io::Error::other)?.peers(vector(lane));
                if peers.is_empty() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                Ok(PeerDoorbell::Peers(peers))
            }
            DoorbellKind::Register(ring) => {
                let register = match &self.register {
                    Some(register) => Arc::clone(register),
                    None => Arc::new(Register::open(ring).map_err(|error| {
                        tracing::warn!(%error, "the peer can't be rung; it polls");
                        io::Error::other(error)
                    })?),
                };
                let value = ring.value.wrapping_add(vector(lane));
                self.register = Some(Arc::clone(&register));
                Ok(PeerDoorbell::Register(register, value))
            }
        }
    }
}

/// Wakes the lane of a channel's other end.
#[derive(Debug)]
pub struct LaneWaker {
    ringer: Arc<PeerDoorbell>,
    watch: Watch,
}

impl LaneWaker {
    /// Rings the lane whose entry, one line in the window that this host reads, is `entry`.
    pub fn new(ringer: Arc<PeerDoorbell>, entry: Window) -> LaneWaker {
        LaneWaker {
            ringer,
            watch: Watch::new(entry),
        }
    }

    /// Rings if the lane sleeps. To be called after what it shall see was published.
    #[inline]
    pub fn wake(&mut self) {
        if self.watch.must_ring() {
            self.ringer.ring();
        }
    }
}

/// A lane's doorbell: its FIFO and its armed word.
#[derive(Debug)]
pub struct LaneDoorbell {
    bell: Arc<OwnDoorbell>,
    armed: Armed,
    _mapped: Mapped,
}

impl LaneDoorbell {
    /// The doorbell of lane `lane`; `None` if the window has no entry for it.
    pub fn new(
        bell: Arc<OwnDoorbell>,
        mapped: &Mapped,
        layout: &WindowLayout,
        lane: u32,
    ) -> Option<LaneDoorbell> {
        let entry = mapped
            .window
            .sub(layout.lane_at(lane)?, super::layout::ENTRY_BYTES)
            .ok()?;
        let armed = Armed::new(entry, bell.generation.load(Ordering::Relaxed));
        Some(LaneDoorbell {
            bell,
            armed,
            _mapped: mapped.clone(),
        })
    }
}

impl Doorbell for LaneDoorbell {
    fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    fn arm(&mut self) {
        // Kept for the lane's next doorbell, so that no number is used twice.
        self.bell.generation.store(self.armed.arm(), Ordering::Relaxed);
    }

    fn disarm(&mut self) {
        self.bell.generation.store(self.armed.disarm(), Ordering::Relaxed);
        self.bell.clear();
    }
}

impl Drop for LaneDoorbell {
    fn drop(&mut self) {
        self.bell.generation.store(self.armed.disarm(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "doorbell_tests.rs"]
mod tests;
