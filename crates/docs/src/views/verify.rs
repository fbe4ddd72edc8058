//! Verification of views. Each is computed again from the collection or view that it reads and compared with its rows, at one
//! version, while writes continue.

use std::cell::Cell;
use std::ops::ControlFlow;

use binjson::StoredDocument;

use super::definition::Contribution;
use super::gather::ImportGather;
use super::table;
use super::view::View;
use crate::engine::{self, Direction, KeyRange, STAMP_BYTES, Store, TreeId};
use crate::error::ReadError;
use crate::sql::grouping::Memory;
use crate::writes::Collection;

/// Differences described in words; further ones are only counted.
const FAULTS_MAX: usize = 20;
/// Documents and rows between two cancellation checks.
const ASK_EVERY: u32 = 1024;

/// A row that differs from the computed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewFault {
    /// The row, and the difference.
    pub what: String,
}

/// Result of a view's verification.
#[derive(Clone, Debug, Default)]
pub struct ViewReport {
    /// The view.
    pub view: String,
    /// The version that was verified.
    pub version: u64,
    /// Documents read.
    pub documents: u64,
    /// Rows compared, those of counted values included.
    pub rows: u64,
    /// Differences.
    pub faults: Vec<ViewFault>,
    /// The number of differences beyond those described.
    pub more: u64,
}

impl ViewReport {
    /// Whether there is no difference.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(ViewFault { what });
        } else {
            self.more += 1;
        }
    }
}

/// The collection or view that a view reads.
pub(crate) enum ViewSource<'s> {
    Collection(&'s Collection),
    View(&'s View),
}

impl ViewSource<'_> {
    /// Visits its documents; a view's rows as documents.
    fn each(
        &self,
        engine: &impl engine::ReadView,
        reader: &View,
        visit: &mut table::VisitStored<'_>,
    ) -> Result<(), engine::StoreError> {
        match self {
            ViewSource::Collection(collection) => {
                engine.scan(collection.info.tree, KeyRange::ALL, Direction::Forward, visit)
            }
            ViewSource::View(lower) => {
                let wanted = reader.definition.wanted_of(&lower.definition);
                table::each_document(lower, engine, &wanted, None, visit)
            }
        }
    }
}

/// The cancellation check of a verification.
struct Waited<'w> {
    goes_on: &'w dyn Fn() -> bool,
    seen: Cell<u32>,
    is_over: Cell<bool>,
}

impl Waited<'_> {
    /// Called for each document and row. The error stops the work and is replaced by [`ReadError::Stopped`]: see [`verify`].
    fn check(&self) -> Result<(), engine::StoreError> {
        let seen = self.seen.get().wrapping_add(1);
        self.seen.set(seen);
        if seen.is_multiple_of(ASK_EVERY) && !(self.goes_on)() {
            self.is_over.set(true);
        }
        if self.is_over.get() { Err(engine::StoreError::Closed) } else { Ok(()) }
    }
}

/// Computes a view again, in about `bytes` of memory, while `goes_on` returns true.
pub(crate) fn verify(
    engine: &impl engine::ReadView,
    store: &Store,
    (source, view): (ViewSource<'_>, &View),
    bytes: usize,
    goes_on: &dyn Fn() -> bool,
) -> Result<ViewReport, ReadError> {
    let waited = Waited { goes_on, seen: Cell::new(0), is_over: Cell::new(false) };
    let report = computed_and_compared(engine, store, (source, view), bytes, &waited);
    if waited.is_over.get() { Err(ReadError::Stopped) } else { report }
}

fn computed_and_compared(
    engine: &impl engine::ReadView,
    store: &Store,
    (source, view): (ViewSource<'_>, &View),
    bytes: usize,
    waited: &Waited<'_>,
) -> Result<ViewReport, ReadError> {
    let mut report = ViewReport { view: view.name.clone(), ..ViewReport::default() };
    let mut gather = ImportGather::new(store, bytes / 2, bytes / 2);
    let (mut memory, mut contribution, mut failure) = (Memory::default(), Contribution::default(), None);
    source.each(engine, view, &mut |key, stored| {
        if let Err(error) = waited.check() {
            failure = Some(error);
            return ControlFlow::Break(());
        }
        report.documents += 1;
        let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
        let Some(document) = document else {
            report.fault(format!("the document {key:02x?} is damaged"));
            return ControlFlow::Continue(());
        };
        match view.contribution(document, &mut memory, &mut contribution) {
            Err(why) => report.fault(format!("the document {key:02x?}: {why}")),
            Ok(()) => {
                if let Err(error) = gather.add(view, &contribution) {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    let (mut values, mut groups) = (store.sorted_run()?, store.sorted_run()?);
    let value = &mut |key: &[u8], value: &[u8]| waited.check().and_then(|()| values.push(key, value));
    let group = &mut |key: &[u8], state: &[u8]| waited.check().and_then(|()| groups.push(key, state));
    gather.finish(view, value, group)?;
    compare(engine, view.values, "counted value", values, (&mut report, waited))?;
    compare(engine, view.groups, "group", groups, (&mut report, waited))?;
    Ok(report)
}

/// Compares a tree with the expected rows.
fn compare(
    engine: &impl engine::ReadView,
    tree: TreeId,
    what: &str,
    wanted: engine::SortedRunWriter,
    (report, waited): (&mut ViewReport, &Waited<'_>),
) -> Result<(), engine::StoreError> {
    let run = wanted.finish()?;
    let mut entries = run.read()?;
    let mut next: Option<engine::Entry> = take(&mut entries)?;
    let mut failure = None;
    engine.scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        if let Err(error) = waited.check() {
            failure = Some(error);
            return ControlFlow::Break(());
        }
        report.rows += 1;
        while let Some((missing, _)) = next.take_if(|(wanted, _)| wanted.as_slice() < key) {
            report.fault(format!("the {what} {missing:02x?} is missing"));
            match take(&mut entries) {
                Ok(following) => next = following,
                Err(error) => {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        match next.take_if(|(wanted, _)| wanted.as_slice() == key) {
            None => report.fault(format!("the {what} {key:02x?} belongs to no document")),
            Some((_, wanted)) => {
                if wanted != value {
                    report.fault(format!("the {what} {key:02x?} is {value:02x?}, its documents make {wanted:02x?}"));
                }
                match take(&mut entries) {
                    Ok(following) => next = following,
                    Err(error) => {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    while let Some((missing, _)) = next {
        report.fault(format!("the {what} {missing:02x?} is missing"));
        next = take(&mut entries)?;
    }
    Ok(())
}

fn take(entries: &mut engine::SortedEntries) -> Result<Option<engine::Entry>, engine::StoreError> {
    let next = entries.next()?;
    Ok(next.map(|(key, value)| (key.to_vec(), value.to_vec())))
}
