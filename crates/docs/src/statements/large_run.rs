//! A statement that writes more than one transaction can hold, run in a large transaction ([`engine::LargeTx`]).
//!
//! Each document is written as soon as the source finds it, based on the snapshot that the source reads. The store reports the
//! keys that other transactions write meanwhile. For each such document, the statement's changes are undone, and the statement
//! runs again for that document on a newer snapshot. So the statement takes effect after all writes of its collection that
//! precede its commit, as if it had waited for them. It reads other collections as of its beginning.
//!
//! Some conflicts cannot be resolved for one document: two documents got the same key, or other transactions have changed
//! documents on which references depend. They end the attempt, and the statement starts again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bumpalo::Bump;
use hashbrown::HashMap;

use super::applied::{ModifyError, StatementCounts};
use super::document_write::{DocumentWrite, Returning, value_of};
use super::modification::Modification;
use crate::catalog::Catalog;
use crate::engine::{
    self, Abort, Changed, Direction, KeyRange, LargeTx, Operand, Reader, Revise, STAMP_BYTES, StoreSnapshot, TreeId,
    WriteTransaction,
};
use crate::error::WriteError;
use crate::expire::AtWrite;
use crate::sql::{Action, Budget, FieldValue, PreparedQuery, QueryError, RowList, RowSink, Scratch, Value};
use crate::views::operand;
use crate::writes::share::is_in_share;
use crate::writes::{Collection, Share, ShareOf, scratch};

/// Memory for the statement's deltas to groups of views.
const FOLDS_BYTES_MAX: usize = 8 << 20;
/// Memory for the statement's changes to documents that other transactions have written.
const KNOWN_BYTES_MAX: usize = 8 << 20;
/// Estimate of a map entry's bytes besides its key and value.
const ENTRY_BYTES: usize = 64;

/// A key and the value that a transaction has put; `None` if it has deleted the key.
type Put = ((TreeId, Vec<u8>), Option<Vec<u8>>);

/// The same by key, for one document.
type Puts = BTreeMap<(TreeId, Vec<u8>), Option<Vec<u8>>>;

/// Operands of the same key, added up.
#[derive(Default)]
struct FoldSum {
    operands: HashMap<(TreeId, Vec<u8>), Vec<u8>>,
    bytes: usize,
    sum: Vec<u8>,
    failure: Option<QueryError>,
}

impl FoldSum {
    fn add(&mut self, tree: TreeId, key: &[u8], by: &[u8]) {
        let known = self.operands.entry((tree, key.to_vec())).or_insert_with(|| {
            self.bytes += ENTRY_BYTES + key.len();
            Vec::new()
        });
        if known.is_empty() {
            known.extend_from_slice(by);
            self.bytes += by.len();
        } else if operand::sum(known, by, &mut self.sum).is_some() {
            self.bytes = (self.bytes + self.sum.len()).saturating_sub(known.len());
            std::mem::swap(known, &mut self.sum);
        } else {
            self.failure = Some(QueryError::Damaged("what is added to a view"));
        }
        if self.bytes > FOLDS_BYTES_MAX {
            let limit = FOLDS_BYTES_MAX as u64;
            self.failure = Some(QueryError::Limit { what: "bytes of views' groups that one statement changes", limit });
        }
    }

    fn take_back(&mut self, operands: Vec<Operand>) {
        let mut undone = Vec::new();
        for (tree, key, by) in operands {
            match operand::negated(&by, &mut undone) {
                Some(()) => self.add(tree, &key, &undone),
                None => self.failure = Some(QueryError::Damaged("what is added to a view")),
            }
        }
    }
}

/// A large transaction over a snapshot, as writes see it.
struct Over<'o> {
    tx: &'o mut LargeTx,
    base: &'o StoreSnapshot<'o>,
    /// The puts of the current document, if they must be recorded.
    puts: Option<&'o mut Puts>,
    folds: &'o mut Vec<Operand>,
    failure: Option<engine::StoreError>,
}

impl Over<'_> {
    fn note(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) {
        let put = match value {
            Some(value) => self.tx.put(tree, key, value),
            None => self.tx.delete(tree, key),
        };
        self.failure = self.failure.take().or(put.err());
        if let Some(puts) = &mut self.puts {
            puts.insert((tree, key.to_vec()), value.map(<[u8]>::to_vec));
        }
    }
}

