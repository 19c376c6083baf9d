//! Colours, dashes and markers by which lines are told apart, on white, on black, on paper and
//! without seeing colours.
//!
//! Contract: up to 64 lines differ in colour or dash. Elements carry classes; [`css`] gives each
//! class its colour on a light and on a dark ground. The first six colours follow Okabe and Ito,
//! "Color Universal Design" (2008), darkened until each has a contrast of 3 to 1 to white. Called
//! by the charts and the page.

type Entry = (&'static str, &'static str, &'static str);

const LINES: [Entry; 8] = [
    ("#0072b2", "#56b4e9", "none"),
    ("#d55e00", "#ff8a45", "7 3"),
    ("#008a64", "#2fc79a", "2 2.5"),
    ("#b0508a", "#f09ccb", "9 3 2 3"),
    ("#1f8fcc", "#a5d8f6", "4 2"),
    ("#a87000", "#f0b541", "12 3"),
    ("#2a2a2a", "#ededed", "9 3 2 3 2 3"),
    ("#6a51a3", "#b9a3f0", "5 2 1 2"),
];

/// Corners of markers around a point, in pixels.
const MARKERS: [&str; 8] = [
    "-1,-3 1,-3 3,-1 3,1 1,3 -1,3 -3,1 -3,-1",
    "-3,-3 3,-3 3,3 -3,3",
    "0,-4 4,3 -4,3",
    "0,-4 4,0 0,4 -4,0",
    "0,4 4,-3 -4,-3",
    "0,-2 3,-4 4,-3 2,0 4,3 3,4 0,2 -3,4 -4,3 -2,0 -4,-3 -3,-4",
    "-1,-4 1,-4 1,4 -1,4",
    "-4,-1 4,-1 4,1 -4,1",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A line of figures, by its number among all lines of the page.
    Line(usize),
    Reference,
}

impl Style {
    pub fn class(self) -> String {
        match self {
            // Lines of the same colour have different dashes.
            Self::Line(at) => format!("c{} d{}", at % 8, (at + at / 8 * 3) % 8),
            Self::Reference => "reference".to_owned(),
        }
    }

    pub fn marker(self, (x, y): (f64, f64)) -> Option<String> {
        let Self::Line(at) = self else { return None };
        let corner = |corner: &str| {
            let (dx, dy) = corner.split_once(',')?;
            let (dx, dy): (f64, f64) = (dx.parse().ok()?, dy.parse().ok()?);
            Some(format!("{:.1},{:.1}", x + dx, y + dy))
        };
        let corners = MARKERS[(at + at / 8) % 8].split(' ').filter_map(corner);
        Some(corners.collect::<Vec<_>>().join(" "))
    }
}

/// Dashes on every ground, and the colours of a light and of a dark one; which of `lines` lines are
/// shown follows the boxes that choose them.
pub(super) fn css(lines: usize) -> String {
    let rules = |pick: fn(&Entry) -> String| -> String {
        let each = LINES.iter().enumerate();
        each.map(|(at, entry)| pick(entry).replace('@', &at.to_string()))
            .collect()
    };
    let light = rules(|(light, ..)| format!(".c@{{color:{light}}}\n"));
    let dashes = rules(|(.., dashes)| format!(".d@ polyline{{stroke-dasharray:{dashes}}}\n"));
    let dark = rules(|(_, dark, _)| format!(".c@{{color:{dark}}}\n"));
    let chosen: String = (0..lines)
        .map(|at| {
            format!(
                "body:has(#l{at}:not(:checked)) svg .l{at}{{display:none}}\n\
                 body:has(#l{at}:not(:checked)) .legend .l{at}{{opacity:.6;text-decoration:line-through}}\n"
            )
        })
        .collect();
    format!("{light}{dashes}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n{chosen}")
}
