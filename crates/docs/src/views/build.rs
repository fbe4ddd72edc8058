//! Building views over the stored documents of their collections, in the background and in parallel.
//!
//! Threads are started while the database is being opened, and each takes its snapshot before the opening ends: no write has
//! run yet, so all see the same state S, and every write after S maintains the view. The threads divide the documents of S by
//! ranges of keys and add their contributions to the rows that the writes change too. Additions commute, so no later catching
//! up is needed. When all ranges are done, one transaction makes the view answer queries. A build that stops leaves a catalog
//! row marked as building; the next opening empties the half-built trees and starts again.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use binjson::StoredDocument;

use super::database_core::DatabaseCore;
use super::definition::Contribution;
use super::gather::Gather;
use super::operand::{group_operand, value_operand};
use super::stored;
use super::upper::{self, Built};
use super::view::View;
use super::write::distinct_of;
use crate::caught;
use crate::encoding::key::shown_key;
use crate::engine::{self, Direction, KeyRange, STAMP_BYTES, StoreSnapshot};
use crate::patience::patiently;
use crate::sql::grouping::Memory;

/// Parts of a collection for each thread. With many parts an uneven distribution of documents averages out.
const PARTS_PER_THREAD: usize = 16;
/// Documents between two checks of the stop flag.
const STOP_DOCUMENTS: u64 = 256;
/// Changes of rows in one transaction.
const FOLDS_PER_TRANSACTION: usize = 256;
/// Interval of progress messages in the log.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Most threads of a build.
pub(crate) const BUILD_THREADS_MAX: usize = 64;

/// The builders of an open database. Dropping this stops them.
#[derive(Default)]
pub(crate) struct Builder {
    stop: Arc<AtomicBool>,
    /// Signals each thread to begin.
    begin: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// A range of a collection's keys.
struct Part {
    collection: usize,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

/// State shared by the threads of one build.
struct Work {
    core: Arc<DatabaseCore>,
    parts: Mutex<VecDeque<Part>>,
    /// Threads that are still reading.
    reading: AtomicUsize,
    threads: usize,
    stop: Arc<AtomicBool>,
    started: Instant,
    /// Time of the last progress message, in milliseconds since the start.
    reported_ms: AtomicU64,
}

impl Builder {
    /// Starts threads that will build the missing views; returns when all have their snapshots. They change nothing before
    /// [`Builder::begin`].
    pub(crate) fn start(core: &Arc<DatabaseCore>, threads: usize) -> Result<Builder, engine::StoreError> {
        let building = core.views.list.iter().filter(|view| view.readiness.is_pending());
        if building.count() == 0 {
            return Ok(Builder::default());
        }
        let threads = threads.clamp(1, BUILD_THREADS_MAX);
        let reader = core.store.reader()?;
        let parts = parts(core, &reader.snapshot(), threads)?;
        let mut builder = Builder::default();
        let work = Arc::new(Work {
            core: Arc::clone(core),
            parts: Mutex::new(parts),
            reading: AtomicUsize::new(threads),
            threads,
            stop: Arc::clone(&builder.stop),
            started: Instant::now(),
            reported_ms: AtomicU64::new(0),
        });
        for view in work.building(None) {
            tracing::info!(view = view.name, threads, "the view is being built");
        }
        let (ready, all_ready) = channel();
        for number in 0..threads {
            let (work, ready, (begin, begins)) = (Arc::clone(&work), ready.clone(), channel());
            builder.begin.push(begin);
            let thread = std::thread::Builder::new().name(format!("view-build-{number}"));
            let spawned = thread.spawn(move || thread_main(&work, &ready, &begins));
            builder.threads.push(spawned.map_err(|error| engine::StoreError::io("start a thread", error))?);
        }
        drop(ready);
        // One message from each thread, or an error. Senders stay open until the threads end, hence `take`.
        all_ready.iter().take(threads).collect::<Result<Vec<()>, engine::StoreError>>()?;
        Ok(builder)
    }

