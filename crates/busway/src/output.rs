//! What the process says when it ends: exit codes, and a reader of our output that went away.

use std::process::ExitCode;

use busway_bench::BenchError;
use busway_system::SystemError;

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

pub fn code_of(error: &anyhow::Error) -> ExitCode {
    let is_usage = error.is::<SystemError>()
        || error.is::<UsageError>()
        || matches!(error.downcast_ref(), Some(BenchError::Option { .. }));
    ExitCode::from(if is_usage { USAGE } else { FAILURE })
}

/// The error and its causes in one line; a cause that the message has quoted already is left out.
pub fn describe(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said.push_str(": ");
            said.push_str(&cause);
        }
    }
    said
}

/// Whether the reader of our output (`| head`) has closed it: not a failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn error_names_each_cause_once() {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let quoting = SystemError::Read {
            file: "x".into(),
            cause: gone(),
        };
        assert_eq!(
            describe(&anyhow::Error::from(quoting))
                .matches("not found")
                .count(),
            1
        );
        let wrapping = Err::<(), _>(gone()).context("cannot open x").unwrap_err();
        assert_eq!(describe(&wrapping), "cannot open x: entity not found");
    }

    #[test]
    fn wrong_file_or_host_exits_with_usage_error_and_others_with_failure() {
        assert_eq!(
            code_of(&UsageError("x".to_string()).into()),
            ExitCode::from(USAGE)
        );
        assert_eq!(
            code_of(&SystemError::Invalid(Vec::new()).into()),
            ExitCode::from(USAGE)
        );
        assert_eq!(code_of(&anyhow::anyhow!("x")), ExitCode::from(FAILURE));
    }
}
