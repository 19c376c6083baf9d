//! The bytes that both protocols leave in memory, as `c/vectors.txt` says them: what each language
//! writes is that file, and each language reads what the file says.
//!
//! `BUSWAY_WRITE_VECTORS=1 cargo test -p busway-c --test vectors` writes the file anew, from the
//! Rust side.

use std::fmt::Write as _;
use std::path::PathBuf;

use busway_c::sides::LANGUAGES;
use busway_c::{Consumer, Language, Memory, Producer, Reader, RegisterShape, RingShape, Status, Writer};

const NEAR_THE_CARRY: u64 = (7 << 32) - 3;
const NEAR_THE_WRAP: u64 = u64::MAX - 2;

/// Message number `number` of `len_bytes` bytes; no byte is 0.
fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes)
        .map(|at| (number as usize * 37 + at) as u8 | 1)
        .collect()
}

fn time_ns(number: u64) -> u64 {
    0x0123_4567_89ab_cd00 + number
}

/// Lengths of the messages, in turn, for a longest message of `max_size_bytes`.
fn length(number: u64, max_size_bytes: usize) -> usize {
    [max_size_bytes, 0, 1, 13, 40, 41][number as usize % 6].min(max_size_bytes)
}

#[derive(Debug)]
enum Case {
    Register(RegisterShape, u64),
    Ring(RingShape, u64),
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for has_checksum in [false, true] {
        for (slots, max_size_bytes, start, count) in [
            (3, 40, 1000, 2),
            (4, 41, NEAR_THE_CARRY, 6),
            (3, 100, NEAR_THE_WRAP, 7),
        ] {
            let shape = RegisterShape {
                slots,
                max_size_bytes,
                has_checksum,
                start,
            };
            cases.push(Case::Register(shape, count));
        }
        for (lines, data_bytes, max_size_bytes, start, count) in [
            (2, 0, 40, 1000, 2),
            (4, 256, 100, NEAR_THE_CARRY, 7),
            (4, 512, 200, NEAR_THE_WRAP, 9),
            (4, 256, 64, (1 << 31) - 2, 5),
        ] {
            let shape = RingShape {
                lines,
                data_bytes,
                max_size_bytes,
                has_checksum,
                start,
            };
            cases.push(Case::Ring(shape, count));
        }
    }
    cases
}

/// `bytes` as offsets with 32 bytes each, lines of zeros left out.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in bytes.chunks(32).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "{:04x} {hex}", number * 32).unwrap();
        }
    }
    text
}

fn undump(text: &str, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    for line in text.lines() {
        let (at, hex) = line.split_once(' ').expect("offset and bytes");
        let at = usize::from_str_radix(at, 16).expect("an offset");
        for (i, byte) in hex.as_bytes().chunks(2).enumerate() {
            let byte = std::str::from_utf8(byte).expect("hexadecimal digits");
            bytes[at + i] = u8::from_str_radix(byte, 16).expect("a byte");
        }
    }
    bytes
}

/// What `writer` leaves in memory: the register, or the ring and the credits that `reader` gives.
fn written(case: &Case, writer: Language, reader: Language) -> Vec<(&'static str, String)> {
    match case {
        Case::Register(shape, count) => {
            let memory = shape.memory(reader);
            let mut writer = Writer::new(writer, shape, &memory);
            for number in 0..*count {
                let message = payload(number, length(number, shape.max_size_bytes));
                assert_eq!(writer.write(&message, time_ns(number)), Status::Ok);
            }
            vec![("register", dump(&memory.bytes()))]
        }
        Case::Ring(shape, count) => {
            let memories = shape.memories(writer);
            let mut producer = Producer::new(writer, shape, &memories);
            let mut consumer = Consumer::new(reader, shape, &memories);
            for number in 0..*count {
                let message = payload(number, length(number, shape.max_size_bytes));
                // Three messages ahead if the room allows.
                if producer.push(&message, time_ns(number)) == Status::Full {
                    take_all(&mut consumer);
                    assert_eq!(producer.push(&message, time_ns(number)), Status::Ok);
                }
            }
            take_all(&mut consumer);
            let [memory, credit] = &memories;
            vec![
                ("ring", dump(&memory.bytes())),
                ("credits", dump(&credit.bytes())),
            ]
        }
    }
}

fn take_all(consumer: &mut Consumer) {
    let mut buffer = [0; 256];
    while consumer.pop(&mut buffer).0 == Status::Ok {}
    consumer.flush_credits();
}