    /// Lets the threads begin.
    pub(crate) fn begin(&self, core: &DatabaseCore) {
        core.views.list.iter().for_each(|view| view.readiness.begin());
        for begin in &self.begin {
            // If the thread has already ended, it has logged the reason.
            let _ = begin.send(());
        }
    }

    /// Whether all builds have ended.
    pub(crate) fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.begin.clear();
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn thread_main(work: &Work, ready: &Sender<Result<(), engine::StoreError>>, begins: &Receiver<()>) {
    let reader = match work.core.store.reader() {
        Ok(reader) => reader,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let snapshot = reader.snapshot();
    let _ = ready.send(Ok(()));
    if begins.recv().is_err() {
        return;
    }
    let read = caught::outcome(|| Worker::new(work).run(&snapshot));
    drop(snapshot);
    if let Err(why) = read.or_else(|why| if work.is_stopped() { Ok(()) } else { Err(why) }) {
        tracing::error!(why, "a view cannot be built");
        work.building(None).for_each(|view| view.fail(why.clone()));
    }
    let is_last = work.reading.fetch_sub(1, Ordering::AcqRel) == 1;
    if is_last
        && !work.is_stopped()
        && let Err(why) = caught::outcome(|| {
            work.finish();
            Ok(())
        })
    {
        tracing::error!(why, "views cannot be switched in");
        work.building(None).cloned().chain(work.uppers()).for_each(|view| view.fail(why.clone()));
    }
}

/// Cuts the collections of the views to be built into parts.
fn parts(
    core: &DatabaseCore,
    snapshot: &StoreSnapshot<'_>,
    threads: usize,
) -> Result<VecDeque<Part>, engine::StoreError> {
    let mut parts = VecDeque::new();
    for (number, collection) in core.collections.iter().enumerate() {
        let views = || collection.views.iter().map(|watch| &watch.view).filter(|view| view.readiness.is_pending());
        if views().next().is_none() {
            continue;
        }
        let tree = collection.info.tree;
        let ends = (snapshot.first(tree, KeyRange::ALL)?, snapshot.last(tree, KeyRange::ALL)?);
        let cuts = match ends {
            (Some((first, _)), Some((last, _))) => cuts(&first, &last, threads * PARTS_PER_THREAD),
            _ => Vec::new(),
        };
        let mut from = None;
        for cut in cuts {
            parts.push_back(Part { collection: number, from: from.replace(cut.clone()), to: Some(cut) });
        }
        parts.push_back(Part { collection: number, from, to: None });
        let count = parts.iter().filter(|part| part.collection == number).count() as u64;
        views().for_each(|view| view.begin(count));
    }
    Ok(parts)
}

/// Keys that cut the range from `first` to `last` into about `count` parts, evenly by the eight bytes after their common
/// prefix.
fn cuts(first: &[u8], last: &[u8], count: usize) -> Vec<Vec<u8>> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let digits = |key: &[u8]| {
        let mut digits = [0; 8];
        key[common..].iter().zip(&mut digits).for_each(|(byte, digit)| *digit = *byte);
        u64::from_be_bytes(digits)
    };
    let (from, to) = (digits(first), digits(last));
    let step = (to - from) / count as u64;
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    for number in (1..count as u64).filter(|_| step > 0) {
        cuts.push([&first[..common], &(from + step * number).to_be_bytes()[..]].concat());
    }
    cuts
}

impl Work {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The views being built, of one collection or of all.
    fn building(&self, collection: Option<usize>) -> impl Iterator<Item = &Arc<View>> {
        let collections = self.core.collections.iter().enumerate();
        let wanted = collections.filter(move |(number, _)| collection.is_none_or(|wanted| wanted == *number));
        let views = wanted.flat_map(|(_, collection)| collection.views.iter().map(|watch| &watch.view));
        views.filter(|view| view.readiness.is_pending())
    }

