//! Modifiers: they change a moment, in the order of the text.

use super::read::digits;
use super::{DAY_MS, HALF_DAY_MS, LAST_MS, Moment, UNIX_MS, at, is_space, skip_spaces};
use crate::sql::values::number;

/// No unit's name is this long.
const UNIT_BYTES_MAX: usize = 16;

impl Moment {
    pub(super) fn modify(&mut self, text: &[u8], place: usize) -> Option<()> {
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

    pub(super) fn auto(&mut self) {
        if !self.raw || self.has_ms {
            self.raw = false;
        } else if (-210_866_760_000.0..=253_402_300_799.0).contains(&self.second) {
            let ms = self.second * 1000.0 + UNIX_MS as f64;
            self.set_ms((ms + 0.5) as i64);
            self.raw = false;
        }
    }

    pub(super) fn weekday(&mut self, text: &[u8]) -> Option<()> {
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

    pub(super) fn set_day_time(&mut self, hour: i32, minute: i32, second: f64) {
        self.fill_date();
        (self.has_time, self.hour, self.minute, self.second) = (true, hour, minute, second);
        (self.raw, self.zone_minutes, self.has_ms) = (false, 0, false);
    }

    pub(super) fn known(&self) -> bool {
        self.has_ms || self.has_date || self.has_time
    }

    pub(super) fn start_of(&mut self, text: &[u8]) -> Option<()> {
        let unit = text.get(9..).filter(|_| text[..9].eq_ignore_ascii_case(b"start of "))?;
        let unit = unit.get(..unit.len().min(UNIT_BYTES_MAX)).unwrap_or_default().to_ascii_lowercase();
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

    pub(super) fn end_of(&mut self, text: &[u8]) -> Option<()> {
        let unit = text.get(7..).filter(|_| text[..7].eq_ignore_ascii_case(b"end of "))?;
        let unit = unit.get(..unit.len().min(UNIT_BYTES_MAX)).unwrap_or_default().to_ascii_lowercase();
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
    pub(super) fn shift(&mut self, text: &[u8]) -> Option<()> {
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

    pub(super) fn shift_date(&mut self, text: &[u8], n: usize) -> Option<()> {
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

    pub(super) fn carry_months(&mut self) {
        let years = if self.month > 0 { (self.month - 1) / 12 } else { (self.month - 12) / 12 };
        self.year += years;
        self.month -= years * 12;
    }

    pub(super) fn shift_time(&mut self, text: &[u8], negative: bool) -> Option<()> {
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

    pub(super) fn shift_units(&mut self, mut amount: f64, unit: &[u8]) -> Option<()> {
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
}
