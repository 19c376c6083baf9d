//! What a path through gateways cannot be faster than: a hop, the bare bus, and a hop. Only medians
//! can be added. A stream is judged against the better one of the bare bus's floors: a gateway
//! batches what waits, and so does one of them.

use crate::record::{Ratio, Row, median};
use crate::technology::{Stage, Wait, all, floors_of};

pub(super) const PING_PONG: &str = "ping-pong";
pub(super) const LOSSLESS: &str = "lossless";
/// A stream over a bare bus that loses what finds no room; its rate is what arrived.
pub(super) const LOSSY: &str = "lossy";

pub(super) const HOP: &str = "iceoryx2";
pub(super) const TUNNEL: &str = "zenoh-tunnel";

/// Adds a row with the sum of the hops of each bus, way to wait and size, and puts beside each
/// gateway's row how it compares with its floor and with the tunnel.
pub(super) fn add(rows: &mut Vec<Row>) {
    let names = |bus| floors_of(bus).into_iter().map(|floor| floor.name).collect();
    let buses: Vec<(&str, String, Vec<String>)> = all()
        .into_iter()
        .filter_map(|one| match one.stage {
            Stage::Gateways(bus) => Some((bus, one.name, names(bus))),
            _ => None,
        })
        .collect();
    let mut sums = Vec::new();
    for (bus, gateway, floors) in &buses {
        let floor = floors
            .first()
            .filter(|_| rows.iter().any(|row| row.technology == *gateway));
        sums.extend(floor.map_or_else(Vec::new, |floor| sums_of_hops(rows, bus, floor)));
    }
    rows.extend(sums);
    let all = rows.clone();
    for row in rows {
        let Some((bus, _, floors)) = buses.iter().find(|(_, gateway, _)| *gateway == row.technology) else {
            continue;
        };
        let of = |other: Option<&Row>| Ratio::of(&row.by_round, &other?.by_round);
        row.ratio_to_floor = match row.mode.as_deref() {
            Some(PING_PONG) => of(find(&all, &sum_of_hops(bus), row)),
            Some(LOSSLESS) => of(better(&all, floors, row)),
            _ => None,
        };
        row.ratio_to_tunnel = of(find(&all, TUNNEL, row));
    }
}

fn sums_of_hops(rows: &[Row], bus: &str, floor: &str) -> Vec<Row> {
    // An adaptive program's sleep would be counted three times.
    let is_comparable = |row: &&Row| {
        row.technology == HOP && row.mode.as_deref() == Some(PING_PONG) && row.wait != Wait::Adaptive.word()
    };
    let sum = |hop: &Row| {
        let bare = find(rows, floor, hop)?;
        let rounds = hop.by_round.iter().zip(&bare.by_round);
        Some(Row {
            technology: sum_of_hops(bus),
            mode: hop.mode.clone(),
            wait: hop.wait.clone(),
            payload_bytes: hop.payload_bytes,
            threads: hop.threads,
            rounds: hop.rounds,
            by_round: rounds.map(|(hop, bare)| Some(2.0 * (*hop)? + (*bare)?)).collect(),
            ..Row::default()
        })
    };
    rows.iter().filter(is_comparable).filter_map(sum).collect()
}

fn sum_of_hops(bus: &str) -> String {
    format!("sum-of-hops-{bus}")
}

fn find<'r>(rows: &'r [Row], technology: &str, row: &Row) -> Option<&'r Row> {
    rows.iter().find(|other| {
        other.technology == technology
            && (&other.mode, &other.wait, other.payload_bytes) == (&row.mode, &row.wait, row.payload_bytes)
    })
}

/// The fastest stream of these technologies.
fn better<'r>(rows: &'r [Row], technologies: &[String], row: &Row) -> Option<&'r Row> {
    let like = |wait: &str, mode: &str| Row {
        wait: wait.to_owned(),
        mode: Some(mode.to_owned()),
        ..row.clone()
    };
    let of = |technology: &String| {
        // Some floors have no adaptive programs, and some lose messages.
        let waits = [&row.wait, Wait::Event.word()];
        let mut likes = waits
            .iter()
            .flat_map(|wait| [LOSSLESS, LOSSY].map(|mode| like(wait, mode)));
        likes.find_map(|like| find(rows, technology, &like))
    };
    let rate = |row: &Row| median(&row.by_round.iter().flatten().copied().collect::<Vec<f64>>());
    let found = technologies.iter().filter_map(of);
    found.max_by(|a, b| rate(a).partial_cmp(&rate(b)).unwrap_or(std::cmp::Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(technology: &str, mode: &str, wait: Wait, by_round: &[Option<f64>]) -> Row {
        Row {
            technology: technology.into(),
            wait: wait.word().into(),
            mode: Some(mode.into()),
            payload_bytes: 64,
            by_round: by_round.to_vec(),
            ..Row::default()
        }
    }

    fn ratio(rows: &[Row], technology: &str) -> f64 {
        let row = rows.iter().find(|row| row.technology == technology);
        row.and_then(|row| row.ratio_to_floor).expect("a ratio").value
    }

    #[test]
    fn floor_of_a_round_trip_is_two_hops_and_the_bare_bus() {
        let mut rows = [("iceoryx2", 1000.0), ("tcp", 3000.0), ("gateway-tcp", 6000.0)]
            .map(|(name, ns)| row(name, PING_PONG, Wait::Event, &[Some(ns), None]))
            .to_vec();
        add(&mut rows);
        let sum = rows.iter().find(|row| row.technology == "sum-of-hops-tcp");
        assert_eq!(sum.expect("a sum").by_round, [Some(5000.0), None]);
        assert!((ratio(&rows, "gateway-tcp") - 1.2).abs() < 1e-9);
    }

    #[test]
    fn floor_of_a_stream_is_the_bare_bus_however_its_programs_wait() {
        let mut rows = vec![
            row("copy", LOSSLESS, Wait::Adaptive, &[Some(1000.0)]),
            row("gateway-memory", LOSSLESS, Wait::Adaptive, &[Some(800.0)]),
            row("tcp", LOSSLESS, Wait::Event, &[Some(1000.0)]),
            row("gateway-tcp", LOSSLESS, Wait::Adaptive, &[Some(500.0)]),
        ];
        add(&mut rows);
        assert!((ratio(&rows, "gateway-memory") - 0.8).abs() < 1e-9);
        assert!((ratio(&rows, "gateway-tcp") - 0.5).abs() < 1e-9);
    }

    #[test]
    fn stream_is_judged_against_the_better_floor_and_against_what_arrived() {
        let mut rows = vec![
            row("tcp", LOSSLESS, Wait::Event, &[Some(1000.0), Some(900.0)]),
            row("tcp-batch", LOSSLESS, Wait::Event, &[Some(4000.0), Some(4000.0)]),
            row(
                "gateway-tcp",
                LOSSLESS,
                Wait::Adaptive,
                &[Some(1000.0), Some(1000.0)],
            ),
            row("udp", LOSSY, Wait::Event, &[Some(2000.0)]),
            row("udp-batch", LOSSY, Wait::Event, &[Some(1500.0)]),
            row("gateway-udp", LOSSLESS, Wait::Adaptive, &[Some(500.0)]),
        ];
        add(&mut rows);
        assert!((ratio(&rows, "gateway-tcp") - 0.25).abs() < 1e-9);
        assert!((ratio(&rows, "gateway-udp") - 0.25).abs() < 1e-9);
    }
}
