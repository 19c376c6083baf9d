//! A real-time core without Linux: a Cortex-M3 in the emulator, whose memory (PSRAM) a Linux host
//! maps. The firmware of `c/firmware` answers what is sent to it, each message with its bytes
//! inverted. Its channels are those of a system file in which the core is a host without gateway.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use busway_port::apex::Validity;
use busway_port::system::{module_of, root_of};
use busway_port::{Discipline, Partition, QueuingDestination, QueuingSource, Store};
use busway_system::System;
use busway_tests::program::Program;
use busway_tests::rig::{PortStatus, beside_the_test};
use busway_tests::skip::skipped;
use busway_tests::{Bus, Rig, eventually, publisher, received, service, subscriber, subscribers_become};
use iceoryx2::prelude::*;
use rustix::process::Signal;
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 16 << 20;
/// Until an answer has failed to come, however busy this machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR_NS: i64 = 3_600_000_000_000;

struct Product {
    // Dropped in this order: the gateways before what they map.
    rig: Rig,
    directory: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    BareMetal,
    /// A task of FreeRTOS, which another one interrupts at each tick.
    FreeRtos,
}

impl Under {
    fn words(self) -> Result<Option<String>, String> {
        if self == Under::BareMetal {
            return Ok(None);
        }
        let script = firmware().join("freertos/kernel");
        let said = Command::new(script).output().map_err(|error| error.to_string())?;
        let kernel = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        if kernel.is_empty() {
            let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            return Err(format!("FreeRTOS's kernel, which cargo downloads: {why}"));
        }
        Ok(Some(kernel))
    }
}

fn firmware() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../c/firmware")
}

