//! The programs under test, built with cargo when a scenario asks for them first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::lock;
use super::store::workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    TransportTests,
    PortTests,
    Programs,
}

impl Set {
    /// The selection of packages and targets is that of `.ci/run` and of the README's commands:
    /// cargo gives other selections other features, and would build nearly everything again.
    fn arguments(self) -> &'static str {
        match self {
            Set::TransportTests => {
                "test --workspace --no-run --test contract_* --test tipc --test rdma --test rdma_alone \
                 --test pci --test udp"
            }
            Set::PortTests => {
                "test --workspace --no-run --test port_conformance --test ports --test port_faults \
                 --test port_waking --test failover_ports --test zero_copy"
            }
            Set::Programs => "build --workspace --bins --examples",
        }
    }
}

#[derive(Debug, Default)]
pub struct Builds {
    made: Mutex<BTreeMap<Set, BTreeMap<String, PathBuf>>>,
}

impl Builds {
    /// The file of a program, test or binary, by its name.
    pub fn program(&self, set: Set, name: &str) -> Result<PathBuf> {
        let mut made = lock(&self.made);
        let files = match made.entry(set) {
            Entry::Occupied(files) => files.into_mut(),
            Entry::Vacant(place) => place.insert(build(set)?),
        };
        let found = files.get(name).cloned();
        found.with_context(|| format!("no such test: `cargo {}` makes no {name}", set.arguments()))
    }
}

fn build(set: Set) -> Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(set.arguments().split(' ')).args([
        "--release",
        "--quiet",
        "--message-format=json-render-diagnostics",
    ]);
    let output = command
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo can't be started")?;
    if !output.status.success() {
        bail!("`cargo {}` ended with {}", set.arguments(), output.status);
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?;
            Some((name.to_owned(), PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_messages_name_built_programs() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"lib\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"contract_tcp\"},\"executable\":\"/t/contract_tcp-1\"}\nno json\n";
        let found = executables(messages);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("contract_tcp".to_owned(), PathBuf::from("/t/contract_tcp-1"))]
        );
    }
}
