//! Moments as text: date, time, and the conversions of strftime.

use std::fmt::Write;

use super::{DAY_MS, HALF_DAY_MS, Moment, UNIX_MS};
use crate::sql::functions::format;
use crate::sql::limits::Meter;
use crate::sql::values::{Workspace, number};

impl Moment {
    pub(super) fn write_date<W: Write>(&mut self, out: &mut W) -> Option<()> {
        self.fill_date();
        let sign = if self.year < 0 { "-" } else { "" };
        out.write_str(sign).ok()?;
        padded(self.year.abs(), 4, out)?;
        for part in [self.month, self.day] {
            out.write_char('-').ok()?;
            padded(part, 2, out)?;
        }
        Some(())
    }

    pub(super) fn write_time<W: Write>(&mut self, out: &mut W) -> Option<()> {
        self.fill_time();
        padded(self.hour, 2, out)?;
        out.write_char(':').ok()?;
        padded(self.minute, 2, out)?;
        out.write_char(':').ok()?;
        if self.subsecond {
            let ms = (self.second * 1000.0 + 0.5) as i32;
            write!(out, "{:02}.{:03}", ms / 1000, ms % 1000).ok()
        } else {
            padded(self.second as i32, 2, out)
        }
    }

    /// Days since 1 January of the year.
    pub(super) fn year_day(&self) -> i64 {
        let mut first = Moment { month: 1, day: 1, has_ms: false, ..*self };
        first.fill_ms();
        (self.ms - first.ms + HALF_DAY_MS) / DAY_MS
    }

    pub(super) fn days_after_monday(&self) -> i64 {
        (self.ms + HALF_DAY_MS) / DAY_MS % 7
    }

    pub(super) fn days_after_sunday(&self) -> i64 {
        (self.ms + DAY_MS + HALF_DAY_MS) / DAY_MS % 7
    }

    /// The Thursday of this week, which determines the ISO year.
    pub(super) fn thursday(&self) -> Moment {
        let mut thursday = Moment { ms: self.ms + (3 - self.days_after_monday()) * DAY_MS, has_date: false, ..*self };
        thursday.fill_date();
        thursday
    }

    pub(super) fn write_format<W: Write>(&mut self, format: &[u8], out: &mut W) -> Option<()> {
        self.fill_ms();
        self.fill_civil();
        let format = std::str::from_utf8(format).ok()?;
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character == '%' {
                self.write_field(characters.next()?, out)?;
            } else {
                out.write_char(character).ok()?;
            }
        }
        Some(())
    }

    pub(super) fn write_field<W: Write>(&self, field: char, out: &mut W) -> Option<()> {
        let half_day = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let second = self.second as i32;
        let written = match field {
            'd' => return padded(self.day, 2, out),
            'e' => write!(out, "{:2}", self.day),
            'f' => {
                // Rounded in decimal digits, as in all output of SQLite.
                let ms = (number::round(self.second.min(59.999), 3) * 1000.0).round() as i64;
                write!(out, "{:02}.{:03}", ms / 1000, ms % 1000)
            }
            'F' => write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day),
            'G' => write!(out, "{:04}", self.thursday().year),
            'g' => write!(out, "{:02}", self.thursday().year % 100),
            'H' => return padded(self.hour, 2, out),
            'k' => write!(out, "{:2}", self.hour),
            'I' => write!(out, "{half_day:02}"),
            'l' => write!(out, "{half_day:2}"),
            'j' => write!(out, "{:03}", self.year_day() + 1),
            'J' => {
                let (arena, meter) = (bumpalo::Bump::new(), Meter::unbounded());
                let day = self.ms as f64 / DAY_MS as f64;
                let text = format::general(day, 16, Workspace::new(&arena, &meter)).ok()?;
                out.write_str(std::str::from_utf8(text).ok()?)
            }
            'm' => return padded(self.month, 2, out),
            'M' => return padded(self.minute, 2, out),
            'p' => write!(out, "{}", if self.hour >= 12 { "PM" } else { "AM" }),
            'P' => write!(out, "{}", if self.hour >= 12 { "pm" } else { "am" }),
            'R' => write!(out, "{:02}:{:02}", self.hour, self.minute),
            's' if self.subsecond => write!(out, "{:.3}", (self.ms - UNIX_MS) as f64 / 1000.0),
            's' => write!(out, "{}", self.ms / 1000 - UNIX_MS / 1000),
            'S' => return padded(second, 2, out),
            'T' => write!(out, "{:02}:{:02}:{second:02}", self.hour, self.minute),
            'u' if self.days_after_sunday() == 0 => write!(out, "7"),
            'u' | 'w' => write!(out, "{}", self.days_after_sunday()),
            'U' => write!(out, "{:02}", (self.year_day() - self.days_after_sunday() + 7) / 7),
            'V' => write!(out, "{:02}", self.thursday().year_day() / 7 + 1),
            'W' => write!(out, "{:02}", (self.year_day() - self.days_after_monday() + 7) / 7),
            'Y' => return padded(self.year, 4, out),
            '%' => write!(out, "%"),
            _ => return None,
        };
        written.ok()
    }
}

/// A number with leading zeros, as `{:0width$}` formats it. Usual numbers avoid the formatting machinery, which would take half
/// of a date's time.
fn padded<W: Write>(number: i32, width: usize, out: &mut W) -> Option<()> {
    const WIDTH_MAX: usize = 4;
    let (mut digits, mut rest) = ([b'0'; WIDTH_MAX], number);
    if number < 0 || width > WIDTH_MAX || number >= 10i32.pow(width as u32) {
        return write!(out, "{number:0width$}").ok();
    }
    for digit in digits[..width].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.write_str(std::str::from_utf8(&digits[..width]).ok()?).ok()
}
