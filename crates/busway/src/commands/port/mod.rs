//! `busway port`: reads the ARINC 653 ports of a running system, and writes into them.

mod look;
mod show;
mod watch;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use busway_port::observe::intrude;
use busway_port::system::{module_of, root_of};
use busway_port::{Direction, Store};
use busway_system::System;

use crate::output::UsageError;

/// Look at the ARINC 653 ports of a running system, on this machine
///
/// `list`, `read`, `watch` and `stats` map memory read-only and do not disturb a partition. `write`
/// acts in place of the partition.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway port list --system system.toml
  export BUSWAY_SYSTEM=system.toml
  busway port read navigation/ATTITUDE
  busway port watch
  busway port watch navigation/ATTITUDE --every 50ms
  busway port stats --json | jq '.[] | select(.counters.overflows > 0)'
  busway port write sensors/ATTITUDE_OUT --hex '01 02 ff'")]
pub struct Args {
    #[command(subcommand)]
    command: PortCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PortCommand {
    /// List the ports with state on this machine: kind, direction, messages, whether created
    List(All),
    /// Print the counters of all ports, including those of the gateway
    Stats(All),
    /// Print the message of a sampling port, or the first one in a queue, without consuming it
    Read(One),
    /// Show ports live on a terminal; elsewhere print each new message or change of a queue
    ///
    /// Runs until Ctrl-C.
    Watch(Watch),
    /// Write a message into a source port, in place of its partition
    ///
    /// Destinations cannot tell it from the partition's own messages. If the partition is not
    /// running, this counts as a start of it.
    Write(Write),
}

#[derive(Clone, Debug, clap::Args)]
struct Where {
    /// The system file
    #[arg(long, value_name = "FILE", env = "BUSWAY_SYSTEM")]
    system: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct All {
    #[command(flatten)]
    place: Where,
    /// Only the ports of this host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    place: Where,
    /// The port to read or write
    #[arg(value_name = "PARTITION/PORT")]
    port: String,
}

#[derive(Debug, clap::Args)]
struct Watch {
    #[command(flatten)]
    place: Where,
    /// The ports; by default, all with state on this machine
    #[arg(value_name = "PARTITION/PORT")]
    ports: Vec<String>,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Print this many lines, also on a terminal, then exit
    #[arg(long, value_name = "LINES")]
    count: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct Write {
    #[command(flatten)]
    one: One,
    /// The message as text
    #[arg(long, value_name = "TEXT", conflicts_with = "hex")]
    text: Option<String>,
    /// The message as hexadecimal digits; blanks are ignored. Without --hex and --text, the message
    /// is read from standard input
    #[arg(long, value_name = "DIGITS")]
    hex: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        PortCommand::List(all) => show::list(&look::all(all)?, all.place.json)?,
        PortCommand::Stats(all) => show::stats(&look::all(all)?, all.place.json)?,
        PortCommand::Read(one) => show::message(&look::one(one)?, one.place.json)?,
        PortCommand::Watch(watch) => watch::watch(watch)?,
        PortCommand::Write(write) => self::write(write)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(write: &Write) -> anyhow::Result<()> {
    let message = message_of(write)?;
    let system = System::load(&write.one.place.system)?;
    let at = look::find(&system, &write.one.port)?;
    if at.config.direction != Direction::Source {
        return Err(UsageError(format!(
            "{} is a destination port; write to the source port of its channel",
            write.one.port
        ))
        .into());
    }
    let limit = at.config.max_size();
    if message.is_empty() || message.len() > limit {
        return Err(UsageError(format!(
            "the message has {} bytes; {} accepts 1 to {limit}",
            message.len(),
            write.one.port
        ))
        .into());
    }
    let store = Store::open(root_of(&system, &at.host), module_of(&system, &at.host))?;
    let partition = store.join(&at.reference.partition)?;
    intrude(&partition, &at.reference.port, &message)
        .with_context(|| format!("{} did not take the message", write.one.port))?;
    let bytes = message.len();
    if write.one.place.json {
        println!(
            "{}",
            serde_json::json!({ "port": write.one.port, "length_bytes": bytes })
        );
    } else {
        println!(
            "{bytes} bytes written into {}, in the place of partition {}",
            write.one.port, at.reference.partition
        );
    }
    Ok(())
}

fn message_of(write: &Write) -> anyhow::Result<Vec<u8>> {
    if let Some(text) = &write.text {
        return Ok(text.clone().into_bytes());
    }
    if let Some(hex) = &write.hex {
        return bytes_of(hex).ok_or_else(|| {
            UsageError(format!(
                "--hex: {hex:?} is not a sequence of pairs of hexadecimal digits"
            ))
            .into()
        });
    }
    let mut message = Vec::new();
    // The longest message of any port; more would be refused anyway.
    let limit = u64::from(busway_system::MAX_MESSAGE_BYTES) + 1;
    std::io::stdin()
        .take(limit)
        .read_to_end(&mut message)
        .context("standard input")?;
    if message.is_empty() {
        bail!("no message on standard input; write one there, or use --text or --hex");
    }
    Ok(message)
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|it| !it.is_whitespace())
        .map(|it| it.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn hexadecimal_input_needs_pairs_of_digits() {
        assert_eq!(bytes_of("01 fF\n20"), Some(vec![1, 255, 32]));
        assert_eq!(bytes_of("1"), None);
        assert_eq!(bytes_of("0g"), None);
    }
}
