//! Gathering: sources are read and cut by some threads, records encoded, checked and sorted by others.
//!
//! A sorted record is its key's stored bytes, then a value: its origin (so that of equal keys the one read first comes
//! first), the change number, the stored document.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use binjson::{Document, Encoder};
use store::Sorter;

use super::input::{self, Content, Source};
use super::split::{Batch, Format, Splitter};
use super::{
    BadRecord, ImportError, Input, OnError, Options, Place, Progress, QUEUE_BATCHES, Report, SKIPPED_TOLD_MAX,
    SORT_BYTES, THREADS_MAX,
};
use crate::collection::{Collection, STAMP_BYTES};
use crate::database::{CollectionId, Database};
use crate::engine::{Direction, KeyRange};
use crate::error::WriteError;
use crate::loader::ORIGIN_BYTES;
use crate::row::Shape;

/// Set in a source's number where its places are lines.
const LINES: u32 = 1 << 31;

/// All records that are good by themselves.
pub(super) struct Gathered {
    /// By collection; each thread's.
    pub(super) sorters: Vec<Vec<Sorter>>,
    pub(super) names: Vec<String>,
    pub(super) report: Report,
    pub(super) bytes_total: Option<u64>,
}

impl Gathered {
    /// Whether every collection with records is empty in the database.
    pub(super) fn all_empty(&self, database: &Database) -> Result<bool, ImportError> {
        let session = database.session()?;
        let now = session.reader().snapshot();
        for (number, _) in self.sorters.iter().enumerate().filter(|(_, sorters)| !sorters.is_empty()) {
            let tree = database.collection_at(CollectionId(number)).info.tree;
            let all = KeyRange { from: std::ops::Bound::Unbounded, to: std::ops::Bound::Unbounded };
            let mut empty = true;
            now.scan(tree, all, Direction::Forward, &mut |_, _| {
                empty = false;
                std::ops::ControlFlow::Break(())
            })?;
            if !empty {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A record by its origin.
    pub(super) fn bad(&self, origin: &[u8; ORIGIN_BYTES], why: String) -> BadRecord {
        let [a, b, c, d, place @ ..] = *origin;
        let source = u32::from_be_bytes([a, b, c, d]);
        let place = u64::from_be_bytes(place);
        let file = self.names.get((source & !LINES) as usize).cloned().unwrap_or_default();
        let place = if source & LINES != 0 { Place::Line(place) } else { Place::Byte(place) };
        BadRecord { file, place, why }
    }

    /// Tells a record that is left out, or stops.
    pub(super) fn refuse(&mut self, on_error: OnError, bad: BadRecord) -> Result<(), ImportError> {
        if on_error == OnError::Stop {
            return Err(ImportError::Record(bad));
        }
        self.report.skipped += 1;
        if self.report.told.len() < SKIPPED_TOLD_MAX {
            self.report.told.push(bad);
        }
        Ok(())
    }
}

/// What the threads share.
struct Gathering<'g> {
    database: &'g Database,
    options: &'g Options,
    progress: &'g (dyn Fn(Progress) + Sync),
    names: Vec<String>,
    sources: Mutex<VecDeque<(u32, Source)>>,
    bytes_total: Option<u64>,
    bytes: AtomicU64,
    documents: AtomicU64,
    stopped: AtomicBool,
    failure: Mutex<Option<ImportError>>,
    skipped: Mutex<(u64, Vec<BadRecord>)>,
    /// The change number of all imported documents: that of the newest change before them.
    stamp: u64,
    sort_bytes: usize,
}

/// Reads all inputs.
pub(super) fn run(
    database: &Database,
    inputs: Vec<Input>,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Gathered, ImportError> {
    if let Some(name) = options.collection.as_deref().filter(|name| database.collection(name).is_none()) {
        return Err(ImportError::File { file: "--collection".to_string(), why: unknown(database, name) });
    }
    let mut sources = Vec::new();
    for input in inputs {
        input::open(input, options, &mut sources)?;
    }
    let threads = options.threads.clamp(1, THREADS_MAX);
    let collections = database.catalog().collections.len();
    let names = sources.iter().map(|source| source.name.clone()).collect();
    let bytes_total = sources.iter().map(|source| source.bytes).sum();
    let gathering = Gathering {
        database,
        options,
        progress,
        names,
        sources: Mutex::new((0u32..).zip(sources).collect()),
        bytes_total,
        bytes: AtomicU64::new(0),
        documents: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        failure: Mutex::new(None),
        skipped: Mutex::default(),
        stamp: database.session()?.reader().snapshot().version().0,
        sort_bytes: SORT_BYTES / (threads * collections.max(1)),
    };
    let sorters = gathering.run(threads, collections);
    gathering.finish(sorters)
}

impl Gathering<'_> {
    fn run(&self, threads: usize, collections: usize) -> Vec<Vec<Sorter>> {
        let (sender, receiver) = sync_channel(QUEUE_BATCHES);
        let receiver = Mutex::new(receiver);
        let readers = threads.min(lock(&self.sources).len()).max(1);
        let mut sorters: Vec<Vec<Sorter>> = (0..collections).map(|_| Vec::new()).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| Worker::new(self, collections).run(&receiver))).collect();
            for _ in 0..readers {
                let sender = sender.clone();
                scope.spawn(move || self.read(&sender));
            }
            drop(sender);
            for worker in workers {
                match worker.join() {
                    Ok(own) => own.into_iter().zip(&mut sorters).for_each(|(own, all)| all.extend(own)),
                    Err(_) => self
                        .fail(ImportError::File { file: "import".to_string(), why: "a thread panicked".to_string() }),
                }
            }
        });
        sorters
    }

    fn finish(self, sorters: Vec<Vec<Sorter>>) -> Result<Gathered, ImportError> {
        if let Some(failure) = into_inner(self.failure) {
            return Err(failure);
        }
        let (skipped, told) = into_inner(self.skipped);
        let report = Report { documents: 0, bytes: self.bytes.into_inner(), skipped, told };
        Ok(Gathered { sorters, names: self.names, report, bytes_total: self.bytes_total })
    }

    /// Cuts one source after the other, until there is none left.
    fn read(&self, sender: &SyncSender<Batch>) {
        loop {
            let next = lock(&self.sources).pop_front();
            let Some((number, source)) = next else { return };
            let Source { name, format, content, .. } = source;
            let result = match content {
                Content::Stream(read) => self.cut(number, read, format, sender),
                Content::Packed(mut archive, entry) => match archive.by_index(entry) {
                    Ok(entry) => self.cut(number, entry, format, sender),
                    Err(error) => Err(error.to_string()),
                },
            };
            if let Err(why) = result {
                self.fail(ImportError::File { file: name, why });
            }
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn cut(&self, number: u32, read: impl Read, format: Format, sender: &SyncSender<Batch>) -> Result<(), String> {
        let mut splitter = Splitter::new(read, format);
        let mut position = 0;
        while let Some(mut batch) = splitter.next(number).map_err(|error| error.why)? {
            if splitter.counts_lines() {
                batch.source |= LINES;
            }
            self.bytes.fetch_add(splitter.position() - position, Ordering::Relaxed);
            position = splitter.position();
            if self.stopped.load(Ordering::Relaxed) || sender.send(batch).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Notes the first failure and stops all threads.
    fn fail(&self, error: ImportError) {
        lock(&self.failure).get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn collection(&self, array: Option<&str>) -> Result<usize, String> {
        let name = array.or(self.options.collection.as_deref());
        let name = name.ok_or("the records stand in no named array: name their collection")?;
        self.database.catalog().number(name).ok_or_else(|| unknown(self.database, name))
    }

    fn refuse(&self, batch: &Batch, place: u64, error: &WriteError) {
        let pointer = match error {
            WriteError::Invalid { pointer, .. } if !pointer.is_empty() => format!("{pointer}: "),
            _ => String::new(),
        };
        let file = self.names[(batch.source & !LINES) as usize].clone();
        let place = if batch.source & LINES != 0 { Place::Line(place) } else { Place::Byte(place) };
        let bad = BadRecord { file, place, why: format!("{pointer}{error}") };
        if self.options.on_error == OnError::Stop {
            return self.fail(ImportError::Record(bad));
        }
        let mut skipped = lock(&self.skipped);
        skipped.0 += 1;
        if skipped.1.len() < SKIPPED_TOLD_MAX {
            skipped.1.push(bad);
        }
    }
}

/// A thread that encodes, checks and sorts.
struct Worker<'w> {
    gathering: &'w Gathering<'w>,
    encoder: Encoder,
    shapes: Vec<Shape>,
    sorters: Vec<Option<Sorter>>,
    value: Vec<u8>,
}

impl<'w> Worker<'w> {
    fn new(gathering: &'w Gathering<'w>, collections: usize) -> Self {
        Worker {
            gathering,
            encoder: Encoder::new(),
            shapes: vec![Shape::default(); collections],
            sorters: (0..collections).map(|_| None).collect(),
            value: Vec::new(),
        }
    }

    fn run(mut self, batches: &Mutex<Receiver<Batch>>) -> Vec<Option<Sorter>> {
        loop {
            let next = lock(batches).recv();
            let Ok(batch) = next else { return self.sorters };
            // After a failure the queue is still emptied, so that no reader waits for room in it.
            if self.gathering.stopped.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(error) = self.batch(&batch) {
                self.gathering.fail(error);
            }
        }
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), ImportError> {
        let file = || self.gathering.names[(batch.source & !LINES) as usize].clone();
        let number = self.gathering.collection(batch.array.as_deref());
        let number = number.map_err(|why| ImportError::File { file: file(), why })?;
        let collection = self.gathering.database.collection_at(CollectionId(number));
        let mut start = 0;
        for &(end, place) in &batch.records {
            match self.record(collection, number, &batch.bytes[start..end], batch.source, place) {
                Ok(Ok(())) => {}
                Ok(Err(why)) => self.gathering.refuse(batch, place, &why),
                Err(error) => return Err(ImportError::Store(error)),
            }
            start = end;
        }
        let count = batch.records.len() as u64;
        let documents = self.gathering.documents.fetch_add(count, Ordering::Relaxed) + count;
        (self.gathering.progress)(Progress {
            bytes: self.gathering.bytes.load(Ordering::Relaxed),
            bytes_total: self.gathering.bytes_total,
            documents,
            building: false,
        });
        Ok(())
    }

    fn record(
        &mut self,
        collection: &Collection,
        number: usize,
        text: &[u8],
        source: u32,
        place: u64,
    ) -> Result<Result<(), WriteError>, store::Error> {
        let value = &mut self.value;
        value.clear();
        value.extend_from_slice(&source.to_be_bytes());
        value.extend_from_slice(&place.to_be_bytes());
        value.extend_from_slice(&self.gathering.stamp.to_le_bytes());
        if let Err(error) = self.encoder.encode(text, value) {
            return Ok(Err(error.into()));
        }
        let Ok(document) = Document::from_bytes(&value[ORIGIN_BYTES + STAMP_BYTES..]) else {
            return Ok(Err(WriteError::invalid("the record cannot be read back", "")));
        };
        let (store, budget) = (self.gathering.database.store(), self.gathering.sort_bytes);
        let sorter = self.sorters[number].get_or_insert_with(|| store.sorter(budget));
        collection.with_row(document, &mut self.shapes[number], |row| {
            let found = match collection.check(document, row) {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let Some(key) = collection.info.key.kind.of_scalar(found.scalar()) else {
                return Ok(Err(WriteError::invalid("no key", "")));
            };
            sorter.push(key.as_bytes(), value).map(Ok)
        })
    }
}

fn unknown(database: &Database, name: &str) -> String {
    let known: Vec<&str> = database.catalog().collections.iter().map(|info| info.name.as_str()).collect();
    format!("there is no collection \"{name}\"; there are: {}", known.join(", "))
}

/// A thread that panicked while holding the lock is told by its join; the data under it is still whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
