//! Maps the files and devices that windows lie in.
//!
//! Contract: an absent or empty file is created and reserved in full; an existing one is never
//! extended, as it may be another program's. An ivshmem server's memory is reserved too. Devices
//! (`/dev/mem`, UIO) and PCI resources are only mapped.
//!
//! Not covered: if a file is truncated while it is mapped, the next access ends the process with
//! SIGBUS, a signal that no library may claim. The length is checked at opening and at every
//! heartbeat, which detects most truncations. Guard the file by its permissions.
#![allow(unsafe_code)] // Mapping memory.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use busway_core::Window;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::ivshmem::{Client, Server, ServerError};
use super::medium::Medium;
use super::pci;
use super::pci::error::FunctionError;
use super::region::WindowRegion;
use super::source::Source;
use crate::contract::Access;

/// Why a window can't be mapped. The link retries; each text names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The file ends before the window does.
    #[error(
        "{} has {actual_bytes} bytes, the windows in it need {needed_bytes}: correct `length`, or remove the file if nobody uses it",
        path.display()
    )]
    TooShort {
        path: PathBuf,
        actual_bytes: u64,
        /// The length that the settings ask for, in bytes.
        needed_bytes: u64,
    },
    /// No file and no device.
    #[error("{} is a {kind}: name a file, or a device that can be mapped", path.display())]
    Kind {
        /// What the path names.
        path: PathBuf,
        kind: &'static str,
    },
    /// The PCI function can't be used now.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The ivshmem server can't be used now.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Which file is mapped, to notice that its path names another one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

/// What may happen to a source while it is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFault {
    /// The memory is unusable: a truncated file (an access beyond its end ends the process), or a
    /// PCI function that is gone.
    Unusable(String),
    /// The path names nothing or another file. The mapping works, but a restarted peer would not
    /// find it.
    Replaced(String),
}

/// What is mapped, for the regular look at it.
#[derive(Debug)]
enum Origin {
    File {
        path: PathBuf,
        file_length: u64,
        /// `None` for a device.
        identity: Option<FileIdentity>,
    },
    Function(pci::OpenFunction),
    Server {
        client: Arc<Client>,
        file_length: u64,
    },
}

/// A mapping; unmapped when the last holder drops it.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<c_void>,
    length: usize,
    /// Where in it the window begins.
    lead: usize,
    origin: Origin,
}

// SAFETY: the mapping is an address range that this type does not access, so any thread may hold or
// drop it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are from mmap. Every `Window` into the range is kept beside
        // an `Arc` of this mapping (`Mapped`), so none is left when the last `Arc` drops.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.length) } {
            tracing::warn!(%error, "a window could not be unmapped");
        }
    }
}

/// A mapped window. A clone of the [`Window`] needs a clone of this, which keeps the memory.
#[derive(Clone, Debug)]
pub struct Mapped {
    pub window: Window,
    mapping: Arc<Mapping>,
}

/// What there is to map.
struct ToMap {
    file: OwnedFd,
    /// Where in the file the source begins, in bytes.
    at: u64,
    origin: Origin,
}

impl Mapped {
    /// Opens, makes if need be, and maps the window at `place`.
    pub fn open(place: &WindowRegion, access: Access) -> Result<Mapped, MapError> {
        let to_map = match &place.source {
            Source::File(path) => prepare_file(path, place, access)?,
            Source::Server(server) => prepare_memory(server, place)?,
            Source::Resource(resource) => {
                let opened = resource.open(access, place.file_length)?;
                ToMap {
                    file: opened.file,
                    at: opened.at,
                    origin: Origin::Function(opened.handle),
                }
            }
        };
        let protection = match access {
            Access::Reads => ProtFlags::READ,
            Access::Writes => ProtFlags::READ | ProtFlags::WRITE,
        };
        let (mapping, window) = map(place, to_map, protection).map_err(|errno| MapError::System {
            action: "map",
            path: place.source.to_string().into(),
            source: errno.into(),
        })?;
        Ok(Mapped {
            window,
            mapping: Arc::new(mapping),
        })
    }

