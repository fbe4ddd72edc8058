//! Expiry: documents are hidden and then removed after a time.
//!
//! A collection declares a field that holds a time, and optionally a duration that is added to it. Or it declares only a
//! duration, which begins with each document's last write (`written.rs`). Then:
//!
//! - An expired document is **hidden at once**: from lookups, lists and queries. For a write it does not exist, so an insert
//!   with its key succeeds.
//! - It is **removed a little later**, in small transactions, through the index of its field
//!   ([`crate::DocumentDatabase::expire`]). Its index entries, unique values and contributions to views are removed with it, and
//!   the feed of changes reports the deletion. Until then views count it, and its unique values count as in use.
//! - An expired document to which others refer is hidden, and is removed only after those. New references to it are refused,
//!   and it does not satisfy a transaction's required documents.
//! - A document without the field, or with null in it, never expires.
//!
//! A time is a number (seconds since 1970) or a text, `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM:SS[.fff]` with `Z` or an offset such as
//! `+02:00`. Those with `Z` sort by time, so the expired documents are one range of the index. Within one second they do not sort by
//! time, because `Z` sorts after a fraction; so a text may expire as late as the end of its second. A text with an offset is hidden
//! at its time. It stands in the index at its local time: with a positive offset it is removed that much later, with a negative one
//! the sweep passes over it until it has expired. Other values are refused when they are written.
//!
//! The clock is the system's ([`WallClock`]). If it is set back, documents that are hidden but not yet removed become visible
//! again. If it is set forward, documents that expire because of it are removed permanently.

mod clock;
mod written;

pub use clock::WallClock;
pub use written::LAST_WRITE;
pub(crate) use written::{WithoutTime, mark_at};

use std::sync::OnceLock;

use binjson::StoredDocument;

use crate::catalog::ExpireInfo;
use crate::encoding::row::plain;
use crate::encoding::{Plain, Row, Scalar};
use crate::engine::STAMP_BYTES;
use crate::error::WriteError;
use crate::sql::dates;

/// Longest duration, in seconds: a thousand years.
pub const AFTER_SECONDS_MAX: i64 = 31_557_600_000;

const DATE_BYTES: usize = "2026-11-22".len();
const SECOND_BYTES: usize = "2026-11-22T10:00:00".len();
const OFFSET_BYTES: usize = "+02:00".len();

/// The expiry limit: the latest expired time, in the two forms that a field may have.
#[derive(Clone, Debug)]
pub(crate) struct ExpiryLimit {
    ms: i64,
    /// Formatted only when a field is a text, since most are numbers.
    text: OnceLock<String>,
    without_time: WithoutTime,
    /// Earlier times count as this time.
    since_seconds: i64,
}

impl ExpiryLimit {
    /// The limit at `now_ms`, in milliseconds since 1970, with a duration of `after_seconds`.
    pub(crate) fn at(now_ms: i64, after_seconds: i64) -> ExpiryLimit {
        let ms = now_ms.saturating_sub(after_seconds.saturating_mul(1000));
        ExpiryLimit { ms, text: OnceLock::new(), without_time: WithoutTime::Never, since_seconds: i64::MIN }
    }

    /// The limit at `now_ms` under this rule.
    pub(crate) fn of(expire: &ExpireInfo, now_ms: i64) -> ExpiryLimit {
        let due = ExpiryLimit::at(now_ms, expire.after_seconds);
        let Some(since_seconds) = expire.since_seconds else { return due };
        let without_time =
            if due.ms < since_seconds.saturating_mul(1000) { WithoutTime::Nothing } else { WithoutTime::All };
        ExpiryLimit { without_time, since_seconds, ..due }
    }

    /// The treatment of documents without a time.
    pub(crate) fn without_time(&self) -> WithoutTime {
        self.without_time
    }

