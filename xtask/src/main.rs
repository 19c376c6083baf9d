//! `cargo xtask`: tasks of this repository that are no tests of one crate.
//!
//! * `lab`: virtual machines with the kernel parts that a development machine lacks ([`lab`]).
//!
//! The same binary is the first program of those machines ([`lab::agent`]), which start it as
//! `/init`.

mod lab;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Tasks of this repository",
    disable_help_subcommand = true
)]
enum Task {
    /// Run programs and scenarios in virtual machines with TIPC, RDMA, PCI windows or PREEMPT_RT
    Lab(lab::cli::Lab),
}

fn main() -> ExitCode {
    if lab::agent::is_first_program() {
        lab::agent::first_program();
    }
    let Task::Lab(lab) = Task::parse();
    lab.execute().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
