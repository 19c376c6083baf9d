//! What the process says when it ends: exit codes, and a reader of our output that went away.

use std::process::ExitCode;

use busway_system::SystemError;

/// It failed.
pub const FAILURE: u8 = 1;
/// The command line or the system file is wrong; clap uses the same number.
pub const USAGE: u8 = 2;

/// An argument that only the system file shows to be wrong, such as the name of a host.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The exit code for an error.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<SystemError>() || error.is::<UsageError>() {
        USAGE
    } else {
        FAILURE
    })
}

/// Whether whoever read our output (`| head`) has gone: no failure of ours.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
