//! SQLite's date and time functions.
//!
//! A moment is a number of milliseconds since noon of 24 November 4714 BC (Julian day number times 86,400,000). Its civil date
//! and time are computed on demand; each modifier uses the form that it needs. The calendar is proleptic Gregorian; outside
//! 0000..9999 (with negative years to -4713) a result is NULL. Adding months and years keeps the day of the month, and a day
//! beyond the month's end overflows: 29 February minus a year is 1 March.
//!
//! `now` comes from the caller, one value for a whole execution. Time zones other than offsets in the text are refused when
//! the query is prepared ([`unsupported_modifier`]).

mod difference;
mod modifiers;
mod read;
mod write;

use crate::sql::limits::Fault;
use crate::sql::values::{Value, Workspace};

const DAY_MS: i64 = 86_400_000;
const HALF_DAY_MS: i64 = DAY_MS / 2;
/// 1970-01-01 as a moment.
const UNIX_MS: i64 = 210_866_760_000_000;
/// 9999-12-31 23:59:59.999.
const LAST_MS: i64 = 464_269_060_799_999;
/// Numbers from 0 to this are Julian days.
const JULIAN_DAY_END: f64 = 5_373_484.5;

/// The functions of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DateFunction {
    Date,
    Time,
    DateTime,
    JulianDay,
    UnixEpoch,
    Strftime,
    TimeDiff,
}

/// Calls a date function. `now_ms` is Unix time; `texts` are the arguments as texts.
pub(crate) fn call<'a>(
    function: DateFunction,
    arguments: &[Value<'_>],
    texts: &[&[u8]],
    now_ms: i64,
    workspace: Workspace<'a>,
) -> Result<Value<'a>, Fault> {
    if function == DateFunction::TimeDiff {
        return difference::between(arguments, texts, now_ms, workspace);
    }
    let skip = usize::from(function == DateFunction::Strftime);
    let Some(mut moment) = arguments.get(skip..).and_then(|arguments| evaluate(arguments, &texts[skip..], now_ms))
    else {
        return Ok(Value::Null);
    };
    let mut out = workspace.text();
    match function {
        DateFunction::JulianDay => return Ok(Value::Real(moment.ms as f64 / DAY_MS as f64)),
        DateFunction::UnixEpoch if moment.subsecond => return Ok(Value::Real((moment.ms - UNIX_MS) as f64 / 1000.0)),
        DateFunction::UnixEpoch => return Ok(Value::Integer(moment.ms / 1000 - UNIX_MS / 1000)),
        DateFunction::Date => moment.write_date(&mut out)?,
        DateFunction::Time => moment.write_time(&mut out)?,
        DateFunction::DateTime => {
            moment.write_date(&mut out)?;
            out.push(b' ')?;
            moment.write_time(&mut out)?;
        }
        DateFunction::Strftime if moment.write_format(texts[0], &mut out)? => {}
        DateFunction::Strftime | DateFunction::TimeDiff => return Ok(Value::Null),
    }
    Ok(out.value())
}

/// A moment as RFC 3339 writes it, with milliseconds, in UTC. `unix_ms` is in the years 0 to 9999.
pub(crate) fn rfc3339(unix_ms: i64) -> String {
    let mut moment = Moment::default();
    moment.set_unix_ms(unix_ms);
    moment.fill_civil();
    let Moment { year, month, day, hour, minute, second, .. } = moment;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:06.3}Z")
}

/// The milliseconds since 1970 of a date with a time, as the date functions read it. `None`: it is none.
pub(crate) fn unix_ms(text: &str) -> Option<i64> {
    let mut moment = Moment::default();
    moment.parse_date(text.as_bytes())?;
    moment.fill_ms();
    (!moment.failed).then_some(moment.ms - UNIX_MS)
}

/// Whether a modifier needs a time zone database, which this version lacks.
pub(crate) fn unsupported_modifier(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"localtime") || text.eq_ignore_ascii_case(b"utc")
}

#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    ms: i64,
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: f64,
    zone_minutes: i32,
    has_ms: bool,
    has_date: bool,
    has_time: bool,
    /// `second` holds the given number, which is not yet known to be a Julian day or Unix time.
    raw: bool,
    /// Days by which the day of the month exceeds the month's end.
    overrun: i32,
    subsecond: bool,
    failed: bool,
}

