//! Merge of sorted parts and runs: a binary heap of sources with the lowest entry on top.
//!
//! The heap compares 8 bytes of each source's key as an integer, after the common prefix of all sources' keys, and
//! compares keys and values themselves only if those are equal.

use std::cmp::Ordering;

use super::part::Part;
use super::run::{Record, RunReader, SortedRun};
use crate::base::error::StoreError;
use crate::base::head::{common_prefix, head};
use crate::base::sync::thread;

/// A sorted source, positioned on an entry.
enum Source {
    Part { part: Part, index: usize },
    Run(RunReader),
}

impl Source {
    #[inline]
    fn record(&self) -> Option<Record<'_>> {
        match self {
            Source::Part { part, index } => part.get(*index),
            Source::Run(run) => run.record(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), StoreError> {
        match self {
            Source::Part { part, index } => {
                *index += 1;
                part.fetch_ahead(*index);
            }
            Source::Run(run) => run.advance()?,
        }
        Ok(())
    }
}

/// Sources with more memory than this, and files, are freed on a thread of their own: the kernel takes a tenth of a
/// second for some hundred megabytes, for which the reader need not wait.
const FREED_BESIDE_MIN: usize = 16 << 20;

/// A source's element in the heap.
#[derive(Clone, Copy)]
struct Front {
    head: u64,
    source: usize,
}

/// Key and value.
pub type SortedEntry<'e> = (&'e [u8], &'e [u8]);

/// Entries in order of key and then of value, each read once.
pub struct SortedEntries {
    sources: Vec<Source>,
    heap: Vec<Front>,
    /// Length of the common prefix of all keys.
    common: usize,
    /// The top's entry was returned.
    is_read: bool,
}

impl SortedEntries {
    /// Merges sorted parts and runs.
    pub(super) fn merge(parts: Vec<Part>, runs: &[SortedRun]) -> Result<SortedEntries, StoreError> {
        let parts: Vec<Part> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut beginnings = parts.iter().map(Part::common).chain(runs.iter().map(SortedRun::common));
        let first = beginnings.next().unwrap_or_default();
        let common = beginnings.fold(first.len(), |len, other| common_prefix(&first[..len], other));
        let mut sources = Vec::with_capacity(parts.len() + runs.len());
        sources.extend(parts.into_iter().map(|part| Source::Part { part, index: 0 }));
        for run in runs {
            sources.push(Source::Run(run.reader()?));
        }
        let mut merge = SortedEntries { heap: Vec::with_capacity(sources.len()), sources, common, is_read: false };
        for source in 0..merge.sources.len() {
            let front = merge.front(source);
            merge.heap.extend(front);
        }
        for index in (0..merge.heap.len() / 2).rev() {
            merge.sink(index);
        }
        Ok(merge)
    }

    #[cfg(test)]
    pub(super) fn has_runs(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, Source::Run(_)))
    }

    /// Bytes of memory and of files.
    fn bytes(&self) -> usize {
        let bytes = |source: &Source| match source {
            Source::Part { part, .. } => part.used(),
            Source::Run(run) => run.file_bytes(),
        };
        self.sources.iter().map(bytes).sum()
    }

    #[inline]
    fn front(&self, source: usize) -> Option<Front> {
        let record = self.sources[source].record()?;
        // A damaged run's key may be shorter than the common prefix.
        Some(Front { head: head(record.key().get(self.common..).unwrap_or_default()), source })
    }

    /// The next entry, valid until the following call.
    #[expect(clippy::should_implement_trait, reason = "it lends: an iterator could not")]
    pub fn next(&mut self) -> Result<Option<SortedEntry<'_>>, StoreError> {
        Ok(self.next_record()?.map(|record| (record.key(), record.value())))
    }

    /// The same, in the format of a run.
    pub(super) fn next_record(&mut self) -> Result<Option<Record<'_>>, StoreError> {
        if let (true, Some(&Front { source, .. })) = (self.is_read, self.heap.first()) {
            self.sources[source].advance()?;
            match self.front(source) {
                Some(front) => self.heap[0] = front,
                None => {
                    self.heap.swap_remove(0);
                }
            }
            self.sink(0);
        }
        self.is_read = true;
        Ok(self.heap.first().and_then(|front| self.sources[front.source].record()))
    }

    #[inline]
    fn sink(&mut self, mut index: usize) {
        loop {
            let child = 2 * index + 1;
            if child >= self.heap.len() {
                return;
            }
            let is_right = child + 1 < self.heap.len() && self.compare(child + 1, child) == Ordering::Less;
            let lowest = child + usize::from(is_right);
            if self.compare(index, lowest) != Ordering::Greater {
                return;
            }
            self.heap.swap(index, lowest);
            index = lowest;
        }
    }

    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.heap[a], self.heap[b]);
        a.head.cmp(&b.head).then_with(|| {
            let entry = |front: Front| self.sources[front.source].record().map(|record| (record.key(), record.value()));
            entry(a).cmp(&entry(b))
        })
    }
}

impl SortedRun {
    /// Reads it from its start.
    pub fn read(&self) -> Result<SortedEntries, StoreError> {
        SortedEntries::merge(Vec::new(), std::slice::from_ref(self))
    }
}

impl Drop for SortedEntries {
    fn drop(&mut self) {
        if self.bytes() >= FREED_BESIDE_MIN {
            let sources = std::mem::take(&mut self.sources);
            // If no thread can be started they are dropped here. Nobody waits for the thread: the files have no names.
            let _ = thread::Builder::new().name("sort-free".to_string()).spawn(move || drop(sources));
        }
    }
}
