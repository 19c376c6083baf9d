//! The four roles, each in Rust or in C.
//!
//! Contract: the same calls and the same [`Status`] whatever the language, so that a test names two
//! languages and no more. Every role gets mappings of its own, read-only where it must not store.

use busway_core::register::{self, ReadError, ReadOutcome, RegisterReader, RegisterWriter, WriteError};
use busway_core::ring::{self, PushError, RingConsumer, RingProducer};
use busway_core::{LINE_BYTES, Window};

use crate::ffi::{self, Api, CConsumer, CProducer, CReader, CWriter, Mapped, Status};
use crate::ffi::{CACHED_32, CACHED_64, WORDS_32, WORDS_64};
use crate::memory::Memory;

/// Who plays a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `busway-core`.
    Rust,
    /// The C headers with words of 64 bits.
    C64,
    /// The C headers as a 32-bit core uses them.
    C32,
    /// `C64` behind a cache that is not coherent, of long lines: a line that both sides write is
    /// noticed.
    C64Cached,
    /// `C32` behind a cache that is not coherent, of lines of one word: a word that no hook names
    /// is noticed.
    C32Cached,
}

/// All of them.
pub const LANGUAGES: [Language; 5] = [
    Language::Rust,
    Language::C64,
    Language::C32,
    Language::C64Cached,
    Language::C32Cached,
];

impl Language {
    fn api(self) -> Option<&'static Api> {
        match self {
            Self::Rust => None,
            Self::C64 => Some(&WORDS_64),
            Self::C32 => Some(&WORDS_32),
            Self::C64Cached => Some(&CACHED_64),
            Self::C32Cached => Some(&CACHED_32),
        }
    }

    /// `memory` as this language's side takes it.
    fn map(self, memory: &Memory, writable: bool) -> Mapped {
        Mapped {
            base: match self {
                Self::C64Cached | Self::C32Cached => memory.map_cached(writable),
                Self::Rust | Self::C64 | Self::C32 => memory.map(writable),
            },
            len_bytes: memory.len_bytes(),
        }
    }
}

/// What both sides of a register agree on.
#[derive(Debug, Clone, Copy)]
pub struct RegisterShape {
    /// Number of slots.
    pub slots: u32,
    /// Longest message in bytes.
    pub max_size_bytes: usize,
    /// Whether messages carry a CRC-32C.
    pub has_checksum: bool,
    /// The session.
    pub start: u64,
}

impl RegisterShape {
    /// The layout in Rust.
    ///
    /// # Panics
    /// If there is none such.
    #[must_use]
    pub fn layout(&self) -> register::Layout {
        let layout =
            register::Layout::new(self.slots as usize, self.max_size_bytes).expect("a possible register");
        if self.has_checksum {
            layout.with_checksum()
        } else {
            layout
        }
    }

    /// Fresh memory for it, made ready by `owner`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn memory(&self, owner: Language) -> Memory {
        let memory = Memory::new(self.layout().required_bytes());
        match owner.api() {
            Some(api) => ffi::prepare_register(api, owner.map(&memory, true), self.start),
            None => self
                .layout()
                .prepare(&mut memory.window(true), self.start)
                .expect("inside"),
        }
        memory
    }

    fn numbers(&self) -> ffi::RegisterNumbers {
        (self.slots, self.max_size_bytes, self.has_checksum)
    }
}

/// What both sides of a ring agree on.
#[derive(Debug, Clone, Copy)]
pub struct RingShape {
    /// Number of lines.
    pub lines: u32,
    /// Size of the data area in bytes.
    pub data_bytes: usize,
    /// Longest message in bytes.
    pub max_size_bytes: usize,
    /// Whether messages carry a CRC-32C.
    pub has_checksum: bool,
    /// The session.
    pub start: u64,
}

impl RingShape {
    /// The layout in Rust.
    ///
    /// # Panics
    /// If there is none such.
    #[must_use]
    pub fn layout(&self) -> ring::Layout {
        let layout = ring::Layout::new(self.lines as usize, self.data_bytes, self.max_size_bytes)
            .expect("a possible ring");
        if self.has_checksum {
            layout.with_checksum().expect("short messages")
        } else {
            layout
        }
    }

    /// Fresh memories for it, the ring's and the credits', made ready by `owner`.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn memories(&self, owner: Language) -> [Memory; 2] {
        let memories = [
            Memory::new(self.layout().required_bytes()),
            Memory::new(LINE_BYTES),
        ];
        match owner.api() {
            Some(api) => ffi::prepare_credits(api, owner.map(&memories[1], true), self.start),
            None => self
                .layout()
                .prepare_credits(&mut memories[1].window(true), self.start)
                .expect("inside"),
        }
        memories
    }

    fn numbers(&self) -> ffi::RingNumbers {
        (
            self.lines,
            self.data_bytes,
            self.max_size_bytes,
            self.has_checksum,
        )
    }
}

