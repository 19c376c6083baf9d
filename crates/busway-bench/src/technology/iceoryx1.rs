//! `iceoryx1`: publish and subscribe of iceoryx, the predecessor of iceoryx2 in C++, through its C
//! binding, polled.
//!
//! The library is opened at run time where it is installed. What is declared here of its interface
//! are facts of the headers of release 2.0.3
//! (`iceoryx_binding_c/{publisher,subscriber,runtime,types,enums}.h`).
//!
//! Its daemon RouDi, without which nothing works, is started by the answering program with memory
//! enough for the measurement, and ends with that program. A RouDi that runs already is used as it
//! is. One that finds a program killed when it ends aborts, and leaves its shared memory to the
//! next one. iceoryx ends the process on most errors; its words are then the last ones on standard
//! error.
#![allow(unsafe_code)] // calls of a C library, memory of C++

use std::ffi::{CString, c_char, c_void};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libloading::Library;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::message::{MIN_MESSAGE_BYTES, Message, Received};
use super::path::{Description, Opening, Path, Reach, User};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::hosts::find_on_path;
use crate::record::Measured;

const LIBRARY: &str = "libiceoryx_binding_c.so.2";
const DAEMON: &str = "iox-roudi";
/// Where loaders look, besides `LD_LIBRARY_PATH`.
const DIRECTORIES: &str = "/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:\
    /usr/lib/riscv64-linux-gnu:/usr/lib64:/usr/lib:/lib";
/// Messages in a queue are no longer than this together, unless four are.
const QUEUE_BYTES: usize = 1 << 20;
/// Chunks beside those in queues: loaned, held, kept by a publisher for use once more.
const SPARE_CHUNKS: usize = 16;
/// RouDi makes its memory and says that it is ready.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(8);
/// The RouDi of the measurement before has ended within this time; one that still runs is somebody
/// else's.
const ENDING_TIMEOUT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);
const READY: &str = "RouDi is ready for clients";
const STILL_RUNNING: &str = "Could not acquire lock";

pub(super) fn describe() -> [Description; 1] {
    let library = find_library();
    let missing = match (&library, find_on_path(DAEMON.as_ref())) {
        (Some(_), Some(_)) => None,
        _ => Some(format!(
            "{LIBRARY} and {DAEMON} of iceoryx 2.0 (Debian packages libiceoryx-binding-c2 and iceoryx)"
        )),
    };
    // The file that the name stands for is called after its release.
    let release = library
        .and_then(|path| fs::canonicalize(path).ok())
        .and_then(|path| Some(path.file_name()?.to_str()?.split_once(".so.")?.1.to_owned()));
    let release = release.as_deref().unwrap_or("2.0");
    let title = format!("iceoryx {release} publish/subscribe through its C binding");
    [Description {
        waits: vec![Wait::Spin],
        reach: Reach::Host,
        least_bytes: MIN_MESSAGE_BYTES,
        max_bytes: 16 << 20,
        missing,
        ..Description::new("iceoryx1", title)
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let path = find_library().ok_or_else(|| format!("{LIBRARY} is not installed"))?;
    let _daemon = if opening.answers() {
        start_daemon(opening)?
    } else {
        None
    };
    let binding = Binding::load(&path)?;
    let name = c_string(&format!("busway-bench-{}", std::process::id()))?;
    // SAFETY: the name ends with a zero byte.
    unsafe { (binding.runtime_init)(name.as_ptr()) };
    user.exchange(Iceoryx1::open(binding, opening)?)
}

fn find_library() -> Option<PathBuf> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&named)
        .chain(DIRECTORIES.split(':').map(PathBuf::from))
        .map(|directory| directory.join(LIBRARY))
        .find(|path| path.is_file())
}

fn c_string(text: &str) -> WorkerResult<CString> {
    CString::new(text).map_err(|_| format!("{text:?} has a zero byte"))
}

fn queue_capacity(payload_bytes: usize) -> usize {
    (QUEUE_BYTES / payload_bytes).clamp(4, 256)
}

