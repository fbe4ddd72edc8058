//! `--expect-status`: sets of HTTP statuses, such as `200,404`, `2xx` or `200-299`.

use std::fmt;
use std::str::FromStr;

/// Statuses have three digits.
const STATUS_MAX: u16 = 999;
/// Final statuses begin here (RFC 9110, section 15); 101 is one too.
const STATUS_MIN: u16 = 101;
const WORD_BITS: u16 = 64;
const WORDS: usize = (STATUS_MAX / WORD_BITS + 1) as usize;
/// Statuses that are right unless something else is expected.
const USUAL: std::ops::RangeInclusive<u16> = 200..=399;

/// A set of statuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusSet([u64; WORDS]);

impl StatusSet {
    const EMPTY: StatusSet = StatusSet([0; WORDS]);

    /// Whether `status` is in the set.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.0.get(usize::from(status / WORD_BITS)).is_some_and(|word| word >> (status % WORD_BITS) & 1 == 1)
    }

    fn add(&mut self, status: u16) {
        self.0[usize::from(status / WORD_BITS)] |= 1 << (status % WORD_BITS);
    }
}

impl Default for StatusSet {
    fn default() -> StatusSet {
        let mut set = StatusSet::EMPTY;
        USUAL.for_each(|status| set.add(status));
        set
    }
}

impl FromStr for StatusSet {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusSet, String> {
        let mut set = StatusSet::EMPTY;
        for part in text.split(',').map(str::trim) {
            let (from, to) = range(part).ok_or_else(|| {
                format!("{part:?} is no status: write 200, 2xx or 200-299, several with commas between them")
            })?;
            (from..=to).for_each(|status| set.add(status));
        }
        Ok(set)
    }
}

/// The first and the last status of `200`, `2xx` or `200-299`.
fn range(part: &str) -> Option<(u16, u16)> {
    let one = |text: &str| {
        let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|status| is_number && *status >= STATUS_MIN)
    };
    if let Some(digit) = part.strip_suffix("xx") {
        let first = one(&format!("{digit}00")).filter(|_| digit.len() == 1)?;
        return Some((first, first + 99));
    }
    match part.split_once('-') {
        Some((from, to)) => Some((one(from.trim())?, one(to.trim())?)).filter(|(from, to)| from <= to),
        None => one(part).map(|status| (status, status)),
    }
}

impl fmt::Debug for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=STATUS_MAX).filter(|status| self.contains(*status))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_by_numbers_classes_and_ranges() {
        let set: StatusSet = "201, 404,5xx,300-302".parse().unwrap();
        let within: Vec<u16> = (0..1000).filter(|status| set.contains(*status)).collect();
        assert_eq!((within.len(), within[0], within[4], within[104]), (105, 201, 404, 599));
        assert!(!set.contains(200) && !set.contains(u16::MAX));
        let usual = StatusSet::default();
        assert!(usual.contains(200) && usual.contains(399) && !usual.contains(400) && !usual.contains(199));
    }

    #[test]
    fn what_is_no_status_is_refused_with_what_is_allowed() {
        for text in ["", "20", "2000", "2x", "0xx", "100", "300-200", "ok", "200,", "+20", "1xx"] {
            let error = text.parse::<StatusSet>().unwrap_err();
            assert!(error.contains("write 200, 2xx or 200-299"), "{text}: {error}");
        }
    }
}
