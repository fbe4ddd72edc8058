//! Adding up the contributions of many documents in memory, group by group, before they become rows.
//!
//! Usually there are few groups, so millions of documents become a few states. Memory is bounded if there are many groups: the
//! caller flushes a gatherer that is too large ([`Gather::bytes`]), and [`ImportGather`] sorts externally.

use hashbrown::HashMap;

use super::definition::Contribution;
use super::state;
use super::view::View;
use super::write::value_key;
use crate::encoding::varint;
use crate::engine::{self, Sorter, Store};

/// Memory of all gatherers of an import.
pub(crate) const GATHER_BYTES_MAX: usize = 16 << 20;
/// Minimum for each of them.
const GATHER_BYTES_MIN: usize = 64 << 10;
/// Memory of a map's entry without its bytes.
const ENTRY_BYTES: usize = 64;

/// A counted value: its number of occurrences, its facet, and the length of its group's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) times: i64,
    pub(crate) facet: usize,
    pub(crate) group_key_bytes: usize,
}

/// States of groups and counts of values, by key.
#[derive(Default)]
pub(crate) struct Gather {
    groups: HashMap<Box<[u8]>, Vec<u8>>,
    values: HashMap<Box<[u8]>, Counted>,
    bytes: usize,
    sum: Vec<u8>,
    key: Vec<u8>,
}

impl Gather {
    /// Adds the contribution of one document. `None`: it is damaged.
    pub(crate) fn add(&mut self, view: &View, contribution: &Contribution) -> Option<()> {
        if !contribution.is_any {
            return Some(());
        }
        for level in 0..view.definition.levels() {
            self.add_to(contribution.key(level), view, contribution)?;
        }
        Some(())
    }

    fn add_to(&mut self, group: &[u8], view: &View, contribution: &Contribution) -> Option<()> {
        match self.groups.get_mut(group) {
            Some(known) => {
                self.sum.clear();
                state::add(known, &contribution.state, &mut self.sum)?;
                self.bytes += self.sum.len().saturating_sub(known.len());
                known.clear();
                known.extend_from_slice(&self.sum);
            }
            None => {
                self.bytes += group.len() + contribution.state.len() + ENTRY_BYTES;
                self.groups.insert(group.into(), contribution.state.clone());
            }
        }
        for facet in 0..view.definition.facets.len() {
            let Some(value) = contribution.value(facet) else { continue };
            value_key(group, facet, value, &mut self.key);
            match self.values.get_mut(&self.key[..]) {
                Some(known) => known.times += 1,
                None => {
                    self.bytes += self.key.len() + ENTRY_BYTES;
                    let counted = Counted { times: 1, facet, group_key_bytes: group.len() };
                    self.values.insert(self.key.as_slice().into(), counted);
                }
            }
        }
        Some(())
    }

    /// The approximate memory used.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the states gathered so far, in ascending order of keys.
    pub(crate) fn take_groups(&mut self) -> Vec<(Box<[u8]>, Vec<u8>)> {
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.bytes = 0;
        groups
    }

    /// The same for the values.
    pub(crate) fn take_values(&mut self) -> Vec<(Box<[u8]>, Counted)> {
        let mut values: Vec<_> = self.values.drain().collect();
        values.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.bytes = 0;
        values
    }
}

/// A gatherer that sorts externally and returns each row once, in order.
pub(crate) struct ImportGather {
    gather: Gather,
    gathered_max: usize,
    groups: Sorter,
    values: Sorter,
}

/// Receives a row: key and value.
pub(crate) type TakeRow<'t> = &'t mut dyn FnMut(&[u8], &[u8]) -> Result<(), engine::StoreError>;

impl ImportGather {
    /// Gathers up to about `gathered_max` bytes in memory, and sorts with about `bytes` of memory.
    pub(crate) fn new(store: &Store, gathered_max: usize, bytes: usize) -> ImportGather {
        let gathered_max = gathered_max.max(GATHER_BYTES_MIN);
        let (groups, values) = (store.sorter(bytes / 2), store.sorter(bytes / 2));
        ImportGather { gather: Gather::default(), gathered_max, groups, values }
    }

