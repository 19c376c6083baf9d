//! Colours, dashes and markers by which lines are told apart, on white, on black, on paper and without seeing colours.
//!
//! Contract: figures are drawn with the colours for a light ground as SVG attributes; [`css`] gives the rules that replace them on a dark
//! one and that dash the lines. The first seven colours follow Okabe and Ito, "Color Universal Design" (2008), darkened until each has a contrast of 3 to
//! 1 to white. Called by the charts and the page.

use plotters::style::RGBColor;

/// How many lines a figure has at most.
pub(super) const STYLES: usize = 8;

/// One colour on both grounds.
struct Colour {
    light: (u8, u8, u8),
    dark: &'static str,
}

const LINES: [(Colour, &str); STYLES] = [
    (
        Colour {
            light: (0x00, 0x72, 0xB2),
            dark: "#56b4e9",
        },
        "none",
    ),
    (
        Colour {
            light: (0xD5, 0x5E, 0x00),
            dark: "#ff8a45",
        },
        "7 3",
    ),
    (
        Colour {
            light: (0x00, 0x8A, 0x64),
            dark: "#2fc79a",
        },
        "2 2.5",
    ),
    (
        Colour {
            light: (0xB0, 0x50, 0x8A),
            dark: "#f09ccb",
        },
        "9 3 2 3",
    ),
    (
        Colour {
            light: (0x1F, 0x8F, 0xCC),
            dark: "#a5d8f6",
        },
        "4 2",
    ),
    (
        Colour {
            light: (0xA8, 0x70, 0x00),
            dark: "#f0b541",
        },
        "12 3",
    ),
    (
        Colour {
            light: (0x2A, 0x2A, 0x2A),
            dark: "#ededed",
        },
        "9 3 2 3 2 3",
    ),
    (
        Colour {
            light: (0x6A, 0x51, 0xA3),
            dark: "#b9a3f0",
        },
        "5 2 1 2",
    ),
];
const REFERENCE: (Colour, &str) = (
    Colour {
        light: (0x76, 0x76, 0x76),
        dark: "#9a9a9a",
    },
    "1 4",
);
const TEXT: Colour = Colour {
    light: (0x33, 0x33, 0x33),
    dark: "#d4d4d4",
};
const AXIS: Colour = Colour {
    light: (0x55, 0x55, 0x55),
    dark: "#9b9b9b",
};
const GRID: Colour = Colour {
    light: (0xE1, 0xE1, 0xE1),
    dark: "#363b42",
};

fn rgb(colour: &Colour) -> RGBColor {
    let (r, g, b) = colour.light;
    RGBColor(r, g, b)
}

/// As the charts write it into SVG attributes.
fn attribute(colour: &Colour) -> String {
    let (r, g, b) = colour.light;
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Which line of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A line of figures, 0 to [`STYLES`] − 1.
    Line(usize),
    /// What the figures are held against.
    Reference,
}

impl Style {
    pub fn colour(self) -> RGBColor {
        rgb(&self.entry().0)
    }

    /// As an SVG attribute.
    pub fn attribute(self) -> String {
        attribute(&self.entry().0)
    }

    fn entry(self) -> &'static (Colour, &'static str) {
        match self {
            Self::Line(index) => &LINES[index % STYLES],
            Self::Reference => &REFERENCE,
        }
    }

    /// Corners of its marker around the point, in pixels.
    pub fn marker(self) -> &'static [(i32, i32)] {
        const SQUARE: &[(i32, i32)] = &[(-3, -3), (3, -3), (3, 3), (-3, 3)];
        const UP: &[(i32, i32)] = &[(0, -4), (4, 3), (-4, 3)];
        const DOWN: &[(i32, i32)] = &[(0, 4), (4, -3), (-4, -3)];
        const DIAMOND: &[(i32, i32)] = &[(0, -4), (4, 0), (0, 4), (-4, 0)];
        const OCTAGON: &[(i32, i32)] = &[
            (-1, -3),
            (1, -3),
            (3, -1),
            (3, 1),
            (1, 3),
            (-1, 3),
            (-3, 1),
            (-3, -1),
        ];
        const BAR: &[(i32, i32)] = &[(-1, -4), (1, -4), (1, 4), (-1, 4)];
        const FLAT: &[(i32, i32)] = &[(-4, -1), (4, -1), (4, 1), (-4, 1)];
        const CROSS: &[(i32, i32)] = &[
            (-1, -4),
            (1, -4),
            (1, -1),
            (4, -1),
            (4, 1),
            (1, 1),
            (1, 4),
            (-1, 4),
            (-1, 1),
            (-4, 1),
            (-4, -1),
            (-1, -1),
        ];
        match self {
            Self::Line(index) => [OCTAGON, SQUARE, UP, DIAMOND, DOWN, CROSS, BAR, FLAT][index % STYLES],
            Self::Reference => &[],
        }
    }
}

/// Colour of text.
pub(super) fn text() -> RGBColor {
    rgb(&TEXT)
}

/// Colour of axes.
pub(super) fn axis() -> RGBColor {
    rgb(&AXIS)
}

/// Colour of the grid.
pub(super) fn grid() -> RGBColor {
    rgb(&GRID)
}

/// Dashes on every ground, and the colours of a dark one on screens.
pub(super) fn css() -> String {
    let mut rules = String::new();
    for (colour, dashes) in LINES.iter().chain([&REFERENCE]) {
        rules += &format!(
            "polyline[stroke=\"{}\"]{{stroke-dasharray:{dashes}}}\n",
            attribute(colour)
        );
    }
    rules += "@media screen and (prefers-color-scheme: dark) {\n";
    let lines = LINES.iter().chain([&REFERENCE]).map(|(colour, _)| colour);
    for colour in lines.chain([&TEXT, &AXIS, &GRID]) {
        let (light, dark) = (attribute(colour), colour.dark);
        rules += &format!("svg [stroke=\"{light}\"]{{stroke:{dark}}}svg [fill=\"{light}\"]{{fill:{dark}}}\n");
    }
    rules + "}\n"
}
