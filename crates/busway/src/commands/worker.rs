//! `busway bench-worker`: the programs under test, started by `busway demo` and `busway bench`.

use std::process::ExitCode;

/// Run one of the programs under test
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// What the parent process asks for, see `busway_bench::worker`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    role: Vec<String>,
}

/// The library reports its own failures, to the parent.
pub fn run(args: &Args) -> ExitCode {
    busway_bench::worker::main(&args.role)
}