    /// Adds the contribution of one document.
    pub(crate) fn add(&mut self, view: &View, contribution: &Contribution) -> Result<(), engine::StoreError> {
        self.gather.add(view, contribution).ok_or_else(|| damaged("a contribution"))?;
        if self.gather.bytes() >= self.gathered_max { self.give_away() } else { Ok(()) }
    }

    fn give_away(&mut self) -> Result<(), engine::StoreError> {
        for (key, state) in self.gather.take_groups() {
            self.groups.push(&key, &state)?;
        }
        let mut record = Vec::new();
        for (key, counted) in self.gather.take_values() {
            record.clear();
            varint::push_signed(&mut record, counted.times);
            varint::push(&mut record, counted.facet as u64);
            varint::push(&mut record, counted.group_key_bytes as u64);
            self.values.push(&key, &record)?;
        }
        Ok(())
    }

    /// Returns all rows, those of the values first, as the groups include their distinct counts.
    pub(crate) fn finish(
        mut self,
        view: &View,
        each_value: TakeRow<'_>,
        each_group: TakeRow<'_>,
    ) -> Result<(), engine::StoreError> {
        self.give_away()?;
        let ImportGather { mut groups, values, .. } = self;
        let mut runs = Runs { view, groups: &mut groups, current: None };
        let mut row: Option<(Vec<u8>, Counted)> = None;
        let mut entries = values.finish()?;
        while let Some((key, record)) = entries.next()? {
            let counted = counted(record).ok_or_else(|| damaged("a sorted run"))?;
            match &mut row {
                Some((known, sum)) if known == key => sum.times += counted.times,
                _ => {
                    if let Some((key, sum)) = row.replace((key.to_vec(), counted)) {
                        runs.value(&key, sum, each_value)?;
                    }
                }
            }
        }
        if let Some((key, sum)) = row {
            runs.value(&key, sum, each_value)?;
        }
        runs.end()?;
        let mut row: Option<(Vec<u8>, Vec<u8>)> = None;
        let (mut entries, mut sum) = (groups.finish()?, Vec::new());
        while let Some((key, state)) = entries.next()? {
            match &mut row {
                Some((known, so_far)) if known == key => {
                    sum.clear();
                    state::add(so_far, state, &mut sum).ok_or_else(|| damaged("a sorted run"))?;
                    std::mem::swap(so_far, &mut sum);
                }
                _ => {
                    if let Some((key, state)) = row.replace((key.to_vec(), state.to_vec())) {
                        each_group(&key, &state)?;
                    }
                }
            }
        }
        row.map_or(Ok(()), |(key, state)| each_group(&key, &state))
    }
}

/// Counts the distinct values of groups, whose values arrive one after another.
struct Runs<'r> {
    view: &'r View,
    groups: &'r mut Sorter,
    /// Key up to the facet, slot, count.
    current: Option<(Vec<u8>, usize, i64)>,
}

impl Runs<'_> {
    fn value(&mut self, key: &[u8], sum: Counted, each_value: TakeRow<'_>) -> Result<(), engine::StoreError> {
        let mut times = Vec::new();
        varint::push_signed(&mut times, sum.times);
        each_value(key, &times)?;
        let Some(slot) = self.view.definition.facets.get(sum.facet).and_then(|facet| facet.distinct) else {
            return Ok(());
        };
        let group = key.get(..sum.group_key_bytes).ok_or_else(|| damaged("a sorted run"))?;
        match &mut self.current {
            Some((known, known_slot, distinct)) if known == group && *known_slot == slot => *distinct += 1,
            _ => {
                self.end()?;
                self.current = Some((group.to_vec(), slot, 1));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), engine::StoreError> {
        let Some((group, slot, distinct)) = self.current.take() else { return Ok(()) };
        let mut change = Vec::new();
        state::distinct_change(slot, distinct, &mut change);
        self.groups.push(&group, &change)
    }
}

fn counted(mut record: &[u8]) -> Option<Counted> {
    let times = varint::take_signed(&mut record)?;
    let facet = usize::try_from(varint::take(&mut record)?).ok()?;
    let group_key_bytes = usize::try_from(varint::take(&mut record)?).ok()?;
    Some(Counted { times, facet, group_key_bytes })
}

#[cold]
fn damaged(what: &str) -> engine::StoreError {
    let source = std::io::Error::other(format!("{what} is damaged"));
    engine::StoreError::Io { context: "gathering a view".to_string(), source: source.into() }
}
