//! Ctrl-C and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first Ctrl-C or SIGTERM sets. The second ends the process at once, in case the
/// first is not obeyed.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset, passes the first handler and sets
        // the flag in the second.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            crate::output::FAILURE.into(),
            Arc::clone(&stop),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
        .context("cannot set up Ctrl-C")?;
    }
    Ok(stop)
}
