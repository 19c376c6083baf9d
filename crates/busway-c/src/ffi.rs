//! The C functions of `exports.c`.
//!
//! Contract: [`Api`] holds one set of them for each width of words, without and with a cache;
//! [`Object`] is the memory of one C structure and calls only what fits it. Called by
//! [`crate::sides`].
#![allow(unsafe_code)] // Calls of C.

use std::ffi::c_void;

/// Bytes of a C structure, at most; `exports.c` checks that.
const STORAGE_WORDS: usize = 32;

/// How a call ended: `enum busway_status` of `layout.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // See there.
pub enum Status {
    Ok,
    Unchanged,
    Empty,
    Contended,
    Full,
    TooLong,
    BufferTooSmall,
    Corrupt,
    Invalid,
}

impl Status {
    fn from_c(status: u32) -> Self {
        [
            Self::Ok,
            Self::Unchanged,
            Self::Empty,
            Self::Contended,
            Self::Full,
            Self::TooLong,
            Self::BufferTooSmall,
            Self::Corrupt,
            Self::Invalid,
        ]
        .get(status as usize)
        .copied()
        .unwrap_or_else(|| panic!("status {status} is not in layout.h"))
    }

    fn check(status: u32) -> Result<(), Self> {
        match Self::from_c(status) {
            Self::Ok => Ok(()),
            status => Err(status),
        }
    }
}

type RegisterInit = unsafe extern "C" fn(*mut c_void, u32, usize, u32, *mut u8, usize, u64) -> u32;
type RingInit =
    unsafe extern "C" fn(*mut c_void, u32, usize, usize, u32, *mut u8, usize, *mut u8, usize, u64) -> u32;

/// One set of the C functions.
#[derive(Debug)]
pub struct Api {
    register_writer: RegisterInit,
    register_write: unsafe extern "C" fn(*mut c_void, *const u8, usize, u64) -> u32,
    register_prepare: unsafe extern "C" fn(*mut u8, u64),
    register_reader: RegisterInit,
    register_read: unsafe extern "C" fn(*mut c_void, *mut u8, usize, *mut u64) -> u32,
    register_has_news: unsafe extern "C" fn(*const c_void) -> u32,
    ring_producer: RingInit,
    ring_prepare_credits: unsafe extern "C" fn(*mut u8, u64),
    ring_stage: unsafe extern "C" fn(*mut c_void, *const u8, usize, u64) -> u32,
    ring_commit: unsafe extern "C" fn(*mut c_void),
    ring_unreleased: unsafe extern "C" fn(*mut c_void) -> u32,
    ring_consumer: RingInit,
    ring_pop: unsafe extern "C" fn(*mut c_void, *mut u8, usize, *mut u64) -> u32,
    ring_flush_credits: unsafe extern "C" fn(*mut c_void),
    sampling_is_valid: unsafe extern "C" fn(*mut u8, usize, u64, u64, u64) -> u32,
}

