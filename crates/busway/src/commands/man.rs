//! `busway man`: writes man pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

/// Write a man page for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway man ~/.local/share/man/man1 && man busway-gateway")]
pub struct Args {
    /// The directory; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(crate::cli::Cli::command(), &args.directory))
        .with_context(|| format!("cannot write man pages to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
