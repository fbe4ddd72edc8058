//! Local time as in pages and files, `YYYY-MM-DD HH:MM:SS`, and Unix time as it is stored.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const FORMAT: &str = "%Y-%m-%d %H:%M:%S";

/// The current time in Unix seconds.
pub fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Unix seconds as local time; the number itself if the moment is outside the calendar.
pub fn local(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime(FORMAT).to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// Local time as Unix seconds. `None`: the text is not a time. In an hour that occurs twice the first one is meant; a time that
/// the clock skips is moved later by the skipped duration.
pub fn seconds(local: &str) -> Option<i64> {
    let civil = DateTime::strptime(FORMAT, local).ok()?;
    Some(civil.to_zoned(TimeZone::system()).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_and_read_back() {
        for moment in [0, 1_412_000_000, 1_700_000_000, now()] {
            assert_eq!(seconds(&local(moment)), Some(moment), "{}", local(moment));
        }
        assert_eq!(local(1_700_000_000).len(), "2023-11-14 22:13:20".len());
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "2014-09-27", "2014-13-01 00:00:00", "2014-02-30 00:00:00", "2014-09-27T10:00:00", "now"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
