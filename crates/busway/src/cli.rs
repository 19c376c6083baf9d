//! The command line: options and sub-commands.

use clap::{Parser, Subcommand};

use crate::commands::{bench, check, completions, demo, doctor, gateway, man, module, port, worker};
use crate::logging::Level;

/// Publish/subscribe and ports across the buses of one product
#[derive(Debug, Parser)]
#[command(name = "busway", version, max_term_width = 100, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// How much to log on stderr: off, error, warn, info, debug or trace
    #[arg(
        long,
        global = true,
        value_enum,
        hide_possible_values = true,
        value_name = "LEVEL",
        default_value = "info"
    )]
    pub log: Level,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  busway demo                                  two hosts on this machine, for a few seconds
  busway check system.toml                     check the file, show what each host will do
  busway gateway --host vision system.toml     carry the services and ports of this host
  busway module run system.toml --host control the partitions of this host, on their schedule
  busway port list --system system.toml        the ARINC 653 ports on this machine
  busway doctor                                what spoils real-time latency here, and the fix

Exit status: 0 success, 1 failure, 2 wrong command line or system file";

/// One variant for each file in `commands`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Gateway(gateway::Args),
    Port(port::Args),
    Module(module::Args),
    Check(check::Args),
    Demo(demo::Args),
    Bench(Box<bench::Args>),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
    BenchWorker(worker::Args),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
