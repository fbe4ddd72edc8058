//! Time values as text: dates, times, zones, numbers, `now`.

use super::{Moment, at, days_in_month, is_space, skip_spaces};
use crate::sql::values::number;

impl Moment {
    pub(super) fn parse(&mut self, text: &[u8], now_ms: i64) -> Option<()> {
        if self.parse_date(text).is_some() || self.parse_time(text).is_some() {
            return Some(());
        }
        if text.eq_ignore_ascii_case(b"now") {
            self.set_unix_ms(now_ms);
            return Some(());
        }
        let number = number::real_prefix(text);
        if number.any && number.whole {
            self.set_number(number.real);
            return Some(());
        }
        if text.eq_ignore_ascii_case(b"subsec") || text.eq_ignore_ascii_case(b"subsecond") {
            self.subsecond = true;
            self.set_unix_ms(now_ms);
            return Some(());
        }
        None
    }

    /// `[-]YYYY-MM-DD[ |T][time]`.
    pub(super) fn parse_date(&mut self, text: &[u8]) -> Option<()> {
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
    pub(super) fn parse_time(&mut self, text: &[u8]) -> Option<()> {
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
        // The fields are set even if the zone is invalid, as in SQLite: the caller tries the other forms on them.
        (self.has_ms, self.raw, self.has_time) = (false, false, true);
        (self.hour, self.minute, self.second) = (hour, minute, f64::from(second) + fraction);
        self.parse_zone(text.get(i..).unwrap_or_default())
    }

    pub(super) fn parse_zone(&mut self, text: &[u8]) -> Option<()> {
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
}

/// Exactly `count` digits from `i` on, within the bounds.
pub(super) fn digits(text: &[u8], i: usize, count: usize, min: i32, max: i32) -> Option<i32> {
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
