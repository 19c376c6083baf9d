//! The subcommands, one file each: its arguments, its help, and the call into the library that does
//! it.

use std::process::ExitCode;

use crate::cli::Command;

pub mod bench;
pub mod check;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod gateway;
pub mod man;
pub mod module;
pub mod port;
pub mod worker;

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Gateway(args) => gateway::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Module(args) => module::run(&args),
        Command::Port(args) => port::run(&args),
        Command::Man(args) => man::run(&args),
        Command::BenchWorker(args) => Ok(worker::run(&args)),
    }
}