macro_rules! api {
    ($module:ident, $name:ident, $prefix:literal, $words:literal) => {
        mod $module {
            use std::ffi::c_void;

            unsafe extern "C" {
                #[link_name = concat!($prefix, "register_writer")]
                pub fn register_writer(
                    s: *mut c_void,
                    n: u32,
                    max: usize,
                    c: u32,
                    m: *mut u8,
                    b: usize,
                    start: u64,
                ) -> u32;
                #[link_name = concat!($prefix, "register_write")]
                pub fn register_write(s: *mut c_void, payload: *const u8, len: usize, time_ns: u64) -> u32;
                #[link_name = concat!($prefix, "register_prepare")]
                pub fn register_prepare(memory: *mut u8, start: u64);
                #[link_name = concat!($prefix, "register_reader")]
                pub fn register_reader(
                    s: *mut c_void,
                    n: u32,
                    max: usize,
                    c: u32,
                    m: *mut u8,
                    b: usize,
                    start: u64,
                ) -> u32;
                #[link_name = concat!($prefix, "register_read")]
                pub fn register_read(s: *mut c_void, buffer: *mut u8, len: usize, sample: *mut u64) -> u32;
                #[link_name = concat!($prefix, "register_has_news")]
                pub fn register_has_news(s: *const c_void) -> u32;
                #[link_name = concat!($prefix, "ring_producer")]
                pub fn ring_producer(
                    s: *mut c_void,
                    n: u32,
                    data: usize,
                    max: usize,
                    c: u32,
                    m: *mut u8,
                    b: usize,
                    credit: *mut u8,
                    cb: usize,
                    start: u64,
                ) -> u32;
                #[link_name = concat!($prefix, "ring_prepare_credits")]
                pub fn ring_prepare_credits(credit: *mut u8, start: u64);
                #[link_name = concat!($prefix, "ring_stage")]
                pub fn ring_stage(s: *mut c_void, payload: *const u8, len: usize, time_ns: u64) -> u32;
                #[link_name = concat!($prefix, "ring_commit")]
                pub fn ring_commit(s: *mut c_void);
                #[link_name = concat!($prefix, "ring_unreleased")]
                pub fn ring_unreleased(s: *mut c_void) -> u32;
                #[link_name = concat!($prefix, "ring_consumer")]
                pub fn ring_consumer(
                    s: *mut c_void,
                    n: u32,
                    data: usize,
                    max: usize,
                    c: u32,
                    m: *mut u8,
                    b: usize,
                    credit: *mut u8,
                    cb: usize,
                    start: u64,
                ) -> u32;
                #[link_name = concat!($prefix, "ring_pop")]
                pub fn ring_pop(s: *mut c_void, buffer: *mut u8, len: usize, message: *mut u64) -> u32;
                #[link_name = concat!($prefix, "ring_flush_credits")]
                pub fn ring_flush_credits(s: *mut c_void);
                #[link_name = concat!($prefix, "sampling_is_valid")]
                pub fn sampling_is_valid(m: *mut u8, b: usize, time_ns: u64, now_ns: u64, period: u64)
                -> u32;
            }
        }

        #[doc = $words]
        pub static $name: Api = Api {
            register_writer: $module::register_writer,
            register_write: $module::register_write,
            register_prepare: $module::register_prepare,
            register_reader: $module::register_reader,
            register_read: $module::register_read,
            register_has_news: $module::register_has_news,
            ring_producer: $module::ring_producer,
            ring_prepare_credits: $module::ring_prepare_credits,
            ring_stage: $module::ring_stage,
            ring_commit: $module::ring_commit,
            ring_unreleased: $module::ring_unreleased,
            ring_consumer: $module::ring_consumer,
            ring_pop: $module::ring_pop,
            ring_flush_credits: $module::ring_flush_credits,
            sampling_is_valid: $module::sampling_is_valid,
        };
    };
}

api!(c64, WORDS_64, "busway_c64_", "With words of 64 bits.");
api!(
    c32,
    WORDS_32,
    "busway_c32_",
    "With words in two halves, as a 32-bit core moves them."
);
api!(
    cached64,
    CACHED_64,
    "busway_cached64_",
    "With words of 64 bits, behind a cache of 64-byte lines that is not coherent."
);
api!(
    cached32,
    CACHED_32,
    "busway_cached32_",
    "With words in two halves, behind a cache of 8-byte lines that is not coherent."
);

/// Memory that C gets: from [`crate::Memory::map`], or from [`crate::Memory::map_cached`] for an
/// [`Api`] with a cache.
#[derive(Debug, Clone, Copy)]
pub struct Mapped {
    /// First byte, a multiple of 8.
    pub base: *mut u8,
    /// Length in bytes.
    pub len_bytes: usize,
}

// SAFETY: an address of a mapping that is never unmapped; only C uses it.
unsafe impl Send for Mapped {}

