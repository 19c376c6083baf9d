//! The commands of a parent to its worker: `go` (start counting), `finish N` (N messages were sent
//! in all; end when they have arrived or nothing more comes), end of file (end at once).
//!
//! A thread reads standard input; data loops look at atomics only.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// No `finish` yet.
const OPEN: u64 = u64::MAX;

pub(crate) type WorkerResult<T> = Result<T, String>;

#[derive(Debug)]
struct Shared {
    go: AtomicBool,
    end: AtomicBool,
    total: AtomicU64,
}

/// What a worker reads of its parent's commands.
#[derive(Clone, Debug)]
pub(crate) struct Control(Arc<Shared>);

impl Control {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared {
            go: false.into(),
            end: false.into(),
            total: OPEN.into(),
        });
        let control = Self(Arc::clone(&shared));
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match line.split_once(' ') {
                    None if line == "go" => shared.go.store(true, Ordering::Relaxed),
                    Some(("finish", n)) => {
                        shared.total.store(n.parse().unwrap_or(0), Ordering::Relaxed);
                    }
                    _ => tracing::warn!(line, "unknown command"),
                }
            }
            shared.end.store(true, Ordering::Relaxed);
        });
        control
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self(Arc::new(Shared {
            go: false.into(),
            end: false.into(),
            total: OPEN.into(),
        }))
    }

    #[cfg(test)]
    pub(crate) fn end(&self) {
        self.0.end.store(true, Ordering::Relaxed);
    }

    // Relaxed throughout: the flags order nothing else, each is only ever set once.

    /// Whether counting has begun.
    pub(crate) fn gone(&self) -> bool {
        self.0.go.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> bool {
        self.0.end.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.0.total.load(Ordering::Relaxed)).filter(|n| *n != OPEN)
    }

    pub(crate) fn wait_for_go(&self) -> bool {
        while !self.gone() && !self.ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        !self.ended()
    }
}