struct Board(Child);

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Product {
    /// No gateway runs yet; `None` (and said) if this machine has no emulator or compiler.
    fn new(under: Under) -> Option<Product> {
        for tool in ["qemu-system-arm", "arm-none-eabi-gcc"] {
            let said = Command::new(tool)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if said.is_err() {
                skipped(tool);
                return None;
            }
        }
        let kernel = under.words().map_err(|needs| skipped(&needs)).ok()?;
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let memory = directory.path().join("psram");
        let file = File::create(&memory).expect("the board's memory");
        file.set_len(MEMORY_BYTES).expect("the board's memory");
        let rig = Rig::stopped(&["a", "b"], &[(0, 1, Bus::Tcp)], &system_of(&memory));
        let product = Product { rig, directory };
        product.build_firmware(kernel);
        Some(product)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn build_firmware(&self, kernel: Option<String>) {
        let places = Command::new(self.rig.binary())
            .arg("check")
            .arg(&self.rig.system)
            .args(["--places", "core"])
            .output()
            .expect("the busway binary");
        assert!(
            places.status.success(),
            "{}",
            String::from_utf8_lossy(&places.stderr)
        );
        fs::write(self.path("places.h"), places.stdout).expect("places.h");
        let built = Command::new(firmware().join("build"))
            .arg(self.directory.path())
            .arg(self.path("firmware.elf"))
            .args(kernel)
            .status();
        assert!(built.expect("the firmware's build").success());
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
        let system = System::load(&self.rig.system).expect("right");
        let store = Store::open(root_of(&system, "a"), module_of(&system, "a"));
        store.expect("a store").join("application").expect("a partition")
    }

    fn channel(&self, name: &str) -> Option<PortStatus> {
        let status = self.rig.status(0)?;
        status.ports.into_iter().find(|port| port.channel == name)
    }

    fn core_becomes(&self, name: &str, state: &str) {
        wait_for(&format!("{name} is {state}"), || {
            let channel = self.channel(name)?;
            (channel.core.as_deref() == Some(state)).then_some(())
        });
    }

    fn counter_becomes(&self, name: &str, counter: &str, value: u64) {
        wait_for(&format!("{counter} of {name} is {value}"), || {
            (self.channel(name)?.counters[counter] == value).then_some(())
        });
    }

    fn restart_gateway(&mut self) {
        self.rig.gateway(0).signal(Signal::TERM);
        self.rig.gateway(0).wait();
        self.rig.start_gateway(0);
    }
}

fn system_of(memory: &Path) -> String {
    format!(
        r#"
[host.core]
gateway = false
[[link]]
hosts = ["a", "core"]
buses = ["memory"]
clock = "ptp"
memory = {{ path = {memory:?}, length = "1MiB" }}
[[partition]]
name = "application"
host = "a"
ports = [
  {{ name = "COMMAND_OUT", kind = "sampling", direction = "source", max_size = 64 }},
  {{ name = "STATE_IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1h" }},
  {{ name = "WORK_OUT", kind = "queuing", direction = "source", max_size = 256, max_messages = 16 }},
  {{ name = "DONE_IN", kind = "queuing", direction = "destination", max_size = 256, max_messages = 16 }},
]
[[partition]]
name = "control"
host = "core"
ports = [
  {{ name = "COMMAND_IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1h" }},
  {{ name = "STATE_OUT", kind = "sampling", direction = "source", max_size = 64 }},
  {{ name = "WORK_IN", kind = "queuing", direction = "destination", max_size = 256, max_messages = 16 }},
  {{ name = "DONE_OUT", kind = "queuing", direction = "source", max_size = 256, max_messages = 16 }},
]
[[channel]]
name = "command"
source = "application/COMMAND_OUT"
destinations = ["control/COMMAND_IN"]
[[channel]]
name = "state"
source = "control/STATE_OUT"
destinations = ["application/STATE_IN"]
[[channel]]
name = "work"
source = "application/WORK_OUT"
destinations = ["control/WORK_IN"]
[[channel]]
name = "done"
source = "control/DONE_OUT"
destinations = ["application/DONE_IN"]
"#
    )
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn inverted(message: &[u8]) -> Vec<u8> {
    message.iter().map(|byte| !byte).collect()
}

fn message(number: usize) -> Vec<u8> {
    let byte = |at| (number * 3 + at) as u8 ^ (number >> 6) as u8;
    (0..number * 5 % 256 + 1).map(byte).collect()
}

struct Queues<'a> {
    work: QueuingSource<'a>,
    done: QueuingDestination<'a>,
}

impl Queues<'_> {
    fn of(partition: &Partition) -> Queues<'_> {
        let work = partition.queuing_source("WORK_OUT", Discipline::Fifo);
        let done = partition.queuing_destination("DONE_IN", Discipline::Fifo);
        Queues {
            work: work.expect("configured"),
            done: done.expect("configured"),
        }
    }

    fn are_answered(&self, numbers: std::ops::Range<usize>) {
        let mut sent = numbers.start;
        for expected in numbers.clone() {
            self.is_answered(expected, || {
                while sent < numbers.end && self.work.send(&message(sent), 0).is_ok() {
                    sent += 1;
                }
            });
        }
    }

    fn is_answered(&self, expected: usize, mut meanwhile: impl FnMut()) {
        let mut buffer = [0; 256];
        let len_bytes = wait_for(&format!("answer {expected}"), || {
            meanwhile();
            Some(self.done.receive(&mut buffer, 0).ok()?.length)
        });
        assert_eq!(
            buffer[..len_bytes],
            inverted(&message(expected)),
            "answer {expected}"
        );
    }

    fn send(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            wait_for("room in the queue", || self.work.send(&message(number), 0).ok());
        }
    }
}

