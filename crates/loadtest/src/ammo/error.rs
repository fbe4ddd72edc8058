//! Errors of ammo and answers: the input's name, the place in it, and the problem.

use std::fmt;

/// An error in an input. Its text names the input and the place, and says what is allowed there.
#[derive(Debug)]
pub struct AmmoError {
    input: String,
    place: AmmoPlace,
    reason: String,
    ends_input: bool,
}

/// A place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmmoPlace {
    /// The whole input.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A record of a format that is not line-based (phantom, HAR), counted from 1.
    Record(u64),
}

impl AmmoError {
    /// An error in one record at `place` of the input that the user knows as `input`. Later records can be read.
    pub fn record(input: &str, place: AmmoPlace, reason: impl Into<String>) -> AmmoError {
        AmmoError { input: input.to_owned(), place, reason: reason.into(), ends_input: false }
    }

    /// An error after which nothing more of the input can be read: it failed, or the start of the next record is
    /// unknown.
    pub fn input(input: &str, place: AmmoPlace, reason: impl Into<String>) -> AmmoError {
        AmmoError { input: input.to_owned(), place, reason: reason.into(), ends_input: true }
    }

    /// Whether nothing after the error can be read.
    pub fn ends_input(&self) -> bool {
        self.ends_input
    }

    /// The place of the error.
    pub fn place(&self) -> AmmoPlace {
        self.place
    }
}

impl fmt::Display for AmmoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            AmmoPlace::Whole => write!(f, "{}: {}", self.input, self.reason),
            AmmoPlace::Line(number) => write!(f, "{}, line {number}: {}", self.input, self.reason),
            AmmoPlace::Record(number) => write!(f, "{}, record {number}: {}", self.input, self.reason),
        }
    }
}

impl std::error::Error for AmmoError {}
