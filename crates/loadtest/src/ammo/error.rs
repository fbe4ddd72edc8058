//! Why ammo or answers cannot be read on: the input's name, the place in it, and what is wrong there.

use std::fmt;

/// A fault of an input. Its text names the input and the place, and says what is allowed there.
#[derive(Debug)]
pub struct AmmoError {
    input: String,
    place: Place,
    reason: String,
    ends_input: bool,
}

/// Where in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole input.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A record of a format that does not go by lines (phantom, HAR), counted from 1.
    Record(u64),
}

impl AmmoError {
    /// A fault of one record at `place` of the input that the user knows as `input`. The records behind it can be read.
    pub fn record(input: &str, place: Place, reason: impl Into<String>) -> AmmoError {
        AmmoError { input: input.to_owned(), place, reason: reason.into(), ends_input: false }
    }

    /// A fault behind which nothing of the input can be read: it is gone, or nobody knows where the next record begins.
    pub fn input(input: &str, place: Place, reason: impl Into<String>) -> AmmoError {
        AmmoError { input: input.to_owned(), place, reason: reason.into(), ends_input: true }
    }

    /// Whether nothing behind the fault can be read.
    pub fn ends_input(&self) -> bool {
        self.ends_input
    }

    /// Where the fault is.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl fmt::Display for AmmoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Whole => write!(f, "{}: {}", self.input, self.reason),
            Place::Line(number) => write!(f, "{}, line {number}: {}", self.input, self.reason),
            Place::Record(number) => write!(f, "{}, record {number}: {}", self.input, self.reason),
        }
    }
}

impl std::error::Error for AmmoError {}
