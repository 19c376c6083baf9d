//! `busway bench`.

use std::process::ExitCode;

/// Measure
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Gateways on every bus beside the bare bus, and beside the Zenoh tunnel if it is installed
    Gateway,
}

/// # Errors
/// The measurement failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Gateway => anyhow::bail!("the gateway benchmark is not built yet"),
    }
}
