//! Figures as people read them.
//!
//! Contract: a table gives all times in µs, so that a column can be compared by eye; captions and
//! axes take the unit that fits. Sizes are binary (KiB) where they are whole, rates are decimal
//! (MB/s), as their publications have them. Called by all views.

pub(super) fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        ..10.0 => format!("{us:.3}"),
        ..100.0 => format!("{us:.2}"),
        ..1000.0 => format!("{us:.1}"),
        _ => grouped(us),
    }
}

pub(super) fn time(ns: f64) -> String {
    match ns.abs() {
        ..1e3 => format!("{} ns", digits(ns)),
        ..1e6 => format!("{} µs", digits(ns / 1e3)),
        ..1e9 => format!("{} ms", digits(ns / 1e6)),
        _ => format!("{} s", digits(ns / 1e9)),
    }
}

pub(super) fn duration(s: f64) -> String {
    match s {
        ..1.0 => time(s * 1e9),
        ..120.0 => format!("{} s", digits(s)),
        ..7200.0 => format!("{} min", digits(s / 60.0)),
        _ => format!("{} h", digits(s / 3600.0)),
    }
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{} B", grouped(bytes as f64)),
    }
}

pub(super) fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        ..1e3 => format!("{} B/s", digits(bytes_per_s)),
        ..1e6 => format!("{} kB/s", digits(bytes_per_s / 1e3)),
        ..1e9 => format!("{} MB/s", digits(bytes_per_s / 1e6)),
        _ => format!("{} GB/s", digits(bytes_per_s / 1e9)),
    }
}

pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        ..0.0005 => format!("{value:.0}"),
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// A whole number with a comma between each three digits.
pub(super) fn grouped(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut out = String::new();
    if value < 0.0 && plain != "0" {
        out.push('-');
    }
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Seconds since 1970-01-01 UTC as a date and time of day.
pub(super) fn date(unix_s: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    let text = humantime::format_rfc3339_seconds(at).to_string();
    format!("{} {} UTC", &text[..10], &text[11..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_with_the_unit_that_fits() {
        assert_eq!(micros(540.0), "0.540");
        assert_eq!(micros(35_000.0), "35.00");
        assert_eq!(micros(1_234_567.0), "1,235");
        assert_eq!(time(540.0), "540 ns");
        assert_eq!(time(1_240.0), "1.24 µs");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!(size(16), "16 B");
        assert_eq!(size(40_448), "40,448 B");
        assert_eq!(size(4 << 20), "4 MiB");
        assert_eq!(size(0), "0 B");
        assert_eq!(rate(3_276_800.0), "3.28 MB/s");
        assert_eq!(grouped(-1_234_567.0), "-1,234,567");
        assert_eq!(duration(86_400.0), "24.0 h");
    }

    #[test]
    fn unix_seconds_become_calendar_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
