//! Wakes a sleeping lane, or a sleeping control thread, of a host on the same kernel.
//!
//! A host that wants to be woken makes a FIFO beside the window that it reads, opens it for reading, and waits with poll(2)
//! or epoll for it to become readable. When somebody must ring is the business of [`super::armed`]. Why a FIFO: see
//! `docs/decisions/002-doorbell-fifo.md`.
//!
//! Contract: never blocks. Called by the link (making and opening FIFOs), by channel ends (ringing) and by lanes (the
//! [`Doorbell`] they were given).

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
use super::tables::DoorbellPlace;
use crate::link::Doorbell;

/// Suffix of the control thread's FIFO.
const CONTROL_SUFFIX: &str = "-control";

/// A FIFO that this host reads; its name is removed when the last holder drops it.
#[derive(Debug)]
pub struct Bell {
    fifo: OwnedFd,
    path: PathBuf,
    /// Number of the last arming, see [`Armed`]. Written by the sleeper only.
    generation: AtomicU64,
}

impl Bell {
    fn create(path: PathBuf) -> io::Result<Bell> {
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o660), 0) {
            // One left over from a process that was killed serves again.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // For writing as well, so that it never reports a hang-up when a ringer goes away.
        let fifo = open_fifo(&path, OFlags::RDWR)?;
        let bell = Bell {
            fifo,
            path,
            generation: AtomicU64::new(0),
        };
        bell.clear();
        Ok(bell)
    }

    /// Becomes readable when the bell is rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }

    /// Takes the rings that have come.
    pub fn clear(&self) {
        let mut rings = [0_u8; 512];
        while matches!(rustix::io::read(&self.fifo, &mut rings), Ok(count) if count == rings.len()) {}
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // Nothing to be done if it fails: the next start uses the FIFO again.
        let _ = rustix::fs::unlink(&self.path);
    }
}

/// The far side of a [`Bell`].
#[derive(Debug)]
pub struct Ringer {
    fifo: OwnedFd,
}

impl Ringer {
    fn open(path: &Path) -> io::Result<Ringer> {
        // Fails unless somebody reads: a FIFO left over, or one that only looks like the peer's (another kernel's).
        drop(open_fifo(path, OFlags::WRONLY)?);
        // For reading as well, so that ringing a peer that has gone does not raise SIGPIPE.
        Ok(Ringer {
            fifo: open_fifo(path, OFlags::RDWR)?,
        })
    }

    /// Rings. A full FIFO is as good: its owner has not looked yet.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.fifo, &[1]);
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

/// This host's bells, by lane, and the peer's as far as they were found.
#[derive(Debug)]
pub struct Belfry {
    own: DoorbellPlace,
    peer: DoorbellPlace,
    /// An epoll descriptor that has the control thread's bell in it, so that what the control thread waits for stays the
    /// same although the bell may be made later.
    watch: Option<OwnedFd>,
    control: Option<Arc<Bell>>,
    lanes: HashMap<u32, Arc<Bell>>,
    ringers: HashMap<u32, Arc<Ringer>>,
    control_ringer: Option<Arc<Ringer>>,
}

impl Belfry {
    /// Makes the control thread's bell, if the settings and the file system allow it.
    pub fn new(own: DoorbellPlace, peer: DoorbellPlace) -> Belfry {
        let watch = match own {
            DoorbellPlace::None => None,
            DoorbellPlace::Prefix(_) => epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
        };
        let mut belfry = Belfry {
            own,
            peer,
            watch,
            control: None,
            lanes: HashMap::new(),
            ringers: HashMap::new(),
            control_ringer: None,
        };
        belfry.make_control();
        belfry
    }

