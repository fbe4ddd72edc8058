//! How messages name a value: the keys that lead to it, as in `collections.users.indexes[2]`.
//!
//! A name is put together when a message shows it. To keep it as text beside each value took the square of the file's length
//! where many values stand under a long name.

use std::fmt;
use std::rc::Rc;

/// The keys that lead to a value, the last one in front.
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
