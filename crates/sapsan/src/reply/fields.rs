//! The header fields that a reply sets.

use std::borrow::Cow;

/// Header fields. The first one, usually the only one, needs no allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    first: Option<Field>,
    more: Vec<Field>,
}

pub(crate) type Field = (Cow<'static, str>, Cow<'static, str>);

impl Fields {
    pub(crate) fn push(&mut self, name: Cow<'static, str>, value: Cow<'static, str>) {
        match self.first {
            None => self.first = Some((name, value)),
            Some(_) => self.more.push((name, value)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.first.iter().chain(&self.more)
    }

    /// Names and values as text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().map(|(name, value)| (&**name, &**value))
    }
}
