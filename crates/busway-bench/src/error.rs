//! What can go wrong while a demonstration or a measurement runs.

use std::time::Duration;

/// Why a demonstration or a measurement ended early. Each names what was tried; the last words of a
/// child process are included.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{program} ended early: {reason}{}", last_words(.stderr))]
    Ended {
        program: String,
        reason: String,
        stderr: String,
    },
    #[error("{what} did not happen within {} s{}", .after.as_secs_f64(), last_words(.stderr))]
    TimedOut {
        what: String,
        after: Duration,
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
    #[error("interrupted")]
    Interrupted,
    #[error("{option}: {value:?} {problem}; {mend}")]
    Option {
        option: &'static str,
        value: String,
        problem: String,
        mend: String,
    },
}

impl BenchError {
    /// Wraps an I/O error with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

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
