//! Tests of what programs ask of the system.

use rustix::mm::munlockall;
use rustix::process::{Rlimit, Uid, setrlimit};
use rustix::thread::set_thread_uid;

use super::*;

/// Processor, scheduling and user belong to a thread, so each test takes one of its own.
fn in_a_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(run).join().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn scheduling_policy() -> i32 {
    // SAFETY: asks for the policy of the calling thread; passes no memory.
    unsafe { libc::sched_getscheduler(0) }
}

#[test]
fn empty_request_changes_nothing() {
    let (granted, conditions) = apply(&Wanted::default());
    assert!(granted._cpu_dma_latency.is_none() && conditions.is_empty());
}

#[test]
fn pinned_program_runs_on_requested_cpu_by_index_or_number() {
    let allowed = sched_getaffinity(None).unwrap();
    let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).unwrap();
    let by_place = Wanted {
        processor: Some(allowed.count() as usize - 1),
        ..Wanted::default()
    };
    let by_number = Wanted {
        processor: Some(0),
        cpu: Some(last),
        ..Wanted::default()
    };
    for wanted in [by_place, by_number] {
        let (conditions, cpus) = in_a_thread(move || (apply(&wanted).1, sched_getaffinity(None).unwrap()));
        assert!(conditions[0].granted, "{conditions:?}");
        assert_eq!(conditions[0].asked, format!("CPU {last}"));
        assert!(cpus.count() == 1 && cpus.is_set(last), "{cpus:?}");
    }
}

#[test]
fn absent_cpu_is_refused_with_list_of_allowed_ones() {
    for (processor, cpu) in [
        (Some(100_000), None),
        (None, Some(CpuSet::MAX_CPU - 1)),
        (None, Some(usize::MAX)),
    ] {
        let wanted = Wanted {
            processor,
            cpu,
            ..Wanted::default()
        };
        let conditions = in_a_thread(move || apply(&wanted).1);
        let reason = conditions[0].reason.clone().unwrap_or_default();
        assert!(!conditions[0].granted, "{conditions:?}");
        assert!(reason.contains("this program may use ["), "{reason}");
    }
}

#[test]
fn root_gets_fifo_priority_and_dma_latency_while_granted_lives() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    in_a_thread(|| {
        let wanted = Wanted {
            fifo_priority: Some(7),
            cpu_dma_latency_us: Some(3),
            ..Wanted::default()
        };
        let (granted, conditions) = apply(&wanted);
        for condition in &conditions {
            match condition.name.as_str() {
                "fifo" if condition.granted => assert_eq!(scheduling_policy(), libc::SCHED_FIFO),
                "cpu-dma-latency" => {
                    assert_eq!(condition.granted, granted._cpu_dma_latency.is_some());
                }
                _ => {}
            }
            assert_ne!(condition.granted, condition.reason.is_some(), "{condition:?}");
        }
        let names: Vec<&str> = conditions.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["cpu-dma-latency", "fifo"]);
    });
}

/// One test, because locked memory belongs to the whole process.
#[test]
fn memory_lock_and_priority_are_refused_without_rights_with_the_mend() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let lock = Wanted {
        lock_memory: true,
        ..Wanted::default()
    };
    if may(CapabilitySet::IPC_LOCK) {
        let (_granted, conditions) = apply(&lock);
        munlockall().unwrap();
        assert!(conditions[0].granted, "{conditions:?}");
    }
    for resource in [Resource::Memlock, Resource::Rtprio] {
        let maximum = getrlimit(resource).maximum;
        let none = Rlimit {
            current: Some(0),
            maximum,
        };
        setrlimit(resource, none).unwrap();
    }
    let wanted = Wanted {
        fifo_priority: Some(80),
        cpu_dma_latency_us: Some(0),
        ..lock
    };
    let (conditions, policy) = in_a_thread(move || {
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        (apply(&wanted).1, scheduling_policy())
    });
    assert_eq!(policy, libc::SCHED_OTHER);
    let reasons = [
        ("cpu-dma-latency", CPU_DMA_LATENCY),
        (
            "locked-memory",
            "the limit RLIMIT_MEMLOCK is 0 bytes, and the program has no CAP_IPC_LOCK",
        ),
        (
            "fifo",
            "the limit RLIMIT_RTPRIO is 0, and the program has no CAP_SYS_NICE; raise it (`ulimit -r 80`",
        ),
    ];
    for (condition, (name, part)) in conditions.iter().zip(reasons) {
        assert_eq!((condition.name.as_str(), condition.granted), (name, false));
        let reason = condition.reason.as_deref().unwrap_or_default();
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(conditions.len(), 3);
}

#[test]
fn keep_process_to_pins_every_thread_of_another_process() {
    let allowed = sched_getaffinity(None).unwrap();
    let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let kept = keep_process_to(child.id(), last);
    let cpus = sched_getaffinity(Pid::from_raw(child.id() as i32)).unwrap();
    let nowhere = keep_process_to(child.id(), CpuSet::MAX_CPU - 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(kept.is_ok(), "{kept:?}");
    assert!(cpus.count() == 1 && cpus.is_set(last), "{cpus:?}");
    assert!(nowhere.is_err());
    assert!(keep_process_to(child.id(), last).is_err(), "it has ended");
}

fn condition(name: &str, asked: &str, reason: Option<&str>) -> Condition {
    Condition {
        name: name.to_owned(),
        asked: asked.to_owned(),
        granted: reason.is_none(),
        reason: reason.map(str::to_owned),
    }
}

#[test]
fn merged_condition_is_granted_only_if_every_program_got_it() {
    let merged = merge(vec![
        vec![
            condition("pinning", "CPU 0", None),
            condition("fifo", "priority 5", Some("no")),
        ],
        vec![
            condition("pinning", "CPU 1", None),
            condition("fifo", "priority 5", Some("no")),
        ],
        vec![
            condition("pinning", "CPU 1", Some("gone")),
            condition("fifo", "priority 5", None),
        ],
    ]);
    let wanted = [
        condition("pinning", "CPU 0 and CPU 1", Some("gone")),
        condition("fifo", "priority 5", Some("no")),
    ];
    assert_eq!(merged, wanted);
}

#[test]
fn options_become_requests_of_each_side() {
    let args = |pin: Option<&str>| Args {
        pin: pin.map(|text| text.parse().unwrap()),
        ..Args::default()
    };
    assert_eq!(args(None).receiving(Some(1)).processor, Some(1));
    assert_eq!(args(Some("none")).sending(Some(1)), Wanted::default());
    assert_eq!(args(Some("2,5")).sending(Some(1)).cpu, Some(2));
    assert_eq!(args(Some("2, 5")).receiving(Some(1)).cpu, Some(5));
    for wrong in ["2", "a,b", "1,2,3", ""] {
        assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
    }
}
