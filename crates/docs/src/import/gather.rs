//! Gathering: some threads read the sources and cut them into records; others encode, check and sort the records. For a single
//! source the batches are put back into order (`batch_order.rs`), and another thread builds trees from those in key order
//! (`ascending.rs`).
//!
//! A sorted record consists of the key's stored bytes and a value: its origin (so that of records with the same key the first
//! one read comes first), the change number, and the stored document.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use binjson::{Encoder, StoredDocument};

use super::ascending::{self, AscendingRecords};
use super::batch_order::BatchOrder;
use super::csv::{self, BadCell, Columns, RowReader};
use super::encoded::Encoded;
use super::input::{self, Content, Source};
use super::split::{Batch, Format, Splitter};
use super::{
    BATCH_BYTES, BadRecord, FilePlace, ImportError, ImportOptions, ImportProgress, ImportReport, Input, MAKES_NO_KEYS,
    OnError, QUEUE_BATCHES, SKIPPED_LISTED_MAX, SORT_BYTES, THREADS_MAX,
};
use crate::caught;
use crate::database::{CollectionId, DocumentDatabase};
use crate::encoding::FieldNumbers;
use crate::engine::{self, Direction, KeyRange, STAMP_BYTES, Sorter};
use crate::error::{WriteError, there_are};
use crate::opening::{LoadError, ORIGIN_BYTES};
use crate::writes::Collection;

/// Set in a source's number if its places are lines.
const LINES: u32 = 1 << 31;

/// Encoded batches that may wait for the building thread.
const RISING_BATCHES: usize = 4;

/// All records of a collection that are valid by themselves.
pub(super) struct CollectionRecords<'d> {
    /// The collection.
    pub(super) number: usize,
    /// Those that arrived in order.
    pub(super) ascending: Option<AscendingRecords<'d>>,
    /// The others, by thread.
    pub(super) sorters: Vec<Sorter>,
}

impl CollectionRecords<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.ascending.is_none() && self.sorters.is_empty()
    }
}

/// All records that are valid by themselves.
pub(super) struct Gathered<'d> {
    /// By collection.
    records: Vec<CollectionRecords<'d>>,
    /// Why no trees could be built from the records that arrived in order.
    pub(super) broken: Option<LoadError>,
    pub(super) names: Vec<String>,
    pub(super) report: ImportReport,
    pub(super) bytes_total: Option<u64>,
}

/// Which collections are empty in the database, including the views over them: some views have a row even without documents.
fn empty(database: &DocumentDatabase) -> Result<Vec<bool>, engine::StoreError> {
    let session = database.session()?;
    let now = session.reader().snapshot();
    let is_empty = |tree| {
        let all = KeyRange { from: std::ops::Bound::Unbounded, to: std::ops::Bound::Unbounded };
        let mut empty = true;
        now.scan(tree, all, Direction::Forward, &mut |_, _| {
            empty = false;
            std::ops::ControlFlow::Break(())
        })?;
        Ok(empty)
    };
    let are_empty = |number| {
        let views = database.views_at_work().of_collection(number).filter(|view| view.is_ready());
        let trees = views.map(|view| view.groups).chain([database.collection_at(CollectionId(number)).info.tree]);
        trees.map(is_empty).try_fold(true, |all, empty| Ok(all && empty?))
    };
    (0..database.catalog().collections.len()).map(are_empty).collect()
}

impl<'d> Gathered<'d> {
    /// Whether every collection with records is empty in the database.
    pub(super) fn all_empty(&self, database: &DocumentDatabase) -> Result<bool, ImportError> {
        let empty = empty(database)?;
        Ok(self.records.iter().all(|records| records.is_empty() || empty[records.number]))
    }

    /// The records, by collection.
    pub(super) fn take_records(&mut self) -> impl Iterator<Item = CollectionRecords<'d>> + use<'d> {
        std::mem::take(&mut self.records).into_iter()
    }

    /// The description of a record by its origin.
    pub(super) fn bad(&self, origin: &[u8; ORIGIN_BYTES], why: String) -> BadRecord {
        let [a, b, c, d, place @ ..] = *origin;
        let source = u32::from_be_bytes([a, b, c, d]);
        let place = u64::from_be_bytes(place);
        let file = self.names.get((source & !LINES) as usize).cloned().unwrap_or_default();
        let place = if source & LINES != 0 { FilePlace::Line(place) } else { FilePlace::Byte(place) };
        BadRecord { file, place, why }
    }

    /// Records a skipped record, or stops.
    pub(super) fn refuse(&mut self, on_error: OnError, bad: BadRecord) -> Result<(), ImportError> {
        if on_error == OnError::Stop {
            return Err(ImportError::Record(bad));
        }
        self.report.skipped += 1;
        if self.report.listed.len() < SKIPPED_LISTED_MAX {
            self.report.listed.push(bad);
        }
        Ok(())
    }
}