/// The write number of a document that is computed from this snapshot: above all previous ones.
fn stamp_of(base: &StoreSnapshot<'_>) -> u64 {
    base.version().0 + 1
}

fn stamped(value: &[u8], base: &StoreSnapshot<'_>) -> Vec<u8> {
    let mut stamped = value.to_vec();
    if let Some(stamp) = stamped.first_chunk_mut::<STAMP_BYTES>() {
        *stamp = stamp_of(base).to_le_bytes();
    }
    stamped
}

impl WriteTransaction for Over<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
        match self.tx.get(tree, key) {
            Some(own) => Ok(own.map(Cow::Borrowed)),
            None => self.base.get(tree, key),
        }
    }
    fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        self.tx.scan(self.base, tree, range, direction, visit)
    }
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.note(tree, key, Some(value));
    }
    fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let value = stamped(value, self.base);
        self.note(tree, key, Some(&value));
    }
    fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.note(tree, key, None);
    }
    fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        self.folds.push((tree, key.to_vec(), operand.to_vec()));
    }
}

/// The statement's changes to one document, computed again without writing them.
struct Draft<'d> {
    base: &'d StoreSnapshot<'d>,
    puts: Puts,
    folds: Vec<Operand>,
}

impl WriteTransaction for Draft<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, engine::StoreError> {
        match self.puts.get(&(tree, key.to_vec())) {
            Some(own) => Ok(own.as_deref().map(Cow::Borrowed)),
            None => self.base.get(tree, key),
        }
    }
    fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), engine::StoreError> {
        // A document's puts concern only its own entries. None of the document's checks scans for these.
        self.base.scan(tree, range, direction, &mut |key, value| match self.puts.get(&(tree, key.to_vec())) {
            None => visit(key, value),
            Some(None) => ControlFlow::Continue(()),
            Some(Some(own)) => visit(key, own),
        })
    }
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.puts.insert((tree, key.to_vec()), Some(value.to_vec()));
    }
    fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.puts.insert((tree, key.to_vec()), Some(stamped(value, self.base)));
    }
    fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.puts.insert((tree, key.to_vec()), None);
    }
    fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        self.folds.push((tree, key.to_vec(), operand.to_vec()));
    }
}

/// The statement's changes to a document that another transaction has written since.
struct Known {
    puts: Vec<Put>,
    folds: Vec<Operand>,
    is_written: bool,
}

impl Known {
    fn bytes(&self) -> usize {
        let put = |put: &Put| ENTRY_BYTES + put.0.1.len() + put.1.as_ref().map_or(0, Vec::len);
        let fold = |fold: &Operand| ENTRY_BYTES + fold.1.len() + fold.2.len();
        ENTRY_BYTES + self.puts.iter().map(put).sum::<usize>() + self.folds.iter().map(fold).sum::<usize>()
    }
}

/// One attempt at a statement.
pub(crate) struct LargeRun<'r> {
    statement: &'r Modification,
    collection: &'r Collection,
    parameters: &'r [Value<'r>],
    budget: &'r Budget<'r>,
    /// Finds one document by its key; for UPDATE and DELETE.
    sought: Option<PreparedQuery>,
    at: AtWrite,
    began: &'r StoreSnapshot<'r>,
    later: &'r Reader,
    known: HashMap<Vec<u8>, Known>,
    known_bytes: usize,
    folds: FoldSum,
    documents: u64,
    failure: Option<ModifyError>,
    scratch: Scratch,
}

