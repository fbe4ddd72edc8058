//! TIMEDIFF: the years, months, days and time to add to one moment to get another, as SQLite counts them.

use super::{Moment, evaluate};
use crate::sql::limits::Fault;
use crate::sql::values::{Value, Workspace};

/// 0000-01-01 as a moment: what remains beside years and months is written as a date from here.
const YEAR_ZERO_MS: i64 = 148_699_540_800_000;

/// `TIMEDIFF(to, from)`.
pub(super) fn between<'a>(
    arguments: &[Value<'_>],
    texts: &[&[u8]],
    now_ms: i64,
    workspace: Workspace<'a>,
) -> Result<Value<'a>, Fault> {
    let moment = |place: usize| evaluate(arguments.get(place..=place)?, texts.get(place..=place)?, now_ms);
    let (Some(mut to), Some(mut from)) = (moment(0), moment(1)) else { return Ok(Value::Null) };
    to.fill_civil();
    from.fill_civil();
    let is_later = to.ms >= from.ms;
    let sign: i32 = if is_later { 1 } else { -1 };
    // The earlier moment is moved to the year and month of `to`, and back by a month while it is then beyond `to`.
    let mut years = sign * (to.year - from.year);
    let mut months = sign * (to.month - from.month);
    if months < 0 {
        years -= 1;
        months += 12;
    }
    from.move_to(to.year, to.month);
    while (to.ms - from.ms).signum() == -i64::from(sign) && !from.failed {
        months -= 1;
        if months < 0 {
            months = 11;
            years -= 1;
        }
        match from.month - sign {
            0 => from.move_to(from.year - 1, 12),
            13 => from.move_to(from.year + 1, 1),
            month => from.move_to(from.year, month),
        }
    }
    let mut rest = Moment::default();
    rest.set_ms((to.ms - from.ms).abs() + YEAR_ZERO_MS);
    rest.fill_civil();
    let Moment { day, hour, minute, second, .. } = rest;
    let mut out = workspace.text();
    let sign = if is_later { '+' } else { '-' };
    out.format(format_args!("{sign}{years:04}-{months:02}-{:02} {hour:02}:{minute:02}:{second:06.3}", day - 1))?;
    Ok(out.value())
}

impl Moment {
    /// Moves it to another year and month. A day beyond the month's end overflows.
    fn move_to(&mut self, year: i32, month: i32) {
        (self.year, self.month) = (year, month);
        self.has_ms = false;
        self.fill_ms();
    }
}
