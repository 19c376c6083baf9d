//! A program in a guest, seen from the host.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Guest;
use super::state::Progress;
use crate::lab::lock;
use crate::lab::protocol::{Bytes, Request};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub code: i32,
    pub output: String,
    pub error: String,
}

#[derive(Debug)]
pub struct Program<'a> {
    pub(super) guest: &'a Guest,
    pub(super) number: u64,
    pub(super) what: String,
}

impl Program<'_> {
    pub fn wait(&self, limit: Duration) -> Result<Done> {
        let what = format!("`{}` ends", self.what);
        self.guest.progress(self.number, &what, limit, |progress| {
            let code = progress.code?;
            Some(Done {
                code,
                output: progress.output.text(),
                error: progress.error.text(),
            })
        })
    }

    pub fn until<T>(&self, what: &str, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let outcome = self.guest.progress(self.number, what, limit, |progress| {
            match wanted(&progress.output.text()) {
                Some(value) => Some(Ok(value)),
                None => progress.code.map(|code| {
                    Err(anyhow::anyhow!(
                        "`{}` ended with {code}: {}",
                        self.what,
                        progress.error.text()
                    ))
                }),
            }
        });
        outcome
            .and_then(|value| value)
            .with_context(|| format!("{what}; it wrote: {}", self.error_so_far()))
    }

    /// What is known of it so far.
    fn so_far<T>(&self, what: impl Fn(&Progress) -> T) -> T {
        let programs = lock(&self.guest.state.programs);
        what(programs.known.get(&self.number).unwrap_or(&Progress::default()))
    }

    pub fn output_so_far(&self) -> String {
        self.so_far(|progress| progress.output.text())
    }

    pub fn error_so_far(&self) -> String {
        self.so_far(|progress| progress.error.text())
    }

    pub fn output_lines(&self) -> Vec<(Instant, String)> {
        self.so_far(|progress| progress.output.lines())
    }

    pub fn error_lines(&self) -> Vec<(Instant, String)> {
        self.so_far(|progress| progress.error.lines())
    }

    pub fn has_ended(&self) -> bool {
        self.so_far(|progress| progress.code.is_some())
    }

    /// Sends it, and what it has started, a signal by number.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.guest.ask(&Request::Signal(self.number, signal))
    }

    pub fn input(&self, bytes: &[u8]) -> Result<()> {
        self.guest
            .ask(&Request::Input(self.number, Bytes(bytes.to_vec())))
    }

    pub fn end_input(&self) -> Result<()> {
        self.guest.ask(&Request::EndInput(self.number))
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.signal(9);
        }
    }
}
