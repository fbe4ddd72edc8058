//! What opening a folder with a configuration would change in the folder's catalog, or drop from it: a list in words.

use std::fmt;

/// Differences described in words; further ones are only counted.
pub const DIFFERENCES_MAX: usize = 20;

/// The differences between a configuration and a folder's catalog.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// What opening would do, in words; empty: nothing.
    pub listed: Vec<String>,
    /// The number of differences beyond [`DIFFERENCES_MAX`].
    pub more: usize,
}

impl Differences {
    /// Whether opening would change nothing.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    pub(crate) fn add(&mut self, what: String) {
        if self.listed.len() < DIFFERENCES_MAX {
            self.listed.push(what);
        } else {
            self.more += 1;
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.listed.join("; "))?;
        if self.more > 0 {
            write!(out, "; and {} more", self.more)?;
        }
        Ok(())
    }
}
