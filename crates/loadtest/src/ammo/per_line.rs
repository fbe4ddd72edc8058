//! Records of the formats that have one request on each line.

use super::Records;
use super::error::AmmoError;
use super::lines::Lines;
use super::request::{Defaults, PreparedRequest};
use super::template::Values;
use std::io::BufRead;

/// Makes the request of one line; the error describes the problem.
pub(super) type Make = fn(&[u8], &Defaults, &mut Values, &mut PreparedRequest) -> Result<(), String>;

/// Reads the lines of `reader`, and makes a request of each.
pub(super) struct PerLine<R> {
    lines: Lines<R>,
    defaults: Defaults,
    make: Make,
}

impl<R: BufRead> PerLine<R> {
    pub(super) fn new(name: &str, reader: R, defaults: Defaults, make: Make) -> PerLine<R> {
        PerLine { lines: Lines::new(name, reader), defaults, make }
    }
}

impl<R: BufRead + Send> Records for PerLine<R> {
    fn next(&mut self, values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        let Some(line) = self.lines.next_entry()? else { return Ok(false) };
        let made = (self.make)(line, &self.defaults, values, request);
        made.map(|()| true).map_err(|reason| self.lines.error(reason))
    }

    fn fault(&self, reason: String) -> AmmoError {
        self.lines.error(reason)
    }
}
