//! `busway completions`: prints shell completions.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway completions bash > ~/.local/share/bash-completion/completions/busway
  busway completions zsh > ~/.zfunc/_busway")]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::Cli::command(), "busway", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
