//! The FIFOs of doorbells, and the words in the store's files.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{after_publishing, arm, disarm, is_due};
use crate::config::PortRef;
use crate::partition::port_view;
use crate::store::layout::port;
use crate::store::{Store, StoreError};
use crate::sync::AtomicU64;
use crate::sys::{Area, View};
use crate::system::is_other_host;

/// Bytes taken at once; a FIFO that holds more is read in turns.
const TAKEN_BYTES: usize = 4096;
/// Turns at most: more than a FIFO holds by default, and an end where somebody writes without
/// pause.
const TURNS: usize = 16;

/// Makes the FIFO `path`, if it is not there.
pub(crate) fn make(path: &Path) -> Result<(), StoreError> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o660), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(system("make", path, errno.into())),
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    // For reading and writing at both sides: a sleeper sees no hang-up when a ringer goes, a ringer
    // no SIGPIPE when the sleeper does.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fifo = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&fifo)?.st_mode) != FileType::Fifo {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no FIFO"));
    }
    Ok(fifo)
}

fn system(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::System {
        action,
        path: path.into(),
        source,
    }
}

/// The sleeper's side of one port: the gateway's, or that of the process which has a queue pair
/// (module `own_writer`). Dropping it disarms it.
#[derive(Debug)]
pub struct Doorbell {
    fifo: OwnedFd,
    /// The port's part of its partition's file.
    area: Area,
}

impl Doorbell {
    pub(crate) fn open(path: &Path, area: &Area) -> Result<Self, StoreError> {
        let fifo = open(path).map_err(|source| system("open", path, source))?;
        let doorbell = Self {
            fifo,
            area: area.clone(),
        };
        // A gateway that was killed may have left it armed.
        doorbell.disarm();
        doorbell.clear();
        Ok(doorbell)
    }

    fn word(&self) -> &AtomicU64 {
        self.area.word(port::DOORBELL)
    }

    /// Becomes readable when the doorbell is rung.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }

    /// From now on processes ring. The caller looks once more for messages, or room, before it
    /// sleeps.
    pub fn arm(&self) {
        arm(self.word());
    }

    /// From now on nobody need ring.
    pub fn disarm(&self) {
        disarm(self.word());
    }

    /// Takes the rings that have come.
    pub fn clear(&self) {
        let mut rings = [0_u8; TAKEN_BYTES];
        for _ in 0..TURNS {
            if !matches!(rustix::io::read(&self.fifo, &mut rings), Ok(TAKEN_BYTES)) {
                break;
            }
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// Whom the users of a port ring: the gateway's ends of its channel, if it has any.
#[derive(Debug)]
pub(crate) struct Ringers(Box<[Ringer]>);

/// Rings one doorbell.
#[derive(Debug)]
pub(crate) struct Ringer {
    fifo: OwnedFd,
    /// The port of the doorbell in its partition's file, which its sleeper writes.
    far: View,
    /// The arming for which this process rang last.
    rung: AtomicU64,
}

impl Ringers {
    /// Those of the port `reference`.
    pub(crate) fn of(store: &Store, reference: &PortRef) -> Result<Self, StoreError> {
        let mut ringers = Vec::new();
        for channel in &store.module().channels {
            if channel.has_shared_source() {
                // The gateway has nothing to do for it.
                continue;
            }
            let ends = if channel.source == *reference {
                channel.destinations.as_slice()
            } else if channel.destinations.contains(reference) {
                std::slice::from_ref(&channel.source)
            } else {
                continue;
            };
            for end in ends.iter().filter(|end| is_other_host(&end.partition)) {
                ringers.push(Ringer::of(store, end)?);
            }
        }
        Ok(Self(ringers.into()))
    }

    /// Rings who sleeps. To be called after what they shall see was published.
    #[inline]
    pub(crate) fn ring(&self) {
        if !self.0.is_empty() {
            after_publishing();
            self.0.iter().for_each(Ringer::ring);
        }
    }
}

impl Ringer {
    /// Of the port `reference`, whose doorbell was made.
    pub(crate) fn of(store: &Store, reference: &PortRef) -> Result<Self, StoreError> {
        let path = store.doorbell_path(reference);
        Ok(Self {
            fifo: open(&path).map_err(|source| system("open", &path, source))?,
            far: port_view(store, reference)?,
            rung: AtomicU64::new(0),
        })
    }

    /// Rings if somebody sleeps. To be called after what they shall see was published.
    #[inline]
    pub(crate) fn ring_after_publishing(&self) {
        after_publishing();
        self.ring();
    }

    #[inline]
    fn ring(&self) {
        if is_due(self.far.word(port::DOORBELL), &self.rung) {
            // A full FIFO is as good: its owner has not looked yet.
            let _ = rustix::io::write(&self.fifo, &[1]);
        }
    }
}