    /// The time of a document, from its index entry.
    pub(crate) fn time_of(&self, entry: Option<f64>) -> Option<f64> {
        match self.without_time {
            WithoutTime::Never => entry,
            _ => Some(entry.unwrap_or(f64::MIN).max(self.since_seconds as f64)),
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.ms as f64 / 1000.0
    }

    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| written(self.ms))
    }

    /// Whether a field's time has passed.
    #[inline]
    pub(crate) fn has_come(&self, field: Scalar<'_>) -> bool {
        if self.without_time == WithoutTime::Nothing {
            return false;
        }
        match field {
            Scalar::Null => self.without_time == WithoutTime::All,
            Scalar::Integer(seconds) => seconds as f64 <= self.seconds(),
            Scalar::Real(seconds) => seconds <= self.seconds(),
            Scalar::Text(text) => match with_offset(text) {
                Some(ms) => ms <= self.ms,
                None => text <= self.text(),
            },
        }
    }
}

/// Whether a document has expired under this rule.
pub(crate) fn has_come(expire: &ExpireInfo, due: &ExpiryLimit, document: StoredDocument<'_>) -> bool {
    due.has_come(plain(document.field(&expire.field)).scalar())
}

/// Whether a stored value has not expired at a moment. A damaged one counts as existing: reading it reports the damage.
pub(crate) fn is_there(expire: &ExpireInfo, stored: &[u8], now_ms: i64) -> bool {
    let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
    document.is_none_or(|document| !has_come(expire, &ExpiryLimit::of(expire, now_ms), document))
}

/// The time-dependent inputs of a write.
#[derive(Debug, Default)]
pub(crate) struct AtWrite {
    /// The expiry limit of the collection: documents expired by it do not exist for the write.
    pub(crate) due: Option<ExpiryLimit>,
    /// The mark for the documents that it stores.
    pub(crate) mark: Option<u64>,
    /// The time in milliseconds since 1970, by which referenced documents may have expired.
    pub(crate) now_ms: i64,
}

/// Checks that a row's field is a time, null, or missing.
pub(crate) fn check(name: &str, place: usize, row: &Row<'_, '_>) -> Result<(), WriteError> {
    let Some(value) = row.get(place).filter(|value| !value.is_null()) else { return Ok(()) };
    let is_time = match plain(Some(value)) {
        Plain::Integer(_) | Plain::Real(_) => value.as_bool().is_none(),
        Plain::Text(text) => value.as_str().is_some() && is_time(&text),
        Plain::Null => true,
    };
    if is_time {
        return Ok(());
    }
    let why = format!(
        "{} is no time (\"{name}\"): seconds since 1970, \"YYYY-MM-DD\" or \"YYYY-MM-DDTHH:MM:SSZ\" (also with a fraction of a second, and with +HH:MM for Z)",
        schema::shown(value)
    );
    Err(WriteError::invalid(why, format!("/{name}")))
}

/// Whether a text is a time: one of the forms that sort by time to the second, or one with an offset.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let fits = |bytes: &[u8], form: &[u8]| {
        let same = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
        bytes.len() == form.len() && bytes.iter().zip(form).all(same)
    };
    let number = |from: usize, digits: usize| {
        bytes[from..from + digits].iter().fold(0i32, |number, byte| number * 10 + i32::from(byte - b'0'))
    };
    if bytes.len() < DATE_BYTES || !fits(&bytes[..DATE_BYTES], b"0000-00-00") {
        return false;
    }
    let (year, month, day) = (number(0, 4), number(5, 2), number(8, 2));
    if !(1..=12).contains(&month) || !(1..=dates::days_in_month(year, month)).contains(&day) {
        return false;
    }
    if bytes.len() == DATE_BYTES {
        return true;
    }
    if bytes.len() <= SECOND_BYTES || !fits(&bytes[DATE_BYTES..SECOND_BYTES], b"T00:00:00") {
        return false;
    }
    let (hour, minute, second) = (number(11, 2), number(14, 2), number(17, 2));
    let rest = &bytes[SECOND_BYTES..];
    let zone = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
    };
    match zone {
        // A leap second is the last one of its day in UTC.
        b"Z" | b"z" => hour < 24 && minute < 60 && (second < 60 || (hour, minute, second) == (23, 59, 60)),
        _ => zone.len() == OFFSET_BYTES && hour < 24 && minute < 60 && second < 60 && with_offset(text).is_some(),
    }
}