fn text_of(writer: Language, reader: Language) -> String {
    let mut text = String::from(
        "# Memory of registers and rings, little-endian, lines of zeros left out. Made by\n\
         # BUSWAY_WRITE_VECTORS=1 cargo test -p busway-c --test vectors\n",
    );
    for case in cases() {
        writeln!(text, "\n{case:?}").unwrap();
        for (part, dump) in written(&case, writer, reader) {
            write!(text, "{part}\n{dump}").unwrap();
        }
    }
    text
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../c/vectors.txt")
}

fn golden() -> String {
    if std::env::var_os("BUSWAY_WRITE_VECTORS").is_some() {
        std::fs::write(path(), text_of(Language::Rust, Language::Rust)).unwrap();
    }
    std::fs::read_to_string(path()).unwrap()
}

#[test]
fn every_language_writes_the_bytes_of_the_vectors() {
    let golden = golden();
    for writer in LANGUAGES {
        for reader in LANGUAGES {
            let text = text_of(writer, reader);
            for (ours, theirs) in text.lines().zip(golden.lines()) {
                assert_eq!(ours, theirs, "written by {writer:?}, read by {reader:?}");
            }
            assert_eq!(text.len(), golden.len(), "{writer:?} {reader:?}");
        }
    }
}

/// The bytes of part `part` of `case`, as the vectors say.
fn section(golden: &str, case: &Case, part: &str, len_bytes: usize) -> Vec<u8> {
    let title = format!("\n{case:?}\n");
    let at = golden.find(&title).expect("the case is in the vectors") + title.len();
    let body = &golden[at..golden[at..].find("\n\n").map_or(golden.len(), |end| at + end)];
    let at = body.find(part).expect("the part is in the vectors") + part.len() + 1;
    let lines: Vec<&str> = body[at..]
        .lines()
        .take_while(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    undump(&lines.join("\n"), len_bytes)
}

#[test]
fn every_language_reads_the_bytes_of_the_vectors() {
    let golden = golden();
    for language in LANGUAGES {
        for case in cases() {
            match &case {
                Case::Register(shape, count) => read_register(language, shape, *count, &golden, &case),
                Case::Ring(shape, count) => read_ring(language, shape, *count, &golden, &case),
            }
        }
    }
}

fn read_register(language: Language, shape: &RegisterShape, count: u64, golden: &str, case: &Case) {
    let memory = Memory::new(shape.layout().required_bytes());
    memory.fill(&section(golden, case, "register", memory.len_bytes()));
    let mut reader = Reader::new(language, shape, &memory);
    let mut buffer = [0; 256];
    let (status, found) = reader.read(&mut buffer);
    assert_eq!(status, Status::Ok, "{language:?} {case:?}");
    assert_eq!(found.sequence, shape.start.wrapping_add(count));
    assert_eq!(found.time_ns, time_ns(count - 1));
    let expected = payload(count - 1, length(count - 1, shape.max_size_bytes));
    assert_eq!(buffer[..found.len_bytes], expected, "{language:?} {case:?}");
}

/// The lines still hold the last messages; a consumer that begins at the first of them and knows
/// its data position takes them. Only those whose lines all lie inside the session's first lap can
/// be read by one that begins anew.
fn read_ring(language: Language, shape: &RingShape, count: u64, golden: &str, case: &Case) {
    let [memory, credit] = shape.memories(language);
    memory.fill(&section(golden, case, "ring", memory.len_bytes()));
    let given = section(golden, case, "credits", credit.len_bytes());
    let lines = u64::from_le_bytes(given[..8].try_into().unwrap());
    assert_eq!(lines, shape.start.wrapping_add(count), "{case:?}");
    let mut consumer = Consumer::new(language, shape, &[memory, credit]);
    let mut buffer = [0; 256];
    let is_first_lap = count <= u64::from(shape.lines);
    for number in 0..if is_first_lap { count } else { 0 } {
        let (status, found) = consumer.pop(&mut buffer);
        assert_eq!(
            (status, found.time_ns),
            (Status::Ok, time_ns(number)),
            "{language:?} {case:?}"
        );
        let expected = payload(number, length(number, shape.max_size_bytes));
        assert_eq!(buffer[..found.len_bytes], expected);
    }
    let (status, _) = consumer.pop(&mut buffer);
    // Behind the last message, or before the first of a later lap, there is none.
    assert_eq!(status, Status::Empty, "{language:?} {case:?}");
}
