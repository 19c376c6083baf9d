//! Lanes: each wait strategy carries data, and a lane's thread has the processor, priority and
//! memory that the system file gives it.

use std::fs;

use busway_tests::role::Settings;
use busway_tests::skip::skipped;
use busway_tests::stream::{flows, stream};
use busway_tests::{Bus, Rig, eventually, on_each_bus};

const STRICT: Settings = Settings::lossless(16);

fn every_wait_strategy_carries_without_loss(bus: Bus) {
    for wait in ["spin", "adaptive", "event"] {
        let lane = format!("[[lane]]\nname = \"chosen\"\nservices = [\"chosen/*\"]\nwait = \"{wait}\"\n");
        let rig = Rig::pair_with(bus, &lane);
        let (publisher, subscriber) = stream(&rig, "chosen/one", STRICT);
        flows(&publisher, &subscriber, wait);
        let seen = subscriber.seen(1);
        assert_eq!((seen.missing, seen.backwards), (0, 0), "{wait}: {seen:?}");
    }
}

#[derive(Debug)]
struct Thread {
    status: String,
    /// The fields behind the name, from `state` on; see proc(5).
    stat: Vec<String>,
}

fn thread(process: u32, name: &str) -> Option<Thread> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        read("comm")?.starts_with(name).then_some(())?;
        let stat = read("stat")?;
        let (_, behind_name) = stat.rsplit_once(')')?;
        Some(Thread {
            status: read("status")?,
            stat: behind_name.split_whitespace().map(str::to_owned).collect(),
        })
    })
}

impl Thread {
    fn status_line(&self, key: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(key));
        line.expect("proc(5)").trim()
    }

    fn stat_field(&self, number: usize) -> &str {
        &self.stat[number - 3]
    }
}

#[test]
fn lane_gets_cpu_priority_and_locked_memory_of_system_file() {
    if !rustix::process::geteuid().is_root() {
        return skipped("root (SCHED_FIFO and locked memory)");
    }
    let lane = "[[lane]]\nname = \"loop\"\nservices = [\"loop/*\"]\nwait = \"event\"\ncpu = 0\npriority = 7\nlock_memory = true\n";
    let mut rig = Rig::pair_with(Bus::Memory, lane);
    let (_publisher, _subscriber) = stream(&rig, "loop/one", STRICT);
    for host in [0, 1] {
        let process = rig.gateway(host).id();
        // The lane applies its settings before its first turn, the last of them the memory.
        let thread = eventually("the lane has locked its memory", || {
            thread(process, "lane loop").filter(|thread| thread.status_line("VmLck:") != "0 kB")
        });
        assert_eq!(thread.status_line("Cpus_allowed_list:"), "0");
        // rt_priority and policy; 1 is SCHED_FIFO.
        assert_eq!((thread.stat_field(40), thread.stat_field(41)), ("7", "1"));
    }
}

on_each_bus!(every_wait_strategy_carries_without_loss);
