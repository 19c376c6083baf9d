//! A Cortex-M3 in the emulator and Linux ports, over the board's memory: the firmware of `c/firmware` answers what is sent to it.
//!
//! Sampling goes through the product's ports, by a system file in which the core is a host; queuing through [`busway_c::queuing`].
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use busway_c::queuing::{QueuingDestination, QueuingSource};
use busway_c::{Memory, Status};
use busway_core::ring::Layout;
use busway_port::apex::Validity;
use busway_port::system::{module_of, root_of};
use busway_port::{Partition, Store};
use busway_system::System;
use tempfile::TempDir;

mod support;

const TOOLS: [&str; 2] = ["qemu-system-arm", "arm-none-eabi-gcc"];
/// The board's PSRAM.
const MEMORY_BYTES: u64 = 16 << 20;
/// The queuing channels, as `c/firmware/main.c` has them: key, source's part, destination's part.
const WORK: (u64, usize, usize) = (0x6b72_6f77, 0x80_0000, 0x90_0000);
const DONE: (u64, usize, usize) = (0x656e_6f64, 0xa0_0000, 0xb0_0000);
/// Until an answer has failed to come, however busy this machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// An emulated board, ended with this.
struct Board(Child);

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The Linux host beside the board.
struct Product {
    directory: TempDir,
    system: System,
}

impl Product {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let at = directory.path().display();
        let text = format!(
            r#"
[host.linux]
ports = "{at}/ports"
[host.core]
[[link]]
hosts = ["linux", "core"]
buses = ["memory"]
clock = "ptp"
memory = {{ path = "{at}/psram", length = "1MiB" }}
[[partition]]
name = "application"
host = "linux"
ports = [
  {{ name = "COMMAND_OUT", kind = "sampling", direction = "source", max_size = 64 }},
  {{ name = "STATE_IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1h" }},
]
[[partition]]
name = "control"
host = "core"
ports = [
  {{ name = "COMMAND_IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1h" }},
  {{ name = "STATE_OUT", kind = "sampling", direction = "source", max_size = 64 }},
]
[[channel]]
name = "command"
source = "application/COMMAND_OUT"
destinations = ["control/COMMAND_IN"]
[[channel]]
name = "state"
source = "control/STATE_OUT"
destinations = ["application/STATE_IN"]
"#
        );
        let system = System::parse(&text, "system.toml".as_ref()).unwrap_or_else(|error| panic!("{error}"));
        let memory = File::create(directory.path().join("psram")).expect("the board's memory");
        memory.set_len(MEMORY_BYTES).expect("the board's memory");
        let product = Self { directory, system };
        let places = support::places(&product.system, "core").expect("channels of the core");
        fs::write(product.path("places.h"), places).expect("places.h");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c/firmware/build");
        let built = Command::new(build)
            .arg(product.directory.path())
            .arg(product.path("firmware.elf"))
            .status();
        assert!(built.expect("the firmware's build").success());
        product
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn start_board(&self) -> Board {
        let memory = format!(
            "memory-backend-file,id=window,share=on,mem-path={},size={MEMORY_BYTES}",
            self.path("psram").display()
        );
        let child = Command::new("qemu-system-arm")
            .args(["-machine", "mps2-an385,memory-backend=window", "-object", &memory])
            .args(["-display", "none", "-monitor", "none", "-serial", "none"])
            .arg("-kernel")
            .arg(self.path("firmware.elf"))
            .stdin(Stdio::null())
            .spawn();
        Board(child.expect("the emulator"))
    }

    fn join(&self) -> Partition {
        let store = Store::open(root_of(&self.system, "linux"), module_of(&self.system, "linux"));
        store.expect("a store").join("application").expect("a partition")
    }

    fn memory(&self) -> Memory {
        let file = File::options().read(true).write(true).open(self.path("psram"));
        Memory::of_file(file.expect("the board's memory").into(), MEMORY_BYTES as usize)
    }
}

/// Calls `look` until it says something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "the firmware gave no {what}");
        std::thread::yield_now();
    }
}

fn inverted(message: &[u8]) -> Vec<u8> {
    message.iter().map(|byte| !byte).collect()
}

#[test]
fn a_core_answers_sampling_messages_of_linux_ports_and_again_after_its_reset() {
    if !support::has(&TOOLS) {
        return;
    }
    let product = Product::new();
    let partition = product.join();
    let command = partition.sampling_source("COMMAND_OUT").expect("configured");
    let state = partition
        .sampling_destination("STATE_IN", 3_600_000_000_000)
        .expect("configured");
    for reset in 0..3_u8 {
        // At the end of each round the board's memory stays, as it does when a core is reset alone.
        let _board = product.start_board();
        for number in 0..200_usize {
            let message: Vec<u8> = (0..number % 62 + 2)
                .map(|at| (number * 7 + at) as u8 ^ reset)
                .collect();
            command.write(&message).expect("written");
            let mut buffer = [0; 64];
            wait_for("state", || {
                let read = state.read(&mut buffer).ok()?;
                let is_answer = buffer[..read.length] == inverted(&message);
                (is_answer && read.validity == Validity::Valid).then_some(())
            });
        }
    }
}

#[test]
fn a_core_answers_every_queuing_message_in_order_and_again_after_a_reset_of_either_side() {
    if !support::has(&TOOLS) {
        return;
    }
    let product = Product::new();
    let memory = product.memory();
    let window = memory.window(true);
    let layout = Layout::new(16, 2048, 256).expect("the firmware's ring");
    let part = |at| window.sub(at, 64 << 10).expect("inside");
    let mut board = product.start_board();
    for session in 1..=4_u64 {
        if session == 3 {
            // Before this side starts anew: the board that goes must not meet ends that the next one has yet to meet, or it takes their messages along.
            drop(board);
            board = product.start_board();
        }
        let mut work =
            QueuingSource::new(part(WORK.1), part(WORK.2), layout, WORK.0, session).expect("inside");
        let mut done =
            QueuingDestination::new(part(DONE.2), part(DONE.1), layout, DONE.0, session).expect("inside");
        let messages: Vec<Vec<u8>> = (0..500_usize)
            .map(|number| {
                (0..number * 5 % 257)
                    .map(|at| (number * 3 + at) as u8 ^ session as u8)
                    .collect()
            })
            .collect();
        let (mut sent, mut received) = (0, 0);
        while received < messages.len() {
            let answer = wait_for("answer", || {
                while sent < messages.len() && work.send(&messages[sent], sent as u64) == Ok(Status::Ok) {
                    sent += 1;
                }
                done.receive().expect("inside")
            });
            assert_eq!(
                answer,
                inverted(&messages[received]),
                "message {received} of session {session}"
            );
            received += 1;
        }
    }
    drop(board);
}
