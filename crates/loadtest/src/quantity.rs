//! Quantities as text: durations, counts, rates, bytes, shares. A measured value has three significant digits and a space before
//! its unit.
//!
//! An invalid value is `—`. The decimal separator is a point and thousands are separated by commas, whatever the locale: output
//! is compared and pasted across machines.

/// Placeholder for a missing value.
pub(crate) const NONE: &str = "—";

/// A duration of nanoseconds: `850 ns`, `21.5 µs`, `1.23 ms`, `12.3 s`.
pub(crate) fn nanoseconds(ns: u64) -> String {
    let ns = ns as f64;
    // A unit ends where rounding to three digits would reach its thousandfold.
    match ns {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => format!("{} µs", three_digits(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", three_digits(ns / 1e6)),
        ns => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// A value of a distribution; the placeholder if its longest duration is zero, which means that nothing was measured.
pub(crate) fn of_distribution(ns: u64, max_ns: u64) -> String {
    if max_ns == 0 { NONE.to_owned() } else { nanoseconds(ns) }
}

/// A count: `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate per second: `12,345/s`, `7.25/s`.
pub(crate) fn per_second(rate: f64) -> String {
    match rate {
        rate if !rate.is_finite() => NONE.to_owned(),
        rate if rate < 99.95 => format!("{}/s", three_digits(rate)),
        rate => format!("{}/s", count(rate.round() as u64)),
    }
}

/// An amount of bytes, in decimal units: `512 B`, `12.3 MB`.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if !bytes.is_finite() {
        return NONE.to_owned();
    }
    if bytes < 999.5 {
        return format!("{bytes:.0} B");
    }
    let mut value = bytes / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// The share of `part` in `whole`: `0.12 %`; the placeholder if `whole` is zero.
pub(crate) fn share(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) => NONE.to_owned(),
        (0, _) => "0 %".to_owned(),
        _ => {
            let percent = part as f64 * 100.0 / whole as f64;
            if percent < 0.005 { "< 0.01 %".to_owned() } else { format!("{} %", three_digits(percent)) }
        }
    }
}

/// A period of the run: `42 s`, `2 min 18 s`, `1 h 5 min`.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Seconds of a rating: two decimals, thousands separated.
pub(crate) fn rating(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NONE.to_owned();
    }
    let hundredths = (seconds.max(0.0) * 100.0).round() as u64;
    format!("{}.{:02} s", count(hundredths / 100), hundredths % 100)
}

/// A moment of Unix time in UTC, to the second.
pub(crate) fn moment(unix_seconds: f64) -> String {
    jiff::Timestamp::from_second(unix_seconds as i64).map_or_else(|_| NONE.to_owned(), |moment| moment.to_string())
}

/// Three significant digits, and all digits before the point.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => NONE.to_owned(),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_three_digits_and_the_unit_that_suits_it() {
        let texts = [0, 850, 999, 1_000, 21_460, 999_499, 999_501, 1_234_567, 12_345_678_901].map(nanoseconds);
        assert_eq!(texts, ["0 ns", "850 ns", "999 ns", "1.00 µs", "21.5 µs", "999 µs", "1.00 ms", "1.23 ms", "12.3 s"]);
    }

    #[test]
    fn thousands_are_divided() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([7.25, 99.94, 1234.4].map(per_second), ["7.25/s", "99.9/s", "1,234/s"]);
    }

    #[test]
    fn shares_bytes_and_spans_are_short() {
        assert_eq!(
            [share(1, 0), share(0, 5), share(1, 1_000_000), share(12, 1_000)],
            ["—", "0 %", "< 0.01 %", "1.20 %"]
        );
        assert_eq!([512.0, 12_345.0, 9.999e8, 2e18].map(bytes), ["512 B", "12.3 kB", "1.00 GB", "2000 PB"]);
        assert_eq!([0.4, 138.0, 120.0, 3_900.0, 7_200.0].map(span), ["0 s", "2 min 18 s", "2 min", "1 h 5 min", "2 h"]);
    }

    #[test]
    fn what_is_no_number_is_a_dash() {
        assert_eq!([per_second(f64::NAN), bytes(f64::INFINITY), rating(f64::NAN), three_digits(f64::NAN)], ["—"; 4]);
        assert_eq!(of_distribution(0, 0), "—");
    }

    #[test]
    fn a_rating_and_a_moment_are_exact() {
        assert_eq!([rating(0.004), rating(119_848.0)], ["0.00 s", "119,848.00 s"]);
        assert_eq!(moment(1_500_000_000.7), "2017-07-14T02:40:00Z");
    }
}
