//! `busway bench`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use busway_bench::gateway;

/// Measure what a bus costs and brings
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Gateways on every bus beside the bare bus, and beside the Zenoh tunnel if it is installed
    ///
    /// As root on isolated hosts (namespaces), otherwise on two iceoryx2 domains of this host. Ctrl-C ends it with what was
    /// measured so far.
    #[command(after_help = "\
Examples:
  busway bench gateway --quick
  busway bench gateway --json results.json
  busway bench gateway --transports memory,bare-copy --sizes 64,1MiB --rounds 5")]
    Gateway(gateway::Args),
}

/// # Errors
/// The measurement failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let stop = crate::stop::flag()?;
    let report = match &args.what {
        What::Gateway(args) => gateway::run(args, &program, true, &stop)?.to_string(),
    };
    writeln!(std::io::stdout(), "{report}")?;
    Ok(ExitCode::SUCCESS)
}
