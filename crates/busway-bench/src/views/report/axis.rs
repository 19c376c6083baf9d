//! Axes: a range, and where it is labelled with what.
//!
//! Contract: every axis has at least two labels with units inside its range, whatever the figures;
//! those that a scale cannot show (not positive on a logarithmic one, not finite) are left out.
//! Called by the charts.

use crate::views::units;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Unit {
    Time,
    Bytes,
    Rate,
    Percent,
    Count,
    Seconds,
}

impl Unit {
    pub fn word(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// What it shows; the unit is at its labels, for plain numbers here.
    pub label: String,
    pub unit: Unit,
    pub log: bool,
    /// Whether a linear axis begins at zero.
    from_zero: bool,
}

/// An axis that can be drawn: in decimal logarithms if it is logarithmic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub low: f64,
    pub high: f64,
    pub labels: Vec<(f64, String)>,
    log: bool,
}

/// Figures beyond this are damage.
const ABSURD: f64 = 1e18;

impl Axis {
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self {
            label: label.into(),
            unit,
            log: true,
            from_zero: false,
        }
    }

    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self {
            log: false,
            from_zero: true,
            ..Self::log(label, unit)
        }
    }

    /// Linear, but only around the figures: for where they are, not how large.
    pub fn around(label: impl Into<String>, unit: Unit) -> Self {
        Self {
            from_zero: false,
            ..Self::linear(label, unit)
        }
    }

    pub fn shows(&self, value: f64) -> bool {
        value.is_finite() && value < ABSURD && if self.log { value > 0.0 } else { value >= 0.0 }
    }

    /// The scale for figures, with about as many labels as there is room for; `None` if it has none
    /// to show.
    pub fn scale(&self, values: impl Iterator<Item = f64>, most: usize) -> Option<Scale> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| self.shows(*value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        (low <= high).then(|| {
            if self.log {
                self.log_scale(low, high, most)
            } else {
                self.linear_scale(low, high, most)
            }
        })
    }

    fn log_scale(&self, low: f64, high: f64, most: usize) -> Scale {
        let (mut low, mut high) = (low / 1.1, high * 1.1);
        let mut labelled = self.log_labels(low, high, most);
        while labelled.len() < 2 {
            (low, high) = (low / 1.3, high * 1.3);
            labelled = self.log_labels(low, high, most);
        }
        Scale {
            low: low.log10(),
            high: high.log10(),
            labels: labelled
                .into_iter()
                .map(|value| (value.log10(), self.text(value)))
                .collect(),
            log: true,
        }
    }

    fn log_labels(&self, low: f64, high: f64, most: usize) -> Vec<f64> {
        const CLOCK: [f64; 12] = [
            1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 360_000.0,
        ];
        let decades = |digits: &[f64]| -> Vec<f64> {
            let each = (-3..19).flat_map(|at| digits.iter().map(move |digit| digit * 10f64.powi(at)));
            each.collect()
        };
        let sets = match self.unit {
            Unit::Bytes => vec![(0..60).map(|at| 2f64.powi(at)).collect()],
            Unit::Seconds => vec![CLOCK.to_vec()],
            _ => [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(decades).to_vec(),
        };
        let mut labels = Vec::new();
        for mut set in sets {
            set.retain(|value| (low..=high).contains(value));
            labels = set;
            if labels.len() <= most {
                break;
            }
        }
        let step = labels.len().div_ceil(most).max(1);
        labels.into_iter().step_by(step).collect()
    }

    fn linear_scale(&self, low: f64, high: f64, most: usize) -> Scale {
        let low = if self.from_zero { 0.0 } else { low };
        let room = (high - low).max(high * 1e-3).max(1e-9);
        let step = self.step(room / (most - 1) as f64);
        let first = (low / step).floor();
        let last = (high / step - 1e-6).ceil().max(first + 1.0);
        let labels = (0..=(last - first) as usize).map(|at| (first + at as f64) * step);
        Scale {
            low: first * step,
            high: last * step,
            labels: labels.map(|value| (value, self.text(value))).collect(),
            log: false,
        }
    }

    /// The next step that people count in.
    fn step(&self, least: f64) -> f64 {
        const CLOCK: [f64; 12] = [
            60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 21_600.0, 43_200.0, 86_400.0,
            172_800.0,
        ];
        match self.unit {
            Unit::Bytes => return 2f64.powf(least.max(1.0).log2().ceil()),
            Unit::Count if least < 0.2 => return 0.2,
            Unit::Seconds if least > 20.0 => {
                if let Some(step) = CLOCK.into_iter().find(|step| *step >= least) {
                    return step;
                }
            }
            _ => {}
        }
        let decade = 10f64.powf(least.log10().floor());
        [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|digit| digit * decade)
            .find(|step| *step >= least * 0.999)
            .unwrap_or(least)
    }

    fn text(&self, value: f64) -> String {
        let scaled = |value: f64, units: &[(f64, &str)]| {
            let (factor, unit) = units
                .iter()
                .rev()
                .find(|(factor, _)| value >= factor * 0.999)
                .unwrap_or(&units[0]);
            format!("{} {unit}", short(value / factor))
        };
        match self.unit {
            Unit::Seconds if value <= 0.0 => "0 s".to_owned(),
            Unit::Time => scaled(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]),
            Unit::Bytes => scaled(
                value,
                &[
                    (1.0, "B"),
                    (1024.0, "KiB"),
                    (1_048_576.0, "MiB"),
                    (1_073_741_824.0, "GiB"),
                ],
            ),
            Unit::Rate => scaled(
                value,
                &[
                    (1.0, "B/s"),
                    (1e3, "kB/s"),
                    (1e6, "MB/s"),
                    (1e9, "GB/s"),
                    (1e12, "TB/s"),
                ],
            ),
            Unit::Percent => format!("{} %", short(value)),
            Unit::Seconds => scaled(value, &[(1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3_600.0, "h")]),
            Unit::Count if value >= 1e6 => scaled(value, &[(1e6, "M"), (1e9, "G"), (1e12, "T")]),
            Unit::Count if value < 10.0 => short(value),
            Unit::Count => units::grouped(value),
        }
    }
}

