//! What tests share: telling that a tool is missing.
#![allow(dead_code)] // Each user takes a part.

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::process::{Command, Stdio};

/// Whether all of `tools` are here. If not, prints that, and appends it to the file that
/// `BUSWAY_SKIPPED` names.
pub fn has(tools: &[&str]) -> bool {
    let is_missing = |tool: &&&str| {
        Command::new(**tool)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
    };
    let Some(missing) = tools.iter().find(is_missing) else {
        return true;
    };
    skip::skipped(missing);
    false
}
