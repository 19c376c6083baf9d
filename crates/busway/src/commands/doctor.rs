//! `busway doctor`.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use busway_doctor::{Diagnosis, Finding, State};
use console::{Term, style};

use crate::output::FAILURE;

/// Room for the longest name of a finding.
const NAME_WIDTH: usize = 22;
/// Where the text of costs and mends begins.
const TEXT_AT: usize = 17;
/// Longer lines are hard to read, however wide the terminal is.
const WIDTH_MAX: usize = 120;

/// Say what on this host will spoil real-time latency, what it lacks for buses, and how to mend
/// each
///
/// Reads /proc and /sys, and changes nothing. Each finding is good, spoils (it makes some messages
/// late), missing (a bus or a technology cannot be used) or unknown. Run it as the user who will
/// run the programs: limits differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway doctor
  busway doctor --all                   what is good, too
  busway doctor --strict --quiet        for scripts: exit status only
  busway doctor --json | jq '.findings[] | select(.state == \"spoils\") | .mend'

Exit status: 0 it has looked, 1 with --strict: something spoils latency")]
pub struct Args {
    /// Print one JSON object
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Also say what is good
    #[arg(long)]
    all: bool,
    /// Print nothing
    #[arg(long, requires = "strict")]
    quiet: bool,
    /// End with exit status 1 if anything spoils latency
    #[arg(long)]
    strict: bool,
}

/// # Errors
/// The output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let diagnosis = busway_doctor::examine();
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&diagnosis)?)?;
    } else if !args.quiet {
        let terminal = Term::stdout();
        let width = if terminal.is_term() {
            usize::from(terminal.size().1).min(WIDTH_MAX)
        } else {
            usize::MAX
        };
        stdout.write_all(text(&diagnosis, args.all, width).as_bytes())?;
    }
    let is_spoilt = diagnosis.count(State::Spoils) > 0;
    Ok(if args.strict && is_spoilt {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    })
}

/// For people; lines are no longer than `width` where words allow it.
fn text(diagnosis: &Diagnosis, all: bool, width: usize) -> String {
    let mut text = String::new();
    write(diagnosis, all, width, &mut text).expect("a String takes everything");
    text
}

fn write(diagnosis: &Diagnosis, all: bool, width: usize, to: &mut String) -> std::fmt::Result {
    let unknown = || "unknown".to_owned();
    writeln!(
        to,
        "{}, Linux {}",
        diagnosis.cpu.clone().unwrap_or_else(unknown),
        diagnosis.kernel.clone().unwrap_or_else(unknown)
    )?;
    let mut group = None;
    for finding in &diagnosis.findings {
        if finding.state == State::Good && !all {
            continue;
        }
        if group.replace(finding.group) != Some(finding.group) {
            writeln!(to, "\n{}", style(finding.group.word()).bold())?;
        }
        write_finding(finding, width, to)?;
    }
    let count = |state| diagnosis.count(state);
    writeln!(
        to,
        "\n{} spoil latency, {} are missing, {} unknown, {} good{}",
        count(State::Spoils),
        count(State::Missing),
        count(State::Unknown),
        count(State::Good),
        if all { "" } else { " (--all shows them)" }
    )
}

fn write_finding(finding: &Finding, width: usize, to: &mut String) -> std::fmt::Result {
    let word = format!("{:<7}", finding.state.word());
    let word = match finding.state {
        State::Good => style(word).green(),
        State::Spoils => style(word).red().bold(),
        State::Missing => style(word).yellow(),
        State::Unknown => style(word).cyan(),
    };
    writeln!(to, "  {word} {:<NAME_WIDTH$} {}", finding.name, finding.found)?;
    let source = finding.mend.is_some().then_some(&finding.source);
    let parts = [
        ("costs", finding.costs.as_ref()),
        ("mend", finding.mend.as_ref()),
        ("read", source),
    ];
    for (word, part) in parts {
        if let Some(part) = part {
            writeln!(to, "          {word:<6} {}", wrapped(part, width))?;
        }
    }
    Ok(())
}

/// Breaks text that begins at [`TEXT_AT`] into lines that begin there too.
fn wrapped(text: &str, width: usize) -> String {
    let room = width.saturating_sub(TEXT_AT).max(20);
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let characters = word.chars().count();
        if length > 0 && length + 1 + characters > room {
            lines.push('\n');
            lines.push_str(&" ".repeat(TEXT_AT));
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += characters;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_wraps_between_words_and_keeps_all() {
        let text = "a message that finds its CPU asleep is up to 133 µs late";
        let broken = wrapped(text, 40);
        assert!(broken.lines().count() > 1, "{broken}");
        for (index, line) in broken.lines().enumerate() {
            let before = if index == 0 { TEXT_AT } else { 0 };
            assert!(before + line.chars().count() <= 40, "{line:?}");
        }
        assert_eq!(
            broken.split_whitespace().collect::<Vec<_>>(),
            text.split(' ').collect::<Vec<_>>()
        );
        assert_eq!(wrapped(text, usize::MAX), text);
    }
}
