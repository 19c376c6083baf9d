//! `mq`: POSIX message queues, one each way.
//!
//! A message goes in pieces of the longest message that the system grants
//! (`/proc/sys/fs/mqueue/msgsize_max`), the queues are as deep as it grants (`msg_max`, at most
//! [`MESSAGES_MAX`]). Pieces need no numbers: a queue keeps order and loses nothing
//! (mq_overview(7)).
//!
//! The answering program makes the queues and writes their names into a file, the asking program
//! opens and unlinks both. What a run leaves that is killed in between carries its process number,
//! and goes when the next one makes queues.
#![allow(unsafe_code)] // the calls of mq_overview(7), for which rustix has none

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path as FilePath;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::message::{Message, Received};
use super::path::{Description, LOOK_TIMEOUT, Opening, Path, Reach, User};
use super::ready::{Room, sleep_until_ready};
use crate::control::WorkerResult;
use crate::record::Measured;

/// The limits of queues, see mq_overview(7).
const LIMITS: &str = "/proc/sys/fs/mqueue";
/// What `msgsize_max` and `msg_max` are unless the system says otherwise.
const DEFAULT_PIECE_BYTES: usize = 8192;
const DEFAULT_MESSAGES: usize = 10;
/// Deeper queues would only hide how programs wait for each other.
const MESSAGES_MAX: usize = 10;
const LISTING: &str = "/dev/mqueue";
/// What all our queues begin with; the process number of the program that made them follows.
const PREFIX: &str = "busway-bench-";

pub(super) fn describe() -> [Description; 1] {
    let has_queues = FilePath::new(LIMITS).exists();
    [Description {
        reach: Reach::Host,
        missing: (!has_queues).then(|| "a kernel with POSIX message queues (CONFIG_POSIX_MQUEUE)".to_owned()),
        ..Description::new(
            "mq",
            format!(
                "POSIX message queues, in pieces of {} bytes",
                longest_piece_bytes()
            ),
        )
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    user.exchange(Queues::open(opening)?)
}

fn limit(name: &str) -> Option<usize> {
    fs::read_to_string(FilePath::new(LIMITS).join(name))
        .ok()?
        .trim()
        .parse()
        .ok()
        .filter(|limit| *limit > 0)
}

fn longest_piece_bytes() -> usize {
    limit("msgsize_max").unwrap_or(DEFAULT_PIECE_BYTES)
}

struct Queues {
    there: OwnedFd,
    back: OwnedFd,
    /// Of the program that has made them.
    _names: Names,
    blocks: bool,
    piece_bytes: usize,
    outgoing: Vec<u8>,
    left: usize,
    /// Room for whole pieces: a queue refuses to give a message to a shorter buffer than its
    /// longest.
    incoming: Vec<u8>,
    /// Bytes of the message under way that have come.
    filled: usize,
    touched: bool,
    room: Room,
}

impl Queues {
    fn open(opening: &Opening<'_>) -> WorkerResult<Self> {
        let payload_bytes = opening.payload_bytes;
        let piece_bytes = payload_bytes.min(longest_piece_bytes());
        let flags = if opening.blocks() { 0 } else { libc::O_NONBLOCK };
        let names_file = opening.place.directory.join(format!("{}.mq", opening.place.name));
        let mut names = Names::default();
        let [first, second] = if opening.answers() {
            make(&names_file, &mut names, piece_bytes, flags)?
        } else {
            open_made(&names_file, flags)?
        };
        let (there, back) = opening.ends(first, second);
        Ok(Self {
            there,
            back,
            _names: names,
            blocks: opening.blocks(),
            piece_bytes,
            outgoing: vec![0; payload_bytes],
            left: payload_bytes,
            incoming: vec![0; payload_bytes.next_multiple_of(piece_bytes)],
            filled: 0,
            touched: opening.touched,
            room: Room::for_sender(opening),
        })
    }

    fn push(&mut self) -> WorkerResult<bool> {
        while self.left < self.outgoing.len() {
            let end = self.outgoing.len().min(self.left + self.piece_bytes);
            let sent = send(&self.there, &self.outgoing[self.left..end], self.blocks);
            match sent {
                Ok(()) => self.left = end,
                Err(e) if is_empty_or_full(&e) => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("mq_timedsend: {e}")),
            }
        }
        Ok(true)
    }
}

#[derive(Default)]
struct Names(Vec<CString>);

impl Drop for Names {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| unlink(name));
    }
}

