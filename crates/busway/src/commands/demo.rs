//! `busway demo`.

use std::process::ExitCode;

use clap::ValueEnum;

/// Show two hosts on this machine, each with its own gateway and iceoryx2 programs
///
/// Needs no root and leaves nothing behind. A 64-byte control message and a 1 MiB image stream are published on one host and
/// subscribed on the other; every byte is checked.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway demo
  busway demo --bus tcp --seconds 10
  busway demo --json | jq '.streams[].latency_ns'")]
pub struct Args {
    /// The bus between the two hosts
    #[arg(long, value_enum, default_value = "memory")]
    bus: Bus,
    /// How long to measure, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// The buses that one machine has without root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bus {
    /// A window in shared memory
    Memory,
    /// TCP over the loopback interface
    Tcp,
}

/// # Errors
/// The demonstration failed.
pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the demonstration is not built yet")
}
