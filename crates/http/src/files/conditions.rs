//! Conditions and ranges of a request for a file (RFC 9110, sections 13 and 14).
//!
//! The fields are found in one pass. Conditions are evaluated in the order of section 13.2.2: If-Match or If-Unmodified-Since,
//! then If-None-Match or If-Modified-Since, then If-Range with Range. A malformed field is ignored, as the RFC requires.

use std::ops::Range;

use super::encoding::Accepts;
use crate::method::Method;
use crate::request::HttpRequest;

/// Entity tags of a field's line that are compared; further ones do not match.
const TAGS_MAX: usize = 64;
/// Lines of one field whose tags are compared; tags of further lines do not match. A list may stand in several lines (RFC 9110,
/// section 5.3).
const TAG_LINES_MAX: usize = 4;

/// The fields of a request that concern a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields<'r> {
    accept_encoding: Option<&'r [u8]>,
    if_match: Tags<'r>,
    if_none_match: Tags<'r>,
    if_modified_since: Option<&'r [u8]>,
    if_unmodified_since: Option<&'r [u8]>,
    if_range: Option<&'r [u8]>,
    range: Option<&'r [u8]>,
    /// More than one Range field: all are ignored.
    has_ranges: bool,
}

/// The lines of a field with entity tags.
#[derive(Clone, Copy, Debug, Default)]
struct Tags<'r>([Option<&'r [u8]>; TAG_LINES_MAX]);

impl<'r> Tags<'r> {
    fn push(&mut self, line: &'r [u8]) {
        if let Some(free) = self.0.iter_mut().find(|place| place.is_none()) {
            *free = Some(line);
        }
    }

    /// Itself, if the request has the field.
    fn some(self) -> Option<Tags<'r>> {
        self.0[0].map(|_| self)
    }

    /// Whether a line lists this tag. `weak`: tags marked as weak match too.
    fn list(&self, tag: &str, weak: bool) -> bool {
        self.0.iter().flatten().any(|line| lists(line, tag, weak))
    }
}

/// The values that conditions compare with: the current representation's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators<'f> {
    /// The entity tag, with its quotes; a strong one.
    pub(super) tag: &'f str,
    /// Last modification in seconds since 1970, if it is known.
    pub(super) modified: Option<u64>,
    pub(super) bytes: u64,
}

/// How the request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it: 200.
    Whole,
    /// These bytes: 206.
    Part(Range<u64>),
    /// The client has the current version: 304.
    NotModified,
    /// The file is not the version that the client expects: 412.
    Failed,
    /// The file has no such bytes: 416.
    Unsatisfiable,
}

impl<'r> Fields<'r> {
    pub(super) fn of(request: &HttpRequest<'r>) -> Fields<'r> {
        Fields::read(request.headers())
    }

    fn read(lines: impl Iterator<Item = (&'r str, &'r [u8])>) -> Fields<'r> {
        let mut fields = Fields::default();
        for (name, value) in lines {
            // Most fields of a request differ by their length.
            let (known, place) = match name.len() {
                5 => ("range", &mut fields.range),
                8 if name.eq_ignore_ascii_case("if-match") => {
                    fields.if_match.push(value);
                    continue;
                }
                8 => ("if-range", &mut fields.if_range),
                13 if name.eq_ignore_ascii_case("if-none-match") => {
                    fields.if_none_match.push(value);
                    continue;
                }
                15 => ("accept-encoding", &mut fields.accept_encoding),
                17 => ("if-modified-since", &mut fields.if_modified_since),
                19 => ("if-unmodified-since", &mut fields.if_unmodified_since),
                _ => continue,
            };
            if name.eq_ignore_ascii_case(known) {
                let is_second = place.replace(value).is_some();
                fields.has_ranges |= is_second && known == "range";
            }
        }
        fields
    }

    pub(super) fn accepts(&self) -> Accepts {
        self.accept_encoding.map_or(Accepts::PLAIN, Accepts::read)
    }

    #[inline]
    pub(super) fn judge(&self, method: Method, now: &Validators<'_>) -> Verdict {
        let tags = [self.if_match.0[0], self.if_none_match.0[0]];
        let others = [self.if_modified_since, self.if_unmodified_since, self.range];
        if tags.iter().chain(&others).all(Option::is_none) {
            Verdict::Whole
        } else {
            self.judge_conditions(method, now)
        }
    }