    /// What the window lies in, for people.
    pub fn source(&self) -> impl fmt::Display {
        match &self.mapping.origin {
            Origin::File { path, .. } => path.display().to_string(),
            Origin::Function(handle) => handle.name(),
            Origin::Server { client, .. } => client.name(),
        }
    }

    /// Stores `value` at `offset_bytes`, in one 32-bit access, after all earlier stores to any
    /// mapping: for a device register that wakes the peer. Does nothing outside the window or
    /// unaligned.
    pub fn ring(&self, offset_bytes: usize, value: u32) {
        // Partner: the interrupt, which the bus does not let pass the stores before it.
        self.window.write_fence();
        let inside = offset_bytes
            .checked_add(4)
            .is_some_and(|end| end <= self.window.len_bytes());
        if !inside || !offset_bytes.is_multiple_of(4) {
            return;
        }
        let at = self.mapping.base.as_ptr().cast::<u8>();
        // SAFETY: `lead + len_bytes()` bytes are mapped at `base` while `self` lives, for writing,
        // since only what was opened as `Access::Writes` is rung. The offset is inside and aligned,
        // as checked. It is device memory without references to it, behind a volatile access.
        unsafe {
            at.add(self.mapping.lead + offset_bytes)
                .cast::<u32>()
                .write_volatile(value)
        };
    }

    /// What has happened to the source, for the control thread's regular look. `None`: nothing.
    pub fn fault(&self) -> Option<SourceFault> {
        match &self.mapping.origin {
            Origin::File {
                path,
                file_length,
                identity,
            } => file_fault(path, *file_length, (*identity)?),
            Origin::Function(handle) => handle.fault().map(SourceFault::Unusable),
            Origin::Server { client, file_length } => server_fault(client, *file_length),
        }
    }
}

fn file_fault(path: &Path, file_length: u64, identity: FileIdentity) -> Option<SourceFault> {
    let shown = path.display();
    match rustix::fs::stat(path) {
        Ok(stat) if file_identity(&stat) != identity => Some(SourceFault::Replaced(format!(
            "{shown} was replaced by another file"
        ))),
        Ok(stat) if (stat.st_size as u64) < file_length => Some(SourceFault::Unusable(format!(
            "{shown} was truncated to {} bytes",
            stat.st_size
        ))),
        Ok(_) => None,
        Err(error) => Some(SourceFault::Replaced(format!(
            "{shown} is no longer there: {error}"
        ))),
    }
}

/// Also reads the server's news. A server that has gone is no fault by itself: its memory stays
/// valid.
fn server_fault(client: &Client, file_length: u64) -> Option<SourceFault> {
    client.poll();
    let truncated = client.fault(file_length).map(SourceFault::Unusable);
    truncated.or_else(|| {
        client.is_replaced().then(|| {
            SourceFault::Replaced(format!(
                "{} has gone, and another one listens there",
                client.name()
            ))
        })
    })
}

/// Joins the server and opens its memory.
fn prepare_memory(server: &Server, place: &WindowRegion) -> Result<ToMap, MapError> {
    let client = server.join()?;
    let file = client.memory(place.file_length)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| system_error("examine", &server.socket, errno))?;
    reserve(&server.socket, place.file_length, &file, &stat, true)?;
    let origin = Origin::Server {
        client,
        file_length: place.file_length,
    };
    Ok(ToMap { file, at: 0, origin })
}

/// Opens the file or device at `path`, and makes the file if need be.
fn prepare_file(path: &Path, place: &WindowRegion, access: Access) -> Result<ToMap, MapError> {
    let (file, writable) = open_file(path, place, access)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| system_error("examine", path, errno))?;
    let no_memory = |kind| MapError::Kind {
        path: path.into(),
        kind,
    };
    let identity = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            reserve(path, place.file_length, &file, &stat, writable)?;
            Some(file_identity(&stat))
        }
        FileType::CharacterDevice | FileType::BlockDevice => None,
        FileType::Directory => return Err(no_memory("directory")),
        _ => return Err(no_memory("pipe, socket or the like")),
    };
    let origin = Origin::File {
        path: path.into(),
        file_length: place.file_length,
        identity,
    };
    Ok(ToMap { file, at: 0, origin })
}

