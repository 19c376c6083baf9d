//! `busway check`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use busway_system::System;

/// Check a system file, and say what each host will do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway check system.toml
  busway check system.toml --host vision
  busway check system.toml --json | jq '.hosts[].links'")]
pub struct Args {
    /// The system file
    #[arg(value_name = "SYSTEM")]
    system: PathBuf,
    /// Only what this host will do
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// # Errors
/// The system file is wrong, or has no such host.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let system = System::load(&args.system)?;
    writeln!(std::io::stdout(), "{} hosts", system.hosts.len())?;
    Ok(ExitCode::SUCCESS)
}