/// One C structure: a writer, a reader, a producer or a consumer.
#[derive(Debug)]
pub struct Object {
    api: &'static Api,
    storage: Box<[u64; STORAGE_WORDS]>,
}

/// Shape of a register as C takes it: slots, longest message in bytes, checksums.
pub type RegisterNumbers = (u32, usize, bool);
/// Shape of a ring as C takes it: lines, data area in bytes, longest message in bytes, checksums.
pub type RingNumbers = (u32, usize, usize, bool);

impl Object {
    fn new(api: &'static Api) -> Self {
        let storage = Box::new([0; STORAGE_WORDS]);
        Self { api, storage }
    }

    fn register(
        api: &'static Api,
        init: RegisterInit,
        numbers: RegisterNumbers,
        memory: Mapped,
        start: u64,
    ) -> Result<Self, Status> {
        let mut object = Self::new(api);
        let (slots, max, checksum) = numbers;
        // SAFETY: the storage is large enough for every structure, and the memory is never unmapped
        // and as long as the argument claims.
        Status::check(unsafe {
            init(
                object.at(),
                slots,
                max,
                checksum.into(),
                memory.base,
                memory.len_bytes,
                start,
            )
        })?;
        Ok(object)
    }

    fn ring(
        api: &'static Api,
        init: RingInit,
        numbers: RingNumbers,
        [memory, credit]: [Mapped; 2],
        start: u64,
    ) -> Result<Self, Status> {
        let mut object = Self::new(api);
        let (lines, data, max, checksum) = numbers;
        // SAFETY: as in `register`.
        Status::check(unsafe {
            init(
                object.at(),
                lines,
                data,
                max,
                checksum.into(),
                memory.base,
                memory.len_bytes,
                credit.base,
                credit.len_bytes,
                start,
            )
        })?;
        Ok(object)
    }

    fn at(&mut self) -> *mut c_void {
        self.storage.as_mut_ptr().cast()
    }
}

/// A register's writer in C.
#[derive(Debug)]
pub struct CWriter(Object);

impl CWriter {
    /// `busway_register_writer_init`.
    ///
    /// # Errors
    /// Its status.
    pub fn new(
        api: &'static Api,
        numbers: RegisterNumbers,
        memory: Mapped,
        start: u64,
    ) -> Result<Self, Status> {
        Object::register(api, api.register_writer, numbers, memory, start).map(Self)
    }

    /// `busway_register_write`.
    pub fn write(&mut self, payload: &[u8], time_ns: u64) -> Status {
        let write = self.0.api.register_write;
        // SAFETY: the object is a writer, and the payload has this length.
        Status::from_c(unsafe { write(self.0.at(), payload.as_ptr(), payload.len(), time_ns) })
    }
}

/// A register's reader in C.
#[derive(Debug)]
pub struct CReader(Object);

impl CReader {
    /// `busway_register_reader_init`.
    ///
    /// # Errors
    /// Its status.
    pub fn new(
        api: &'static Api,
        numbers: RegisterNumbers,
        memory: Mapped,
        start: u64,
    ) -> Result<Self, Status> {
        Object::register(api, api.register_reader, numbers, memory, start).map(Self)
    }

    /// `busway_register_read`; also sequence, time in nanoseconds and length in bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> (Status, [u64; 3]) {
        let read = self.0.api.register_read;
        let mut sample = [0; 3];
        // SAFETY: the object is a reader, and the buffer has this length.
        let status = unsafe {
            read(
                self.0.at(),
                buffer.as_mut_ptr(),
                buffer.len(),
                sample.as_mut_ptr(),
            )
        };
        (Status::from_c(status), sample)
    }

    /// `busway_register_has_news`.
    pub fn has_news(&mut self) -> bool {
        let has_news = self.0.api.register_has_news;
        // SAFETY: the object is a reader.
        unsafe { has_news(self.0.at()) != 0 }
    }
}

