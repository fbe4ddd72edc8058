//! A configuration file being read: its text, its name for messages, and the mistakes found so far.
//!
//! All parts of a file are read through [`crate::config::ConfigTable`], which records mistakes here, so that the user sees them
//! all at once: first [`ConfigFile::document`], then each section's reader, then [`ConfigFile::finish`].

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::mistake::{MISTAKES_MAX, Mistake, Mistakes};

/// One file.
pub struct ConfigFile<'t> {
    path: PathBuf,
    text: &'t str,
    mistakes: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    list: Vec<(usize, Mistake)>,
    more: usize,
}

impl<'t> ConfigFile<'t> {
    /// A file's text; messages show the path, and paths inside the file are relative to it.
    pub fn new(path: &Path, text: &'t str) -> Self {
        ConfigFile { path: path.to_path_buf(), text, mistakes: RefCell::default() }
    }

    /// Parses the TOML. Syntax errors are recorded as mistakes and an empty table is returned: reading a partial file would
    /// only add misleading mistakes.
    pub fn document(&self) -> DeTable<'t> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        if !errors.is_empty() {
            errors.iter().for_each(|error| {
                self.mistake(error.span().unwrap_or(0..0), format!("not TOML: {}", error.message()), "");
            });
            return DeTable::default();
        }
        document.into_inner()
    }

    /// Records a mistake at a place of the text. The same mistake at the same place is recorded once, because a part of the
    /// file that several others share is read once for each of them.
    pub fn mistake(&self, at: Range<usize>, what: impl Into<String>, allowed: impl Into<String>) {
        let mut found = self.mistakes.borrow_mut();
        let (what, allowed) = (what.into(), allowed.into());
        if found.list.iter().any(|(known, mistake)| *known == at.start && mistake.what == what) {
            return;
        }
        // Line and column are computed only for reported mistakes, as each computation reads the file up to there.
        if found.list.len() == MISTAKES_MAX {
            found.more += 1;
            return;
        }
        let (line, column) = self.place(at.start);
        let file = self.path.display().to_string();
        let mistake = Mistake { file, line, column, what, allowed };
        found.list.push((at.start, mistake));
    }

    /// The number of mistakes recorded so far.
    pub fn mistakes(&self) -> usize {
        let found = self.mistakes.borrow();
        found.list.len() + found.more
    }

    /// Whether no mistake was recorded so far.
    pub fn is_clean(&self) -> bool {
        self.mistakes.borrow().list.is_empty()
    }

    /// The path of a file named inside this one.
    pub fn relative(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// The mistakes, sorted by place, if there are any.
    pub fn finish(self) -> Result<(), Mistakes> {
        let mut found = self.mistakes.into_inner();
        if found.list.is_empty() {
            return Ok(());
        }
        found.list.sort_by_key(|(at, _)| *at);
        Err(Mistakes { list: found.list.into_iter().map(|(_, mistake)| mistake).collect(), more: found.more })
    }

    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}