/// Makes both queues, from the asking program to the answering one first, and writes their names
/// into the file.
fn make(
    names_file: &FilePath,
    names: &mut Names,
    piece_bytes: usize,
    flags: i32,
) -> WorkerResult<[OwnedFd; 2]> {
    remove_leftovers();
    let mut made = |direction: &str| {
        let name = c_name(&format!("/{PREFIX}{}-{direction}", std::process::id()))?;
        // Of a process that had our number in another namespace.
        unlink(&name);
        let queue = create(&name, piece_bytes, flags).map_err(|e| refused(&name, piece_bytes, &e));
        names.0.push(name);
        queue
    };
    let queues = [made("there")?, made("back")?];
    // Whole when it is there under its name.
    let draft = names_file.with_extension("mq-draft");
    let text: Vec<_> = names.0.iter().map(|name| name.to_string_lossy()).collect();
    fs::write(&draft, text.join("\n"))
        .and_then(|()| fs::rename(&draft, names_file))
        .map_err(|e| format!("write {}: {e}", names_file.display()))?;
    Ok(queues)
}

/// Opens what the answering program has made, after which it needs no names.
fn open_made(names_file: &FilePath, flags: i32) -> WorkerResult<[OwnedFd; 2]> {
    let context = |e: io::Error| format!("read {}: {e}", names_file.display());
    let text = fs::read_to_string(names_file).map_err(context)?;
    let _ = fs::remove_file(names_file);
    let open = |name: &str| {
        let c_name = c_name(name)?;
        let queue = open_existing(&c_name, flags).map_err(|e| format!("mq_open {name}: {e}"));
        unlink(&c_name);
        queue
    };
    match text.lines().collect::<Vec<_>>()[..] {
        [there, back] => Ok([open(there)?, open(back)?]),
        _ => Err(format!(
            "{}: {text:?} are no names of two queues",
            names_file.display()
        )),
    }
}

fn remove_leftovers() {
    for entry in fs::read_dir(LISTING).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if let Some(owner) = owner
            && !FilePath::new(&format!("/proc/{owner}")).exists()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn refused(name: &CStr, piece_bytes: usize, error: &io::Error) -> String {
    let mend = match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; the queues of this user are longer than RLIMIT_MSGQUEUE allows: raise it (`ulimit -q`, `prlimit --msgqueue`), or remove queues from /dev/mqueue"
        }
        Some(libc::ENOSPC) => "; raise fs.mqueue.queues_max (sysctl), or remove queues from /dev/mqueue",
        Some(libc::EINVAL) => "; see fs.mqueue.msg_max and fs.mqueue.msgsize_max (sysctl)",
        _ => "",
    };
    format!(
        "mq_open {} for messages of {piece_bytes} bytes: {error}{mend}",
        name.to_string_lossy()
    )
}

fn c_name(name: &str) -> WorkerResult<CString> {
    CString::new(name).map_err(|_| format!("queue name {name:?}: has a zero byte"))
}

