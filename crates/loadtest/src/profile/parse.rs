//! The text of a profile: `line(FROM,TO,DURATION)`, `const(RATE,DURATION)`, `step(FROM,TO,STEP,DURATION)`, chained with spaces.

use super::{PARTS_MAX, Profile, RATE_MAX, SEGMENTS_MAX, Stair};
use crate::duration;
use std::fmt;

/// The kinds of parts.
const ALLOWED: &str = "line(FROM,TO,DURATION), const(RATE,DURATION), step(FROM,TO,STEP,DURATION)";

/// An error in a profile: its position, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The character, counted from 1.
    pub at: usize,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the profile is wrong at character {}: {}", self.at, self.what)
    }
}

impl std::error::Error for ProfileError {}

pub(super) fn profile(text: &str) -> Result<Profile, ProfileError> {
    let mut reader = Reader { text, at: 0 };
    let (mut parts, mut stairs_count) = (Vec::new(), 0);
    reader.skip_blanks();
    while reader.at < text.len() {
        let begun = reader.at;
        let stairs = reader.part()?;
        stairs_count += stairs.len();
        if parts.len() == PARTS_MAX || stairs_count > SEGMENTS_MAX {
            return Err(error(text, begun, format!("more than {PARTS_MAX} parts, or {SEGMENTS_MAX} stairs")));
        }
        let name: String = text[begun..reader.at].chars().filter(|letter| !letter.is_whitespace()).collect();
        parts.push((name, stairs));
        reader.skip_blanks();
    }
    if parts.is_empty() {
        return Err(error(text, 0, format!("it is empty; allowed: {ALLOWED}")));
    }
    let profile = Profile::of(parts);
    if profile.total() == 0 {
        return Err(error(text, 0, "it plans no request at all".to_owned()));
    }
    Ok(profile)
}

fn error(text: &str, at: usize, what: String) -> ProfileError {
    ProfileError { at: text.get(..at).map_or(at, |before| before.chars().count()) + 1, what }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn fail<T>(&self, at: usize, what: String) -> Result<T, ProfileError> {
        Err(error(self.text, at, what))
    }

    fn part(&mut self) -> Result<Vec<Stair>, ProfileError> {
        let begun = self.at;
        let letters = self.rest().find(|letter: char| !letter.is_alphanumeric()).unwrap_or(self.rest().len());
        let name = &self.rest()[..letters];
        self.at += letters;
        let mut rates = [0.0; 3];
        let rates = match name {
            "line" => &mut rates[..2],
            "const" => &mut rates[..1],
            "step" => &mut rates[..3],
            _ => return self.fail(begun, format!("`{name}` is no part; allowed: {ALLOWED}")),
        };
        self.expect('(')?;
        for rate in &mut *rates {
            *rate = self.rate()?;
            self.expect(',')?;
        }
        let (duration_at, seconds) = (self.at, self.seconds()?);
        self.expect(')')?;
        if seconds == 0.0 {
            return self.fail(duration_at, "a part takes some time: more than 0s".to_owned());
        }
        match *rates {
            [rate] => Ok(vec![(rate, rate, seconds)]),
            [from, to] => Ok(vec![(from, to, seconds)]),
            [from, to, step] => self.stairs(begun, (from, to, step), seconds),
            _ => unreachable!("a part has one to three rates"),
        }
    }

    /// From `from` to `to`: each stair is `step` higher or lower than the one before it, and the last is at most at `to`.
    fn stairs(
        &self,
        begun: usize,
        (from, to, step): (f64, f64, f64),
        seconds: f64,
    ) -> Result<Vec<Stair>, ProfileError> {
        if step == 0.0 {
            return self.fail(begun, "STEP of step(FROM,TO,STEP,DURATION) is more than 0".to_owned());
        }
        // Rounding of (to - from) / step must not lose the last stair.
        let count = ((to - from).abs() / step + 1e-9).floor();
        if count >= SEGMENTS_MAX as f64 {
            return self.fail(begun, format!("more than {SEGMENTS_MAX} stairs"));
        }
        let towards = if to < from { -step } else { step };
        Ok((0..=count as u32)
            .map(|stair| from + towards * f64::from(stair))
            .map(|rate| (rate, rate, seconds))
            .collect())
    }

    fn expect(&mut self, letter: char) -> Result<(), ProfileError> {
        self.skip_blanks();
        if !self.rest().starts_with(letter) {
            return self.fail(self.at, format!("`{letter}` is missing; allowed: {ALLOWED}"));
        }
        self.at += letter.len_utf8();
        self.skip_blanks();
        Ok(())
    }

    /// The text up to a comma, a parenthesis or a blank.
    fn word(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|letter: char| letter.is_whitespace() || ",()".contains(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn rate(&mut self) -> Result<f64, ProfileError> {
        let begun = self.at;
        let word = self.word();
        match word.parse::<f64>() {
            Ok(rate) if (0.0..=RATE_MAX).contains(&rate) => Ok(rate),
            _ => self.fail(begun, format!("`{word}` is no rate: requests a second, 0 to {RATE_MAX}")),
        }
    }

    fn seconds(&mut self) -> Result<f64, ProfileError> {
        let begun = self.at;
        match duration::parse(self.word()) {
            Ok(time) => Ok(time.as_secs_f64()),
            Err(what) => self.fail(begun, what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wrong(text: &str, at: usize, what: &str) {
        let error = profile(text).unwrap_err();
        assert_eq!(error.at, at, "{error}");
        assert!(error.what.contains(what), "{error}");
    }

    #[test]
    fn each_mistake_is_told_with_its_place_and_what_is_allowed() {
        check_wrong("", 1, "line(FROM,TO,DURATION)");
        check_wrong("lin(1,2,3s)", 1, "`lin` is no part; allowed: line(");
        check_wrong("const(1,3s) ramp(1,2,3s)", 13, "`ramp` is no part");
        check_wrong("line(1,2)", 9, "`,` is missing");
        check_wrong("line(1,-2,3s)", 8, "`-2` is no rate: requests a second, 0 to 10000000");
        check_wrong("line(1,NaN,3s)", 8, "no rate");
        check_wrong("line(1,2,3)", 10, "has no unit: write 3s");
        check_wrong("line(1,2,3s", 12, "`)` is missing");
        check_wrong("const(5,0s)", 9, "more than 0s");
        check_wrong("step(1,10,0,1s)", 1, "STEP of step(");
        check_wrong("step(0,9000000,1,1s)", 1, "stairs");
        check_wrong("const(0,5s)", 1, "no request at all");
        check_wrong("äöü", 1, "`äöü` is no part");
        check_wrong("const(1,1s) ä(", 13, "`ä` is no part");
    }

    #[test]
    fn blanks_between_and_inside_parts_do_not_count() {
        let profile = profile("  line( 1 , 2, 3s )\n const(5,1s)").unwrap();
        assert_eq!(profile.to_string(), "line(1,2,3s) const(5,1s)");
    }

    #[test]
    fn there_are_bounds() {
        assert!(profile(&"const(1,1s) ".repeat(PARTS_MAX)).is_ok());
        check_wrong(&"const(1,1s) ".repeat(PARTS_MAX + 1), 12 * PARTS_MAX + 1, "more than 100 parts");
    }

    #[test]
    fn stairs_go_down_too() {
        let down = profile("step(30,10,10,1s)").unwrap();
        assert_eq!((down.rate(0.5), down.rate(2.5), down.total()), (30.0, 10.0, 60));
    }
}
