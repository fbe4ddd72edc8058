//! SQLite's date and time functions.
//!
//! A moment is a count of milliseconds since noon of 24 November 4714 BC (Julian day number times 86,400,000), and next
//! to it, lazily, its civil date and time; each modifier works on the one it needs. The calendar is Gregorian without
//! end; outside 0000..9999 (with negative years to -4713) a result is NULL. Months and years added keep the day of the
//! month and let it run over: 29 February minus a year is 1 March.
//!
//! `now` comes from the caller, one value for a whole execution. Time zones other than offsets in the text are refused
//! where the query is prepared ([`unsupported_modifier`]).

use std::fmt::Write;

use super::number;
use super::value::Value;

const DAY_MS: i64 = 86_400_000;
const HALF_DAY_MS: i64 = DAY_MS / 2;
/// 1970-01-01 as a moment.
const UNIX_MS: i64 = 210_866_760_000_000;
/// 9999-12-31 23:59:59.999.
const LAST_MS: i64 = 464_269_060_799_999;
/// Numbers from 0 to here are Julian days.
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
}

/// A date function's result: text stands in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DateResult {
    Null,
    Integer(i64),
    Real(f64),
    Text,
}

/// Calls a date function. `now_ms` is Unix time. Text results are written to `out`.
pub(crate) fn call(
    function: DateFunction,
    arguments: &[Value<'_>],
    texts: &[&[u8]],
    now_ms: i64,
    out: &mut String,
) -> DateResult {
    let skip = usize::from(function == DateFunction::Strftime);
    let Some(mut moment) = arguments.get(skip..).and_then(|arguments| evaluate(arguments, &texts[skip..], now_ms))
    else {
        return DateResult::Null;
    };
    let written = match function {
        DateFunction::JulianDay => return DateResult::Real(moment.ms as f64 / DAY_MS as f64),
        DateFunction::UnixEpoch if moment.subsecond => return DateResult::Real((moment.ms - UNIX_MS) as f64 / 1000.0),
        DateFunction::UnixEpoch => return DateResult::Integer(moment.ms / 1000 - UNIX_MS / 1000),
        DateFunction::Date => moment.write_date(out),
        DateFunction::Time => moment.write_time(out),
        DateFunction::DateTime => moment.write_date(out).and_then(|()| {
            out.push(' ');
            moment.write_time(out)
        }),
        DateFunction::Strftime => moment.write_format(texts[0], out),
    };
    if written.is_some() { DateResult::Text } else { DateResult::Null }
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
    /// The number given is in `second` and not yet told to be a Julian day or Unix time.
    raw: bool,
    /// Days that the day of the month runs over the month's end.
    overrun: i32,
    subsecond: bool,
    failed: bool,
}

fn evaluate(arguments: &[Value<'_>], texts: &[&[u8]], now_ms: i64) -> Option<Moment> {
    let mut moment = Moment::default();
    match arguments.first() {
        None => moment.set_ms(now_ms + UNIX_MS),
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

/// Exactly `count` digits from `i` on, within the bounds.
fn digits(text: &[u8], i: usize, count: usize, min: i32, max: i32) -> Option<i32> {
    let mut value = 0;
    for k in i..i + count {
        let digit = at(text, k);
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i32::from(digit - b'0');
    }
    (min..=max).contains(&value).then_some(value)
}

fn days_in_month(year: i32, month: i32) -> i32 {
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

    /// From civil date and time to milliseconds.
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

    /// From milliseconds to the civil date.
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

    fn parse(&mut self, text: &[u8], now_ms: i64) -> Option<()> {
        if self.parse_date(text).is_some() || self.parse_time(text).is_some() {
            return Some(());
        }
        if text.eq_ignore_ascii_case(b"now") {
            self.set_ms(now_ms + UNIX_MS);
            return Some(());
        }
        let number = number::real_prefix(text);
        if number.any && number.whole {
            self.set_number(number.real);
            return Some(());
        }
        if text.eq_ignore_ascii_case(b"subsec") || text.eq_ignore_ascii_case(b"subsecond") {
            self.subsecond = true;
            self.set_ms(now_ms + UNIX_MS);
            return Some(());
        }
        None
    }

    /// `[-]YYYY-MM-DD[ |T][time]`.
    fn parse_date(&mut self, text: &[u8]) -> Option<()> {
        let negative = at(text, 0) == b'-';
        let i = usize::from(negative);
        let mut year = digits(text, i, 4, 0, 14_712)?;
        let mut month = digits(text, i + 5, 2, 1, 12).filter(|_| at(text, i + 4) == b'-')?;
        let mut day = digits(text, i + 8, 2, 1, 31).filter(|_| at(text, i + 7) == b'-')?;
        let mut j = i + 10;
        while is_space(at(text, j)) || at(text, j) == b'T' {
            j += 1;
        }
        if self.parse_time(text.get(j..).unwrap_or_default()).is_some() {
            if self.hour == 24 {
                self.hour = 0;
                day += 1;
                if day > days_in_month(year, month) {
                    (day, month) = (day - days_in_month(year, month), month + 1);
                    if month > 12 {
                        (month, year) = (1, year + 1);
                    }
                }
            }
        } else if j >= text.len() {
            self.has_time = false;
        } else {
            return None;
        }
        self.has_ms = false;
        self.has_date = true;
        (self.year, self.month, self.day) = (if negative { -year } else { year }, month, day);
        self.note_overrun();
        if self.zone_minutes != 0 {
            self.fill_ms();
        }
        Some(())
    }

    /// `HH:MM[:SS[.FFF]][zone]`.
    fn parse_time(&mut self, text: &[u8]) -> Option<()> {
        let hour = digits(text, 0, 2, 0, 24)?;
        let minute = digits(text, 3, 2, 0, 59).filter(|_| at(text, 2) == b':')?;
        let (mut i, mut second, mut fraction) = (5, 0, 0.0);
        if at(text, i) == b':' {
            second = digits(text, i + 1, 2, 0, 59)?;
            i += 3;
            if at(text, i) == b'.' && at(text, i + 1).is_ascii_digit() {
                let mut scale = 1.0;
                i += 1;
                while at(text, i).is_ascii_digit() {
                    fraction = fraction * 10.0 + f64::from(at(text, i) - b'0');
                    scale *= 10.0;
                    i += 1;
                }
                fraction = f64::min(fraction / scale, 0.999);
            }
        }
        if hour == 24 && (minute != 0 || second != 0 || fraction != 0.0) {
            return None;
        }
        // What was read stands even when the zone is bad: the caller tries the other forms on it.
        (self.has_ms, self.raw, self.has_time) = (false, false, true);
        (self.hour, self.minute, self.second) = (hour, minute, f64::from(second) + fraction);
        self.parse_zone(text.get(i..).unwrap_or_default())
    }

    fn parse_zone(&mut self, text: &[u8]) -> Option<()> {
        let i = skip_spaces(text, 0);
        self.zone_minutes = 0;
        let end = match at(text, i) {
            0 => return (i >= text.len()).then_some(()),
            b'Z' | b'z' => i + 1,
            sign @ (b'+' | b'-') => {
                let hours = digits(text, i + 1, 2, 0, 14)?;
                let minutes = digits(text, i + 4, 2, 0, 59).filter(|_| at(text, i + 3) == b':')?;
                self.zone_minutes = (hours * 60 + minutes) * if sign == b'-' { -1 } else { 1 };
                i + 6
            }
            _ => return None,
        };
        (skip_spaces(text, end) >= text.len()).then_some(())
    }

    fn modify(&mut self, text: &[u8], place: usize) -> Option<()> {
        let is = |name: &str| text.eq_ignore_ascii_case(name.as_bytes());
        match at(text, 0).to_ascii_lowercase() {
            b'a' if is("auto") && place == 1 => self.auto(),
            b'c' if is("ceiling") => {
                self.fill_ms();
                self.forget_civil();
                self.overrun = 0;
            }
            b'f' if is("floor") => {
                self.fill_ms();
                self.ms -= i64::from(self.overrun) * DAY_MS;
                self.forget_civil();
            }
            b'j' if is("julianday") && place == 1 && self.has_ms && self.raw => self.raw = false,
            b'u' if is("unixepoch") && place == 1 && self.raw => {
                let ms = self.second * 1000.0 + UNIX_MS as f64;
                if !(0.0..(LAST_MS + 1) as f64).contains(&ms) {
                    return None;
                }
                self.set_ms((ms + 0.5) as i64);
                self.raw = false;
            }
            b'w' => return self.weekday(text),
            b's' if is("subsec") || is("subsecond") => self.subsecond = true,
            b's' => return self.start_of(text),
            b'e' => return self.end_of(text),
            b'+' | b'-' | b'0'..=b'9' => return self.shift(text),
            _ => return None,
        }
        Some(())
    }

    fn auto(&mut self) {
        if !self.raw || self.has_ms {
            self.raw = false;
        } else if (-210_866_760_000.0..=253_402_300_799.0).contains(&self.second) {
            let ms = self.second * 1000.0 + UNIX_MS as f64;
            self.set_ms((ms + 0.5) as i64);
            self.raw = false;
        }
    }

    fn weekday(&mut self, text: &[u8]) -> Option<()> {
        let rest = text.get(8..).filter(|_| text[..8].eq_ignore_ascii_case(b"weekday "))?;
        let number = number::real_prefix(rest);
        let wanted = number.real as i64;
        let valid = number.any && number.whole && (-6.0..=6.0).contains(&number.real);
        if !valid || !number::is_integer(number.real, wanted) {
            return None;
        }
        self.fill_civil();
        (self.zone_minutes, self.has_ms) = (0, false);
        self.fill_ms();
        let mut today = (self.ms + DAY_MS + HALF_DAY_MS) / DAY_MS % 7;
        let wanted = wanted.abs();
        if today != wanted {
            if today > wanted {
                today -= 7;
            }
            self.ms += (wanted - today) * DAY_MS;
            if rest.contains(&b'-') {
                self.ms -= 7 * DAY_MS;
            }
        }
        self.forget_civil();
        Some(())
    }

    fn set_day_time(&mut self, hour: i32, minute: i32, second: f64) {
        self.fill_date();
        (self.has_time, self.hour, self.minute, self.second) = (true, hour, minute, second);
        (self.raw, self.zone_minutes, self.has_ms) = (false, 0, false);
    }

    fn known(&self) -> bool {
        self.has_ms || self.has_date || self.has_time
    }

    fn start_of(&mut self, text: &[u8]) -> Option<()> {
        let unit = text.get(9..).filter(|_| text[..9].eq_ignore_ascii_case(b"start of "))?.to_ascii_lowercase();
        if !self.known() {
            return None;
        }
        self.set_day_time(0, 0, 0.0);
        match &unit[..] {
            b"day" => {}
            b"month" => self.day = 1,
            b"year" => (self.month, self.day) = (1, 1),
            _ => return None,
        }
        Some(())
    }

    fn end_of(&mut self, text: &[u8]) -> Option<()> {
        let unit = text.get(7..).filter(|_| text[..7].eq_ignore_ascii_case(b"end of "))?.to_ascii_lowercase();
        if !self.known() {
            return None;
        }
        self.set_day_time(23, 59, 59.999);
        match &unit[..] {
            b"day" => {}
            b"year" => (self.month, self.day) = (12, 31),
            b"month" => {
                (self.day, self.month) = (1, self.month + 1);
                if self.month > 12 {
                    (self.year, self.month) = (self.year + 1, 1);
                }
                self.note_overrun();
                self.fill_ms();
                self.ms -= i64::from(self.overrun + 1) * DAY_MS;
                self.forget_civil();
            }
            _ => return None,
        }
        Some(())
    }

    /// `NNN units`, `±HH:MM[:SS]`, `±YYYY-MM-DD[ HH:MM]`.
    fn shift(&mut self, text: &[u8]) -> Option<()> {
        let mut n = 1;
        while n < text.len() {
            let year_digits = |count: usize, max: i32| digits(text, 1, count, 0, max).is_some();
            match text[n] {
                b':' => break,
                byte if is_space(byte) => break,
                b'-' if (n == 5 && year_digits(4, 14_712)) || (n == 6 && year_digits(5, 14_712)) => break,
                _ => n += 1,
            }
        }
        let number = number::real_prefix(&text[..n]);
        if !number.any || !number.whole {
            return None;
        }
        match at(text, n) {
            b'-' => self.shift_date(text, n),
            b':' => self.shift_time(text, text[0] == b'-'),
            _ => self.shift_units(number.real, &text[skip_spaces(text, n)..]),
        }
    }

    fn shift_date(&mut self, text: &[u8], n: usize) -> Option<()> {
        let negative = match text[0] {
            b'-' => true,
            b'+' => false,
            _ => return None,
        };
        let years = digits(text, 1, n - 1, 0, 14_712)?;
        let months = digits(text, n + 1, 2, 0, 11)?;
        let days = digits(text, n + 4, 2, 0, 30).filter(|_| at(text, n + 3) == b'-')?;
        let sign = if negative { -1 } else { 1 };
        self.fill_civil();
        self.has_ms = false;
        self.year += sign * years;
        self.month += sign * months;
        self.carry_months();
        self.note_overrun();
        self.fill_ms();
        (self.has_time, self.has_date) = (false, false);
        self.ms += i64::from(sign * days) * DAY_MS;
        let end = n + 6;
        if at(text, end) == 0 {
            return Some(());
        }
        let time = text.get(end + 1..).filter(|_| is_space(text[end]))?;
        digits(time, 3, 2, 0, 59).filter(|_| at(time, 2) == b':' && digits(time, 0, 2, 0, 24).is_some())?;
        self.shift_time(time, negative)
    }

    fn carry_months(&mut self) {
        let years = if self.month > 0 { (self.month - 1) / 12 } else { (self.month - 12) / 12 };
        self.year += years;
        self.month -= years * 12;
    }

    fn shift_time(&mut self, text: &[u8], negative: bool) -> Option<()> {
        let text = if at(text, 0).is_ascii_digit() { text } else { text.get(1..)? };
        let mut time = Moment::default();
        time.parse_time(text)?;
        time.fill_ms();
        let ms = (time.ms - HALF_DAY_MS) % DAY_MS;
        self.fill_ms();
        self.forget_civil();
        self.ms += if negative { -ms } else { ms };
        Some(())
    }

    fn shift_units(&mut self, mut amount: f64, unit: &[u8]) -> Option<()> {
        /// Name, largest amount, milliseconds.
        const UNITS: [(&str, f64, f64); 6] = [
            ("second", 464_270_000_128_000.0, 1e3),
            ("minute", 7_737_900_007_424.0, 6e4),
            ("hour", 128_970_000_384.0, 3.6e6),
            ("day", 5_373_485.0, 8.64e7),
            ("month", 176_546.0, 2.592e9),
            ("year", 14_713.0, 3.1536e10),
        ];
        if !(3..=10).contains(&unit.len()) {
            return None;
        }
        let name = if unit[unit.len() - 1].eq_ignore_ascii_case(&b's') { &unit[..unit.len() - 1] } else { unit };
        self.fill_ms();
        self.overrun = 0;
        let rounder = if amount < 0.0 { -0.5 } else { 0.5 };
        let (unit, _, ms) = UNITS.into_iter().find(|(unit, limit, _)| {
            unit.as_bytes().eq_ignore_ascii_case(name) && amount > -limit && amount < *limit
        })?;
        if unit == "month" || unit == "year" {
            self.fill_civil();
            if unit == "month" {
                self.month += amount as i32;
                self.carry_months();
            } else {
                self.year += amount as i32;
            }
            if !self.failed {
                self.note_overrun();
            }
            self.has_ms = false;
            amount -= f64::from(amount as i32);
        }
        self.fill_ms();
        self.ms = self.ms.saturating_add((amount * 1000.0 * (ms / 1000.0) + rounder) as i64);
        self.forget_civil();
        Some(())
    }

    fn write_date(&mut self, out: &mut String) -> Option<()> {
        self.fill_date();
        let sign = if self.year < 0 { "-" } else { "" };
        write!(out, "{sign}{:04}-{:02}-{:02}", self.year.abs(), self.month, self.day).ok()
    }

    fn write_time(&mut self, out: &mut String) -> Option<()> {
        self.fill_time();
        write!(out, "{:02}:{:02}:", self.hour, self.minute).ok()?;
        if self.subsecond {
            let ms = (self.second * 1000.0 + 0.5) as i32;
            write!(out, "{:02}.{:03}", ms / 1000, ms % 1000).ok()
        } else {
            write!(out, "{:02}", self.second as i32).ok()
        }
    }

    /// Days since 1 January of the year.
    fn year_day(&self) -> i64 {
        let mut first = Moment { month: 1, day: 1, has_ms: false, ..*self };
        first.fill_ms();
        (self.ms - first.ms + HALF_DAY_MS) / DAY_MS
    }

    fn days_after_monday(&self) -> i64 {
        (self.ms + HALF_DAY_MS) / DAY_MS % 7
    }

    fn days_after_sunday(&self) -> i64 {
        (self.ms + DAY_MS + HALF_DAY_MS) / DAY_MS % 7
    }

    /// The Thursday of this week, which decides the ISO year.
    fn thursday(&self) -> Moment {
        let mut thursday = Moment { ms: self.ms + (3 - self.days_after_monday()) * DAY_MS, has_date: false, ..*self };
        thursday.fill_date();
        thursday
    }

    fn write_format(&mut self, format: &[u8], out: &mut String) -> Option<()> {
        self.fill_ms();
        self.fill_civil();
        let format = std::str::from_utf8(format).ok()?;
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character == '%' {
                self.write_field(characters.next()?, out)?;
            } else {
                out.push(character);
            }
        }
        Some(())
    }

    fn write_field(&self, field: char, out: &mut String) -> Option<()> {
        let half_day = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let second = self.second as i32;
        let written = match field {
            'd' => write!(out, "{:02}", self.day),
            'e' => write!(out, "{:2}", self.day),
            'f' => {
                // Rounded in decimal digits, as everything SQLite prints.
                let ms = (number::round(self.second.min(59.999), 3) * 1000.0).round() as i64;
                write!(out, "{:02}.{:03}", ms / 1000, ms % 1000)
            }
            'F' => write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day),
            'G' => write!(out, "{:04}", self.thursday().year),
            'g' => write!(out, "{:02}", self.thursday().year % 100),
            'H' => write!(out, "{:02}", self.hour),
            'k' => write!(out, "{:2}", self.hour),
            'I' => write!(out, "{half_day:02}"),
            'l' => write!(out, "{half_day:2}"),
            'j' => write!(out, "{:03}", self.year_day() + 1),
            'J' => {
                let arena = bumpalo::Bump::new();
                let text = super::format::general(self.ms as f64 / DAY_MS as f64, 16, &arena);
                write!(out, "{}", std::str::from_utf8(text).ok()?)
            }
            'm' => write!(out, "{:02}", self.month),
            'M' => write!(out, "{:02}", self.minute),
            'p' => write!(out, "{}", if self.hour >= 12 { "PM" } else { "AM" }),
            'P' => write!(out, "{}", if self.hour >= 12 { "pm" } else { "am" }),
            'R' => write!(out, "{:02}:{:02}", self.hour, self.minute),
            's' if self.subsecond => write!(out, "{:.3}", (self.ms - UNIX_MS) as f64 / 1000.0),
            's' => write!(out, "{}", self.ms / 1000 - UNIX_MS / 1000),
            'S' => write!(out, "{second:02}"),
            'T' => write!(out, "{:02}:{:02}:{second:02}", self.hour, self.minute),
            'u' if self.days_after_sunday() == 0 => write!(out, "7"),
            'u' | 'w' => write!(out, "{}", self.days_after_sunday()),
            'U' => write!(out, "{:02}", (self.year_day() - self.days_after_sunday() + 7) / 7),
            'V' => write!(out, "{:02}", self.thursday().year_day() / 7 + 1),
            'W' => write!(out, "{:02}", (self.year_day() - self.days_after_monday() + 7) / 7),
            'Y' => write!(out, "{:04}", self.year),
            '%' => write!(out, "%"),
            _ => return None,
        };
        written.ok()
    }
}
