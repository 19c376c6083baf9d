//! The thread that keeps a link's conversation alive while a program uses channels over it, as a
//! gateway's control thread does.
//!
//! Contract: it stands aside of the program: a program at a real-time priority that polls on a
//! processor of its own would never let it run there, and its own link would be lost. Used by
//! [`super::channel`].
#![allow(unsafe_code)] // `sched_setscheduler`, which rustix does not have

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use busway_transport::{Link, Message};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::ready::sleep_until_ready;

/// It looks this often whether it shall end.
const LOOK: Duration = Duration::from_millis(50);

/// Keeps the conversation alive until it is dropped.
pub(super) struct Keeper {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start<M: Message>(mut link: Box<dyn Link<M>>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let shall_end = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            stand_aside();
            // Relaxed: the flag orders nothing else; the thread is joined.
            while !shall_end.load(Ordering::Relaxed) {
                // Channel ends notice by themselves that a link is down.
                while link.poll(Instant::now()).is_some() {}
                let at_most = link.poll_within(Instant::now()).min(LOOK);
                match link.fd() {
                    Some(fd) => sleep_until_ready(&fd, false, at_most),
                    None => std::thread::sleep(at_most),
                }
            }
        });
        Self {
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Relaxed: see `start`.
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The link says goodbye and takes its files along; should it panic, the panic has been
            // shown.
            let _ = thread.join();
        }
    }
}

/// Undoes conditions that the thread has inherited from the program: its priority always; its
/// processor where that is the only one and there are others. What the system refuses stays as it
/// was, and the link reports it.
fn stand_aside() {
    // SAFETY: a zeroed sched_param is the one that SCHED_OTHER asks for; pid 0 is the calling
    // thread; the call only reads the structure.
    unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &param);
    }
    let Ok(own) = sched_getaffinity(None) else {
        return;
    };
    if own.count() != 1 {
        return;
    }
    let mut others = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| !own.is_set(*cpu)) {
        others.set(cpu);
    }
    // The kernel keeps to those that there are and that the control group allows.
    let _ = sched_setaffinity(None, &others);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_thread_leaves_the_only_processor_of_its_program() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let moved = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(cpus[0]);
            sched_setaffinity(None, &one).unwrap();
            stand_aside();
            let now = sched_getaffinity(None).unwrap();
            (cpus.len(), now.is_set(cpus[0]))
        });
        let (cpus, stays) = moved.join().unwrap();
        assert_eq!(stays, cpus == 1);
    }
}