    /// Makes the control thread's bell if there is none yet: the file system may have been full before.
    pub fn make_control(&mut self) {
        if self.control.is_none()
            && let Some(watch) = &self.watch
            && let Some(bell) = self.create(CONTROL_SUFFIX)
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

    /// Readable when the control thread's bell is rung; `None` if it can't be.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    fn create(&self, suffix: &str) -> Option<Arc<Bell>> {
        let DoorbellPlace::Prefix(prefix) = &self.own else {
            return None;
        };
        let path = with_suffix(prefix, suffix);
        match Bell::create(path.clone()) {
            Ok(bell) => Some(Arc::new(bell)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no doorbell can be made here; this host polls");
                None
            }
        }
    }

    /// The control thread's own bell.
    pub fn control(&self) -> Option<&Arc<Bell>> {
        self.control.as_ref()
    }

    /// The bell of one of this host's lanes, made when first asked for. None without a control bell: the peer decides by that one
    /// whether it can ring.
    pub fn lane(&mut self, lane: u32) -> Option<Arc<Bell>> {
        self.control.as_ref()?;
        if let Some(bell) = self.lanes.get(&lane) {
            return Some(Arc::clone(bell));
        }
        let bell = self.create(&format!("-{lane}"))?;
        self.lanes.insert(lane, Arc::clone(&bell));
        Some(bell)
    }

    /// Looks for the peer's control bell anew, for a new conversation; whether it was found.
    pub fn find_peer(&mut self) -> bool {
        self.ringers.clear();
        self.control_ringer = match &self.peer {
            DoorbellPlace::None => None,
            DoorbellPlace::Prefix(prefix) => Ringer::open(&with_suffix(prefix, CONTROL_SUFFIX))
                .ok()
                .map(Arc::new),
        };
        self.control_ringer.is_some()
    }

    /// Rings the peer's control thread.
    pub fn ring_control(&self) {
        if let Some(ringer) = &self.control_ringer {
            ringer.ring();
        }
    }

    /// The means to ring one of the peer's lanes.
    pub fn ringer(&mut self, lane: u32) -> io::Result<Arc<Ringer>> {
        if let Some(ringer) = self.ringers.get(&lane) {
            return Ok(Arc::clone(ringer));
        }
        let DoorbellPlace::Prefix(prefix) = &self.peer else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let ringer = Arc::new(Ringer::open(&with_suffix(prefix, &format!("-{lane}")))?);
        self.ringers.insert(lane, Arc::clone(&ringer));
        Ok(ringer)
    }
}

/// A channel end's way to wake the lane at the other end.
#[derive(Debug)]
pub struct Wake {
    ringer: Arc<Ringer>,
    watch: Watch,
}

impl Wake {
    /// Rings the lane whose entry, one line in the window that this host reads, is `entry`.
    pub fn new(ringer: Arc<Ringer>, entry: Window) -> Wake {
        Wake {
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
pub struct LaneBell {
    bell: Arc<Bell>,
    armed: Armed,
    _mapped: Mapped,
}

impl LaneBell {
    /// The doorbell of lane `lane`; `None` if the window has no entry for it.
    pub fn new(bell: Arc<Bell>, mapped: &Mapped, layout: &WindowLayout, lane: u32) -> Option<LaneBell> {
        let entry = mapped
            .window
            .sub(layout.lane_at(lane)?, super::layout::ENTRY_BYTES)
            .ok()?;
        let armed = Armed::new(entry, bell.generation.load(Ordering::Relaxed));
        Some(LaneBell {
            bell,
            armed,
            _mapped: mapped.clone(),
        })
    }
}

impl Doorbell for LaneBell {
    fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    fn arm(&mut self) {
        // The bell remembers the number for the lane's next doorbell, so that no number comes twice.
        self.bell.generation.store(self.armed.arm(), Ordering::Relaxed);
    }

    fn disarm(&mut self) {
        self.bell.generation.store(self.armed.disarm(), Ordering::Relaxed);
        self.bell.clear();
    }
}

impl Drop for LaneBell {
    fn drop(&mut self) {
        self.bell.generation.store(self.armed.disarm(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "bell_tests.rs"]
mod tests;
