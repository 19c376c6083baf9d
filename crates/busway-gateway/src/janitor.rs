//! Clears away what dead programs left behind, on a thread of its own.
//!
//! iceoryx2 needs seconds for a dead program of some hundred services (about the square of their
//! number). The control thread can't wait that long, since it sends the heartbeats of all links: it
//! starts the work here, and a doorbell wakes it when something was cleared away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iceoryx2::node::Node;
use rustix::fd::OwnedFd;

use crate::iox::Service;
use crate::lane::wait::ring;

/// How long the end of the gateway waits for unfinished clearing; the next gateway finishes the
/// rest.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The control thread's handle.
#[derive(Debug)]
pub struct Janitor {
    wanted: Sender<()>,
    /// Set by the thread after each clearing, before it rings; taken back by the control thread.
    /// Relaxed: what was cleared away is looked at through the file system, and the bell wakes the
    /// control thread once more.
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Janitor {
    /// Starts the thread; `bell` wakes the control thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(node: Arc<Node<Service>>, bell: Arc<OwnedFd>) -> std::io::Result<Janitor> {
        let (wanted, asked) = mpsc::channel();
        let done = Arc::<AtomicBool>::default();
        let told = done.clone();
        let thread = std::thread::Builder::new()
            .name("janitor".into())
            .spawn(move || work(&node, &asked, &told, &bell))?;
        Ok(Janitor { wanted, done, thread })
    }

    /// Somebody has died.
    pub fn ask(&self) {
        // It ends only with the gateway.
        let _ = self.wanted.send(());
    }

    /// Whether it has cleared away, or looked in vain, since the last call.
    pub fn is_done(&self) -> bool {
        self.done.swap(false, Ordering::Relaxed)
    }

    /// Ends the thread, or leaves it to the end of the process if it does not come to an end soon.
    pub fn end(self) {
        drop(self.wanted);
        let deadline = Instant::now() + END_LIMIT;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

fn work(node: &Node<Service>, asked: &Receiver<()>, done: &AtomicBool, bell: &OwnedFd) {
    while asked.recv().is_ok() {
        // Those who died meanwhile are seen by one and the same look.
        while asked.try_recv().is_ok() {}
        let count = node.try_cleanup_dead_nodes().cleanups;
        if count > 0 {
            tracing::info!("cleared away what {count} dead program(s) left behind");
        }
        // Also when it was nothing: a program that starts clears away as well, and may have been
        // faster.
        done.store(true, Ordering::Relaxed);
        ring(bell);
    }
}