impl Scale {
    pub fn of_categories(names: &[&str]) -> Self {
        let labels = names
            .iter()
            .enumerate()
            .map(|(at, name)| (at as f64 + 0.5, (*name).to_owned()));
        Self {
            low: 0.0,
            high: names.len() as f64,
            labels: labels.collect(),
            log: false,
        }
    }

    pub fn place(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }
}

/// As few digits as it needs.
fn short(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.scale(values.iter().copied(), 7)
            .unwrap()
            .labels
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn labels_are_round_numbers_of_their_unit() {
        assert_eq!(
            labels(&Axis::log("t", Unit::Time), &[120.0, 90_000.0]),
            ["300 ns", "1 µs", "3 µs", "10 µs", "30 µs"]
        );
        assert_eq!(
            labels(&Axis::log("s", Unit::Bytes), &[16.0, 1_048_576.0]),
            ["16 B", "128 B", "1 KiB", "8 KiB", "64 KiB", "512 KiB"]
        );
        assert_eq!(
            labels(&Axis::linear("s", Unit::Bytes), &[16.0, 4096.0]),
            ["0 B", "1 KiB", "2 KiB", "3 KiB", "4 KiB"]
        );
        assert_eq!(
            labels(&Axis::linear("p", Unit::Percent), &[3.0, 97.0])[..3],
            ["0 %", "20 %", "40 %"]
        );
        assert_eq!(
            labels(&Axis::linear("t", Unit::Seconds), &[86_400.0])[..3],
            ["0 s", "4 h", "8 h"]
        );
    }

    #[test]
    fn any_figures_get_two_to_twelve_labels_inside_the_range() {
        for unit in [
            Unit::Time,
            Unit::Bytes,
            Unit::Rate,
            Unit::Percent,
            Unit::Count,
            Unit::Seconds,
        ] {
            for axis in [Axis::log("x", unit), Axis::linear("x", unit)] {
                for values in [
                    vec![1.0],
                    vec![7e-3, 7e-3],
                    vec![1e17],
                    vec![3.0, 3.0001],
                    vec![1.0, 1e15],
                    vec![0.0, 2.5],
                ] {
                    let scale = axis.scale(values.iter().copied(), 7).unwrap();
                    let n = scale.labels.len();
                    assert!((2..=12).contains(&n), "{axis:?} {values:?} has {n} labels");
                    assert!(
                        scale
                            .labels
                            .iter()
                            .all(|(at, _)| (scale.low - 1e-9..=scale.high + 1e-9).contains(at)),
                        "{scale:?}"
                    );
                    for value in values.into_iter().filter(|value| axis.shows(*value)) {
                        assert!(
                            (scale.low..=scale.high).contains(&scale.place(value)),
                            "{axis:?} {value} {scale:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn figures_without_a_place_have_no_scale() {
        assert_eq!(
            Axis::log("x", Unit::Time).scale([0.0, -1.0, f64::NAN, f64::INFINITY].into_iter(), 7),
            None
        );
    }
}
