//! Prints what was seen of ports, as text or JSON.

use std::io::Write;

use super::look::View;
use crate::commands::check::time_text;

const DUMP_BYTES: usize = 16;
const LINE_BYTES: usize = 32;

pub fn list(views: &[View], json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(views)?)?;
        return Ok(());
    }
    let mut rows = vec![["HOST", "PORT", "KIND", "DIRECTION", "BYTES", "CREATED", "STATE"].map(String::from)];
    for view in views.iter().filter(|view| !view.is_gateway) {
        rows.push([
            view.host.clone(),
            view.port.clone(),
            view.kind.into(),
            view.direction.into(),
            view.max_size_bytes.to_string(),
            if view.created { "yes" } else { "no" }.into(),
            state(view),
        ]);
    }
    table(&rows, &mut stdout)
}

pub fn stats(views: &[View], json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(views)?)?;
        return Ok(());
    }
    let mut rows = vec![
        [
            "HOST",
            "PORT",
            "WRITES",
            "READS",
            "STALE",
            "OVERWRITTEN",
            "OVERFLOWS",
            "RETRIES",
            "MOST",
            "LAST GOOD",
            "TAKEN OVER",
            "DAMAGED",
        ]
        .map(String::from),
    ];
    for view in views {
        let counters = &view.counters;
        let numbers = [
            counters.writes,
            counters.reads,
            counters.stale,
            counters.overwritten,
            counters.overflows,
            counters.retries,
            counters.most_retries,
            counters.last_good,
            counters.taken_over,
            counters.damaged,
        ];
        rows.push(std::array::from_fn(|column| match column {
            0 => view.host.clone(),
            1 => view.port.clone(),
            _ => numbers[column - 2].to_string(),
        }));
    }
    table(&rows, &mut stdout)
}

pub fn message(view: &View, json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(view)?)?;
        return Ok(());
    }
    writeln!(stdout, "{}: {}", view.port, state(view))?;
    let bytes = view.message.as_ref().map_or(&[][..], |message| &message.bytes);
    for (line, bytes) in bytes.chunks(DUMP_BYTES).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = bytes
            .iter()
            .map(|byte| match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '.',
            })
            .collect();
        writeln!(
            stdout,
            "{:08x}  {:<width$}  {text}",
            line * DUMP_BYTES,
            hex.join(" "),
            width = DUMP_BYTES * 3 - 1
        )?;
    }
    Ok(())
}

pub fn line(view: &View, json: bool) -> anyhow::Result<String> {
    if json {
        return Ok(serde_json::to_string(view)?);
    }
    let mut line = format!("{}: {}", view.port, state(view));
    if let Some(message) = &view.message {
        let digits = &message.hex[..message.hex.len().min(2 * LINE_BYTES)];
        let more = if digits.len() < message.hex.len() {
            ".."
        } else {
            ""
        };
        line.push_str(&format!("  {digits}{more}"));
    }
    Ok(line)
}

pub fn state(view: &View) -> String {
    let mut parts = Vec::new();
    if let Some(waiting) = view.waiting {
        parts.push(format!("{waiting} of {} wait", view.max_messages.unwrap_or(0)));
    }
    match &view.message {
        None if view.waiting.is_none() => parts.push("no message yet".into()),
        None => {}
        Some(message) => {
            parts.extend(
                message
                    .valid
                    .map(|valid| if valid { "valid" } else { "stale" }.to_string()),
            );
            parts.push(format!(
                "number {}, {} bytes, {} old",
                message.number,
                message.length_bytes,
                time_text(u64::try_from(message.age_ns).unwrap_or(0))
            ));
        }
    }
    parts.join(", ")
}

/// Columns as wide as they must be; numbers to the right.
pub fn table<const N: usize>(rows: &[[String; N]], to: &mut impl Write) -> anyhow::Result<()> {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let is_number = !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
            if is_number {
                line.push_str(&format!("{cell:>width$}  "));
            } else {
                line.push_str(&format!("{cell:<width$}  "));
            }
        }
        writeln!(to, "{}", line.trim_end())?;
    }
    Ok(())
}
