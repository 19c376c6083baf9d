//! Two processes of different binaries, one file: an honest pair at full speed, then every role
//! against a peer that writes random words to everything at all times.
//!
//! `BUSWAY_TORTURE_READS` sets how many reads each honest case makes (default 20,000; continuous
//! integration: 10,000,000, with `--release`). The programs are this crate's examples, which
//! `cargo test` builds.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

#[path = "../examples/shared/mod.rs"]
mod shared;

/// A child that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file for messages of `size_bytes`, removed at the end: zeros, but for a register that is
/// prepared.
struct SharedFile(PathBuf);

impl SharedFile {
    fn new(name: &str, size_bytes: usize) -> Self {
        let folder = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let path = folder.join(format!(
            "busway-torture-{}-{name}-{size_bytes}",
            std::process::id()
        ));
        File::create(&path)
            .unwrap()
            .set_len(shared::file_bytes(size_bytes) as u64)
            .unwrap();
        // Zeroed memory may look like a message of a session that begins shortly before the wrap.
        let layout = shared::register_layout(size_bytes);
        let mut window = shared::map(path.to_str().unwrap(), 0, layout.required_bytes(), true);
        layout.prepare(&mut window, shared::START).unwrap();
        let ring = shared::ring_layout(size_bytes);
        let (_, mut credit) = shared::map_ring(path.to_str().unwrap(), &ring, false);
        ring.prepare_credits(&mut credit, shared::START).unwrap();
        Self(path)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn program(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let path = test
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build -p busway-core --examples`",
        path.display()
    );
    Command::new(path)
}

fn start(name: &str, arguments: &[&str]) -> Running {
    Running(
        program(name)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

fn finish(name: &str, arguments: &[&str]) {
    let Output {
        status,
        stdout,
        stderr,
    } = program(name).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{name} {arguments:?}: {status}\n{stderr}");
    println!("{}", String::from_utf8_lossy(&stdout).trim_end());
}

fn reads() -> u64 {
    std::env::var("BUSWAY_TORTURE_READS").map_or(20_000, |reads| {
        reads.parse().expect("BUSWAY_TORTURE_READS is a number")
    })
}

fn honest(role: &str, sizes: &[usize], reads: u64) {
    for &size_bytes in sizes {
        let file = SharedFile::new(role, size_bytes);
        let (path, size) = (file.0.to_str().unwrap(), size_bytes.to_string());
        let _writer = start("torture_write", &[role, path, &size]);
        finish("torture_read", &[role, path, &size, &reads.to_string()]);
    }
}

fn hostile(role: &str, rounds: &str) {
    for size_bytes in [16, 64, 4096] {
        let file = SharedFile::new(role, size_bytes);
        let (path, size) = (file.0.to_str().unwrap(), size_bytes.to_string());
        let _hostile = start("torture_hostile", &[role.split('-').next().unwrap(), path, &size]);
        finish("torture_victim", &[role, path, &size, rounds]);
    }
}

#[test]
fn no_read_of_a_register_in_a_read_only_mapping_is_torn_while_its_writer_never_pauses() {
    honest("register", &[64, 4 << 10, 64 << 10], reads());
}

#[test]
fn no_read_of_a_register_with_messages_of_any_length_is_torn() {
    honest("register-varied", &[1000], reads());
}

#[test]
fn every_message_of_a_ring_arrives_whole_and_in_order_in_a_read_only_mapping() {
    // Fewer, since every message waits for the other process: on a busy machine for its turn on the
    // processor.
    honest("ring", &[40, 64, 4 << 10, 64 << 10], reads() / 10);
}

#[test]
fn a_register_reader_survives_random_memory() {
    hostile("register-read", "200000");
}

#[test]
fn a_register_writer_survives_random_memory() {
    hostile("register-write", "200000");
}

#[test]
fn a_ring_consumer_survives_random_memory() {
    hostile("ring-consume", "200000");
}

#[test]
fn a_ring_producer_survives_random_credits() {
    hostile("ring-produce", "200000");
}
