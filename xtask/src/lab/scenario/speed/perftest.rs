//! The tools of perftest, run between two guests. Used by [`super`].

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{BULK_BYTES, Figure, LIMIT, yielding};
use crate::lab::guest::Program;
use crate::lab::pair::Pair;
use crate::lab::protocol::Job;

/// A run of a tool takes a second or a few, on a busy host ten times as long. Sometimes one does
/// not end there, and is repeated.
const TOOL_LIMIT: Duration = Duration::from_secs(25);
const TOOL_ATTEMPTS: u32 = 3;
/// Round trips that a tool measures.
const TOOL_TRIPS: u32 = 300;

/// Half a round trip as a tool of perftest measures it: its column of typical times, which is the
/// median. Its packets are those of its connection, too.
pub(super) fn tool_figure(pair: &Pair, tool: &str, size_bytes: u64) -> Result<Figure> {
    let trips = TOOL_TRIPS.to_string();
    let (said, packets) = perftest(
        pair,
        &[tool, "-R", "-F", "-n", &trips, "-s", &size_bytes.to_string()],
    )?;
    let value = column(&said, size_bytes, "t_typical[usec]")? * 1e3;
    Ok(Figure {
        packets: Some(packets / f64::from(TOOL_TRIPS)),
        ..Figure::of(value)
    })
}

fn packets(pair: &Pair) -> Result<f64> {
    let counters = "cd /sys/class/net/eth0/statistics && cat tx_packets rx_packets";
    let said = pair.guests[0].shell(counters, TOOL_LIMIT)?;
    said.split_whitespace()
        .map(|number| {
            number
                .parse::<f64>()
                .with_context(|| format!("{number:?} packets"))
        })
        .sum()
}

pub(super) fn tool_bytes_per_s(pair: &Pair, tool: &str) -> Result<f64> {
    let (said, _) = perftest(
        pair,
        &[tool, "-R", "-F", "-n", "500", "-s", &BULK_BYTES.to_string()],
    )?;
    // perftest's MB are 2^20 bytes.
    Ok(column(&said, BULK_BYTES, "BW average[MB/sec]")? * 1_048_576.0)
}

fn perftest(pair: &Pair, words: &[&str]) -> Result<(String, f64)> {
    let try_it = || {
        let before = packets(pair)?;
        let said = attempt(pair, words)?;
        Ok((said, packets(pair)? - before))
    };
    let first = try_it();
    (1..TOOL_ATTEMPTS).fold(first, |said, _| said.or_else(|_: anyhow::Error| try_it()))
}

fn attempt(pair: &Pair, words: &[&str]) -> Result<String> {
    let [a, b] = &pair.guests;
    let mut connecting = yielding(words);
    let server = b.spawn(Job::new(&connecting))?;
    let address = b.plan.address();
    connecting.push(&address);
    let mut last = String::new();
    for _ in 0..10 {
        // The server does not say when it listens.
        std::thread::sleep(Duration::from_millis(500));
        let client = a.spawn(Job::new(&connecting))?;
        let Ok(done) = client.wait(TOOL_LIMIT) else {
            let said = end(&client)?;
            bail!(
                "`{}` does not end: {said}; the other side: {}",
                connecting.join(" "),
                end(&server)?
            );
        };
        if done.code == 0 {
            server.wait(LIMIT)?;
            return Ok(done.output);
        }
        last = format!("{}{}", done.output, done.error);
        if server.has_ended() {
            break;
        }
    }
    let server_said = end(&server)?;
    bail!(
        "`{}` fails: {last}; the other side: {server_said}",
        connecting.join(" ")
    )
}

fn end(program: &Program<'_>) -> Result<String> {
    program.signal(9)?;
    let done = program.wait(LIMIT)?;
    Ok(format!("{}{}", done.output, done.error))
}

fn column(said: &str, size_bytes: u64, name: &str) -> Result<f64> {
    let header = said
        .lines()
        .rev()
        .find(|line| line.trim_start().starts_with("#bytes"))
        .context("perftest printed no table")?;
    let at = names(header)
        .iter()
        .position(|column| column == name)
        .with_context(|| format!("perftest has no {name}: {header}"))?;
    let size = size_bytes.to_string();
    let line = said
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&size))
        .context("perftest printed no figures")?;
    let value = line
        .split_whitespace()
        .nth(at)
        .with_context(|| format!("{line:?} is short"))?;
    value.parse().with_context(|| format!("{value:?} is no number"))
}

/// The columns that a header of perftest names: words, where a unit in brackets ends each that has
/// one.
fn names(header: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in header.split_whitespace() {
        match names.last_mut() {
            // `BW average[MB/sec]`, `BW peak[MB/sec]`.
            Some(last) if last == "BW" => *last = format!("{last} {word}"),
            _ => names.push(word.to_owned()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftest_columns_are_found_by_name() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 64      1000          200.0          900.5        261.25           270.1\n";
        assert_eq!(column(latency, 64, "t_typical[usec]").unwrap(), 261.25);
        let bandwidth = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      500             99.0               88.5   \t\t   0.0012\n";
        assert_eq!(column(bandwidth, 65536, "BW average[MB/sec]").unwrap(), 88.5);
        assert!(column(bandwidth, 64, "BW average[MB/sec]").is_err());
        assert!(column("", 64, "t_avg[usec]").is_err());
    }
}
