//! Steps at which a test may kill this process, as `kill -9` would.
//!
//! Contract: without the feature `crash-hooks` nothing is left of them. With it,
//! `BUSWAY_PORT_CRASH=STEP` (or `STEP@N`, the N-th time, from 1) names the step at which the
//! process kills itself. Called wherever a protocol has done a part of what belongs together;
//! `tests/faults.rs` goes through all of them.

use busway_core::{RemoteError, RemoteWrite, Window};

#[cfg(feature = "crash-hooks")]
mod hooks {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Planned {
        step: String,
        /// How often the step is still to be survived.
        left: AtomicU64,
    }

    #[inline]
    fn planned() -> Option<&'static Planned> {
        static PLANNED: OnceLock<Option<Planned>> = OnceLock::new();
        PLANNED
            .get_or_init(|| {
                let value = std::env::var("BUSWAY_PORT_CRASH").ok()?;
                let (step, count) = value.split_once('@').unwrap_or((&value, "1"));
                let left = AtomicU64::new(count.parse::<u64>().ok()?.checked_sub(1)?);
                Some(Planned {
                    step: step.into(),
                    left,
                })
            })
            .as_ref()
    }

    #[inline]
    pub(crate) fn is_due(step: &str) -> bool {
        planned().is_some_and(|planned| planned.is_due(step))
    }

    impl Planned {
        #[cold]
        fn is_due(&self, step: &str) -> bool {
            let count_down = |left: u64| left.checked_sub(1);
            self.step == step
                && self
                    .left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count_down)
                    .is_err()
        }
    }

    pub(crate) fn now() -> ! {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal goes to this very thread.
        loop {
            std::thread::yield_now();
        }
    }
}

/// Ends the process here if that is the plan.
#[inline(always)]
pub(crate) fn step(name: &str) {
    #[cfg(feature = "crash-hooks")]
    if hooks::is_due(name) {
        hooks::now();
    }
    #[cfg(not(feature = "crash-hooks"))]
    let _ = name;
}

/// A window whose writes may be cut off.
#[derive(Debug)]
pub(crate) struct Steps(pub Window);

impl RemoteWrite for Steps {
    #[inline]
    fn len_bytes(&self) -> usize {
        RemoteWrite::len_bytes(&self.0)
    }

    #[inline]
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        #[cfg(feature = "crash-hooks")]
        if hooks::is_due("half-written") {
            let half: Vec<&[u8]> = parts.iter().map(|part| &part[..part.len() / 2]).collect();
            let _ = RemoteWrite::write(&mut self.0, offset, header, &half);
            hooks::now();
        }
        RemoteWrite::write(&mut self.0, offset, header, parts)?;
        step("written");
        Ok(())
    }

    #[inline]
    fn fence(&mut self) {
        self.0.fence();
    }

    #[inline]
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        step("before-publish");
        self.0.publish(offset, word)?;
        step("published");
        Ok(())
    }
}
