//! Finds ports in the system file and reads their state.

use std::io::ErrorKind;

use busway_port::observe::{Message, ObservedPort, Observer};
use busway_port::system::{is_other_host, module_of, root_of};
use busway_port::{Counters, Direction, Module, PortConfig, PortKind, PortRef, StoreError};
use busway_system::System;
use serde::Serialize;

use super::{All, One};
use crate::commands::gateway::find_host;
use crate::output::UsageError;

pub struct Found {
    pub host: String,
    pub reference: PortRef,
    pub config: PortConfig,
    /// A destination's refresh period by the file, in ns.
    refresh_period_ns: Option<i64>,
    module: Module,
}

#[derive(Serialize)]
pub struct View {
    pub port: String,
    pub host: String,
    /// Whether the port is one of the gateway, for another host.
    pub is_gateway: bool,
    pub kind: &'static str,
    pub direction: &'static str,
    pub max_size_bytes: usize,
    pub created: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<usize>,
    /// Messages that wait; for a queuing port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageView>,
    pub counters: Counters,
}

#[derive(Serialize)]
pub struct MessageView {
    pub number: u64,
    pub length_bytes: usize,
    pub age_ns: i64,
    /// At a sampling destination: whether the age is within the refresh period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    pub hex: String,
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

pub fn all(all: &All) -> anyhow::Result<Vec<View>> {
    let seen = all_seen(all)?;
    Ok(seen.iter().map(|(found, seen)| view(found, seen)).collect())
}

/// All ports whose state lies on this machine, to be looked at again and again.
pub fn all_seen(all: &All) -> anyhow::Result<Vec<(Found, ObservedPort)>> {
    let system = System::load(&all.place.system)?;
    if let Some(host) = &all.host {
        find_host(&system, host)?;
    }
    let (mut all_seen, mut missing) = (Vec::new(), None);
    for host in &system.hosts {
        if all.host.as_ref().is_some_and(|only| *only != host.name) {
            continue;
        }
        let module = module_of(&system, &host.name);
        let root = root_of(&system, &host.name);
        let observer = Observer::new(&root, module.clone())?;
        for partition in &module.partitions {
            for port in &partition.ports {
                let found = Found {
                    host: host.name.clone(),
                    reference: PortRef::new(&partition.name, &port.name),
                    config: port.clone(),
                    refresh_period_ns: refresh_period_ns(&system, &partition.name, &port.name),
                    module: Module::default(),
                };
                match observer.port(&found.reference) {
                    Ok(Some(seen)) => all_seen.push((found, seen)),
                    Ok(None) => {}
                    Err(error) if is_missing(&error) => missing = Some(root.clone()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    if all_seen.is_empty()
        && let Some(root) = missing
    {
        anyhow::bail!(
            "no port state in {}: no partition or gateway of the host has run on this machine",
            root.display()
        );
    }
    Ok(all_seen)
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::System { source, .. } if source.kind() == ErrorKind::NotFound)
}

pub fn find(system: &System, name: &str) -> Result<Found, UsageError> {
    let wrong = |what: String| UsageError(format!("{name:?}: {what}"));
    let (partition_name, port_name) = name
        .split_once('/')
        .ok_or_else(|| wrong("name a port as PARTITION/PORT".into()))?;
    let partition = system.partition(partition_name).ok_or_else(|| {
        let known: Vec<&str> = system.partitions.iter().map(|it| it.name.as_str()).collect();
        wrong(format!(
            "there is no partition {partition_name:?}; there are {}",
            known.join(", ")
        ))
    })?;
    let module = module_of(system, &partition.host);
    let reference = PortRef::new(partition_name, port_name);
    let config = module
        .partition(partition_name)
        .and_then(|it| it.ports.iter().find(|port| port.name == port_name))
        .cloned();
    let config = config.ok_or_else(|| {
        let known: Vec<&str> = partition.ports.iter().map(|it| it.name.as_str()).collect();
        wrong(format!(
            "partition {partition_name} has no port {port_name:?}; it has {}",
            known.join(", ")
        ))
    })?;
    Ok(Found {
        host: partition.host.clone(),
        reference,
        config,
        refresh_period_ns: refresh_period_ns(system, partition_name, port_name),
        module,
    })
}

fn refresh_period_ns(system: &System, partition: &str, port: &str) -> Option<i64> {
    let ports = &system.partition(partition)?.ports;
    match ports.iter().find(|it| it.name == port)?.kind {
        PortKind::Sampling {
            refresh_period_ns, ..
        } => refresh_period_ns.and_then(|ns| i64::try_from(ns).ok()),
        PortKind::Queuing { .. } => None,
    }
}

/// One port, to be looked at again and again.
pub fn one_seen(one: &One) -> anyhow::Result<(Found, ObservedPort)> {
    let system = System::load(&one.place.system)?;
    let found = find(&system, &one.port)?;
    let root = root_of(&system, &found.host);
    let observer = Observer::new(&root, found.module.clone())?;
    let seen = match observer.port(&found.reference) {
        Err(error) if is_missing(&error) => anyhow::bail!(
            "no port state in {}: no partition or gateway of {} has run on this machine",
            root.display(),
            found.host
        ),
        seen => seen?,
    };
    // `find` has found it in the module.
    let seen = seen.ok_or_else(|| anyhow::anyhow!("{} is not there", one.port))?;
    Ok((found, seen))
}

pub fn one(one: &One) -> anyhow::Result<View> {
    let (found, seen) = one_seen(one)?;
    Ok(view(&found, &seen))
}

pub fn view(found: &Found, seen: &ObservedPort) -> View {
    let config = seen.config();
    let is_destination = config.direction == Direction::Destination;
    let period_ns = seen.refresh_period_ns().or(found.refresh_period_ns);
    let judge = |age_ns: i64| {
        period_ns
            .filter(|_| is_destination && config.kind.is_sampling())
            .map(|period_ns| age_ns <= period_ns)
    };
    let message = |message: Message| {
        let age_ns = ObservedPort::age_ns(&message);
        MessageView {
            number: message.number,
            length_bytes: message.bytes.len(),
            age_ns,
            valid: judge(age_ns),
            hex: message.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            bytes: message.bytes,
        }
    };
    View {
        port: found.reference.to_string(),
        host: found.host.clone(),
        is_gateway: is_other_host(&found.reference.partition),
        kind: config.kind.name(),
        direction: if is_destination { "destination" } else { "source" },
        max_size_bytes: config.max_size(),
        created: seen.is_created(),
        max_messages: config.kind.max_messages(),
        waiting: seen.in_queue(),
        message: seen.message().map(message),
        counters: seen.counters(),
    }
}
