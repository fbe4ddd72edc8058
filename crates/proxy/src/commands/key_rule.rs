//! Positions of the keys in a request.
//!
//! Most commands have their keys at fixed positions: the first, the last and the step that `COMMAND` reports. Others contain the
//! number of their keys, or list them after a keyword; Redis 7 describes these by key specifications (Redis documentation,
//! "Command key specifications"). For a few commands the specifications are incomplete, and a rule of their own finds the keys
//! ([`KeyRule::Sort`] …).

use super::request::CommandRequest;

/// How the keys of a command are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// The command has no keys.
    None,
    /// Key specifications, each of which yields a range of keys or none; at most [`RANGES_MAX`].
    Specs(Box<[KeySpec]>),
    /// SORT: the first argument, and the one after the last STORE. Keys that BY and GET derive from elements are unknown.
    Sort,
    /// GEORADIUS and GEORADIUSBYMEMBER: the first argument, and the one after the last STORE or STOREDIST from this position on.
    GeoRadius(usize),
    /// MIGRATE: the third argument, or, if it is empty, those after KEYS.
    Migrate,
}

/// A key specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where the search begins.
    pub begin: SearchStart,
    /// How the keys are found from there.
    pub find: Find,
}

/// Where the search for keys begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchStart {
    /// At an argument.
    Index(usize),
    /// After a keyword.
    Keyword {
        /// Compared without regard to case.
        word: Box<[u8]>,
        /// Argument at which the search begins; a negative one counts from the end, and the search goes backward.
        from: i64,
    },
}

/// How keys are found from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    /// All up to a last one.
    Range {
        /// Relative to the first key; if negative, to the end of the request.
        last: i64,
        /// Distance from one key to the next.
        step: usize,
        /// For a negative `last`: 2 means that only the first half of the remaining arguments is keys, and so on; 0 and 1 mean
        /// all.
        limit: usize,
    },
    /// As many as an argument states.
    Number {
        /// The argument with the number, relative to the begin.
        at: usize,
        /// The first key, relative to the begin.
        first: usize,
        /// Distance from one key to the next.
        step: usize,
    },
}

/// Largest number of key ranges in one request.
pub const RANGES_MAX: usize = 4;

/// Keys at equal distances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStride {
    /// The first key's argument.
    pub first: usize,
    /// The last key's argument.
    pub last: usize,
    /// At least 1.
    pub step: usize,
}

/// Positions of the keys of one request, in the order of the rules that found them.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyPositions {
    ranges: [KeyStride; RANGES_MAX],
    count: usize,
}

impl KeyPositions {
    fn push(&mut self, range: KeyStride) {
        if let Some(place) = self.ranges.get_mut(self.count) {
            *place = range;
            self.count += 1;
        }
    }

    fn push_one(&mut self, index: usize) {
        self.push(KeyStride { first: index, last: index, step: 1 });
    }

    /// Positions of the arguments that are keys.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let (ranges, count) = (self.ranges, self.count);
        ranges.into_iter().take(count).flat_map(|range| (range.first..=range.last).step_by(range.step))
    }

    /// Whether no key was found.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The arguments do not fit the command: the number of keys is not a number, or exceeds the number of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedKeys;

impl KeyRule {
    /// The rule for the three numbers of `COMMAND`: first key, last key and step; a negative last key counts from the end.
    pub fn classic(first: i64, last: i64, step: i64) -> KeyRule {
        let (Ok(first @ 1..), Ok(step @ 1..)) = (usize::try_from(first), usize::try_from(step)) else {
            return KeyRule::None;
        };
        let last = if last < 0 { last } else { (last - first as i64).max(0) };
        KeyRule::Specs(Box::new([KeySpec {
            begin: SearchStart::Index(first),
            find: Find::Range { last, step, limit: 0 },
        }]))
    }

    /// The position of the only key of every request of the command; none if the rule differs.
    pub fn only_key(&self) -> Option<usize> {
        let KeyRule::Specs(specs) = self else { return None };
        match &**specs {
            [KeySpec { begin: SearchStart::Index(first), find: Find::Range { last: 0, .. } }] => Some(*first),
            _ => None,
        }
    }