/// The milliseconds since 1970 of a text with an offset, `2026-11-22T10:00:00+02:00`, which does not sort by time; of any other none.
fn with_offset(text: &str) -> Option<i64> {
    let zone = text.len().checked_sub(OFFSET_BYTES).filter(|start| *start >= SECOND_BYTES)?;
    matches!(text.as_bytes()[zone], b'+' | b'-').then(|| dates::unix_ms(text))?
}

/// A time as such a text, clamped to the years 0 to 9999.
fn written(ms: i64) -> String {
    const FIRST_MS: i64 = -62_167_219_200_000;
    const LAST_MS: i64 = 253_402_300_799_999;
    dates::rfc3339(ms.clamp(FIRST_MS, LAST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_texts_that_are_times_in_the_same_order() {
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_827_696_007), "2000-02-29T12:34:56.007Z");
        assert_eq!(written(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(
            (written(i64::MIN).as_str(), written(i64::MAX).as_str()),
            ("0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
        );
        let mut last = String::new();
        for step in -50_000..50_000i64 {
            let text = written(step * 86_399_999);
            assert!(text > last && is_time(&text), "{text}");
            last = text;
        }
    }

    #[test]
    fn only_dates_of_the_calendar_and_times_with_their_zone_are_times() {
        for text in [
            "2026-11-22",
            "0000-01-01",
            "2026-11-22T23:59:59Z",
            "2026-11-22T00:00:00.5Z",
            "2026-11-22T00:00:00.123456789Z",
            "2024-02-29",
            "2000-02-29T10:00:00z",
            "2016-12-31T23:59:60Z",
            "2026-11-22T10:00:00+01:00",
            "2026-11-22T10:00:00.25-11:30",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-00-01",
            "2026-01-32",
            "2026-1-1",
            "2026-02-30",
            "2026-02-29",
            "2100-02-29",
            "2026-04-31T10:00:00Z",
            "2016-12-31T23:59:61Z",
            "2016-12-31T18:59:60-05:00",
            "2026-11-22T10:00:00+1:00",
            "2026-11-22T10:00:00+25:00",
            "2026-11-22T10:00:00+01:60",
            "2026-11-22+01:00",
            "2026-11-22T10:00:00 +01:00",
            "2026-11-22 10:00:00",
            "2026-11-22T10:00:00",
            "2026-11-22T10:00Z",
            "2026-11-22T24:00:00Z",
            "2026-11-22T10:60:00Z",
            "2026-11-22T10:00:60Z",
            "2026-11-22T10:00:00.Z",
            "2026-11-22T10:00:00.1234567890Z",
            "+026-11-22",
            "now",
            "２０２６-11-22",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }

    #[test]
    fn a_time_has_come_when_it_is_not_later_than_now() {
        let due = ExpiryLimit::at(1_000_500, 1_000);
        assert_eq!((due.seconds(), due.text()), (0.5, "1970-01-01T00:00:00.500Z"));
        for (field, expected) in [
            (Scalar::Null, false),
            (Scalar::Integer(0), true),
            (Scalar::Integer(1), false),
            (Scalar::Integer(i64::MIN), true),
            (Scalar::Real(0.5), true),
            (Scalar::Real(0.6), false),
            (Scalar::Text("1970-01-01"), true),
            (Scalar::Text("1970-01-01T00:00:00.500Z"), true),
            (Scalar::Text("1970-01-01T00:00:00.501Z"), false),
            // It expires at the end of its second.
            (Scalar::Text("1970-01-01T00:00:00Z"), false),
            (Scalar::Text("1970-01-02"), false),
            (Scalar::Text("1970-01-01T02:00:00.5+02:00"), true),
            (Scalar::Text("1970-01-01T02:00:00.501+02:00"), false),
            (Scalar::Text("1969-12-31T23:00:01-01:00"), false),
            (Scalar::Text("1969-12-31T23:00:00-01:00"), true),
        ] {
            assert_eq!(due.has_come(field), expected, "{field:?}");
        }
    }
}