    /// Logs the progress, if the last message is old enough.
    fn report_progress(&self) {
        let (now, reported_ms) = (self.started.elapsed().as_millis() as u64, self.reported_ms.load(Ordering::Relaxed));
        if now < reported_ms + REPORT_EVERY.as_millis() as u64
            || self.reported_ms.compare_exchange(reported_ms, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for view in self.building(None).map(|view| view.status()) {
            let ((done, parts), remaining) = (view.parts, view.remaining.unwrap_or_default());
            tracing::info!(view = view.name, done, parts, view.documents, ?remaining, "the view is being built");
        }
    }

    /// Makes the built views answer queries, then builds the views over them and makes those answer.
    fn finish(&self) {
        let built: Vec<Arc<View>> = self.building(None).cloned().collect();
        // A built view waits while its predecessor is read by old upper views that still answer queries. It is switched in
        // together with their replacements.
        let list = &self.core.views.list;
        let is_read = |view: &View| {
            let is_before = |place: usize| list[place].is_ready() && list[place].name == view.name;
            list.iter().any(|of| of.is_ready() && of.definition.lower().is_some_and(is_before))
        };
        let (mut later, now): (Vec<_>, Vec<_>) = built.into_iter().partition(|view| is_read(view));
        now.into_iter().for_each(|view| self.switch_in(vec![view]));
        for view in self.uppers() {
            let Some(lower) = view.definition.lower().map(|lower| &list[lower]) else { continue };
            if !lower.readiness.is_maintained() {
                view.fail(format!("the view {}, which it reads, could not be built", lower.name));
                continue;
            }
            match upper::build(&self.core, &view, lower, &self.stop) {
                Built::Whole => later.push(view),
                Built::Stopped => return,
                Built::Failed(why) => {
                    tracing::error!(view = view.name, why, "the view cannot be built");
                    view.fail(why);
                }
            }
        }
        if !later.is_empty() {
            self.switch_in(later);
        }
    }

    /// The views over views to be built, each after the view that it reads.
    fn uppers(&self) -> Vec<Arc<View>> {
        let views = &self.core.views;
        let is_wanted = |view: &&Arc<View>| view.readiness.is_pending() && view.definition.lower().is_some();
        let mut uppers: Vec<Arc<View>> = views.list.iter().filter(is_wanted).cloned().collect();
        uppers.sort_by_key(|view| views.depth(view));
        uppers
    }

    /// Makes built views the ones that answer queries.
    fn switch_in(&self, built: Vec<Arc<View>>) {
        match patiently(&self.stop, || stored::switch_in(&self.core, &built)) {
            Ok(()) => built.iter().for_each(|view| {
                let documents = view.documents.load(Ordering::Relaxed);
                tracing::info!(view = view.name, documents, elapsed = ?self.started.elapsed(), "the view is built");
            }),
            Err(_) if self.is_stopped() => {}
            Err(error) => built.iter().for_each(|view| {
                tracing::error!(view = view.name, %error, "the view cannot be switched in");
                view.fail(error.to_string());
            }),
        }
    }
}

/// The work of one thread.
struct Worker<'w> {
    work: &'w Work,
    /// The gatherer of each view being built, and the view's collection.
    gathers: Vec<(Arc<View>, usize, Gather)>,
    /// Memory that the gatherers use together, and its limit.
    bytes: usize,
    bytes_max: usize,
    memory: Memory,
    contribution: Contribution,
}

/// Why a worker stopped reading.
enum Stopped {
    Asked,
    Error(engine::StoreError),
}

impl From<engine::StoreError> for Stopped {
    fn from(error: engine::StoreError) -> Self {
        Stopped::Error(error)
    }
}

impl<'w> Worker<'w> {
    fn new(work: &'w Work) -> Worker<'w> {
        let collections = work.core.collections.iter().enumerate();
        let views = collections.flat_map(|(number, _)| work.building(Some(number)).map(move |view| (number, view)));
        let gathers = views.map(|(number, view)| (Arc::clone(view), number, Gather::default())).collect();
        let bytes_max = work.core.build_bytes / work.threads;
        let (memory, contribution) = (Memory::default(), Contribution::default());
        Worker { work, gathers, bytes: 0, bytes_max, memory, contribution }
    }

    fn run(&mut self, snapshot: &StoreSnapshot<'_>) -> Result<(), engine::StoreError> {
        let next = || self.work.parts.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some(part) = next() {
            match self.part(snapshot, &part) {
                Ok(()) => {
                    self.work.building(Some(part.collection)).for_each(|view| {
                        view.parts_done.fetch_add(1, Ordering::Relaxed);
                    });
                    self.work.report_progress();
                }
                Err(Stopped::Asked) => return Ok(()),
                Err(Stopped::Error(error)) => return Err(error),
            }
        }
        snapshot.check()?;
        (0..self.gathers.len()).try_for_each(|place| self.pass_on(place))
    }

    fn part(&mut self, snapshot: &StoreSnapshot<'_>, part: &Part) -> Result<(), Stopped> {
        let bound = |key: &Option<Vec<u8>>| key.clone();
        let (from, to) = (bound(&part.from), bound(&part.to));
        let range = KeyRange {
            from: from.as_deref().map_or(Bound::Unbounded, Bound::Included),
            to: to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        };
        let (mut seen, mut stopped) = (0u64, None);
        let tree = self.work.core.collections[part.collection].info.tree;
        snapshot.scan(tree, range, Direction::Forward, &mut |key, stored| {
            seen += 1;
            if seen.is_multiple_of(STOP_DOCUMENTS) && self.work.stop.load(Ordering::Relaxed) {
                stopped = Some(Stopped::Asked);
                return ControlFlow::Break(());
            }
            if let Err(error) = self.document(part.collection, key, stored) {
                stopped = Some(Stopped::Error(error));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        self.work.building(Some(part.collection)).for_each(|view| {
            view.documents.fetch_add(seen, Ordering::Relaxed);
        });
        stopped.map_or(Ok(()), Err)
    }

    fn document(&mut self, collection: usize, key: &[u8], stored: &[u8]) -> Result<(), engine::StoreError> {
        let document = stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
        for place in 0..self.gathers.len() {
            let (view, of, gather) = &mut self.gathers[place];
            let before = gather.bytes();
            if *of != collection || !view.readiness.is_maintained() {
                continue;
            }
            let added = match document {
                None => Err("the document is damaged".to_string()),
                Some(document) => {
                    let contribution = &mut self.contribution;
                    let found = view.contribution(document, &mut self.memory, contribution);
                    found.map_err(|why| why.to_string()).and_then(|()| {
                        gather.add(view, contribution).ok_or_else(|| "a contribution is damaged".to_string())
                    })
                }
            };
            self.bytes += gather.bytes() - before;
            if let Err(why) = added {
                let info = &self.work.core.collections[collection].info;
                let why = format!("the stored document {}/{}: {why}", info.name, shown_key(info.key.kind, key));
                tracing::error!(view = view.name, why, "the view cannot be built");
                view.fail(why);
            }
            while self.bytes > self.bytes_max {
                self.pass_on(self.largest())?;
            }
        }
        Ok(())
    }

    /// The place of the largest gatherer.
    fn largest(&self) -> usize {
        (0..self.gathers.len()).max_by_key(|place| self.gathers[*place].2.bytes()).unwrap_or_default()
    }

    /// Adds the gathered contributions to the view's rows.
    fn pass_on(&mut self, place: usize) -> Result<(), engine::StoreError> {
        let (view, _, gather) = &mut self.gathers[place];
        // The map's memory is freed too: the next gatherer to be flushed may be another.
        let mut gather = std::mem::take(gather);
        self.bytes -= gather.bytes();
        if !view.readiness.is_maintained() {
            return Ok(());
        }
        let (core, stop) = (&self.work.core, &self.work.stop);
        let mut operand = Vec::new();
        let values = gather.take_values();
        for chunk in values.chunks(FOLDS_PER_TRANSACTION) {
            let mut fold_all = |tx: &mut engine::Tx<'_>| {
                for (key, counted) in chunk {
                    let distinct = distinct_of(view, counted.facet, counted.group_key_bytes);
                    value_operand(counted.times, distinct, &mut operand);
                    tx.fold(view.values, key, &operand);
                }
                Ok(())
            };
            core.right_of_way.give(stop);
            patiently(stop, || core.store.commit(&mut fold_all))?;
        }
        let groups = gather.take_groups();
        for chunk in groups.chunks(FOLDS_PER_TRANSACTION) {
            let mut fold_all = |tx: &mut engine::Tx<'_>| {
                for (key, state) in chunk {
                    group_operand(state, &mut operand);
                    tx.fold(view.groups, key, &operand);
                }
                Ok(())
            };
            core.right_of_way.give(stop);
            patiently(stop, || core.store.commit(&mut fold_all))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::database::{DocumentDatabase, Write};
    use crate::opening::stored_rows::{self, Rows};
    use crate::writes::write::{Op, Precondition};
    use std::fmt::Write as _;

    const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";

    #[test]
    fn what_many_views_gather_stays_within_the_memory_for_building() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, options) = (folder.path(), engine::StoreOptions::default);
        let mut text = ITEMS.to_string();
        let mut config = Config::parse("items.toml".as_ref(), &text).unwrap();
        let (database, _) = DocumentDatabase::open(&config, dir, options()).unwrap();
        for id in 0..200 {
            let op = Op::Insert { body: format!("{{\"id\":{id},\"text\":\"{id:0400}\"}}").into_bytes() };
            let collection = database.collection("items").unwrap();
            database.write_now(&Write { collection, op, precondition: Precondition::None }).unwrap();
        }
        drop(database);
        for number in 0..30 {
            let query = format!("SELECT text, COUNT(*) AS n FROM items WHERE id >= {number} GROUP BY text");
            writeln!(text, "[views.v{number}]\nquery = \"{query}\"").unwrap();
        }
        config = Config::parse("items.toml".as_ref(), &text).unwrap();
        (config.build_bytes, config.build_threads) = (64 << 10, 1);
        let (store, _) = engine::Store::open(dir, options()).unwrap();
        let stored: Rows =
            stored_rows::read(&store.reader().unwrap().snapshot(), store.tree("catalog").unwrap()).unwrap();
        // The builders of this database do not begin.
        let (database, _) = DocumentDatabase::assemble(&config, dir, store, &stored, Arc::default(), None).unwrap();
        let core = Arc::clone(&database.inner.core);
        let (reading, stop, started, reported_ms) =
            (AtomicUsize::new(1), Arc::default(), Instant::now(), AtomicU64::new(0));
        let work =
            Work { core: Arc::clone(&core), parts: Mutex::default(), reading, threads: 1, stop, started, reported_ms };
        let (mut worker, reader) = (Worker::new(&work), core.store.reader().unwrap());
        assert_eq!(worker.gathers.len(), 30);
        let (mut most, tree) = (0, core.collections[0].info.tree);
        reader
            .snapshot()
            .scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, stored| {
                worker.document(0, key, stored).unwrap();
                most = most.max(worker.gathers.iter().map(|(_, _, gather)| gather.bytes()).sum::<usize>());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!((32 << 10..=64 << 10).contains(&most), "{most} bytes were gathered");
    }

    #[track_caller]
    fn check(first: &[u8], last: &[u8]) {
        let cuts = cuts(first, last, 8);
        assert!(cuts.is_sorted(), "{cuts:?}");
        assert!(cuts.iter().all(|cut| cut[..] > *first && cut[..] <= *last), "{cuts:?}");
    }

    #[test]
    fn cuts_lie_between_the_ends_in_order() {
        check(&1u32.to_be_bytes(), &1_000_000u32.to_be_bytes());
        check(&[0; 8], &[255; 8]);
        check(b"aaaa", b"aaab");
        check(b"a", b"a");
        check(b"a", b"abcdefghijklmnop");
        assert_eq!(cuts(&1u32.to_be_bytes(), &1_000_000u32.to_be_bytes(), 8).len(), 7);
    }
}
