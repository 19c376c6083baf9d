//! Sizes and durations as options give them.

use crate::BenchError;

pub(crate) const MAX_SIZE_BYTES: usize = 16 << 20;

/// Reads a size of `least` to `most` bytes, a multiple of 8, such as `64`, `4KiB` or `1MiB`.
///
/// # Errors
///
/// [`BenchError::Option`].
pub(crate) fn size_within(text: &str, least: usize, most: usize) -> Result<usize, BenchError> {
    let wrong = |problem: &str| BenchError::Option {
        option: "--sizes",
        value: text.to_owned(),
        problem: problem.to_owned(),
        mend: format!(
            "write a multiple of 8 from {least} to {}MiB, such as 64 or 4KiB",
            most >> 20
        ),
    };
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        _ => return Err(wrong("has an unknown unit")),
    };
    let number: usize = digits.parse().map_err(|_| wrong("is not a size"))?;
    let bytes = number.checked_mul(factor).ok_or_else(|| wrong("is too large"))?;
    if !(least..=most).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(wrong("is not a possible size"));
    }
    Ok(bytes)
}

/// Reads how long a measurement lasts, in seconds.
///
/// # Errors
///
/// [`BenchError::Option`] outside 0.01 to 3600 s.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, BenchError> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| BenchError::Option {
            option: "--seconds",
            value: text.to_owned(),
            problem: "is no possible duration".into(),
            mend: "write seconds from 0.01 to 3600".into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_read_with_its_unit_and_a_wrong_one_is_refused_with_a_right_one() {
        let parse = |text| size_within(text, 24, 64 << 20);
        for (text, bytes) in [("64", 64), ("4KiB", 4096), ("1MiB", 1 << 20)] {
            assert_eq!(parse(text).unwrap(), bytes);
        }
        let overflow = "99999999999999999999";
        for wrong in ["", "0", "63", "65", "4GB", overflow, "1000MiB", "16"] {
            let message = parse(wrong).unwrap_err().to_string();
            assert!(
                message.contains("--sizes") && message.contains("4KiB"),
                "{message}"
            );
        }
    }
}
