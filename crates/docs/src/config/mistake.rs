//! A mistake in a configuration file, and the list of all mistakes of a file.

use std::fmt;

/// Mistakes that are reported; further ones are only counted.
pub const MISTAKES_MAX: usize = 20;

/// One mistake: its place, what is wrong, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as the user named it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What is allowed; empty if `what` says everything.
    pub allowed: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)?;
        if !self.allowed.is_empty() {
            write!(out, "; allowed: {}", self.allowed)?;
        }
        Ok(())
    }
}

/// All mistakes of a file, in the order of their places; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The first [`MISTAKES_MAX`].
    pub list: Vec<Mistake>,
    /// The number of further ones.
    pub more: usize,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.list.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            write!(out, "{mistake}")?;
        }
        if self.more > 0 {
            write!(out, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