/// The state shared by the threads.
struct Gathering<'g, 'd> {
    database: &'d DocumentDatabase,
    options: &'g ImportOptions,
    progress: &'g (dyn Fn(ImportProgress) + Sync),
    names: Vec<String>,
    sources: Mutex<VecDeque<(u32, Source)>>,
    bytes_total: Option<u64>,
    bytes: AtomicU64,
    documents: AtomicU64,
    stopped: AtomicBool,
    failure: Mutex<Option<ImportError>>,
    skipped: Mutex<(u64, Vec<BadRecord>)>,
    /// The change number of all imported documents: that of the newest earlier change.
    stamp: u64,
    sort_bytes: usize,
    /// Only for a single source. Several sources are read in parallel, so their records have no common order.
    order: Option<BatchOrder>,
    /// Used batches, for reuse; at most as many as were in use at one time.
    spare: Mutex<Vec<Encoded>>,
}

/// Reads all inputs.
pub(super) fn run<'d>(
    database: &'d DocumentDatabase,
    inputs: Vec<Input>,
    options: &ImportOptions,
    progress: &(dyn Fn(ImportProgress) + Sync),
) -> Result<Gathered<'d>, ImportError> {
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
    let (order, ascending) = match sources.len() {
        1 => {
            let (sender, receiver) = sync_channel(RISING_BATCHES);
            (Some(BatchOrder::new(&empty(database)?, sender)), Some(receiver))
        }
        _ => (None, None),
    };
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
        order,
        spare: Mutex::default(),
    };
    let (sorters, ascending) = gathering.run(threads, collections, ascending);
    gathering.finish(sorters, ascending)
}

/// By collection the records that arrived in order, or why their trees could not be built.
type AllAscending<'d> = Result<Vec<Option<AscendingRecords<'d>>>, LoadError>;