/// Starts RouDi; none if another one runs. It is asked to end when this program does, and then ends
/// by itself.
fn start_daemon(opening: &Opening<'_>) -> WorkerResult<Option<Child>> {
    let program = find_on_path(DAEMON.as_ref()).ok_or_else(|| format!("{DAEMON} is not on PATH"))?;
    let file = |suffix: &str| {
        let name = format!("{}.roudi-{suffix}", opening.place.name);
        opening.place.directory.join(name)
    };
    let (config, log) = (file("config"), file("log"));
    let chunks = 2 * queue_capacity(opening.payload_bytes) + SPARE_CHUNKS;
    let text = format!(
        "[general]\nversion = 1\n\n[[segment]]\n\n[[segment.mempool]]\nsize = {}\ncount = {chunks}\n",
        opening.payload_bytes.next_multiple_of(64),
    );
    fs::write(&config, text).map_err(|e| format!("write {}: {e}", config.display()))?;
    let begun = Instant::now();
    while !opening.control.ended() {
        let mut daemon = spawn(&program, &config, &log)?;
        match wait_until_ready(&mut daemon, &log, opening)? {
            Started::Ready => return Ok(Some(daemon)),
            Started::AnotherRuns if begun.elapsed() < ENDING_TIMEOUT => std::thread::sleep(20 * LOOK),
            Started::AnotherRuns => break,
        }
    }
    Ok(None)
}

fn spawn(program: &FilePath, config: &FilePath, log: &FilePath) -> WorkerResult<Child> {
    let context = |e: std::io::Error| format!("start {}: {e}", program.display());
    // Into a file: a pipe would break, and take RouDi along before it has cleaned up, when this
    // program ends.
    let output = File::create(log).map_err(context)?;
    let mut command = Command::new(program);
    command
        .args(["-l", "warning", "-k", "1", "-c"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(context)?)
        .stderr(output);
    let prepare = || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It aborts where another one runs, which is nothing to keep an image of.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        Ok(setrlimit(Resource::Core, none)?)
    };
    // SAFETY: between fork and exec the closure makes system calls only, and neither allocates nor
    // locks.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(context)
}

enum Started {
    Ready,
    AnotherRuns,
}