fn evaluate(arguments: &[Value<'_>], texts: &[&[u8]], now_ms: i64) -> Option<Moment> {
    let mut moment = Moment::default();
    match arguments.first() {
        None => moment.set_unix_ms(now_ms),
        Some(Value::Integer(integer)) => moment.set_number(*integer as f64),
        Some(Value::Real(real)) => moment.set_number(*real),
        Some(Value::Null) => return None,
        Some(Value::Text(_)) => moment.parse(texts[0], now_ms)?,
    }
    for (place, modifier) in arguments.iter().enumerate().skip(1) {
        if modifier.is_null() {
            return None;
        }
        moment.modify(texts[place], place)?;
    }
    moment.fill_ms();
    if moment.failed || !(0..=LAST_MS).contains(&moment.ms) {
        return None;
    }
    if arguments.len() == 1 && moment.has_date && moment.day > 28 {
        moment.has_date = false; // 2023-02-31 is shown as 2023-03-03.
    }
    Some(moment)
}

fn at(text: &[u8], index: usize) -> u8 {
    text.get(index).copied().unwrap_or(0)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn skip_spaces(text: &[u8], mut i: usize) -> usize {
    while is_space(at(text, i)) {
        i += 1;
    }
    i
}

/// The days of a month of the Gregorian calendar.
pub(crate) fn days_in_month(year: i32, month: i32) -> i32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

impl Moment {
    fn set_ms(&mut self, ms: i64) {
        self.ms = ms;
        self.has_ms = true;
        self.forget_civil();
    }

    /// Sets it from Unix time. The clock may be wrong: outside all years there is no moment, and the result is NULL.
    fn set_unix_ms(&mut self, unix_ms: i64) {
        match unix_ms.checked_add(UNIX_MS) {
            Some(ms) if (0..=LAST_MS).contains(&ms) => self.set_ms(ms),
            _ => self.fail(),
        }
    }

    fn forget_civil(&mut self) {
        (self.has_date, self.has_time, self.zone_minutes) = (false, false, 0);
    }

    fn set_number(&mut self, number: f64) {
        self.second = number;
        self.raw = true;
        if (0.0..JULIAN_DAY_END).contains(&number) {
            self.ms = (number * DAY_MS as f64 + 0.5) as i64;
            self.has_ms = true;
        }
    }

    fn fail(&mut self) {
        *self = Moment { failed: true, ..Moment::default() };
    }

    /// Computes milliseconds from civil date and time.
    fn fill_ms(&mut self) {
        if self.has_ms {
            return;
        }
        let (mut year, mut month, mut day) = (2000, 1, 1);
        if self.has_date {
            (year, month, day) = (self.year, self.month, self.day);
        } else if self.has_time && self.hour == 24 {
            self.hour = 0;
            day = 2;
        }
        if !(-4713..=9999).contains(&year) || self.raw {
            return self.fail();
        }
        if month <= 2 {
            year -= 1;
            month += 12;
        }
        let century = (year + 4800) / 100;
        let leap = 38 - century + century / 4;
        let days = 36525 * (year + 4716) / 100 + 306_001 * (month + 1) / 10_000 + day + leap;
        self.ms = ((f64::from(days) - 1524.5) * DAY_MS as f64) as i64;
        self.has_ms = true;
        if self.has_time {
            self.ms += i64::from(self.hour) * 3_600_000 + i64::from(self.minute) * 60_000;
            self.ms += (self.second * 1000.0 + 0.5) as i64;
            if self.zone_minutes != 0 {
                self.ms -= i64::from(self.zone_minutes) * 60_000;
                self.forget_civil();
            }
        }
    }

    /// Computes the civil date from milliseconds.
    fn fill_date(&mut self) {
        if self.has_date {
            return;
        }
        if !self.has_ms {
            (self.year, self.month, self.day) = (2000, 1, 1);
        } else if !(0..=LAST_MS).contains(&self.ms) {
            return self.fail();
        } else {
            let days = ((self.ms + HALF_DAY_MS) / DAY_MS) as i32;
            let century = ((f64::from(days) + 32_044.75) / 36_524.25) as i32 - 52;
            let shifted = days + 1 + century - (century + 100) / 4 + 25 + 1524;
            let years = ((f64::from(shifted) - 122.1) / 365.25) as i32;
            let year_days = 36525 * (years & 32767) / 100;
            let months = (f64::from(shifted - year_days) / 30.6001) as i32;
            self.day = shifted - year_days - (30.6001 * f64::from(months)) as i32;
            self.month = if months < 14 { months - 1 } else { months - 13 };
            self.year = if self.month > 2 { years - 4716 } else { years - 4715 };
        }
        self.has_date = true;
    }

    fn fill_time(&mut self) {
        if self.has_time {
            return;
        }
        self.fill_ms();
        let day_ms = (self.ms + HALF_DAY_MS) % DAY_MS;
        self.second = (day_ms % 60_000) as f64 / 1000.0;
        self.minute = (day_ms / 60_000 % 60) as i32;
        self.hour = (day_ms / 3_600_000) as i32;
        self.raw = false;
        self.has_time = true;
    }

    fn fill_civil(&mut self) {
        self.fill_date();
        self.fill_time();
    }

    fn note_overrun(&mut self) {
        self.overrun = (self.day - days_in_month(self.year, self.month)).max(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::limits::Meter;
    use crate::sql::values::OwnedValue;

    #[track_caller]
    fn check(function: DateFunction, arguments: &[&str], now_ms: i64, expected: OwnedValue) {
        let values: Vec<Value<'_>> = arguments.iter().map(|text| Value::text(text)).collect();
        let texts: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        let (arena, meter) = (bumpalo::Bump::new(), Meter::unbounded());
        let result = call(function, &values, &texts, now_ms, Workspace::new(&arena, &meter));
        assert_eq!(OwnedValue::new(&result.expect("in bounds")), expected, "{arguments:?} at {now_ms}");
    }

    #[test]
    fn a_clock_outside_all_years_gives_null_and_no_overflow() {
        let modifiers = ["+1 day", "-9223372036854775 seconds", "start of month", "weekday 0", "+0001-00-01", "12:00"];
        for now_ms in [i64::MIN, i64::MIN + 1, -UNIX_MS - 1, LAST_MS - UNIX_MS + 1, i64::MAX - 1, i64::MAX] {
            check(DateFunction::Date, &[], now_ms, OwnedValue::Null);
            check(DateFunction::UnixEpoch, &["now"], now_ms, OwnedValue::Null);
            check(DateFunction::JulianDay, &["subsec"], now_ms, OwnedValue::Null);
            for modifier in modifiers {
                check(DateFunction::Strftime, &["%s", "now", modifier], now_ms, OwnedValue::Null);
            }
        }
        check(DateFunction::UnixEpoch, &["now"], -UNIX_MS, OwnedValue::Integer(-UNIX_MS / 1000));
        check(DateFunction::UnixEpoch, &["now"], LAST_MS - UNIX_MS, OwnedValue::Integer((LAST_MS - UNIX_MS) / 1000));
    }
}
