//! Counting what the trees hold (`counts.rs`): when a database is opened, and by a thread while it is open.
//!
//! The thread looks at pages of the trees as any reader does, so many for each tree at most, and lets its snapshot go after
//! each look. Writers know nothing of it.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::catalog::{Catalog, CollectionInfo};
use crate::counts::{ALL, Counts, TreeCount};
use crate::engine::{KeyRange, TreeId, View};
use crate::views::Heart;

/// How long counting may hold up the opening of a database: what is not counted by then, the thread counts.
const OPENING_MAX: Duration = Duration::from_millis(200);
/// A tree is counted again once its size has changed by this share.
const CHANGED_SHARE: f64 = 0.125;
/// Between two looks of the thread.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// Of so many looks one counts all, for values may come to be spread otherwise while their number stays.
const LOOKS_OF_SIZE: u32 = 30;
/// The thread keeps a few keys and numbers.
const STACK_BYTES: usize = 256 << 10;

impl Counts {
    /// Counts the trees of a catalog, as long as `goes_on`: `all`, or those whose size is no longer what it was.
    pub fn take(&self, catalog: &Catalog, view: &dyn View, all: bool, goes_on: &dyn Fn() -> bool) {
        let trees = catalog.collections.iter().flat_map(|info| trees(info));
        for (tree, fields) in trees.take_while(|_| goes_on()) {
            let same = |known: TreeCount| {
                let now = view.entries_about(tree, ALL).ok().flatten().unwrap_or_default() as f64;
                (now - known.entries).abs() <= known.entries * CHANGED_SHARE
            };
            if !all && self.of(tree).is_some_and(same) {
                continue;
            }
            // What cannot be read is not known: who asks for it will be told why.
            if let Ok(Some(count)) = TreeCount::take(view, tree, fields) {
                self.set(tree, count);
            }
        }
    }
}

/// The trees of a collection, each with the number of fields that its keys begin with.
fn trees(info: &CollectionInfo) -> impl Iterator<Item = (TreeId, usize)> {
    let indexes = info.indexes.iter().filter(|index| index.readiness.is_ready());
    std::iter::once((info.tree, 0)).chain(indexes.map(|index| (index.tree, index.fields.len())))
}

/// The thread; dropped, it stops.
pub(crate) struct Counter {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Counts that ask the store of a database for sizes of ranges.
pub(crate) fn counts(heart: &Arc<Heart>) -> Counts {
    // Prepared queries keep the counts, and the heart keeps the views' queries.
    let heart: Weak<Heart> = Arc::downgrade(heart);
    Counts::new(move |tree, range: KeyRange<'_>| {
        let heart = heart.upgrade()?;
        let reader = heart.store.reader().ok()?;
        reader.snapshot().entries_about(tree, range).ok()
    })
}

/// Counts a catalog's trees once, all or those that have changed; false where the time did not suffice, or no reader is free.
pub(crate) fn take(heart: &Heart, catalog: &Catalog, all: bool, goes_on: &dyn Fn() -> bool) -> bool {
    let Ok(reader) = heart.store.reader() else { return false };
    catalog.counts.take(catalog, &reader.snapshot(), all, goes_on);
    goes_on()
}

impl Counter {
    /// Counts, and goes on counting now and again.
    pub(crate) fn start(heart: &Arc<Heart>, catalog: &Catalog) -> Result<Counter, store::Error> {
        let began = Instant::now();
        let is_counted = take(heart, catalog, true, &|| began.elapsed() < OPENING_MAX);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (heart, catalog, stopped) = (Arc::clone(heart), catalog.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("counter".to_string()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let mut wait = if is_counted { LOOK_EVERY } else { Duration::ZERO };
            let mut looks = 0;
            while !waits(&stopped, wait) {
                looks = (looks + 1) % LOOKS_OF_SIZE;
                take(&heart, &catalog, looks == 0, &|| !waits(&stopped, Duration::ZERO));
                wait = LOOK_EVERY;
            }
        });
        let source = |source| store::Error::Io { context: "start a thread".to_string(), source };
        Ok(Counter { stop, thread: Some(spawned.map_err(source)?) })
    }
}

/// Waits so long; true where the thread is to stop.
fn waits((stop, changed): &(Mutex<bool>, Condvar), how_long: Duration) -> bool {
    let guard = stop.lock().unwrap_or_else(PoisonError::into_inner);
    if how_long.is_zero() {
        return *guard;
    }
    let waited = changed.wait_timeout_while(guard, how_long, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for Counter {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told by itself.
            let _ = thread.join();
        }
    }
}
