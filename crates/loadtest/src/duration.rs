//! Durations as users write them: `500ms`, `180s`, `3m`, `1h30m`, `1.5s`.

use std::time::Duration;

/// The permitted syntax, for error messages.
pub const ALLOWED: &str = "a time such as 500ms, 180s, 3m, 1h30m";

/// Units with their seconds. `ms` precedes `m` and `s`, so that the longer name is tried first.
const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// The longest permitted duration: thirty days.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Parses a duration: numbers with their units, one after another. The error names the problem and the permitted syntax.
pub fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(format!("a time is missing: write {ALLOWED}"));
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| format!("`{text}` is no time: write {ALLOWED}"))?;
        let known = UNITS.iter().find(|(name, _)| unit.starts_with(name));
        let (name, unit_seconds) = known.ok_or_else(|| match unit {
            "" => format!("`{text}` has no unit: write {rest}s or {rest}ms"),
            _ => format!("`{text}` is no time: write {ALLOWED}"),
        })?;
        seconds += number * unit_seconds;
        rest = &unit[name.len()..];
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time <= LONGEST => Ok(time),
        _ => Err(format!("`{text}` is longer than thirty days")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, milliseconds: u64) {
        assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)));
    }

    #[test]
    fn each_unit_and_their_sums_are_read() {
        check("500ms", 500);
        check("180s", 180_000);
        check("3m", 180_000);
        check("1h30m", 5_400_000);
        check("1.5s", 1500);
        check("1m1s1ms", 61_001);
        check("0s", 0);
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_is_allowed() {
        for text in ["", "s", "5x", "5 s", "-1s", "1..5s", "5sm"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("write"), "{text}: {error}");
        }
        assert_eq!(parse("30").unwrap_err(), "`30` has no unit: write 30s or 30ms");
        assert!(parse("721h").unwrap_err().contains("thirty days"));
    }
}