fn a_core_answers_sampling_messages_of_linux_ports_without_a_gateway_and_again_after_its_reset(under: Under) {
    let Some(product) = Product::new(under) else {
        return;
    };
    let partition = product.join();
    let command = partition.sampling_source("COMMAND_OUT").expect("configured");
    let state = partition
        .sampling_destination("STATE_IN", HOUR_NS)
        .expect("configured");
    for reset in 0..3_u8 {
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

fn a_core_answers_every_queuing_message_in_order_whichever_is_there_first_and_through_new_gateways(
    under: Under,
) {
    let Some(mut product) = Product::new(under) else {
        return;
    };
    let partition = product.join();
    let queues = Queues::of(&partition);
    // Before there is anybody who could take it.
    queues.send(0..1);
    product.rig.start_gateway(0);
    product.core_becomes("work", "absent");
    let _board = product.start_board();
    queues.is_answered(0, || ());
    product.core_becomes("work", "up");
    product.core_becomes("done", "up");
    queues.are_answered(1..400);
    for begin in [400, 500, 600] {
        // Messages wait on both ways while the gateway is another.
        queues.send(begin..begin + 8);
        product.restart_gateway();
        for number in begin..begin + 8 {
            queues.is_answered(number, || ());
        }
        queues.are_answered(begin + 8..begin + 100);
    }
    let said = wait_for("the last gateway's status", || product.channel("work"));
    assert_eq!(said.counters["lost"], 0);
}

fn a_core_that_stops_is_told_and_what_lay_in_its_ring_when_it_started_anew_is_counted(under: Under) {
    let Some(mut product) = Product::new(under) else {
        return;
    };
    let partition = product.join();
    product.rig.start_gateway(0);
    let board = product.start_board();
    let queues = Queues::of(&partition);
    queues.are_answered(0..10);
    product.core_becomes("work", "up");
    drop(board);
    product.core_becomes("work", "stopped");
    product.core_becomes("done", "stopped");
    // What it wrote to its log may come later than what it wrote to its status afterwards.
    wait_for("the log says so", || {
        product
            .rig
            .log(0)
            .contains("core \"core\" has not answered")
            .then_some(())
    });
    queues.send(10..15);
    product.counter_becomes("work", "sent", 15);
    let _board = product.start_board();
    product.core_becomes("work", "up");
    product.counter_becomes("work", "lost", 5);
    queues.are_answered(15..40);
    assert_eq!(product.channel("work").map(|it| it.counters["lost"]), Some(5));
}

fn an_iceoryx2_program_on_another_host_talks_with_a_core(under: Under) {
    let Some(mut product) = Product::new(under) else {
        return;
    };
    product.rig.start_gateways();
    let _board = product.start_board();
    let mut bridge = Command::new(beside_the_test("core_bridge"));
    bridge
        .arg(&product.rig.system)
        .args(["application", "WORK_OUT", "core/work", "DONE_IN", "core/done"]);
    let _bridge = Program::start(bridge, "core_bridge");
    let node = product.rig.node(1);
    let service = |name: &str| service!(node, name.try_into().expect("a name"), [u8]);
    let (work, done) = (service("core/work"), service("core/done"));
    let publisher = publisher!(work, initial_max_slice_len(256));
    let subscriber = subscriber!(done);
    subscribers_become!(work, 1);
    eventually("the gateway of b publishes", || {
        (done.dynamic_config().number_of_publishers() == 1).then_some(())
    });
    let ask = |number| {
        let question = message(number);
        let sample = publisher
            .loan_slice_uninit(question.len())
            .expect("a loan")
            .write_from_slice(&question);
        sample.send().expect("sent");
    };
    let answer = || {
        let sample = received!(subscriber);
        sample.map(|sample| sample.payload().to_vec())
    };
    // What is sent before all four channels stand may be lost: the first question is asked until it
    // is answered.
    let mut asked_at = None::<Instant>;
    wait_for("the first answer", || {
        if asked_at.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            ask(0);
            asked_at = Some(Instant::now());
        }
        answer()
    });
    for number in 1..100 {
        ask(number);
        let answer = wait_for("an answer", || {
            answer().filter(|answer| *answer != inverted(&message(0)))
        });
        assert_eq!(answer, inverted(&message(number)), "message {number}");
    }
}

macro_rules! whatever_the_firmware_runs_under {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn on_bare_metal() {
                super::$test(super::Under::BareMetal);
            }

            #[test]
            fn under_freertos() {
                super::$test(super::Under::FreeRtos);
            }
        })+
    };
}

whatever_the_firmware_runs_under!(
    a_core_answers_sampling_messages_of_linux_ports_without_a_gateway_and_again_after_its_reset,
    a_core_answers_every_queuing_message_in_order_whichever_is_there_first_and_through_new_gateways,
    a_core_that_stops_is_told_and_what_lay_in_its_ring_when_it_started_anew_is_counted,
    an_iceoryx2_program_on_another_host_talks_with_a_core,
);
