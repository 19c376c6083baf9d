//! From which size on another bus is the faster one: what `large` of a link in the system file
//! wants to know.
//!
//! Contract: a bus is called faster at a size only if the 95 % interval of the ratio of both, over
//! the rounds, says so. Called by [`super::headline`].

use busway_buses::BUS_NAMES;

use super::series::{Series, Set};
use super::units;
use crate::record::{Ratio, Row};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faster {
    First,
    Second,
    Undecided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nowhere is one shown to be slower.
    Always(Faster),
    /// Up to some size one, from this size in bytes on the other.
    From(u64, Faster),
    /// They change places more than once.
    Often,
}

pub(super) fn sentences(set: &Set<'_>) -> Vec<String> {
    let all = set.series();
    let buses: Vec<(&str, &Series<'_>)> = all.iter().filter_map(|it| Some((bus(it)?, it))).collect();
    let mut said = Vec::new();
    for (at, first) in buses.iter().enumerate() {
        for second in &buses[at + 1..] {
            let [one, other] = [first, second].map(|(_, series)| &series.key);
            if one.technology != other.technology
                && (one.run, one.wait, one.mode) == (other.run, other.wait, other.mode)
            {
                said.extend(sentence(first, second));
            }
        }
    }
    said
}

fn bus<'a>(series: &Series<'a>) -> Option<&'a str> {
    let bus = series.key.technology.strip_prefix("channel-")?;
    BUS_NAMES.contains(&bus).then_some(bus)
}

fn sentence(first: &(&str, &Series<'_>), second: &(&str, &Series<'_>)) -> Option<String> {
    let verdict = verdict(&compared(first.1, second.1))?;
    let (names, buses) = ([&first.1.name, &second.1.name], [first.0, second.0]);
    let at = |faster| usize::from(faster == Faster::Second);
    Some(match verdict {
        Verdict::Always(Faster::Undecided) => {
            format!(
                "{} and {}: at no size is one shown to be faster.",
                names[0], names[1]
            )
        }
        Verdict::Always(faster) => format!(
            "{}: at no size shown to be slower than {}, so a link with both needs no threshold.",
            names[at(faster)],
            names[1 - at(faster)]
        ),
        Verdict::From(bytes, faster) => format!(
            "{}: faster than {} from {} on, and not below: to a link with buses = {:?} add large = {{ from = {bytes}, buses = {:?} }}.",
            names[at(faster)],
            names[1 - at(faster)],
            units::size(bytes),
            [buses[1 - at(faster)], buses[at(faster)]],
            [buses[at(faster)], buses[1 - at(faster)]],
        ),
        Verdict::Often => format!(
            "{} and {} change places more than once: no threshold follows; more rounds may show one.",
            names[0], names[1]
        ),
    })
}

fn compared(first: &Series<'_>, second: &Series<'_>) -> Vec<(u64, Faster)> {
    let of_size = |row: &&&Row, bytes| row.payload_bytes == bytes;
    let mut all: Vec<(u64, Faster)> = first
        .rows
        .iter()
        .filter_map(|row| {
            let other = second
                .rows
                .iter()
                .find(|other| of_size(other, row.payload_bytes))?;
            let ratio = Ratio::of(&row.by_round, &other.by_round)?;
            let faster = match (ratio.low?, ratio.high?) {
                (_, high) if high < 1.0 => Faster::First,
                (low, _) if low > 1.0 => Faster::Second,
                _ => Faster::Undecided,
            };
            Some((row.payload_bytes, faster))
        })
        .collect();
    all.sort_unstable_by_key(|(bytes, _)| *bytes);
    all
}

/// `None` if no size was measured with both.
fn verdict(compared: &[(u64, Faster)]) -> Option<Verdict> {
    compared.first()?;
    let mut decided = compared.iter().filter(|(_, faster)| *faster != Faster::Undecided);
    let Some((_, small)) = decided.next() else {
        return Some(Verdict::Always(Faster::Undecided));
    };
    let Some((bytes, large)) = decided.find(|(_, faster)| faster != small) else {
        return Some(Verdict::Always(*small));
    };
    Some(match decided.any(|(_, faster)| faster != large) {
        true => Verdict::Often,
        false => Verdict::From(*bytes, *large),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(faster: &[Faster]) -> Option<Verdict> {
        let sizes = (6..).map(|power| 1 << power);
        verdict(&sizes.zip(faster.iter().copied()).collect::<Vec<_>>())
    }

    #[test]
    fn threshold_is_first_size_from_which_the_other_bus_is_faster() {
        use Faster::{First, Second, Undecided};
        assert_eq!(
            judged(&[First, Undecided, Second, Undecided]),
            Some(Verdict::From(256, Second))
        );
        assert_eq!(
            judged(&[Undecided, Second, First]),
            Some(Verdict::From(256, First))
        );
    }

    #[test]
    fn recommended_line_parses_as_system_file_and_orders_the_buses() {
        let row = |technology: &str, payload_bytes, half_ns| Row {
            technology: technology.into(),
            payload_bytes,
            by_round: [1.0, 1.01, 0.99].map(|drift| Some(drift * half_ns)).into(),
            ..Row::default()
        };
        // Memory is three times as fast at first, tcp at last.
        let rows = [(64, 100.0, 300.0), (4096, 200.0, 200.0), (65_536, 900.0, 300.0)];
        let rows = rows.map(|(bytes, memory, tcp)| {
            [
                row("channel-memory", bytes, memory),
                row("channel-tcp", bytes, tcp),
            ]
        });
        let series = [0, 1].map(|at| Series {
            key: super::super::series::Key {
                run: 0,
                technology: &rows[0][at].technology,
                wait: "",
                mode: None,
            },
            name: rows[0][at].technology.clone(),
            rows: rows.iter().map(|pair| &pair[at]).collect(),
        });
        let [memory, tcp] = &series;
        let said = sentence(&("memory", memory), &("tcp", tcp)).expect("both have all sizes");
        let (_, advice) = said.split_once("to a link with ").expect(&said);
        let (buses, large) = advice.trim_end_matches('.').split_once(" add ").expect(&said);
        let text = format!(
            "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\n{buses}\nmemory = {{ path = \"/dev/shm/x\" }}\n\
             tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n{large}\n"
        );
        let system = busway_system::System::parse(&text, "s.toml".as_ref());
        let system = system.unwrap_or_else(|error| panic!("{error}"));
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
        let order = |bytes| {
            system.links[0]
                .buses_for(bytes)
                .map(|bus| bus.name())
                .collect::<Vec<_>>()
        };
        assert_eq!(order(65_535), ["memory", "tcp"], "{said}");
        assert_eq!(order(65_536), ["tcp", "memory"], "{said}");
    }

    #[test]
    fn no_threshold_if_one_bus_is_never_slower_or_they_alternate() {
        use Faster::{First, Second, Undecided};
        assert_eq!(judged(&[First, Undecided]), Some(Verdict::Always(First)));
        assert_eq!(judged(&[Undecided]), Some(Verdict::Always(Undecided)));
        assert_eq!(judged(&[First, Second, Undecided, First]), Some(Verdict::Often));
        assert_eq!(judged(&[]), None);
    }
}
