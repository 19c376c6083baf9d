//! `busway demo`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use busway_bench::demo::{self, DemoOptions};
use busway_buses::BUS_NAMES;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Show two hosts on this machine, each with its own gateway and iceoryx2 programs
///
/// Needs no root and leaves nothing behind. A 64-byte control message and a 1 MiB image stream are
/// published on one host and subscribed on the other; every byte is checked.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway demo
  busway demo --bus tcp --seconds 10
  busway demo --json | jq '.streams[].latency_ns'")]
pub struct Args {
    /// The bus between the two hosts
    #[arg(long, default_value = "memory", value_parser = buses())]
    bus: &'static str,
    /// How long to publish, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// The buses of the registry, by name.
fn buses() -> impl TypedValueParser<Value = &'static str> {
    let name_of = |text: String| BUS_NAMES.iter().find(|name| **name == text).copied();
    PossibleValuesParser::new(BUS_NAMES).map(move |text| name_of(text).expect("one of them"))
}

/// # Errors
/// The demonstration failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = DemoOptions {
        bus: args.bus,
        seconds: args.seconds.into(),
        live: !args.json,
        program: std::env::current_exe().context("cannot find this program's own file")?,
    };
    let stop = crate::stop::flag()?;
    let report = demo::run(&options, &stop)?;
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string(&report)?)?;
    } else {
        writeln!(stdout, "{report}")?;
    }
    Ok(ExitCode::SUCCESS)
}