impl<'r> LargeRun<'r> {
    /// Reads the state `began`, and later writes through `later`.
    pub(crate) fn new(
        (statement, parameters): (&'r Modification, &'r [Value<'r>]),
        (collection, catalog): (&'r Collection, &Catalog),
        budget: &'r Budget<'r>,
        began: &'r StoreSnapshot<'r>,
        later: &'r Reader,
    ) -> LargeRun<'r> {
        let sought = statement.changing.sought(catalog);
        LargeRun {
            statement,
            collection,
            parameters,
            budget,
            sought,
            at: collection.at_moment(budget.now_ms),
            began,
            later,
            known: HashMap::new(),
            known_bytes: 0,
            folds: FoldSum::default(),
            documents: 0,
            failure: None,
            scratch: Scratch::new(),
        }
    }

    /// Trees in which the store must report the writes of other transactions: the collection's own, for DELETE those of the
    /// collections that reference it, otherwise those of the collections that it references.
    pub(crate) fn watched(statement: &Modification, collection: &Collection) -> Vec<TreeId> {
        let mut trees = vec![collection.info.tree];
        match statement.action() {
            Action::Delete => trees.extend(collection.referrers.iter().map(|referrer| referrer.documents)),
            Action::Insert | Action::Update => trees.extend(collection.references.iter().map(|place| place.target)),
        }
        trees
    }

    /// Writes all documents that the source finds; returns the number of rows read.
    pub(crate) fn run(&mut self, tx: &mut LargeTx) -> Result<u64, ModifyError> {
        let (statement, began) = (self.statement, self.began);
        let source = &statement.changing.sources[0];
        let known = &self.parameters[..source.parameters().len()];
        let (budget, mut scratch) = (*self.budget, Scratch::new());
        let mut rows = Rows { run: self, tx, row: RowList::default(), failure: None };
        let read = source.execute(began, known, &mut scratch, &budget, &mut rows);
        match rows.failure {
            Some(failure) => Err(failure),
            None => Ok(read?.rows_read),
        }
    }

    /// The number of documents written.
    pub(crate) fn documents(&self) -> u64 {
        self.documents
    }

    /// The error that made it abort its commit.
    pub(crate) fn take_failure(&mut self) -> Option<ModifyError> {
        self.failure.take()
    }

    fn is_over(&self) -> bool {
        self.budget.deadline.is_some_and(|over| over())
    }

    /// Writes one document.
    fn one<C: WriteTransaction>(&mut self, row: &[u8], change: &mut C) -> Result<bool, ModifyError> {
        let (keys, mut returned) = (Bump::new(), RowList::default());
        let (parameters, budget) = (Vec::new(), self.budget);
        let done = StatementCounts::default();
        let mut returning =
            Returning { returning: None, parameters, keys: &keys, budget, returned: &mut returned, done };
        let forms = self.statement.changing.forms.first().map_or(&[][..], |forms| forms);
        let mut one = DocumentWrite {
            changing: &self.statement.changing,
            parameters: self.parameters,
            collection: self.collection,
            change,
            forms,
            names: &self.statement.names,
            at: &self.at,
        };
        one.write(row, &mut returning, &mut self.scratch)
    }

    /// Writes one document into the transaction, and adds its deltas.
    fn put(
        &mut self,
        row: &[u8],
        (tx, base): (&mut LargeTx, &StoreSnapshot<'_>),
        puts: Option<&mut Puts>,
    ) -> Result<Vec<Operand>, ModifyError> {
        let mut folds = Vec::new();
        let mut over = Over { tx, base, puts, folds: &mut folds, failure: None };
        let written = self.one(row, &mut over);
        if let Some(failure) = over.failure {
            return Err(failure.into());
        }
        self.documents += u64::from(written?);
        folds.iter().for_each(|(tree, key, by)| self.folds.add(*tree, key, by));
        match self.folds.failure.take() {
            Some(failure) => Err(failure.into()),
            None => Ok(folds),
        }
    }

    /// The row of one document in a snapshot; `None` if the statement does not find it.
    fn found(
        &mut self,
        key: &[u8],
        base: &StoreSnapshot<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<Vec<u8>>, ModifyError> {
        let Some(sought) = &self.sought else { return Ok(None) };
        let key = self.collection.info.key.kind.of_bytes(key).ok_or(QueryError::Damaged("a key"))?;
        let mut parameters = self.parameters[..sought.parameters().len() - 1].to_vec();
        parameters.push(value_of(&key));
        let mut rows = RowList::default();
        sought.execute(base, &parameters, &mut self.scratch, budget, &mut rows)?;
        Ok(rows.rows().next().map(<[u8]>::to_vec))
    }

    /// Redoes the documents that other transactions have changed. Returns false if writers wait, and the work takes longer than
    /// they may wait or includes the check of a long document. Then it is repeated while no writers wait.
    /// [`engine::LargeTx::commit`] limits the repetitions.
    fn set_right(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, ModifyError> {
        let (later, budget, share) = (self.later, self.budget, writers_wait.then(|| Share::begin(ShareOf::Commits)));
        let now = later.snapshot();
        let has_taken_long = || share.as_ref().is_some_and(Share::is_over);
        let is_over = || has_taken_long() || budget.deadline.is_some_and(|over| over());
        let budget = &Budget { deadline: Some(&is_over), ..*budget };
        for Changed { tree, key } in changed {
            let done = match *tree == self.collection.info.tree {
                _ if is_over() => Err(QueryError::Deadline.into()),
                true => self.write_again(tx, key, &now, budget),
                false if self.is_of_no_consequence(*tree, key, &now)? => Ok(()),
                false => Err(WriteError::Busy.into()),
            };
            match done {
                Err(ModifyError::Query(QueryError::Deadline)) if writers_wait && !self.is_over() => {
                    return Ok(false);
                }
                done => done?,
            }
        }
        Ok(true)
    }

    /// Whether a write in another collection leaves all references of the statement valid.
    fn is_of_no_consequence(&self, tree: TreeId, key: &[u8], now: &StoreSnapshot<'_>) -> Result<bool, ModifyError> {
        let is_there = now.get(tree, key)?.is_some();
        Ok(match self.statement.action() {
            // A document that exists may refer to a document that the statement deletes.
            Action::Delete => !is_there,
            Action::Insert | Action::Update => {
                is_there && self.collection.references.iter().all(|place| place.target_expires.is_none())
            }
        })
    }

    fn write_again(
        &mut self,
        tx: &mut LargeTx,
        key: &[u8],
        now: &StoreSnapshot<'_>,
        budget: &Budget<'_>,
    ) -> Result<(), ModifyError> {
        // Everything that may take long comes before the first change.
        let before = match self.known.get(key) {
            Some(_) => None,
            None => Some(self.made_at_first(tx, key, budget)?),
        };
        let row = self.found(key, now, budget)?;
        let Some(before) = before.or_else(|| self.known.remove(key).inspect(|known| self.known_bytes -= known.bytes()))
        else {
            return Ok(());
        };
        for ((tree, at), put) in &before.puts {
            // Another document of the statement has this key now, or had it before. This document alone cannot decide which of
            // them keeps it.
            if tx.get(*tree, at) != Some(put.as_deref()) {
                return Err(WriteError::Busy.into());
            }
            match now.get(*tree, at)? {
                Some(value) => tx.put(*tree, at, &value)?,
                None => tx.delete(*tree, at)?,
            }
        }
        self.folds.take_back(before.folds);
        self.documents -= u64::from(before.is_written);
        let (mut puts, mut folds, documents) = (BTreeMap::new(), Vec::new(), self.documents);
        if let Some(row) = row {
            folds = match self.put(&row, (&mut *tx, now), Some(&mut puts)) {
                // Nothing of the document is written yet: the transaction has what the snapshot shows until the next attempt.
                Err(error) if is_refused_in_share(&error) && puts.is_empty() => {
                    let keys = before.puts.into_iter().map(|(at, _)| at);
                    self.know(tx, key, keys, (Vec::new(), false))?;
                    return Err(QueryError::Deadline.into());
                }
                done => done?,
            };
        }
        self.set_unique(tx, key, now)?;
        // Keys that are not put again keep the snapshot's value until the next change.
        let keys: BTreeSet<_> = before.puts.into_iter().map(|(at, _)| at).chain(puts.into_keys()).collect();
        self.know(tx, key, keys.into_iter(), (folds, self.documents > documents))
    }

    /// Records the transaction's current changes to a document that another transaction has written.
    fn know(
        &mut self,
        tx: &LargeTx,
        key: &[u8],
        keys: impl Iterator<Item = (TreeId, Vec<u8>)>,
        (folds, is_written): (Vec<Operand>, bool),
    ) -> Result<(), ModifyError> {
        let put_at = |at: (TreeId, Vec<u8>)| {
            let value = tx.get(at.0, &at.1).flatten().map(<[u8]>::to_vec);
            (at, value)
        };
        let known = Known { puts: keys.map(put_at).collect(), folds, is_written };
        self.known_bytes += known.bytes();
        if self.known_bytes > KNOWN_BYTES_MAX {
            return Err(WriteError::Busy.into());
        }
        self.known.insert(key.to_vec(), known);
        Ok(())
    }

    /// The changes that the first pass made to a document.
    fn made_at_first(&mut self, tx: &LargeTx, key: &[u8], budget: &Budget<'_>) -> Result<Known, ModifyError> {
        let nothing = Known { puts: Vec::new(), folds: Vec::new(), is_written: false };
        if self.sought.is_none() {
            if tx.get(self.collection.info.tree, key).is_some() {
                let key = self.collection.info.key.kind.of_bytes(key).ok_or(QueryError::Damaged("a key"))?;
                let what = format!("the key {key} is in use in {}", self.collection.info.name);
                return Err(WriteError::Conflict { what }.into());
            }
            return Ok(nothing);
        }
        let began = self.began;
        let Some(row) = self.found(key, began, budget)? else { return Ok(nothing) };
        let mut draft = Draft { base: began, puts: BTreeMap::new(), folds: Vec::new() };
        // Alone, the document may be refused although the statement as a whole had made room for it.
        let is_written = match self.one(&row, &mut draft) {
            Err(error) if is_refused_in_share(&error) => return Err(QueryError::Deadline.into()),
            made => made.map_err(|_| WriteError::Busy)?,
        };
        Ok(Known { puts: draft.puts.into_iter().collect(), folds: draft.folds, is_written })
    }

    /// Checks the unique values of a document that another transaction has written. If the statement gave such a value to
    /// another document, that is a conflict. If the statement had freed the value, the document takes it again.
    fn set_unique(&self, tx: &mut LargeTx, key: &[u8], now: &StoreSnapshot<'_>) -> Result<(), ModifyError> {
        let info = &self.collection.info;
        if self.collection.unique.is_empty() {
            return Ok(());
        }
        let stored = match tx.get(info.tree, key) {
            Some(own) => own.map(<[u8]>::to_vec),
            None => now.get(info.tree, key)?.map(Cow::into_owned),
        };
        let Some(stored) = stored else { return Ok(()) };
        let document = stored.get(STAMP_BYTES..).and_then(|bytes| binjson::StoredDocument::from_bytes(bytes).ok());
        let document = document.ok_or(QueryError::Damaged("a document"))?;
        scratch::with(|scratch| {
            let entry = &mut scratch.buffers.entries.new_key;
            self.collection.with_row(document, &mut scratch.shape, |row| {
                for (number, unique) in self.collection.unique.iter().enumerate() {
                    if unique.readiness.is_refused() || !self.collection.unique_key(number, row, entry)? {
                        continue;
                    }
                    match tx.get(unique.tree, entry) {
                        Some(Some(owner)) if owner != key => {
                            let fields = info.unique[number].shown();
                            let what = format!("another document of {} has this {fields}", info.name);
                            return Err(ModifyError::Write(WriteError::Conflict { what }));
                        }
                        Some(None) => tx.put(unique.tree, entry, key)?,
                        Some(Some(_)) | None => {}
                    }
                }
                Ok(())
            })
        })
    }
}

/// Whether a document was refused only because writers wait: it is too long, or its check is.
fn is_refused_in_share(error: &ModifyError) -> bool {
    is_in_share() && matches!(error, ModifyError::Write(WriteError::Busy))
}

impl Revise for LargeRun<'_> {
    fn revise(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, Abort> {
        self.set_right(tx, changed, writers_wait).map_err(|error| {
            self.failure = Some(error);
            Abort
        })
    }

    fn folds(&mut self) -> Vec<Operand> {
        let operands = std::mem::take(&mut self.folds.operands);
        operands.into_iter().map(|((tree, key), by)| (tree, key, by)).collect()
    }
}

/// Receives the source's rows and writes their documents.
struct Rows<'w, 'r> {
    run: &'w mut LargeRun<'r>,
    tx: &'w mut LargeTx,
    row: RowList,
    failure: Option<ModifyError>,
}

impl RowSink for Rows<'_, '_> {
    fn begin_row(&mut self) {
        self.row.clear();
    }
    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.row.field(column, field);
    }
    fn end_row(&mut self) {
        self.row.end_row();
        if self.failure.is_some() {
            return;
        }
        let (run, row) = (&mut *self.run, self.row.row(0));
        let began = run.began;
        self.failure = match run.is_over() {
            true => Some(QueryError::Deadline.into()),
            false => run.put(row, (&mut *self.tx, began), None).err(),
        };
    }
    fn bytes(&self) -> usize {
        0
    }
    fn is_wanted(&self) -> bool {
        self.failure.is_none()
    }
}