    /// Finds the keys of a request.
    ///
    /// # Errors
    /// The arguments do not fit the rule.
    pub fn keys(&self, request: &CommandRequest<'_>) -> Result<KeyPositions, MalformedKeys> {
        let mut keys = KeyPositions::default();
        match self {
            KeyRule::None => {}
            KeyRule::Specs(specs) => {
                for spec in specs {
                    if let Some(range) = spec.range(request)? {
                        keys.push(range);
                    }
                }
            }
            KeyRule::Sort => {
                keys.push_one(1);
                let store = behind_last(request, sort_options(request).filter(|at| request.is_word(*at, b"STORE")));
                store.into_iter().for_each(|at| keys.push_one(at));
            }
            KeyRule::GeoRadius(from) => {
                keys.push_one(1);
                let is_store = |at: &usize| request.is_word(*at, b"STORE") || request.is_word(*at, b"STOREDIST");
                behind_last(request, (*from..request.len()).filter(is_store))
                    .into_iter()
                    .for_each(|at| keys.push_one(at));
            }
            KeyRule::Migrate if request.get(3).is_some_and(|key| !key.is_empty()) => keys.push_one(3),
            KeyRule::Migrate => {
                let word = migrate_keys(request).ok_or(MalformedKeys)?;
                keys.push(KeyStride { first: word + 1, last: request.len() - 1, step: 1 });
            }
        }
        if keys.iter().all(|at| at < request.len()) { Ok(keys) } else { Err(MalformedKeys) }
    }
}

/// The positions at which SORT's options begin; the options' own arguments are skipped.
fn sort_options(request: &CommandRequest<'_>) -> impl Iterator<Item = usize> {
    let taken = |at: usize| match () {
        () if request.is_word(at, b"LIMIT") => 2,
        () if [b"BY".as_slice(), b"GET", b"STORE"].iter().any(|word| request.is_word(at, word)) => 1,
        () => 0,
    };
    std::iter::successors(Some(2), move |at| Some(at + 1 + taken(*at))).take_while(|at| *at < request.len())
}

/// The argument after the last of these.
fn behind_last(request: &CommandRequest<'_>, words: impl Iterator<Item = usize>) -> Option<usize> {
    words.last().map(|at| at + 1).filter(|at| *at < request.len())
}

/// The position of KEYS in MIGRATE, after the options and their arguments.
fn migrate_keys(request: &CommandRequest<'_>) -> Option<usize> {
    let mut at = 6;
    while at < request.len() {
        match () {
            () if request.is_word(at, b"KEYS") => return (at + 1 < request.len()).then_some(at),
            () if request.is_word(at, b"AUTH") => at += 2,
            () if request.is_word(at, b"AUTH2") => at += 3,
            () => at += 1,
        }
    }
    None
}

impl KeySpec {
    /// The keys that the specification finds; none if its keyword is missing or the number of keys is 0.
    fn range(&self, request: &CommandRequest<'_>) -> Result<Option<KeyStride>, MalformedKeys> {
        let begin = match &self.begin {
            SearchStart::Index(index) => *index,
            SearchStart::Keyword { word, from } => match find_word(request, word, *from) {
                Some(at) => at + 1,
                None => return Ok(None),
            },
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, limit } => (begin, last_of_range(request, begin, last, limit), step),
            Find::Number { at, first, step } => match request.number(begin + at) {
                Some(0) => return Ok(None),
                Some(number @ 1..) => {
                    let first = begin + first;
                    let more = usize::try_from(number - 1).ok().and_then(|more| more.checked_mul(step));
                    (first, more.and_then(|more| first.checked_add(more)), step)
                }
                _ => return Err(MalformedKeys),
            },
        };
        match last {
            Some(last) if first <= last && last < request.len() => Ok(Some(KeyStride { first, last, step })),
            _ => Err(MalformedKeys),
        }
    }
}

fn last_of_range(request: &CommandRequest<'_>, begin: usize, last: i64, limit: usize) -> Option<usize> {
    if let Ok(behind) = usize::try_from(last) {
        return begin.checked_add(behind);
    }
    let back = usize::try_from(last.unsigned_abs()).ok()?;
    match limit {
        0 | 1 => request.len().checked_sub(back),
        limit => (begin + request.len().checked_sub(begin)? / limit).checked_sub(back),
    }
}

/// The position of a keyword; see [`SearchStart::Keyword`].
fn find_word(request: &CommandRequest<'_>, word: &[u8], from: i64) -> Option<usize> {
    let is_word = |at: &usize| request.is_word(*at, word);
    match usize::try_from(from) {
        // The last argument cannot be the keyword: no key would follow it.
        Ok(from) => (from..request.len().saturating_sub(1)).find(is_word),
        Err(_) => {
            let back = usize::try_from(from.unsigned_abs()).ok()?;
            (1..=request.len().checked_sub(back)?).rev().find(is_word)
        }
    }
}
