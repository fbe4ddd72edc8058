//! Moments as text: date, time, and the conversions of strftime.

use super::{DAY_MS, HALF_DAY_MS, Moment, UNIX_MS};
use crate::sql::functions::format;
use crate::sql::limits::{Fault, Meter};
use crate::sql::values::workspace::TextBuilder;
use crate::sql::values::{Workspace, number};

impl Moment {
    pub(super) fn write_date(&mut self, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
        self.fill_date();
        if self.year < 0 {
            out.push(b'-')?;
        }
        padded(self.year.abs(), 4, out)?;
        for part in [self.month, self.day] {
            out.push(b'-')?;
            padded(part, 2, out)?;
        }
        Ok(())
    }

    pub(super) fn write_time(&mut self, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
        self.fill_time();
        padded(self.hour, 2, out)?;
        out.push(b':')?;
        padded(self.minute, 2, out)?;
        out.push(b':')?;
        if self.subsecond {
            let ms = (self.second * 1000.0 + 0.5) as i32;
            out.format(format_args!("{:02}.{:03}", ms / 1000, ms % 1000))
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

    /// Returns false if the format has a conversion that does not exist.
    pub(super) fn write_format(&mut self, format: &[u8], out: &mut TextBuilder<'_>) -> Result<bool, Fault> {
        self.fill_ms();
        self.fill_civil();
        let mut rest = format;
        while let Some(place) = rest.iter().position(|byte| *byte == b'%') {
            out.extend(&rest[..place])?;
            let Some((conversion, behind)) = rest[place + 1..].split_first() else { return Ok(false) };
            if !self.write_field(*conversion, out)? {
                return Ok(false);
            }
            rest = behind;
        }
        out.extend(rest)?;
        Ok(true)
    }

    /// Returns false if the conversion does not exist.
    fn write_field(&self, conversion: u8, out: &mut TextBuilder<'_>) -> Result<bool, Fault> {
        let half_day = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let second = self.second as i32;
        match conversion {
            b'd' => padded(self.day, 2, out)?,
            b'e' => out.format(format_args!("{:2}", self.day))?,
            b'f' => {
                // Rounded in decimal digits, as in all output of SQLite.
                let ms = (number::round(self.second.min(59.999), 3) * 1000.0).round() as i64;
                out.format(format_args!("{:02}.{:03}", ms / 1000, ms % 1000))?;
            }
            b'F' => out.format(format_args!("{:04}-{:02}-{:02}", self.year, self.month, self.day))?,
            b'G' => out.format(format_args!("{:04}", self.thursday().year))?,
            b'g' => out.format(format_args!("{:02}", self.thursday().year % 100))?,
            b'H' => padded(self.hour, 2, out)?,
            b'k' => out.format(format_args!("{:2}", self.hour))?,
            b'I' => out.format(format_args!("{half_day:02}"))?,
            b'l' => out.format(format_args!("{half_day:2}"))?,
            b'j' => out.format(format_args!("{:03}", self.year_day() + 1))?,
            b'J' => {
                let (arena, meter) = (bumpalo::Bump::new(), Meter::unbounded());
                let day = self.ms as f64 / DAY_MS as f64;
                let text = format::general(day, 16, Workspace::new(&arena, &meter))?;
                out.extend(text)?;
            }
            b'm' => padded(self.month, 2, out)?,
            b'M' => padded(self.minute, 2, out)?,
            b'p' => out.extend(if self.hour >= 12 { b"PM" } else { b"AM" })?,
            b'P' => out.extend(if self.hour >= 12 { b"pm" } else { b"am" })?,
            b'R' => out.format(format_args!("{:02}:{:02}", self.hour, self.minute))?,
            b's' if self.subsecond => out.format(format_args!("{:.3}", (self.ms - UNIX_MS) as f64 / 1000.0))?,
            b's' => out.format(format_args!("{}", self.ms / 1000 - UNIX_MS / 1000))?,
            b'S' => padded(second, 2, out)?,
            b'T' => out.format(format_args!("{:02}:{:02}:{second:02}", self.hour, self.minute))?,
            b'u' if self.days_after_sunday() == 0 => out.push(b'7')?,
            b'u' | b'w' => out.format(format_args!("{}", self.days_after_sunday()))?,
            b'U' => out.format(format_args!("{:02}", (self.year_day() - self.days_after_sunday() + 7) / 7))?,
            b'V' => out.format(format_args!("{:02}", self.thursday().year_day() / 7 + 1))?,
            b'W' => out.format(format_args!("{:02}", (self.year_day() - self.days_after_monday() + 7) / 7))?,
            b'Y' => padded(self.year, 4, out)?,
            b'%' => out.push(b'%')?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A number with leading zeros, as `{:0width$}` formats it. Usual numbers avoid the formatting machinery, which would take half
/// of a date's time.
fn padded(number: i32, width: usize, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    const WIDTH_MAX: usize = 4;
    let (mut digits, mut rest) = ([b'0'; WIDTH_MAX], number);
    if number < 0 || width > WIDTH_MAX || number >= 10i32.pow(width as u32) {
        return out.format(format_args!("{number:0width$}"));
    }
    for digit in digits[..width].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend(&digits[..width])
}
