//! Checked reading of a TOML table: each value knows its place, and each mistake states what is allowed.
//!
//! A reader first names the allowed keys ([`ConfigTable::check_keys`]), then takes values by type. A missing value or one of
//! another type is recorded in the [`ConfigFile`] and returned as `None`, so that reading continues and finds further mistakes.

use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use toml::de::{DeTable, DeValue};

use super::source::ConfigFile;
use super::trail::Trail;

/// A table, its path for messages, and its place in the file.
#[derive(Clone)]
pub struct ConfigTable<'a> {
    source: &'a ConfigFile<'a>,
    table: &'a DeTable<'a>,
    trail: Rc<Trail<'a>>,
    span: Range<usize>,
}

/// A value, its path for messages, and its place in the file.
#[derive(Clone)]
pub struct Item<'a> {
    source: &'a ConfigFile<'a>,
    value: &'a DeValue<'a>,
    name: &'a str,
    trail: Trail<'a>,
    span: Range<usize>,
    key_span: Range<usize>,
}

impl<'a> ConfigTable<'a> {
    /// The whole file.
    pub fn root(source: &'a ConfigFile<'a>, document: &'a DeTable<'a>) -> Self {
        ConfigTable { source, table: document, trail: Rc::new(Trail::Start), span: 0..0 }
    }

    /// Its name in messages: `[collections.users]`, or "the file".
    pub fn name(&self) -> String {
        match &*self.trail {
            Trail::Start => "the file".to_string(),
            trail => format!("[{trail}]"),
        }
    }

    /// Records a mistake for every key that is not `allowed`; the keys in `later` are reserved and reported as not available
    /// yet.
    pub fn check_keys(&self, allowed: &[&str], later: &[&str]) {
        for item in self.entries() {
            if later.contains(&item.name) {
                let what = format!("`{}` in {} is not supported yet", item.name, self.name());
                self.source.mistake(item.key_span, what, allowed.join(", "));
            } else if !allowed.contains(&item.name) {
                let what = format!("unknown key `{}` in {}", item.name, self.name());
                self.source.mistake(item.key_span, what, allowed.join(", "));
            }
        }
    }

    /// The values in the order of the file.
    pub fn entries(&self) -> Vec<Item<'a>> {
        let mut items: Vec<Item<'a>> = self.table.keys().filter_map(|key| self.get(key.get_ref())).collect();
        items.sort_by_key(|item| item.key_span.start);
        items
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Item<'a>> {
        let (key, value) = self.table.get_key_value(key)?;
        let name: &'a str = key.get_ref();
        let trail = Trail::Key(Rc::clone(&self.trail), name);
        let (span, key_span) = (value.span(), key.span());
        Some(Item { source: self.source, value: value.get_ref(), name, trail, span, key_span })
    }

    /// The value of a required key; a missing one is a mistake.
    pub fn require(&self, key: &str) -> Option<Item<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.mistake(format!("{} needs `{key}`", self.name()), "");
        }
        found
    }

    /// Records a mistake at the table's head.
    pub fn mistake(&self, what: impl Into<String>, allowed: impl Into<String>) {
        self.source.mistake(self.span.clone(), what, allowed);
    }

    /// The bytes of the table's head in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The file it is in.
    pub fn source(&self) -> &'a ConfigFile<'a> {
        self.source
    }
}

impl<'a> Item<'a> {
    /// Its key.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its path in messages: `collections.users.key`.
    pub fn path(&self) -> &(impl std::fmt::Display + use<'a>) {
        &self.trail
    }

    /// The TOML value itself.
    pub fn value(&self) -> &'a DeValue<'a> {
        self.value
    }

    /// The bytes of the value in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The file it is in.
    pub fn source(&self) -> &'a ConfigFile<'a> {
        self.source
    }

    /// Records a mistake at this value.
    pub fn mistake(&self, what: impl Into<String>, allowed: impl Into<String>) {
        self.source.mistake(self.span.clone(), what, allowed);
    }

    /// Records a mistake at the value's key.
    pub fn mistake_in_name(&self, what: impl Into<String>, allowed: impl Into<String>) {
        self.source.mistake(self.key_span.clone(), what, allowed);
    }

    /// Records that the value has the wrong type.
    pub fn mismatch(&self, expected: &str) {
        let what = format!("`{}` is {}", self.trail, article(self.value.type_str()));
        self.mistake(what, expected);
    }

    /// As a table.
    pub fn table(&self) -> Option<ConfigTable<'a>> {
        let table = self.value.as_table().or_else(|| {
            self.mismatch("a table");
            None
        })?;
        Some(ConfigTable {
            source: self.source,
            table,
            trail: Rc::new(self.trail.clone()),
            span: self.key_span.clone(),
        })
    }

    /// As text.
    pub fn text(&self) -> Option<&'a str> {
        self.value.as_str().or_else(|| {
            self.mismatch("text in quotes");
            None
        })
    }

    /// As true or false.
    pub fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| {
            self.mismatch("true, false");
            None
        })
    }

    /// As an integer within a range.
    pub fn integer(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let allowed = || {
            if range == (i64::MIN..=i64::MAX) {
                "an integer".to_string()
            } else {
                format!("an integer from {} to {}", range.start(), range.end())
            }
        };
        let Some(integer) = self.value.as_integer() else {
            self.mismatch(&allowed());
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|n| range.contains(n));
        if number.is_none() {
            self.mistake(format!("`{}` is {integer}", self.trail), allowed());
        }
        number
    }

    /// As one of the given words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let allowed = || words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let Some(text) = self.value.as_str() else {
            self.mismatch(&allowed());
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            self.mistake(format!("`{}` is \"{text}\"", self.trail), allowed());
        }
        found
    }

    /// As a list; its items have the list's name and their number.
    pub fn list(&self) -> Option<Vec<Item<'a>>> {
        let array = self.value.as_array().or_else(|| {
            self.mismatch("a list in brackets");
            None
        })?;
        let trail = Rc::new(self.trail.clone());
        let items = array.iter().enumerate().map(|(number, value)| Item {
            source: self.source,
            value: value.get_ref(),
            name: self.name,
            trail: Trail::Number(Rc::clone(&trail), number),
            span: value.span(),
            key_span: value.span(),
        });
        Some(items.collect())
    }

    /// As a list of texts.
    pub fn texts(&self) -> Option<Vec<(String, Item<'a>)>> {
        let items = self.list()?;
        let texts = items.into_iter().filter_map(|item| Some((item.text()?.to_string(), item)));
        Some(texts.collect())
    }
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}
