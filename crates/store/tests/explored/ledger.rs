//! What the clients of one life know of their transactions, to be compared with the states that the store shows.

use std::collections::{BTreeMap, BTreeSet};

use store::StoreError;

use super::state::{Row, RowId, State};

/// What a client knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was begun.
    Begun,
    /// It is durable, with this version.
    Done(u64),
    /// It was refused, and has changed nothing.
    Refused,
    /// Its outcome is unknown until the store is opened again.
    Unknown,
}

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<RowId, (Row, Outcome)>,
    /// What was wrong so far.
    pub(crate) wrong: Vec<String>,
}

/// What must be in a state.
#[derive(Clone, Default)]
pub(crate) struct Must {
    pub(crate) rows: BTreeSet<RowId>,
    /// Keys that were refused because they are taken.
    pub(crate) taken: BTreeSet<u8>,
}

impl Ledger {
    pub(crate) fn begin(&mut self, id: RowId, row: Row) {
        self.entries.insert(id, (row, Outcome::Begun));
    }

    pub(crate) fn end(&mut self, id: RowId, outcome: Outcome) {
        if let Some((_, ended)) = self.entries.get_mut(&id) {
            *ended = outcome;
        }
    }

    fn done(&self) -> impl Iterator<Item = (RowId, u64)> {
        self.entries.iter().filter_map(|(id, (_, outcome))| match outcome {
            Outcome::Done(version) => Some((*id, *version)),
            _ => None,
        })
    }

    /// Everything acknowledged so far.
    pub(crate) fn must(&self) -> Must {
        Must { rows: self.done().map(|(id, _)| id).collect(), taken: BTreeSet::new() }
    }

    /// Compares a state with what is known. `version` is that of a snapshot, whose content it determines.
    pub(crate) fn compare(&self, state: &State, must: &Must, version: Option<u64>) -> Result<(), String> {
        for (id, row) in &state.rows {
            match self.entries.get(id) {
                None => return Err(format!("{id:?} is there, and was never begun")),
                Some((begun, _)) if begun != row => return Err(format!("{id:?} is {row:?}, not {begun:?}")),
                Some((_, Outcome::Refused)) => return Err(format!("{id:?} is there, and was refused: {row:?}")),
                Some(_) => {}
            }
        }
        if let Some(id) = must.rows.iter().find(|id| !state.rows.contains_key(id)) {
            return Err(format!("{id:?} was acknowledged and is not there: {:?}", self.entries[id]));
        }
        if let Some(key) = must.taken.iter().find(|key| !state.has_taken(**key)) {
            return Err(format!("a transaction was refused because key {key} is taken, which it is not"));
        }
        // The states are those of one serial order.
        let newest = self.done().filter(|(id, _)| state.rows.contains_key(id)).map(|(_, version)| version).max();
        for (id, version_of) in self.done() {
            let is_there = state.rows.contains_key(&id);
            if !is_there && newest.is_some_and(|newest| version_of < newest) {
                return Err(format!("{id:?} of version {version_of} is not there, but version {newest:?} is"));
            }
            if version.is_some_and(|version| is_there != (version_of <= version)) {
                return Err(format!("{id:?} of version {version_of}: {is_there} in a snapshot of {version:?}"));
            }
        }
        Ok(())
    }
}

/// What an error says of a transaction.
pub(crate) fn outcome_of(error: &StoreError) -> Outcome {
    match error {
        StoreError::Unknown(_) => Outcome::Unknown,
        _ => Outcome::Refused,
    }
}
