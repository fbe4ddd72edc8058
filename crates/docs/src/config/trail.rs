//! The path of a value in messages: the keys that lead to it, as in `collections.users.indexes[2]`.
//!
//! The text is made only for a message. Storing it beside each value would take memory quadratic in the file's length if many
//! values are nested under a long name.

use std::fmt;
use std::rc::Rc;

/// The keys that lead to a value, the last one first.
#[derive(Clone)]
pub(crate) enum Trail<'a> {
    /// The file itself.
    Start,
    /// A key of a table.
    Key(Rc<Trail<'a>>, &'a str),
    /// A place of a list.
    Number(Rc<Trail<'a>>, usize),
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trail::Start => Ok(()),
            Trail::Key(before, name) if matches!(**before, Trail::Start) => out.write_str(name),
            Trail::Key(before, name) => write!(out, "{before}.{name}"),
            Trail::Number(before, number) => write!(out, "{before}[{number}]"),
        }
    }
}