    fn judge_conditions(&self, method: Method, now: &Validators<'_>) -> Verdict {
        let is_failed = match (self.if_match.some(), self.if_unmodified_since) {
            (Some(tags), _) => !tags.list(now.tag, false),
            (None, Some(date)) => now.modified.zip(seconds(date)).is_some_and(|(modified, date)| modified > date),
            (None, None) => false,
        };
        if is_failed {
            return Verdict::Failed;
        }
        let is_known = match (self.if_none_match.some(), self.if_modified_since) {
            (Some(tags), _) => tags.list(now.tag, true),
            (None, Some(date)) => now.modified.zip(seconds(date)).is_some_and(|(modified, date)| modified <= date),
            (None, None) => false,
        };
        if is_known {
            return Verdict::NotModified;
        }
        match self.range.filter(|_| method == Method::Get && !self.has_ranges && self.is_same(now)) {
            Some(range) => judge_range(range, now.bytes),
            None => Verdict::Whole,
        }
    }

    /// Whether If-Range allows a range: tags are compared strongly, and a date only matches if it is equal.
    fn is_same(&self, now: &Validators<'_>) -> bool {
        match self.if_range {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => tag == now.tag.as_bytes(),
            Some(date) => now.modified.is_some_and(|modified| seconds(date) == Some(modified)),
        }
    }
}

/// Whether a line of entity tags has this one. `weak`: tags marked as weak match too.
fn lists(list: &[u8], tag: &str, weak: bool) -> bool {
    let mut tags = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).take(TAGS_MAX);
    // Our tags contain no comma.
    list == b"*" || tags.any(|listed| listed.strip_prefix(b"W/").filter(|_| weak).unwrap_or(listed) == tag.as_bytes())
}

fn seconds(date: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
    date.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

fn judge_range(value: &[u8], bytes: u64) -> Verdict {
    let Some(range) = std::str::from_utf8(value).ok().and_then(ByteRange::read) else { return Verdict::Whole };
    match range.of(bytes) {
        Some(part) => Verdict::Part(part),
        // The last bytes of an empty file are all of it (RFC 9110, section 14.1.2).
        None if bytes == 0 && matches!(range, ByteRange::Last(1..)) => Verdict::Whole,
        None => Verdict::Unsatisfiable,
    }
}

/// One requested range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteRange {
    /// From the first to the last byte, both included; without a last byte to the end.
    From(u64, Option<u64>),
    /// This many bytes at the end.
    Last(u64),
}

impl ByteRange {
    /// `None`: no range, several, or another unit. Such a field is ignored (RFC 9110, section 14.2).
    fn read(value: &str) -> Option<ByteRange> {
        let (unit, range) = value.split_once('=')?;
        let (first, last) = range.trim().split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
        match (first, last) {
            ("", last) => Some(ByteRange::Last(number(last)?)),
            (first, "") => Some(ByteRange::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(ByteRange::From(first, Some(last)))
            }
        }
    }

