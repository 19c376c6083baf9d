//! From the figures of single rounds to one, and how one technology compares with another measured
//! in the same rounds.

use serde::{Deserialize, Serialize};

const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
const T_95_MANY: f64 = 1.96;

/// A figure over the baseline's, with the interval that holds the true ratio with 95 % confidence.
///
/// From the ratios of single rounds, in which both were measured shortly after each other: the
/// geometric mean, and the interval of Student's t distribution around the mean of the logarithms.
/// It knows of the differences between rounds, not of what is the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub value: f64,
    /// Lower end of the interval; absent with fewer than two rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl Ratio {
    pub fn of(figures: &[Option<f64>], baseline: &[Option<f64>]) -> Option<Self> {
        let logs: Vec<f64> = figures
            .iter()
            .zip(baseline)
            .filter_map(|(a, b)| Some((*a)? / (*b)?))
            .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            .map(f64::ln)
            .collect();
        if logs.is_empty() {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let half_width = (logs.len() > 1).then(|| {
            let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let t = T_95.get(logs.len() - 2).copied().unwrap_or(T_95_MANY);
            t * (variance / count).sqrt()
        });
        Some(Self {
            value: mean.exp(),
            low: half_width.map(|half| (mean - half).exp()),
            high: half_width.map(|half| (mean + half).exp()),
        })
    }
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (
        sorted.get(sorted.len().checked_sub(1)? / 2)?,
        sorted.get(sorted.len() / 2)?,
    );
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_equal_rounds_has_no_width() {
        let ratio = Ratio::of(&[Some(2.0), Some(4.0)], &[Some(1.0), Some(2.0)]).unwrap();
        assert_eq!(
            (ratio.value.round(), ratio.low, ratio.high),
            (2.0, Some(ratio.value), Some(ratio.value))
        );
    }

    #[test]
    fn interval_is_that_of_t_distribution_over_logarithms() {
        // Logarithms 0, ln 2, ln 4: mean ln 2, standard deviation ln 2, so the half width is 4.303
        // ln 2 / sqrt 3.
        let ratio = Ratio::of(&[Some(1.0), Some(2.0), Some(4.0)], &[Some(1.0); 3]).unwrap();
        let half_width = 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((ratio.value - 2.0).abs() < 1e-9);
        assert!(
            (ratio.high.unwrap() / 2.0 - half_width.exp()).abs() < 1e-9,
            "{ratio:?}"
        );
        assert!(
            (2.0 / ratio.low.unwrap() - half_width.exp()).abs() < 1e-9,
            "{ratio:?}"
        );
    }

    #[test]
    fn rounds_without_either_figure_are_ignored() {
        let ratio = Ratio::of(&[Some(3.0), None, Some(9.0)], &[Some(1.0), Some(1.0), None]).unwrap();
        assert_eq!((ratio.value.round(), ratio.low), (3.0, None));
        assert_eq!(Ratio::of(&[None], &[Some(1.0)]), None);
        assert_eq!(Ratio::of(&[Some(1.0)], &[Some(0.0)]), None);
    }
}
