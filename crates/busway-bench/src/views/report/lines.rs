//! The lines of a page: which belong together, which are shown at first, and the boxes that choose
//! them.
//!
//! Contract: a line has one number, box, colour and name in all figures. At most [`SHOWN`] are
//! chosen at first, and every other one is a click away. Called by the page and the figures.

use busway_buses::{BUS_NAMES, is_one_sided, writes_registers};
use maud::{Markup, html};

use super::chart::swatch;
use super::palette::Style;
use crate::views::series::{Series, Set};

/// More lines at once cannot be told apart.
pub(super) const SHOWN: usize = 8;

/// Which technologies are shown first, by the beginning of their names.
const FIRST: [&str; 9] = [
    "gateway-",
    "busway",
    "sampling-",
    "channel-",
    "tcp",
    "iceoryx2",
    "unix",
    "sampling",
    "queuing-",
];

pub(super) struct Choice<'a> {
    pub series: Series<'a>,
    /// Those that are shown at first differ in their colours.
    pub style: Style,
    family: &'static str,
    is_chosen: bool,
}

pub(super) fn of<'a>(set: &Set<'a>) -> Vec<Choice<'a>> {
    let all = set.series();
    let mut order: Vec<(bool, usize, usize)> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let place = |it: &Series<'_>| {
            (
                it.key.technology.to_owned(),
                it.key.mode.map(str::to_owned),
                it.key.run,
            )
        };
        let is_again = all[..at].iter().any(|other| place(other) == place(one));
        let rank = FIRST.iter().position(|word| one.key.technology.starts_with(word));
        order.push((is_again, rank.unwrap_or(FIRST.len()), at));
    }
    order.sort_unstable();
    let mut places = vec![0; all.len()];
    for (place, (.., at)) in order.into_iter().enumerate() {
        places[at] = place;
    }
    let choice = |(series, place): (Series<'a>, usize)| Choice {
        family: family(series.key.technology),
        style: Style::Line(place),
        is_chosen: place < SHOWN,
        series,
    };
    all.into_iter().zip(places).map(choice).collect()
}

fn family(technology: &str) -> &'static str {
    let of_bus = |bus: &&&str| technology == **bus || technology.ends_with(&format!("-{bus}"));
    if let Some(bus) = BUS_NAMES.iter().find(of_bus) {
        return bus;
    }
    let is_memory = ["two-lines", "begin-end-flags", "copy", "bare-copy"]
        .iter()
        .any(|word| technology.starts_with(word));
    if is_memory { "memory" } else { "others" }
}

fn of_family<'b, 'a>(
    lines: &'b [Choice<'a>],
    family: &'b str,
) -> impl Iterator<Item = (usize, &'b Choice<'a>)> {
    let all = lines.iter().enumerate();
    all.filter(move |(_, line)| line.family == family)
}

/// The boxes, by bus, and buttons that choose one bus, all lines or none.
pub(super) fn chooser(lines: &[Choice<'_>]) -> Markup {
    let mut families: Vec<&str> = lines.iter().map(|line| line.family).collect();
    families.sort_unstable_by_key(|family| BUS_NAMES.iter().position(|bus| bus == family).unwrap_or(99));
    families.dedup();
    let ids = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|at| format!("l{at}")).collect::<Vec<_>>().join(" ")
    };
    html! {
        @if lines.len() > 1 {
            fieldset id="lines" {
                legend { "Lines of all figures" }
                @for family in families {
                    div {
                        button type="button" hidden data-lines=(ids(&mut of_family(lines, family).map(|(at, _)| at))) { "only " (family) }
                        @for (at, line) in of_family(lines, family) {
                            label {
                                input type="checkbox" id={"l" (at)} value=(line.series.name) checked[line.is_chosen];
                                (swatch(line.style, false, true)) " " span { (line.series.name) }
                            }
                        }
                    }
                }
                button type="button" hidden data-lines=(ids(&mut (0..lines.len()))) { "all" } " "
                button type="button" hidden data-lines="" { "none" }
            }
        }
    }
}

/// The lines of the RDMA paper's figures: sampling ports one-sided, sampling ports two-sided, and
/// sockets, each in the first way of waiting that was measured. Empty if fewer than two were
/// measured.
pub(super) fn paper<'a, 'b>(lines: &'b [Choice<'a>]) -> Vec<(&'static str, &'b Series<'a>)> {
    let mut found: Vec<(&str, &Series<'_>)> = Vec::new();
    for line in lines {
        let key = &line.series.key;
        let kind = match key.technology.strip_prefix("sampling-") {
            Some(bus) if is_one_sided(bus) || writes_registers(bus) => "one-sided",
            Some(_) => "two-sided",
            None if key.technology == "tcp" => "sockets",
            None => continue,
        };
        let is_another =
            |(_, it): &(_, &Series<'_>)| (it.key.run, it.key.technology) != (key.run, key.technology);
        if found.iter().all(is_another) && found.len() < SHOWN {
            found.push((kind, &line.series));
        }
    }
    if found.len() < 2 { Vec::new() } else { found }
}
