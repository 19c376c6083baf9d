//! The command line: publish/subscribe and ports across the buses of one product.
//!
//! One file for each subcommand in [`commands`]; what they do lives in the libraries. Exit status:
//! 0 it went well, 1 it failed, 2 the command line or the system file is wrong.

mod cli;
mod commands;
mod logging;
mod output;
mod stop;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start(cli.log);
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", output::describe(&error));
            output::code_of(&error)
        }
    }
}
