//! Times as they are taken down, and as they go into results.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Longest time with a bucket of its own, in ns; longer ones count as this.
const MAX_NS: u64 = 100_000_000_000;
const DIGITS: u8 = 3;

#[derive(Clone, Debug)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("constant bounds are valid"))
    }
}

impl Recorder {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub fn add(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn samples(&self) -> u64 {
        self.0.len()
    }

    pub fn max(&self) -> u64 {
        self.0.max()
    }

    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.0, &mut bytes) {
            Ok(_) => BASE64_STANDARD.encode(bytes),
            Err(_) => String::new(),
        }
    }

    pub fn decode(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        let mut this = Self::default();
        this.0.add(read).ok()?;
        Some(this)
    }

    pub fn distribution(&self) -> Option<Distribution> {
        self.figures().map(|figures| Distribution {
            histogram: Some(self.encode()),
            ..figures
        })
    }

    pub fn halves(&self) -> Option<Distribution> {
        self.figures().map(|figures| figures.halved())
    }

    fn figures(&self) -> Option<Distribution> {
        let at = |quantile| self.0.value_at_quantile(quantile).min(self.0.max());
        (!self.0.is_empty()).then(|| Distribution {
            samples: self.0.len(),
            min: self.0.min(),
            mean: self.0.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: self.0.max(),
            histogram: None,
        })
    }
}

/// Times of one kind, in ns. Percentiles of fewer samples than they need (`p99_99` of less than
/// 10,000) are the longest time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub samples: u64,
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub p99_99: u64,
    pub max: u64,
    /// All of them, to three digits: HdrHistogram's exchange format V2, deflated, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

impl Distribution {
    /// Half of each time, without the histogram.
    pub fn halved(&self) -> Self {
        Self {
            samples: self.samples,
            min: self.min / 2,
            mean: self.mean / 2.0,
            p50: self.p50 / 2,
            p90: self.p90 / 2,
            p99: self.p99 / 2,
            p99_9: self.p99_9 / 2,
            p99_99: self.p99_99 / 2,
            max: self.max / 2,
            histogram: None,
        }
    }

    pub fn recorder(&self) -> Option<Recorder> {
        self.histogram.as_deref().and_then(Recorder::decode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_survives_json_with_all_times() {
        let mut recorder = Recorder::default();
        for ns in 1..=10_000 {
            recorder.record(ns * 100);
        }
        let distribution = recorder.distribution().unwrap();
        assert_eq!((distribution.samples, distribution.min), (10_000, 100));
        assert!(
            (999_900..=1_000_000).contains(&distribution.p99_99),
            "{distribution:?}"
        );
        let text = serde_json::to_string(&distribution).unwrap();
        let read: Distribution = serde_json::from_str(&text).unwrap();
        assert_eq!(read.recorder().unwrap().distribution(), Some(distribution));
        assert_eq!(recorder.halves().unwrap().max, recorder.max() / 2);
    }

    #[test]
    fn damaged_histogram_is_none() {
        assert!(Recorder::decode("AAAA").is_none());
        assert!(Recorder::decode("no base64!").is_none());
    }
}