impl<'d> Gathering<'_, 'd> {
    fn run(
        &self,
        threads: usize,
        collections: usize,
        ascending: Option<Receiver<Encoded>>,
    ) -> (Vec<Vec<Sorter>>, AllAscending<'d>) {
        let (sender, receiver) = sync_channel(QUEUE_BATCHES);
        let receiver = Mutex::new(receiver);
        let readers = threads.min(lock(&self.sources).len()).max(1);
        let mut sorters: Vec<Vec<Sorter>> = (0..collections).map(|_| Vec::new()).collect();
        let ascending = std::thread::scope(|scope| {
            let builder = ascending.map(|batches| scope.spawn(move || self.build_ascending(collections, batches)));
            let workers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| Worker::new(self, collections).run(&receiver))).collect();
            for _ in 0..readers {
                let sender = sender.clone();
                scope.spawn(move || {
                    caught::unless_panic(|| self.read(&sender)).unwrap_or_else(|why| self.fail(panicked(why)));
                });
            }
            drop(sender);
            for worker in workers {
                match worker.join() {
                    Ok(own) => own.into_iter().zip(&mut sorters).for_each(|(own, all)| all.extend(own)),
                    Err(_) => self.fail(panicked("a thread panicked".to_string())),
                }
            }
            if let Some(order) = &self.order {
                order.close();
            }
            let ascending = builder.map(std::thread::ScopedJoinHandle::join);
            ascending.unwrap_or(Ok(Ok(Vec::new()))).unwrap_or_else(|_| {
                self.fail(panicked("a thread panicked".to_string()));
                Ok(Vec::new())
            })
        });
        (sorters, ascending)
    }

    fn build_ascending(&self, collections: usize, batches: Receiver<Encoded>) -> AllAscending<'d> {
        let sort_bytes = SORT_BYTES / collections.max(1);
        // `run` drops the batches' channel before it returns: see `stop`.
        let ascending =
            ascending::run(self.database, collections, sort_bytes, batches, &|batch| lock(&self.spare).push(batch));
        ascending.inspect_err(|_| self.stop())
    }

    fn finish(self, sorters: Vec<Vec<Sorter>>, ascending: AllAscending<'d>) -> Result<Gathered<'d>, ImportError> {
        if let Some(failure) = into_inner(self.failure) {
            return Err(failure);
        }
        let (ascending, broken) = match ascending {
            Ok(ascending) => (ascending, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut ascending = ascending.into_iter();
        let records = |(number, sorters)| CollectionRecords { number, ascending: ascending.next().flatten(), sorters };
        let records = sorters.into_iter().enumerate().map(records).collect();
        let (skipped, listed) = into_inner(self.skipped);
        let report = ImportReport { documents: 0, bytes: self.bytes.into_inner(), skipped, listed };
        Ok(Gathered { records, broken, names: self.names, report, bytes_total: self.bytes_total })
    }

    /// Cuts sources one after the other, until none is left.
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
        let header = splitter.header().map_err(|error| error.why)?;
        let columns = header.map(|(row, delimiter)| self.columns(&row, delimiter)).transpose()?;
        let mut position = 0;
        let mut batches = 0;
        while let Some(mut batch) = splitter.next(number).map_err(|error| error.why)? {
            if splitter.counts_lines() {
                batch.source |= LINES;
            }
            self.bytes.fetch_add(splitter.position() - position, Ordering::Relaxed);
            position = splitter.position();
            batch.number = batches;
            batch.columns.clone_from(&columns);
            batches += 1;
            if self.stopped.load(Ordering::Relaxed) || sender.send(batch).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What the columns of a table are in the collection that its rows go into.
    fn columns(&self, header: &[u8], delimiter: u8) -> Result<Arc<Columns>, String> {
        let info = &self.database.collection_at(CollectionId(self.collection(None)?)).info;
        Columns::new(info, csv::header(header, delimiter)?, delimiter).map(Arc::new)
    }

    /// Records the first failure and stops all threads.
    fn fail(&self, error: ImportError) {
        lock(&self.failure).get_or_insert(error);
        self.stop();
    }

    /// Stops all threads. The building thread must drop its end of the channel first: a thread that waits for room in the
    /// channel holds the queue's lock.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(order) = &self.order {
            order.close();
        }
    }

    fn collection(&self, array: Option<&str>) -> Result<usize, String> {
        let name = array.or(self.options.collection.as_deref());
        let name = name.ok_or("the file names no collection for its records: name one with --collection")?;
        self.database.catalog().number(name).ok_or_else(|| unknown(self.database, name))
    }

    fn refuse(&self, batch: &Batch, place: u64, Refused { column, error }: &Refused) {
        let pointer = match error {
            WriteError::Invalid { pointer, .. } if !pointer.is_empty() => format!("{pointer}: "),
            _ => String::new(),
        };
        let file = self.names[(batch.source & !LINES) as usize].clone();
        let place = match column {
            Some(column) => FilePlace::Cell { line: place, column: *column },
            None if batch.source & LINES != 0 => FilePlace::Line(place),
            None => FilePlace::Byte(place),
        };
        let bad = BadRecord { file, place, why: format!("{pointer}{error}") };
        if self.options.on_error == OnError::Stop {
            return self.fail(ImportError::Record(bad));
        }
        let mut skipped = lock(&self.skipped);
        skipped.0 += 1;
        if skipped.1.len() < SKIPPED_LISTED_MAX {
            skipped.1.push(bad);
        }
    }
}

/// The error if a thread panicked.
fn panicked(why: String) -> ImportError {
    ImportError::File { file: "import".to_string(), why }
}

/// Why a record is refused, and the column of a row that is to blame.
struct Refused {
    column: Option<u64>,
    error: WriteError,
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Self {
        Refused { column: None, error }
    }
}

/// A thread that encodes, checks and sorts.
struct Worker<'w, 'd> {
    gathering: &'w Gathering<'w, 'd>,
    encoder: Encoder,
    /// A row as JSON.
    object: Vec<u8>,
    shapes: Vec<FieldNumbers>,
    sorters: Vec<Option<Sorter>>,
    key: Vec<u8>,
}

impl<'w, 'd> Worker<'w, 'd> {
    fn new(gathering: &'w Gathering<'w, 'd>, collections: usize) -> Self {
        Worker {
            gathering,
            encoder: Encoder::new(),
            object: Vec::new(),
            shapes: vec![FieldNumbers::default(); collections],
            sorters: (0..collections).map(|_| None).collect(),
            key: Vec::new(),
        }
    }

    fn run(mut self, batches: &Mutex<Receiver<Batch>>) -> Vec<Option<Sorter>> {
        loop {
            let next = lock(batches).recv();
            let Ok(batch) = next else { return self.sorters };
            // After a failure the queue is drained, so that no reader waits for room in it.
            if self.gathering.stopped.load(Ordering::Relaxed) {
                continue;
            }
            // A panic stops all threads too, because others may wait for this thread's batch.
            let done = caught::unless_panic(|| self.batch(batch));
            if let Err(error) = done.unwrap_or_else(|why| Err(panicked(why))) {
                self.gathering.fail(error);
            }
        }
    }

    fn batch(&mut self, batch: Batch) -> Result<(), ImportError> {
        let number = batch.number;
        let encoded = self.encode(&batch)?;
        let count = batch.records.len() as u64;
        // Frees the text, which is not needed while the encoded batch waits for its turn.
        drop(batch);
        match &self.gathering.order {
            None => self.sort(encoded)?,
            Some(order) => order.pass(number, encoded).into_iter().try_for_each(|batch| self.sort(batch))?,
        }
        let documents = self.gathering.documents.fetch_add(count, Ordering::Relaxed) + count;
        (self.gathering.progress)(ImportProgress {
            bytes: self.gathering.bytes.load(Ordering::Relaxed),
            bytes_total: self.gathering.bytes_total,
            documents,
            building: false,
        });
        Ok(())
    }

    fn encode(&mut self, batch: &Batch) -> Result<Encoded, ImportError> {
        let gathering = self.gathering;
        let file = || gathering.names[(batch.source & !LINES) as usize].clone();
        let number = gathering.collection(batch.array.as_deref());
        let number = number.map_err(|why| ImportError::File { file: file(), why })?;
        let collection = gathering.database.collection_at(CollectionId(number));
        let mut encoded = lock(&gathering.spare).pop().unwrap_or_default();
        encoded.restart(number);
        let mut rows = batch.columns.as_deref().map(|columns| (columns, RowReader::new(columns.delimiter())));
        let mut start = 0;
        for &(end, place) in &batch.records {
            let text = &batch.bytes[start..end];
            let done = match &mut rows {
                None => self.record(collection, &mut encoded, text, batch.source, place).map_err(Refused::from),
                Some(rows) => self.row(collection, &mut encoded, rows, text, batch.source, place),
            };
            if let Err(refused) = done {
                encoded.forget_value();
                gathering.refuse(batch, place, &refused);
            }
            start = end;
        }
        Ok(encoded)
    }

    fn row(
        &mut self,
        collection: &Collection,
        encoded: &mut Encoded,
        (columns, reader): &mut (&Columns, RowReader),
        row: &[u8],
        source: u32,
        place: u64,
    ) -> Result<(), Refused> {
        let mut object = std::mem::take(&mut self.object);
        object.clear();
        let done = match columns.object(reader, row, &mut object) {
            Ok(()) => {
                let done = self.record(collection, encoded, &object, source, place);
                done.map_err(|error| Refused { column: columns.column_of(&error), error })
            }
            Err(BadCell { column, pointer, why }) => {
                Err(Refused { column: Some(column), error: WriteError::invalid(why, pointer) })
            }
        };
        if object.capacity() <= BATCH_BYTES {
            self.object = object;
        }
        done
    }

    fn record(
        &mut self,
        collection: &Collection,
        encoded: &mut Encoded,
        text: &[u8],
        source: u32,
        place: u64,
    ) -> Result<(), WriteError> {
        let (number, start) = (encoded.collection, encoded.next_start());
        let value = encoded.next_value();
        value.extend_from_slice(&source.to_be_bytes());
        value.extend_from_slice(&place.to_be_bytes());
        value.extend_from_slice(&self.gathering.stamp.to_le_bytes());
        self.encoder.encode(text, value)?;
        if let Some(mark) = collection.at_write(self.gathering.database.clock()).mark {
            binjson::set_mark(value, start + ORIGIN_BYTES + STAMP_BYTES, mark);
        }
        let Ok(document) = StoredDocument::from_bytes(&value[start + ORIGIN_BYTES + STAMP_BYTES..]) else {
            return Err(WriteError::invalid("the record cannot be read back", ""));
        };
        let key = &mut self.key;
        let key_field = &collection.info.key;
        if key_field.generate.is_some() && document.field(&key_field.field).is_none() {
            let why = format!("the key \"{}\" is missing{MAKES_NO_KEYS}", key_field.field);
            return Err(WriteError::invalid(why, format!("/{}", key_field.field)));
        }
        collection.with_row(document, &mut self.shapes[number], |row| {
            let found = collection.check(document, row)?;
            let Some(found) = collection.info.key.kind.of_scalar(found.scalar()) else {
                return Err(WriteError::invalid("no key", ""));
            };
            key.clear();
            key.extend_from_slice(found.as_bytes());
            Ok(())
        })?;
        encoded.end_record(&self.key);
        Ok(())
    }

    fn sort(&mut self, batch: Encoded) -> Result<(), engine::StoreError> {
        let (store, budget) = (self.gathering.database.store(), self.gathering.sort_bytes);
        if batch.len() > 0 {
            let sorter = self.sorters[batch.collection].get_or_insert_with(|| store.sorter(budget));
            batch.iter().try_for_each(|record| sorter.push(record.key, record.value))?;
        }
        lock(&self.gathering.spare).push(batch);
        Ok(())
    }
}

fn unknown(database: &DocumentDatabase, name: &str) -> String {
    let known: Vec<&str> = database.catalog().collections.iter().map(|info| info.name.as_str()).collect();
    format!("there is no collection \"{name}\"; {}", there_are(&known))
}

/// A poisoned lock is ignored: the panic is reported at the join, and the data under the lock is consistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