/// A message as a receiving role finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Sequence, of a register's message; else 0.
    pub sequence: u64,
    /// Source time in nanoseconds.
    pub time_ns: u64,
    /// Length in bytes.
    pub len_bytes: usize,
}

/// A register's writer.
#[derive(Debug)]
pub enum Writer {
    /// `busway-core`'s.
    Rust(RegisterWriter<Window>),
    /// The headers'.
    C(CWriter),
}

impl Writer {
    /// Of the register in `memory`.
    ///
    /// # Panics
    /// If the memory is too small.
    #[must_use]
    pub fn new(language: Language, shape: &RegisterShape, memory: &Memory) -> Self {
        match language.api() {
            Some(api) => Self::C(
                CWriter::new(api, shape.numbers(), language.map(memory, true), shape.start).expect("it fits"),
            ),
            None => Self::Rust(
                RegisterWriter::new(memory.window(true), shape.layout(), shape.start).expect("it fits"),
            ),
        }
    }

    /// Writes the latest message.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn write(&mut self, payload: &[u8], time_ns: u64) -> Status {
        match self {
            Self::Rust(writer) => match writer.write(&[payload], time_ns) {
                Ok(_) => Status::Ok,
                Err(WriteError::TooLong { .. }) => Status::TooLong,
                Err(error) => panic!("{error}"),
            },
            Self::C(writer) => writer.write(payload, time_ns),
        }
    }
}

/// A register's reader.
#[derive(Debug)]
pub enum Reader {
    /// `busway-core`'s.
    Rust(RegisterReader),
    /// The headers'.
    C(CReader),
}

impl Reader {
    /// Of the register in `memory`. The one in Rust has patience, since its writer may be a 32-bit
    /// one.
    ///
    /// # Panics
    /// If the memory is too small.
    #[must_use]
    pub fn new(language: Language, shape: &RegisterShape, memory: &Memory) -> Self {
        match language.api() {
            Some(api) => Self::C(
                CReader::new(api, shape.numbers(), language.map(memory, false), shape.start)
                    .expect("it fits"),
            ),
            None => Self::Rust(
                RegisterReader::new(memory.window(false), shape.layout(), shape.start)
                    .expect("it fits")
                    .with_patience_bytes(1 << 20),
            ),
        }
    }

    /// Reads the latest message.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn read(&mut self, buffer: &mut [u8]) -> (Status, Found) {
        let nothing = Found {
            sequence: 0,
            time_ns: 0,
            len_bytes: 0,
        };
        let of = |sample: register::Sample| Found {
            sequence: sample.sequence,
            time_ns: sample.time_ns,
            len_bytes: sample.len_bytes,
        };
        match self {
            Self::Rust(reader) => match reader.read(buffer) {
                Ok(ReadOutcome::New(sample)) => (Status::Ok, of(sample)),
                Ok(ReadOutcome::Unchanged(sample)) => (Status::Unchanged, of(sample)),
                Ok(ReadOutcome::Empty) => (Status::Empty, nothing),
                Ok(ReadOutcome::Contended | ReadOutcome::LastGood(_)) => (Status::Contended, nothing),
                Err(ReadError::Corrupt(_)) => (Status::Corrupt, nothing),
                Err(ReadError::BufferTooSmall { len_bytes, .. }) => {
                    (Status::BufferTooSmall, Found { len_bytes, ..nothing })
                }
                Err(error) => panic!("{error}"),
            },
            Self::C(reader) => {
                let (status, [sequence, time_ns, len_bytes]) = reader.read(buffer);
                let len_bytes = len_bytes as usize;
                (
                    status,
                    Found {
                        sequence,
                        time_ns,
                        len_bytes,
                    },
                )
            }
        }
    }
}

/// A ring's producer.
#[derive(Debug)]
pub enum Producer {
    /// `busway-core`'s.
    Rust(RingProducer<Window>),
    /// The headers'.
    C(CProducer),
}

impl Producer {
    /// Of the ring in the first memory, with credits in the second.
    ///
    /// # Panics
    /// If a memory is too small.
    #[must_use]
    pub fn new(language: Language, shape: &RingShape, [memory, credit]: &[Memory; 2]) -> Self {
        match language.api() {
            Some(api) => {
                let memories = [language.map(memory, true), language.map(credit, false)];
                Self::C(CProducer::new(api, shape.numbers(), memories, shape.start).expect("it fits"))
            }
            None => Self::Rust(
                RingProducer::new(
                    memory.window(true),
                    shape.layout(),
                    shape.start,
                    credit.window(false),
                )
                .expect("it fits"),
            ),
        }
    }

