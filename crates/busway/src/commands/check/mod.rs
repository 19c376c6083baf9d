//! `busway check`.

mod here;
mod ports;
mod ports_text;
mod report;
mod schedule_text;
mod text;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use busway_system::{System, SystemError};

use crate::commands::gateway::{find_host, find_host_of};
use crate::output::{FAILURE, USAGE};
pub use ports_text::time_text;
use report::{Broken, Report};

/// Check a system file, and say what each host will do
///
/// Reads nothing but the file and what it includes, unless --here is given. For sampling channels
/// it measures how long this machine takes to copy a message.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway check system.toml
  busway check system.toml --host vision --here
  busway check module.xml
  busway check system.toml --places core > places.h
  busway check system.toml --json | jq '.hosts[].links'")]
pub struct Args {
    /// The system file: TOML, or ARINC 653 XML
    #[arg(value_name = "SYSTEM")]
    system: PathBuf,
    /// Only what this host will do
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Also check this machine, which is that host: devices, addresses, processors, rights
    #[arg(long, requires = "host")]
    here: bool,
    /// Print a C header with the places of this host's channels, for real-time cores
    #[arg(long, value_name = "NAME", conflicts_with_all = ["host", "json"])]
    places: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// # Errors
/// The system file is wrong, or has no such host.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    let system = match System::load(&args.system) {
        Ok(system) => system,
        Err(error @ SystemError::Invalid(_)) if args.json => {
            writeln!(
                stdout,
                "{}",
                serde_json::to_string_pretty(&Broken::new(&args.system, &error))?
            )?;
            return Ok(ExitCode::from(USAGE));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(name) = &args.places {
        let host = find_host_of(&system, "--places", name)?;
        stdout.write_all(busway_port::places::header(&system, &host.name)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let host = args
        .host
        .as_deref()
        .map(|name| find_host(&system, name))
        .transpose()?;
    let findings = host.filter(|_| args.here).map(|host| here::check(&system, host));
    let report = Report::new(&system, host, findings);
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        for warning in report.warnings {
            eprintln!("{warning}");
        }
        stdout.write_all(text::of(&report).as_bytes())?;
    }
    Ok(if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILURE)
    })
}