fn create(name: &CStr, piece_bytes: usize, flags: i32) -> io::Result<OwnedFd> {
    let messages = limit("msg_max").unwrap_or(DEFAULT_MESSAGES).min(MESSAGES_MAX);
    // SAFETY: all members of `mq_attr` are integers, for which zero is a value.
    let mut attributes: libc::mq_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attributes.mq_maxmsg = messages as _;
    attributes.mq_msgsize = piece_bytes as _;
    let flags = flags | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let mode: libc::mode_t = 0o600;
    // SAFETY: the name ends with a zero byte, and with O_CREAT the call reads a mode and
    // attributes, which live during the call.
    owned(unsafe { libc::mq_open(name.as_ptr(), flags, mode, &raw mut attributes) })
}

fn open_existing(name: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte, and without O_CREAT the call takes no more arguments.
    owned(unsafe { libc::mq_open(name.as_ptr(), flags | libc::O_RDWR | libc::O_CLOEXEC) })
}

/// On Linux a queue's descriptor is a file descriptor (mq_overview(7)).
fn owned(queue: libc::mqd_t) -> io::Result<OwnedFd> {
    if queue < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(queue) })
}

fn unlink(name: &CStr) {
    // SAFETY: the name ends with a zero byte. That there is none of this name is as good.
    unsafe { libc::mq_unlink(name.as_ptr()) };
}

/// The end of a look that begins now: these calls count in CLOCK_REALTIME. Not looked at where the
/// queue does not block.
fn deadline(blocks: bool) -> libc::timespec {
    let mut deadline = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if blocks {
        let now = clock_gettime(ClockId::Realtime);
        let nanoseconds = now.tv_nsec as u64 + LOOK_TIMEOUT.as_nanos() as u64;
        deadline.tv_sec = now.tv_sec as libc::time_t + (nanoseconds / 1_000_000_000) as libc::time_t;
        deadline.tv_nsec = (nanoseconds % 1_000_000_000) as _;
    }
    deadline
}

fn send(queue: &OwnedFd, piece: &[u8], blocks: bool) -> io::Result<()> {
    let deadline = deadline(blocks);
    // SAFETY: the call reads `piece` for its length, and the deadline.
    let result = unsafe {
        libc::mq_timedsend(
            queue.as_raw_fd(),
            piece.as_ptr().cast(),
            piece.len(),
            0,
            &deadline,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn receive(queue: &OwnedFd, piece: &mut [u8], blocks: bool) -> io::Result<usize> {
    let deadline = deadline(blocks);
    // SAFETY: the call writes into `piece` within its length and reads the deadline; it writes no
    // priority where there is no place for it.
    let received = unsafe {
        libc::mq_timedreceive(
            queue.as_raw_fd(),
            piece.as_mut_ptr().cast(),
            piece.len(),
            std::ptr::null_mut(),
            &deadline,
        )
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

fn is_empty_or_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Path for Queues {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        if !self.push()? {
            return Ok(false);
        }
        message.fill(&mut self.outgoing, self.touched);
        self.left = 0;
        while !self.push()? {
            if let Err(sent) = self.room.awaited() {
                return Ok(sent);
            }
        }
        Ok(true)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if self.room.timed {
            self.push()?;
        }
        loop {
            let piece = &mut self.incoming[self.filled..self.filled + self.piece_bytes];
            match receive(&self.back, piece, self.blocks) {
                Ok(bytes) => self.filled += bytes,
                Err(e) if is_empty_or_full(&e) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(format!("mq_timedreceive: {e}")),
            }
            let payload_bytes = self.outgoing.len();
            if self.filled >= payload_bytes {
                self.filled = 0;
                return Ok(Message::read(&self.incoming[..payload_bytes], self.touched));
            }
            if !self.filled.is_multiple_of(self.piece_bytes) {
                return Err(format!(
                    "a piece of {} bytes came in the middle of a message",
                    self.filled % self.piece_bytes
                ));
            }
        }
    }

    fn wait(&mut self, at_most: Duration) {
        // Room in the other queue is looked for when the wait ends.
        let longest = if self.left < self.outgoing.len() {
            at_most.min(Duration::from_micros(50))
        } else {
            at_most
        };
        sleep_until_ready(&self.back, false, longest);
    }
}
