//! The scheduling threads: each keeps the partitions of one timeline in their windows.
//!
//! Contract: at the end of a window the thread freezes its partition and waits until the kernel
//! says that it is frozen; only then it thaws the next one. So two partitions never run at once on
//! a processor that both may use. A partition that cannot be frozen takes the time of the next
//! window, and if it takes all of it, that window is lost and counted. Frame `n` begins at `n`
//! times its length on `CLOCK_MONOTONIC`, so that programs can compute where they are. Called by
//! the supervisor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use busway_system::SchedulingPolicy;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};

use crate::cgroup::Group;
use crate::status::{OVERRUN_NS, WindowTimes};
use crate::sys::{self, SUPERVISOR_PRIORITY};
use crate::timeline::{Step, Timeline};

/// The longest sleep, after which the thread looks whether it shall stop.
const STOP_INTERVAL_NS: u64 = 50_000_000;
/// Pauses between two looks at a group that is not frozen yet. The kernel reports the change by a
/// notification too, but at most once in 10 ms.
const FIRST_PAUSE_NS: u64 = 10_000;
const LONGEST_PAUSE_NS: u64 = 200_000;

/// A partition under the scheduler.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) group: Group,
    pub(crate) times: std::sync::Mutex<WindowTimes>,
}

/// The threads of all timelines.
#[derive(Debug)]
pub(crate) struct Scheduler {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Whether the threads have their real-time priority.
    pub(crate) is_real_time: bool,
}

impl Scheduler {
    /// Starts a thread for each timeline.
    pub(crate) fn start(timelines: Vec<Timeline>, frame_ns: u64, partitions: &Arc<Vec<Scheduled>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut threads = Vec::new();
        for timeline in timelines {
            let (stop, partitions, sender) = (Arc::clone(&stop), Arc::clone(partitions), sender.clone());
            let run = move || {
                // Ends the wait for the answers of all threads also if it fails to say more.
                let _ = sender.send(prepare(&timeline.processors));
                drop(sender);
                Thread {
                    partitions: &partitions,
                    stop: &stop,
                    leaving: Vec::new(),
                }
                .run(&timeline, frame_ns);
            };
            threads.push(std::thread::spawn(run));
        }
        drop(sender);
        let is_real_time = receiver.iter().all(|prepared| match prepared {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    "the scheduling thread has no SCHED_FIFO priority {SUPERVISOR_PRIORITY}: {error}; windows may begin \
                     late, run as root or raise the rtprio limit (ulimit -r)"
                );
                false
            }
        });
        Self {
            stop,
            threads,
            is_real_time,
        }
    }

    /// Ends the threads. Partitions stay as they are, frozen or not.
    pub(crate) fn stop(&mut self) {
        // Relaxed: the flag carries nothing else; its partner is the load in `Thread::sleep_until`.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a scheduling thread has panicked");
            }
        }
    }
}

/// Binds the calling thread to the processors of its partitions and raises its priority.
fn prepare(processors: &[usize]) -> std::io::Result<()> {
    sys::sleep_precisely();
    // Refused if the processors do not exist, which the check of rights has reported.
    let _ = sys::set_processors(sys::cpu_set(processors).as_ref());
    sys::set_policy(SchedulingPolicy::Fifo(SUPERVISOR_PRIORITY))
}

/// `CLOCK_MONOTONIC` in ns.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

struct Thread<'a> {
    partitions: &'a [Scheduled],
    stop: &'a AtomicBool,
    /// Partitions that were asked to freeze and are not frozen yet, and when they were asked, in
    /// ns.
    leaving: Vec<(usize, u64)>,
}

impl Thread<'_> {
    fn run(mut self, timeline: &Timeline, frame_ns: u64) {
        // A whole frame ahead, so that the first step is not late.
        let mut frame = now_ns() / frame_ns + 1;
        loop {
            for step in &timeline.steps {
                if !self.sleep_until(frame * frame_ns + step.at_ns) {
                    return;
                }
                self.step(step, frame * frame_ns);
            }
            frame += 1;
        }
    }

    /// Whether the time came, and not the order to stop.
    fn sleep_until(&self, until_ns: u64) -> bool {
        loop {
            // Relaxed: partner is the store in `Scheduler::stop`.
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let now_ns = now_ns();
            if now_ns >= until_ns {
                return true;
            }
            sleep_until(until_ns.min(now_ns + STOP_INTERVAL_NS));
        }
    }

    fn step(&mut self, step: &Step, frame_start_ns: u64) {
        let asked_ns = now_ns();
        for at in &step.ends {
            if let Err(error) = self.partitions[*at].group.set_frozen(true) {
                tracing::error!("a partition cannot be frozen: {error}");
            }
            self.leaving.push((*at, asked_ns));
        }
        let until_ns = frame_start_ns + step.until_ns;
        let may_begin = step.begins.is_empty() || self.wait_for_frozen(until_ns);
        for at in &step.begins {
            let partition = &self.partitions[*at];
            let is_in_time = may_begin && now_ns() < until_ns;
            if is_in_time && let Err(error) = partition.group.set_frozen(false) {
                tracing::error!("a partition cannot be thawed: {error}");
            }
            let mut times = partition.times.lock().unwrap_or_else(PoisonError::into_inner);
            if is_in_time {
                times.began(now_ns().saturating_sub(frame_start_ns + step.at_ns));
            } else {
                times.lost += 1;
            }
        }
        if step.begins.is_empty() {
            // Nothing waits for it, so the pause between windows is time enough.
            self.wait_for_frozen(asked_ns + OVERRUN_NS);
        }
    }

    /// Whether all partitions that leave are frozen, at the latest at `until_ns`.
    fn wait_for_frozen(&mut self, until_ns: u64) -> bool {
        let mut pause_ns = FIRST_PAUSE_NS;
        loop {
            let partitions = self.partitions;
            self.leaving.retain(|(at, asked_ns)| {
                let is_frozen = partitions[*at].group.is_frozen();
                if is_frozen {
                    let mut times = partitions[*at]
                        .times
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    times.froze(now_ns().saturating_sub(*asked_ns));
                }
                !is_frozen
            });
            if self.leaving.is_empty() {
                return true;
            }
            let now_ns = now_ns();
            if now_ns >= until_ns {
                return false;
            }
            // The partition needs the processor to reach the point at which it freezes.
            sleep_until(now_ns + pause_ns);
            pause_ns = (pause_ns * 2).min(LONGEST_PAUSE_NS);
        }
    }
}

fn sleep_until(until_ns: u64) {
    let until = Timespec {
        tv_sec: (until_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (until_ns % 1_000_000_000).cast_signed(),
    };
    // A signal ends it early; its callers look at the clock again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}
