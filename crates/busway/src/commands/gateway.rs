//! `busway gateway`: runs the gateway of one host.

use std::path::PathBuf;
use std::process::ExitCode;

use busway_system::System;

use crate::output::UsageError;

/// Carry this host's iceoryx2 services and ARINC 653 channels to the hosts it is linked to
///
/// Runs until Ctrl-C or SIGTERM. Programs need no change. Programs and gateways may start and stop
/// in any order.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway gateway --host vision system.toml
  busway gateway --host vision system.toml --status /run/busway/status.json --log debug")]
pub struct Args {
    /// The system file, the same on every host
    #[arg(value_name = "SYSTEM")]
    system: PathBuf,
    /// Which host of the system file this is
    #[arg(long, value_name = "NAME")]
    host: String,
    /// Write the gateway's status to this JSON file; overrides `status` of the system file
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let system = System::load(&args.system)?;
    for warning in &system.warnings {
        eprintln!("{warning}");
    }
    find_host(&system, &args.host)?;
    let options = busway_gateway::Options {
        status: args.status.clone(),
    };
    busway_gateway::run(&system, &args.host, options, crate::stop::flag()?)?;
    Ok(ExitCode::SUCCESS)
}

pub fn find_host<'a>(system: &'a System, name: &str) -> Result<&'a busway_system::Host, UsageError> {
    find_host_of(system, "--host", name)
}

pub fn find_host_of<'a>(
    system: &'a System,
    option: &str,
    name: &str,
) -> Result<&'a busway_system::Host, UsageError> {
    system.host(name).ok_or_else(|| {
        let known: Vec<&str> = system.hosts.iter().map(|host| host.name.as_str()).collect();
        UsageError(format!(
            "{option}: {} has no host {name:?}; it has {}",
            system.file.display(),
            if known.is_empty() {
                "none".to_string()
            } else {
                known.join(", ")
            }
        ))
    })
}