fn wait_until_ready(daemon: &mut Child, log: &FilePath, opening: &Opening<'_>) -> WorkerResult<Started> {
    let deadline = Instant::now() + DAEMON_TIMEOUT;
    loop {
        let has_ended = !matches!(daemon.try_wait(), Ok(None));
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains(READY) {
            return Ok(Started::Ready);
        }
        if said.contains(STILL_RUNNING) {
            let _ = daemon.wait();
            return Ok(Started::AnotherRuns);
        }
        if has_ended || Instant::now() > deadline || opening.control.ended() {
            let _ = daemon.kill();
            let _ = daemon.wait();
            return Err(format!(
                "{DAEMON} did not get ready; it said: {}",
                said.trim_end()
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// Room for what the binding keeps for an end: a pointer in 2.0.3, all of it in earlier releases of
/// 2.0.
type Storage = [u64; 64];

/// `iox_pub_options_t`, and room behind it for what another release may have added. Flags are bytes
/// here, for the same reason.
#[repr(C)]
struct PublisherOptions {
    history_capacity: u64,
    node_name: *const c_char,
    offer_on_create: u8,
    subscriber_too_slow_policy: i32,
    init_check: u64,
    spare: [u64; 16],
}

#[repr(C)]
struct SubscriberOptions {
    queue_capacity: u64,
    history_request: u64,
    node_name: *const c_char,
    subscribe_on_create: u8,
    queue_full_policy: i32,
    require_publisher_history_support: u8,
    init_check: u64,
    spare: [u64; 16],
}

/// `ConsumerTooSlowPolicy_WAIT_FOR_CONSUMER` and `QueueFullPolicy_BLOCK_PRODUCER`.
const WAITS: i32 = 0;
/// `…_DISCARD_OLDEST_DATA`.
const DISCARDS_OLDEST: i32 = 1;
/// `AllocationResult_SUCCESS`.
const ALLOCATED: i32 = 8;
/// `AllocationResult_RUNNING_OUT_OF_CHUNKS`.
const OUT_OF_CHUNKS: i32 = 1;
/// `ChunkReceiveResult_SUCCESS`.
const TAKEN: i32 = 3;
/// `ChunkReceiveResult_NO_CHUNK_AVAILABLE`.
const NONE_AVAILABLE: i32 = 1;

/// `iox_pub_t` and `iox_sub_t`: pointers to classes of C++.
type End = *mut c_void;
type InitEnd<Options> =
    unsafe extern "C" fn(*mut Storage, *const c_char, *const c_char, *const c_char, *const Options) -> End;

macro_rules! binding {
    ($($field:ident = $symbol:literal: $kind:ty),+ $(,)?) => {
        struct Binding {
            $($field: $kind),+
        }

        impl Binding {
            /// Opens the library, for as long as the process lives: threads and destructors of it
            /// do.
            fn load(path: &FilePath) -> WorkerResult<Self> {
                let context = |e: libloading::Error| format!("{}: {e}", path.display());
                // SAFETY: the library of that name is iceoryx, whose initialisers set up its own
                // objects only.
                let library = unsafe { Library::new(path) }.map_err(context)?;
                let binding = Self {
                    // SAFETY: of each symbol the type is the declaration in the headers of release
                    // 2.0.3.
                    $($field: *unsafe { library.get::<$kind>($symbol) }.map_err(context)?),+
                };
                std::mem::forget(library);
                Ok(binding)
            }
        }
    };
}

binding! {
    runtime_init = b"iox_runtime_init\0": unsafe extern "C" fn(*const c_char),
    publisher_options_init = b"iox_pub_options_init\0": unsafe extern "C" fn(*mut PublisherOptions),
    publisher_options_are = b"iox_pub_options_is_initialized\0": unsafe extern "C" fn(*const PublisherOptions) -> bool,
    publisher_init = b"iox_pub_init\0": InitEnd<PublisherOptions>,
    publisher_deinit = b"iox_pub_deinit\0": unsafe extern "C" fn(End),
    loan = b"iox_pub_loan_chunk\0": unsafe extern "C" fn(End, *mut *mut c_void, u32) -> i32,
    publish = b"iox_pub_publish_chunk\0": unsafe extern "C" fn(End, *mut c_void),
    subscriber_options_init = b"iox_sub_options_init\0": unsafe extern "C" fn(*mut SubscriberOptions),
    subscriber_options_are = b"iox_sub_options_is_initialized\0": unsafe extern "C" fn(*const SubscriberOptions) -> bool,
    subscriber_init = b"iox_sub_init\0": InitEnd<SubscriberOptions>,
    subscriber_deinit = b"iox_sub_deinit\0": unsafe extern "C" fn(End),
    take = b"iox_sub_take_chunk\0": unsafe extern "C" fn(End, *mut *const c_void) -> i32,
    release = b"iox_sub_release_chunk\0": unsafe extern "C" fn(End, *const c_void),
}

struct Iceoryx1 {
    binding: Binding,
    publisher: End,
    subscriber: End,
    payload_bytes: usize,
    touched: bool,
    _storages: Box<[Storage; 2]>,
}

impl Iceoryx1 {
    fn open(binding: Binding, opening: &Opening<'_>) -> WorkerResult<Self> {
        let service = c_string("busway-bench")?;
        let instance = c_string(&opening.place.name)?;
        let (to, from) = opening.ends(c"there", c"back");
        // A program that sends at instants of its own must not wait; its queue is longer than what
        // is under way.
        let policy = if opening.one_way { WAITS } else { DISCARDS_OLDEST };
        let publisher_options = publisher_options(&binding, policy)?;
        let capacity = queue_capacity(opening.payload_bytes);
        let subscriber_options = subscriber_options(&binding, policy, capacity)?;
        let mut storages = Box::new([[0; 64]; 2]);
        // SAFETY: names end with zero bytes, options are initialised, and the storages, longer than
        // any that the binding asks for, stay where they are until both ends are gone.
        let (publisher, subscriber) = unsafe {
            (
                (binding.publisher_init)(
                    &raw mut storages[0],
                    service.as_ptr(),
                    instance.as_ptr(),
                    to.as_ptr(),
                    &raw const publisher_options,
                ),
                (binding.subscriber_init)(
                    &raw mut storages[1],
                    service.as_ptr(),
                    instance.as_ptr(),
                    from.as_ptr(),
                    &raw const subscriber_options,
                ),
            )
        };
        if publisher.is_null() || subscriber.is_null() {
            return Err("iceoryx gave no publisher or no subscriber".into());
        }
        Ok(Self {
            binding,
            publisher,
            subscriber,
            payload_bytes: opening.payload_bytes,
            touched: opening.touched,
            _storages: storages,
        })
    }
}

fn publisher_options(binding: &Binding, policy: i32) -> WorkerResult<PublisherOptions> {
    // SAFETY: all members are integers and pointers, for which zero is a value.
    let mut options: PublisherOptions = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the options have room for those of the library.
    unsafe { (binding.publisher_options_init)(&raw mut options) };
    options.subscriber_too_slow_policy = policy;
    // SAFETY: the options are those of the library.
    let are_initialised = unsafe { (binding.publisher_options_are)(&raw const options) };
    let is_known = options.init_check != 0 && options.offer_on_create == 1 && options.spare == [0; 16];
    (are_initialised && is_known)
        .then_some(options)
        .ok_or_else(unknown)
}

fn subscriber_options(binding: &Binding, policy: i32, capacity: usize) -> WorkerResult<SubscriberOptions> {
    // SAFETY: all members are integers and pointers, for which zero is a value.
    let mut options: SubscriberOptions = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the options have room for those of the library.
    unsafe { (binding.subscriber_options_init)(&raw mut options) };
    options.queue_capacity = capacity as u64;
    options.queue_full_policy = policy;
    // SAFETY: the options are those of the library.
    let are_initialised = unsafe { (binding.subscriber_options_are)(&raw const options) };
    let is_known = options.init_check != 0 && options.subscribe_on_create == 1 && options.spare == [0; 16];
    (are_initialised && is_known)
        .then_some(options)
        .ok_or_else(unknown)
}

fn unknown() -> String {
    format!("{LIBRARY} has options of another shape than release 2.0.3; install that release")
}

impl Path for Iceoryx1 {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        let mut chunk = std::ptr::null_mut();
        // SAFETY: the publisher lives as long as `self`.
        let result =
            unsafe { (self.binding.loan)(self.publisher, &raw mut chunk, self.payload_bytes as u32) };
        if result != ALLOCATED || chunk.is_null() {
            let why = if result == OUT_OF_CHUNKS {
                "out of chunks: end the RouDi that runs, then one with memory enough is started"
            } else {
                "see AllocationResult in iceoryx_binding_c/enums.h"
            };
            return Err(format!(
                "loan of {} bytes: result {result}, {why}",
                self.payload_bytes
            ));
        }
        // SAFETY: a loaned chunk has this many bytes, aligned to 8, and no other owner until it is
        // published.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(chunk.cast::<MaybeUninit<u8>>(), self.payload_bytes) };
        message.fill_uninit(bytes, self.touched);
        // SAFETY: the chunk was loaned from this publisher, and is not used after this.
        unsafe { (self.binding.publish)(self.publisher, chunk) };
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let mut chunk = std::ptr::null();
        // SAFETY: the subscriber lives as long as `self`.
        let result = unsafe { (self.binding.take)(self.subscriber, &raw mut chunk) };
        match result {
            TAKEN => {}
            NONE_AVAILABLE => return Ok(None),
            other => {
                return Err(format!(
                    "take a chunk: result {other}; see ChunkReceiveResult in iceoryx_binding_c/enums.h"
                ));
            }
        }
        // SAFETY: only the other program publishes under this name, unique to the measurement, and
        // always this many bytes. Each was written by a program or is a zero of the kernel's shared
        // memory. No program writes into a chunk before all have released it.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.cast::<u8>(), self.payload_bytes) };
        let received = Message::read(bytes, self.touched);
        // SAFETY: the chunk was taken from this subscriber, and is not used after this.
        unsafe { (self.binding.release)(self.subscriber, chunk) };
        Ok(received)
    }
}

impl Drop for Iceoryx1 {
    fn drop(&mut self) {
        // SAFETY: both ends were initialised, and are not used after this.
        unsafe {
            (self.binding.subscriber_deinit)(self.subscriber);
            (self.binding.publisher_deinit)(self.publisher);
        }
    }
}
