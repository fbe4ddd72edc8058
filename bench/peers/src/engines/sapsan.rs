//! This project's store, through its public door, with its default settings: durability `commit`.

use crate::data::{DOCUMENT_BYTES, Records, Shape, document, touch};
use crate::engine::{Engine, Outcome, Purpose, Reader, Writer, missing};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use store::{
    Abort, Commit, Direction, KeyRange, RetriableTransaction, Stats, Store, StoreError, StoreOptions, Submit, TreeId, Tx,
};

/// Transactions that are submitted before those that came back are counted again.
const STRIDE: u64 = 32;

/// An open store with one tree.
pub(crate) struct Sapsan {
    store: Store,
    tree: TreeId,
    shape: Shape,
    memtable_bytes: u64,
    segment_bytes: u64,
}

impl Sapsan {
    /// Opens or creates it.
    pub(crate) fn open(folder: &Path, purpose: Purpose) -> Outcome<Sapsan> {
        let mut options = StoreOptions::default();
        if let Some(bytes) = purpose.memtable_bytes {
            options.memtable_bytes = bytes;
        }
        let (memtable_bytes, segment_bytes) = (options.memtable_bytes as u64, options.log_segment_bytes);
        let (store, _) = Store::open(folder, options)?;
        let tree = store.tree("records")?;
        Ok(Sapsan { store, tree, shape: purpose.shape, memtable_bytes, segment_bytes })
    }

    /// Its own counts.
    pub(crate) fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Bytes of one memtable.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes
    }

    /// Bytes of one file of the log.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// A reader of its own.
    pub(crate) fn reader(&self) -> Outcome<store::Reader> {
        Ok(self.store.reader()?)
    }

    /// Loads from records in no order, sorted with this much memory.
    pub(crate) fn load_unsorted(&self, records: &Records, memory_bytes: usize) -> Outcome<()> {
        let mut sorter = self.store.sorter(memory_bytes);
        for (key, value) in records.iter() {
            sorter.push(key, value)?;
        }
        let mut sorted = sorter.finish()?;
        let mut build = self.store.bulk()?;
        while let Some((key, value)) = sorted.next()? {
            build.push(key, value)?;
        }
        self.store.attach(vec![(self.tree, build)], &[])?;
        Ok(())
    }

    /// Keeps so many transactions in flight from one thread until `next` has no more; how many there were.
    pub(crate) fn submit_all(&self, in_flight: u64, next: &mut dyn FnMut() -> Option<(u64, u64)>) -> Outcome<u64> {
        let reader = self.store.reader()?;
        let returned = Arc::new(Returned::default());
        let mut sent: u64 = 0;
        'all: loop {
            returned.wait_for(sent.saturating_sub(in_flight - STRIDE))?;
            for _ in 0..STRIDE {
                let Some((number, revision)) = next() else { break 'all };
                let put = Put { tree: self.tree, shape: self.shape, number, revision, returned: Arc::clone(&returned) };
                if let Submit::Busy(_) = self.store.submit(&reader, Box::new(put)) {
                    return Err("the queue is shorter than what is in flight".into());
                }
                sent += 1;
            }
        }
        returned.wait_for(sent)?;
        Ok(sent)
    }
}

impl Engine for Sapsan {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        let mut build = self.store.bulk()?;
        for (key, value) in records {
            build.push(key, value)?;
        }
        self.store.attach(vec![(self.tree, build)], &[])?;
        Ok(())
    }

    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Commits(self)))
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(Reads { sapsan: self, reader: self.store.reader()? }))
    }

    fn settle(&self) -> Outcome<()> {
        Ok(self.store.checkpoint()?)
    }
}

struct Commits<'e>(&'e Sapsan);

impl Writer for Commits<'_> {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let Sapsan { store, tree, shape, .. } = self.0;
        store.commit(&mut |tx: &mut Tx<'_>| {
            let mut text = [0; DOCUMENT_BYTES];
            for &number in numbers {
                document(number, revision, &mut text);
                tx.put(*tree, shape.key(number).bytes(), &text);
            }
            Ok(())
        })?;
        Ok(())
    }
}

struct Reads<'e> {
    sapsan: &'e Sapsan,
    reader: store::Reader,
}

impl Reader for Reads<'_> {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        let snapshot = self.reader.snapshot();
        let mut sum = 0;
        for &number in numbers {
            let value = snapshot.get(self.sapsan.tree, self.sapsan.shape.key(number).bytes())?;
            sum += touch(&value.ok_or_else(|| missing(number))?);
        }
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let (mut rows, mut sum) = (0, 0);
        self.reader.snapshot().scan(self.sapsan.tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            sum += u64::from(key[0]) + u64::from(value[0]);
            rows += 1;
            ControlFlow::Continue(())
        })?;
        std::hint::black_box(sum);
        Ok(rows)
    }
}

/// Transactions that came back.
#[derive(Default)]
struct Returned {
    state: Mutex<ReturnedState>,
    more: Condvar,
}

#[derive(Default)]
struct ReturnedState {
    count: u64,
    /// The count for which the submitting thread sleeps.
    wanted: u64,
    failure: Option<StoreError>,
}

impl Returned {
    fn wait_for(&self, count: u64) -> Outcome<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.count < count && state.failure.is_none() {
            state.wanted = count;
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.take().map_or(Ok(()), |failure| Err(failure.into()))
    }
}

struct Put {
    tree: TreeId,
    shape: Shape,
    number: u64,
    revision: u64,
    returned: Arc<Returned>,
}

impl RetriableTransaction for Put {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        let mut text = [0; DOCUMENT_BYTES];
        document(self.number, self.revision, &mut text);
        tx.put(self.tree, self.shape.key(self.number).bytes(), &text);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        let mut state = self.returned.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        if let Err(error) = outcome {
            state.failure = Some(error);
        }
        if state.count == state.wanted || state.failure.is_some() {
            self.returned.more.notify_one();
        }
    }
}