fn system_error(action: &'static str, path: &Path, errno: Errno) -> MapError {
    MapError::System {
        action,
        path: path.into(),
        source: errno.into(),
    }
}

fn file_identity(stat: &Stat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
    }
}

/// Whether a missing path may become a file: not where the kernel lists its devices.
fn may_create(path: &Path) -> bool {
    !["/sys", "/proc"].iter().any(|root| path.starts_with(root)) && path.parent() != Some(Path::new("/dev"))
}

/// Opens the file; the flag says whether it is writable. A reader may have read access only.
fn open_file(path: &Path, place: &WindowRegion, access: Access) -> Result<(OwnedFd, bool), MapError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    if place.medium == Medium::Device {
        // For /dev/mem this is what makes the mapping uncached.
        flags |= OFlags::SYNC;
    }
    let create = if may_create(path) {
        OFlags::CREATE
    } else {
        OFlags::empty()
    };
    match rustix::fs::open(path, flags | OFlags::RDWR | create, Mode::from_raw_mode(0o660)) {
        Ok(file) => Ok((file, true)),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if access == Access::Reads => {
            rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty())
                .map(|file| (file, false))
                .map_err(|errno| system_error("open", path, errno))
        }
        Err(errno) => Err(system_error("open", path, errno)),
    }
}

/// Reserves every byte of a file: a hole that can't be filled later ends the process (SIGBUS).
fn reserve(
    path: &Path,
    file_length: u64,
    file: &OwnedFd,
    stat: &Stat,
    writable: bool,
) -> Result<(), MapError> {
    let actual_bytes = stat.st_size as u64;
    // Empty: just made, by this host or by the peer.
    if actual_bytes != 0 && actual_bytes < file_length || actual_bytes == 0 && !writable {
        return Err(MapError::TooShort {
            path: path.into(),
            actual_bytes,
            needed_bytes: file_length,
        });
    }
    if !writable {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, file_length) {
        Ok(()) => Ok(()),
        // A PCI resource file is a regular file to stat but has nothing to reserve.
        Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL | Errno::IO | Errno::SPIPE)
            if actual_bytes >= file_length =>
        {
            Ok(())
        }
        Err(errno) => Err(system_error("reserve memory for", path, errno)),
    }
}

fn map(place: &WindowRegion, to_map: ToMap, protection: ProtFlags) -> Result<(Mapping, Window), Errno> {
    let is_file = matches!(
        to_map.origin,
        Origin::File {
            identity: Some(_),
            ..
        } | Origin::Server { .. }
    );
    let page = rustix::param::page_size() as u64;
    let begin = to_map.at.checked_add(place.offset).ok_or(Errno::OVERFLOW)?;
    let from = begin / page * page;
    let lead = usize::try_from(begin - from).map_err(|_| Errno::OVERFLOW)?;
    let length = usize::try_from(place.length).map_err(|_| Errno::OVERFLOW)?;
    let mapped_length = lead.checked_add(length).ok_or(Errno::OVERFLOW)?;
    let mut flags = MapFlags::SHARED;
    if is_file {
        // The pages exist; fault them in now rather than on the data path.
        flags |= MapFlags::POPULATE;
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this program.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            mapped_length,
            protection,
            flags,
            &to_map.file,
            from,
        )
    }?;
    let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
    let mapping = Mapping {
        base,
        length: mapped_length,
        lead,
        origin: to_map.origin,
    };
    if is_file {
        // Fewer TLB misses where the file system has huge pages; a refusal does not matter.
        // SAFETY: advice about a range that was just mapped; it changes no contents.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr(), mapped_length, Advice::LinuxHugepage) };
    }
    // SAFETY: `lead + length` bytes are mapped at `base`; `base` is page-aligned and `lead` a
    // multiple of 64. The mapping lives as long as the returned `Mapping`, which the caller keeps
    // beside every window. The program accesses the memory through windows only.
    let window =
        unsafe { Window::from_raw_parts(base.as_ptr().cast::<u8>().add(lead), length, place.medium.into()) };
    Ok((mapping, window))
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
