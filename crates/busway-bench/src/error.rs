//! What can go wrong while a demonstration or a measurement runs.

use std::time::Duration;

/// Why a demonstration or a measurement ended early. Each names what was tried; the last words of a
/// child process are included.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path or program.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program ended, or said that it cannot go on.
    #[error("{program} ended early: {reason}{}", last_words(.stderr))]
    Ended {
        /// Which program, on which host.
        program: String,
        /// Exit status, or its own words.
        reason: String,
        /// Its last lines on standard error.
        stderr: String,
    },
    /// Something did not come about in time.
    #[error("{what} did not happen within {} s{}", .after.as_secs_f64(), last_words(.stderr))]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// The last lines that the processes involved wrote to standard error.
        stderr: String,
    },
    /// The machine lacks something that a part needs; that part is skipped.
    #[error("skipped: needs {0}")]
    Needs(String),
    /// Without the other machine nothing more can be measured.
    #[error(
        "the follower at {0} has ended or its machine is gone: start `busway bench follower` there again"
    )]
    FollowerGone(std::net::SocketAddr),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// An option has a value that cannot be used.
    #[error("{option}: {value:?} {problem}; {mend}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The value given.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        mend: String,
    },
}

impl BenchError {
    /// Wraps an I/O error with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The same for errors of raw system calls.
    pub(crate) fn os(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |errno| Self::Io {
            what,
            source: errno.into(),
        }
    }
}

fn last_words(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!("\n{}", stderr.trim_end())
    }
}