    /// Writes a message without publishing it.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn stage(&mut self, payload: &[u8], time_ns: u64) -> Status {
        match self {
            Self::Rust(producer) => match producer.stage(&[payload], time_ns) {
                Ok(()) => Status::Ok,
                Err(PushError::Full) => Status::Full,
                Err(PushError::TooLong { .. }) => Status::TooLong,
                Err(error) => panic!("{error}"),
            },
            Self::C(producer) => producer.stage(payload, time_ns),
        }
    }

    /// Publishes what is staged.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn commit(&mut self) {
        match self {
            Self::Rust(producer) => producer.commit().expect("inside"),
            Self::C(producer) => producer.commit(),
        }
    }

    /// Both.
    pub fn push(&mut self, payload: &[u8], time_ns: u64) -> Status {
        let status = self.stage(payload, time_ns);
        if status == Status::Ok {
            self.commit();
        }
        status
    }

    /// Messages not released, as far as is known.
    pub fn unreleased(&mut self) -> usize {
        match self {
            Self::Rust(producer) => producer.unreleased(),
            Self::C(producer) => producer.unreleased(),
        }
    }
}

/// A ring's consumer.
#[derive(Debug)]
pub enum Consumer {
    /// `busway-core`'s.
    Rust(Box<RingConsumer<Window>>),
    /// The headers'.
    C(CConsumer),
}

impl Consumer {
    /// Of the ring in the first memory, with credits in the second.
    ///
    /// # Panics
    /// If a memory is too small.
    #[must_use]
    pub fn new(language: Language, shape: &RingShape, [memory, credit]: &[Memory; 2]) -> Self {
        match language.api() {
            Some(api) => {
                let memories = [language.map(memory, false), language.map(credit, true)];
                Self::C(CConsumer::new(api, shape.numbers(), memories, shape.start).expect("it fits"))
            }
            None => Self::Rust(Box::new(
                RingConsumer::new(
                    memory.window(false),
                    shape.layout(),
                    shape.start,
                    credit.window(true),
                )
                .expect("it fits"),
            )),
        }
    }

    /// Takes the message at the front.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn pop(&mut self, buffer: &mut [u8]) -> (Status, Found) {
        let found = |time_ns, len_bytes| Found {
            sequence: 0,
            time_ns,
            len_bytes,
        };
        match self {
            Self::Rust(consumer) => match consumer.peek() {
                Ok(None) => (Status::Empty, found(0, 0)),
                Err(_) => (Status::Corrupt, found(0, 0)),
                Ok(Some(message)) => {
                    let found = found(message.time_ns, message.len_bytes);
                    let Some(target) = buffer.get_mut(..message.len_bytes) else {
                        return (Status::BufferTooSmall, found);
                    };
                    consumer.copy(0, target).expect("inside");
                    consumer.release().expect("inside");
                    (Status::Ok, found)
                }
            },
            Self::C(consumer) => {
                let (status, [time_ns, len_bytes]) = consumer.pop(buffer);
                (status, found(time_ns, len_bytes as usize))
            }
        }
    }

    /// Writes back all credits.
    ///
    /// # Panics
    /// If the memory fails, which it can't.
    pub fn flush_credits(&mut self) {
        match self {
            Self::Rust(consumer) => consumer.flush_credits().expect("inside"),
            Self::C(consumer) => consumer.flush_credits(),
        }
    }
}

/// Both ends of a sampling channel in C, with clocks that a test sets.
#[derive(Debug)]
pub struct Sampling {
    api: &'static Api,
    memory: Mapped,
}

impl Sampling {
    /// Of a channel in `memory`, which is 4096 bytes long. `None` in Rust.
    #[must_use]
    pub fn new(language: Language, memory: &Memory) -> Option<Self> {
        let api = language.api()?;
        let memory = language.map(memory, true);
        Some(Self { api, memory })
    }

    /// Whether a message of `time_ns` is valid at `now_ns`.
    ///
    /// # Panics
    /// If it does not arrive.
    #[must_use]
    pub fn is_valid(&self, [time_ns, now_ns, refresh_period_ns]: [u64; 3]) -> bool {
        ffi::sampling_is_valid(self.api, self.memory, time_ns, now_ns, refresh_period_ns)
    }
}