    /// The range within a file of this length; `None` if it is empty.
    fn of(self, bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            ByteRange::From(first, last) => first..last.map_or(bytes, |last| last.saturating_add(1)).min(bytes),
            ByteRange::Last(count) => bytes.saturating_sub(count)..bytes,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// A number of decimal digits; one that is too large becomes the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1994-11-06 08:49:37.
    const MODIFIED: u64 = 784_111_777;
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const NOW: Validators<'_> = Validators { tag: "\"a\"", modified: Some(MODIFIED), bytes: 10 };

    fn judge(method: Method, lines: &[(&str, &str)]) -> Verdict {
        Fields::read(lines.iter().map(|(name, value)| (*name, value.as_bytes()))).judge(method, &NOW)
    }

    #[track_caller]
    fn check(lines: &[(&str, &str)], expected: Verdict) {
        assert_eq!(judge(Method::Get, lines), expected, "{lines:?}");
    }

    #[test]
    fn a_client_that_has_it_is_told_so() {
        for list in ["\"a\"", "W/\"a\"", "*", "\"b\", W/\"a\"", "\"b\",\"a\""] {
            check(&[("If-None-Match", list)], Verdict::NotModified);
        }
        for list in ["\"b\"", "a", "", "\"a", "W/a"] {
            check(&[("if-none-match", list)], Verdict::Whole);
        }
        check(&[("If-Modified-Since", THEN)], Verdict::NotModified);
        check(&[("If-Modified-Since", BEFORE)], Verdict::Whole);
        check(&[("If-Modified-Since", "yesterday")], Verdict::Whole);
        // The tag takes precedence over the date.
        check(&[("If-None-Match", "\"b\""), ("If-Modified-Since", THEN)], Verdict::Whole);
        assert_eq!(judge(Method::Head, &[("If-None-Match", "\"a\"")]), Verdict::NotModified);
    }

    #[test]
    fn a_client_that_means_another_one_is_told_so() {
        check(&[("If-Match", "\"b\"")], Verdict::Failed);
        check(&[("If-Match", "W/\"a\"")], Verdict::Failed);
        check(&[("If-Match", "\"a\"")], Verdict::Whole);
        check(&[("If-Match", "*")], Verdict::Whole);
        check(&[("If-Unmodified-Since", BEFORE)], Verdict::Failed);
        check(&[("If-Unmodified-Since", THEN)], Verdict::Whole);
        check(&[("If-Match", "\"b\""), ("If-None-Match", "\"a\"")], Verdict::Failed);
    }

    #[test]
    fn a_list_of_tags_may_stand_in_several_lines() {
        let [other, ours] = ["\"b\"", "\"a\""];
        check(&[("If-None-Match", other), ("If-None-Match", ours)], Verdict::NotModified);
        check(&[("If-None-Match", ours), ("If-None-Match", other)], Verdict::NotModified);
        check(&[("If-None-Match", other), ("If-None-Match", other)], Verdict::Whole);
        check(&[("If-Match", other), ("If-Match", ours)], Verdict::Whole);
        check(&[("If-Match", other), ("If-Match", other)], Verdict::Failed);
        let far: Vec<_> = (0..TAG_LINES_MAX).map(|_| ("If-Match", other)).chain([("If-Match", ours)]).collect();
        check(&far, Verdict::Failed);
    }

    #[test]
    fn one_range_is_a_part() {
        for (range, part) in [
            ("bytes=0-3", 0..4),
            ("bytes=9-", 9..10),
            ("bytes=5-100", 5..10),
            ("Bytes=-3", 7..10),
            ("bytes=-100", 0..10),
            ("bytes=0-18446744073709551615", 0..10),
            ("bytes=0-99999999999999999999999", 0..10),
        ] {
            check(&[("Range", range)], Verdict::Part(part));
        }
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999999-"] {
            check(&[("Range", range)], Verdict::Unsatisfiable);
        }
    }

    #[test]
    fn the_last_bytes_of_an_empty_file_are_all_of_it() {
        let empty = Validators { bytes: 0, ..NOW };
        let judge = |range: &str| Fields::read([("Range", range.as_bytes())].into_iter()).judge(Method::Get, &empty);
        assert_eq!(judge("bytes=-5"), Verdict::Whole);
        for range in ["bytes=-0", "bytes=0-", "bytes=0-0"] {
            assert_eq!(judge(range), Verdict::Unsatisfiable, "{range}");
        }
    }

    #[test]
    fn several_ranges_and_what_is_none_give_all_of_it() {
        for range in
            ["bytes=0-1,3-4", "bytes=3-2", "bytes=", "bytes=-", "bytes=a-b", "lines=0-1", "bytes 0-1", "bytes=+1-2"]
        {
            check(&[("Range", range)], Verdict::Whole);
        }
        check(&[("Range", "bytes=0-1"), ("Range", "bytes=0-1")], Verdict::Whole);
        assert_eq!(judge(Method::Head, &[("Range", "bytes=0-1")]), Verdict::Whole);
    }

    #[test]
    fn a_range_of_another_version_gives_all_of_it() {
        let range = ("Range", "bytes=0-1");
        for same in ["\"a\"", THEN] {
            check(&[range, ("If-Range", same)], Verdict::Part(0..2));
        }
        for other in ["\"b\"", "W/\"a\"", BEFORE, "yesterday", ""] {
            check(&[range, ("If-Range", other)], Verdict::Whole);
        }
        check(&[("If-Range", "\"b\"")], Verdict::Whole);
    }

    proptest! {
        #[test]
        fn a_part_is_inside_the_file_whatever_is_asked_for(range in "bytes=[-0-9,]{0,24}", bytes in any::<u64>()) {
            if let Verdict::Part(part) = judge_range(range.as_bytes(), bytes) {
                prop_assert!(part.start < part.end && part.end <= bytes);
            }
        }
    }
}
