//! What host and guest say to each other over the virtio-serial port: one JSON value a line, each
//! way.
//!
//! The guest's end is [`super::agent`], the host's [`super::guest`]. Both come from one build of
//! this binary: there are no versions.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub const PORT: &str = "busway-lab";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: Option<String>,
}

impl Job {
    pub fn new(words: &[&str]) -> Job {
        Job {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Job::default()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    Run(u64, Job),
    Input(u64, Bytes),
    EndInput(u64),
    Signal(u64, i32),
    Read(u64, String),
    Write(u64, String, u32, Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Ready,
    Output(u64, Bytes),
    Error(u64, Bytes),
    /// A program has ended, and all that it wrote was reported: its exit code, or 128 and the
    /// signal that ended it, as shells say it.
    Ended(u64, i32),
    File(u64, Bytes),
    Written(u64),
    Refused(u64, String),
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bytes(pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        BASE64_STANDARD.encode(bytes.0)
    }
}

impl TryFrom<String> for Bytes {
    type Error = base64::DecodeError;
    fn try_from(text: String) -> Result<Bytes, base64::DecodeError> {
        BASE64_STANDARD.decode(text).map(Bytes)
    }
}

pub fn say(port: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    port.write_all(line.as_bytes())?;
    port.flush()?;
    Ok(())
}

pub fn hear<T: DeserializeOwned>(port: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    if port.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let value = serde_json::from_str(&line)
        .with_context(|| format!("{line:?} is nothing that host and guest say"))?;
    Ok(Some(value))
}
