//! One file of the store: made whole or not at all, and checked before it is believed.
//!
//! Contract: a file gets its name only when it is complete (a temporary one is linked to it), so a
//! process that opens it finds either nothing or everything. Of two that make it at once, one wins
//! and the other uses that. Called by the store.
//!
//! ```text
//! offset 0     magic          u64
//! offset 8     version        u64, of the layout behind the header
//! offset 16    length         u64, of the file in bytes
//! offset 24    text length    u64, in bytes
//! offset 128   text           what the file was made for, one thing a line
//! then, on the next multiple of 128 bytes, the body, which begins as zeros
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::ModuleError;
use crate::sys::{Area, View};

const MAGIC: u64 = u64::from_ne_bytes(*b"buswport");
/// Counts up with every change of a layout in this crate.
pub(crate) const LAYOUT_VERSION: u64 = 2;
const TEXT: usize = 128;
/// Longer is no text of ours.
const MAX_TEXT_BYTES: u64 = 1 << 24;

/// Why a store can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The configuration is impossible.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No file of a store, or of another version.
    #[error("{} is {found}: remove it when no partition uses it", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// The file was made for another configuration.
    #[error(
        "{} was made for `{found}`, the configuration says `{wanted}`: use the same configuration everywhere, or stop \
         all partitions and remove the directory",
        path.display()
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// The first line of what the file was made for that differs.
        found: String,
        /// What the configuration has in its place.
        wanted: String,
    },
    /// Memory that another host shares could not be had.
    #[error("channel {channel}: {reason}")]
    Far {
        /// Name of the channel.
        channel: String,
        /// Why, with the file and the mend.
        reason: String,
    },
    /// Sizes that fit no address space.
    #[error("channel {channel} needs more memory than there are addresses: {reason}")]
    Size {
        /// Name of the channel.
        channel: String,
        /// Why.
        reason: String,
    },
}

/// What a file must be.
pub(crate) struct FileSpec {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) body_bytes: usize,
}

/// A file that is what it must be.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    path: PathBuf,
    body_offset: usize,
    body_bytes: usize,
}

impl Opened {
    /// The body, read-only.
    pub(crate) fn view(&self) -> Result<View, StoreError> {
        View::map(&self.file, self.body_offset + self.body_bytes)
            .map(|view| view.part(self.body_offset, self.body_bytes))
            .map_err(|source| system("map", &self.path, source))
    }

    /// The body, writable.
    pub(crate) fn area(&self) -> Result<Area, StoreError> {
        Area::map(&self.file, self.body_offset + self.body_bytes)
            .map(|area| area.part(self.body_offset, self.body_bytes))
            .map_err(|source| system("map", &self.path, source))
    }
}

impl FileSpec {
    fn body_offset(&self) -> usize {
        (TEXT + self.text.len()).next_multiple_of(128)
    }

    fn file_bytes(&self) -> u64 {
        (self.body_offset() + self.body_bytes) as u64
    }

    /// Opens the file for reading, if it is there.
    pub(crate) fn open_to_look(self) -> Result<Opened, StoreError> {
        let file = File::open(&self.path).map_err(|source| system("open", &self.path, source))?;
        self.check(&file)?;
        Ok(self.opened(file))
    }

    fn opened(self, file: File) -> Opened {
        Opened {
            file,
            body_offset: self.body_offset(),
            body_bytes: self.body_bytes,
            path: self.path,
        }
    }

    /// Opens the file, and makes it if it is missing.
    pub(crate) fn open(self) -> Result<Opened, StoreError> {
        let open = || OpenOptions::new().read(true).write(true).open(&self.path);
        let file = match open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                open().map_err(|source| system("open", &self.path, source))?
            }
            Err(source) => return Err(system("open", &self.path, source)),
        };
        self.check(&file)?;
        Ok(self.opened(file))
    }

    /// Makes the file; does nothing if another process was faster.
    fn make(&self) -> Result<(), StoreError> {
        let fail = |action| move |source| system(action, &self.path, source);
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(std::fs::Permissions::from_mode(0o660))
            .tempfile_in(directory)
            .map_err(fail("make"))?;
        let file = temporary.as_file();
        // All pages now, since one that can't be had later ends the process.
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, self.file_bytes())
            .map_err(|errno| system("reserve memory for", &self.path, errno.into()))?;
        let header = [MAGIC, LAYOUT_VERSION, self.file_bytes(), self.text.len() as u64];
        let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, 0).map_err(fail("write"))?;
        file.write_all_at(self.text.as_bytes(), TEXT as u64)
            .map_err(fail("write"))?;
        match temporary.persist_noclobber(&self.path) {
            Ok(_) => tracing::debug!(path = %self.path.display(), "made"),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(system("name", &self.path, error.error)),
        }
        Ok(())
    }

    fn check(&self, file: &File) -> Result<(), StoreError> {
        let foreign = |found: String| StoreError::Foreign {
            path: self.path.clone(),
            found,
        };
        let mut words = [0_u8; 32];
        file.read_exact_at(&mut words, 0)
            .map_err(|_| foreign("no file of a store, since it is too short".into()))?;
        let word = |index: usize| {
            words[index * 8..]
                .first_chunk()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let [magic, version, length, text_bytes] = [word(0), word(1), word(2), word(3)];
        if magic != MAGIC {
            return Err(foreign("no file of a store".into()));
        }
        if version != LAYOUT_VERSION {
            return Err(foreign(format!(
                "of layout version {version}, and this is {LAYOUT_VERSION}"
            )));
        }
        if text_bytes > MAX_TEXT_BYTES {
            return Err(foreign(format!("damaged: its text has {text_bytes} bytes")));
        }
        let mut text = vec![0; text_bytes as usize];
        file.read_exact_at(&mut text, TEXT as u64)
            .map_err(|_| foreign("damaged: it is shorter than its text".into()))?;
        let text = String::from_utf8_lossy(&text);
        if text != self.text {
            return Err(self.difference(&text));
        }
        let actual = file
            .metadata()
            .map_err(|source| system("examine", &self.path, source))?
            .len();
        if length != self.file_bytes() || actual < length {
            let wanted = self.file_bytes();
            return Err(foreign(format!(
                "damaged: it has {actual} bytes, says {length}, and needs {wanted}"
            )));
        }
        Ok(())
    }

    fn difference(&self, found: &str) -> StoreError {
        let (mut ours, mut theirs) = (self.text.lines(), found.lines());
        loop {
            let (wanted, found) = (ours.next(), theirs.next());
            if wanted != found || wanted.is_none() {
                let text = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                return StoreError::Different {
                    path: self.path.clone(),
                    found: text(found),
                    wanted: text(wanted),
                };
            }
        }
    }
}

fn system(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::System {
        action,
        path: path.into(),
        source,
    }
}

/// A file name for `name`: letters, digits, `-`, `_` and `.` as they are, everything else as `%`
/// and two digits a byte.
pub(crate) fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02x}")
            }
        })
        .collect()
}