/// A ring's producer in C.
#[derive(Debug)]
pub struct CProducer(Object);

impl CProducer {
    /// `busway_ring_producer_init`, of the ring's memory and the credits'.
    ///
    /// # Errors
    /// Its status.
    pub fn new(
        api: &'static Api,
        numbers: RingNumbers,
        memories: [Mapped; 2],
        start: u64,
    ) -> Result<Self, Status> {
        Object::ring(api, api.ring_producer, numbers, memories, start).map(Self)
    }

    /// `busway_ring_stage`.
    pub fn stage(&mut self, payload: &[u8], time_ns: u64) -> Status {
        let stage = self.0.api.ring_stage;
        // SAFETY: the object is a producer, and the payload has this length.
        Status::from_c(unsafe { stage(self.0.at(), payload.as_ptr(), payload.len(), time_ns) })
    }

    /// `busway_ring_commit`.
    pub fn commit(&mut self) {
        let commit = self.0.api.ring_commit;
        // SAFETY: the object is a producer.
        unsafe { commit(self.0.at()) };
    }

    /// `busway_ring_unreleased`.
    pub fn unreleased(&mut self) -> usize {
        let unreleased = self.0.api.ring_unreleased;
        // SAFETY: the object is a producer.
        unsafe { unreleased(self.0.at()) as usize }
    }
}

/// A ring's consumer in C.
#[derive(Debug)]
pub struct CConsumer(Object);

impl CConsumer {
    /// `busway_ring_consumer_init`, of the ring's memory and the credits'.
    ///
    /// # Errors
    /// Its status.
    pub fn new(
        api: &'static Api,
        numbers: RingNumbers,
        memories: [Mapped; 2],
        start: u64,
    ) -> Result<Self, Status> {
        Object::ring(api, api.ring_consumer, numbers, memories, start).map(Self)
    }

    /// `busway_ring_pop`; also time in nanoseconds and length in bytes.
    pub fn pop(&mut self, buffer: &mut [u8]) -> (Status, [u64; 2]) {
        let pop = self.0.api.ring_pop;
        let mut message = [0; 2];
        // SAFETY: the object is a consumer, and the buffer has this length.
        let status = unsafe {
            pop(
                self.0.at(),
                buffer.as_mut_ptr(),
                buffer.len(),
                message.as_mut_ptr(),
            )
        };
        (Status::from_c(status), message)
    }

    /// `busway_ring_flush_credits`.
    pub fn flush_credits(&mut self) {
        let flush = self.0.api.ring_flush_credits;
        // SAFETY: the object is a consumer.
        unsafe { flush(self.0.at()) };
    }
}

/// `busway_register_prepare`.
///
/// # Panics
/// If the memory has no room for the word.
pub fn prepare_register(api: &Api, memory: Mapped, start: u64) {
    assert!(memory.len_bytes >= 8);
    // SAFETY: the word is inside.
    unsafe { (api.register_prepare)(memory.base, start) };
}

/// `busway_ring_prepare_credits`.
///
/// # Panics
/// If the memory has no room for the words.
pub fn prepare_credits(api: &Api, credit: Mapped, start: u64) {
    assert!(credit.len_bytes >= 16);
    // SAFETY: the words are inside.
    unsafe { (api.ring_prepare_credits)(credit.base, start) };
}

/// Whether a sampling destination of a fresh channel in `memory` takes the message that its source
/// writes at `time_ns` for valid at `now_ns`.
///
/// # Panics
/// If the message does not arrive.
pub fn sampling_is_valid(
    api: &Api,
    memory: Mapped,
    time_ns: u64,
    now_ns: u64,
    refresh_period_ns: u64,
) -> bool {
    // SAFETY: the memory has this length; C checks that it is long enough.
    let said =
        unsafe { (api.sampling_is_valid)(memory.base, memory.len_bytes, time_ns, now_ns, refresh_period_ns) };
    assert!(said < 2, "no message arrived");
    said == 1
}
