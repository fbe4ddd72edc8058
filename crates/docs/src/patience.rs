//! Background builds wait: while the engine cannot take their work, and while a statement has the right of way.
//!
//! - A full queue, too many readers or a full disk is a moment of the engine and says nothing about the data, so it must not decide
//!   whether a rule comes into force.
//! - A statement that reads more than the engine remembers must begin again after any commit. A build commits all the time, so
//!   such a statement would never end beside it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Classified, ErrorKind, StoreError};

/// The first pause before work is tried again; each further pause is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest wait of a build before one of its commits: it goes on even if statements follow each other without a gap.
const GIVE_MAX: Duration = Duration::from_secs(5);
/// Interval at which a build checks whether statements still have the right of way.
const GIVE_LOOK: Duration = Duration::from_millis(1);
/// Interval at which a pause checks whether it must stop.
const STOP_LOOK: Duration = Duration::from_millis(10);

/// Whether the engine may take the same work later, with nothing changed in between.
pub(crate) fn is_passing(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::OldStates | ErrorKind::DiskFull)
}

/// Does some work, as often as the engine cannot take it for the moment. After `stop` the last error is returned.
pub(crate) fn patiently<T>(
    stop: &AtomicBool,
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut pause = PAUSE_FIRST;
    loop {
        match work() {
            Err(error) if is_passing(&error) && !stop.load(Ordering::Acquire) => {
                if pause == PAUSE_FIRST {
                    tracing::warn!(%error, "a background build waits");
                }
                wait(stop, pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

/// The right of way of statements over the builds of a database.
#[derive(Debug, Default)]
pub(crate) struct RightOfWay {
    statements: AtomicUsize,
}

/// Builds wait while this lives.
pub(crate) struct GoesFirst<'r>(&'r RightOfWay);

impl RightOfWay {
    pub(crate) fn take(&self) -> GoesFirst<'_> {
        self.statements.fetch_add(1, Ordering::SeqCst);
        GoesFirst(self)
    }

    /// Called by a build before each of its commits: waits while a statement has the right of way, but not for ever.
    pub(crate) fn give(&self, stop: &AtomicBool) {
        self.give_for(GIVE_MAX, stop);
    }

    fn give_for(&self, most: Duration, stop: &AtomicBool) {
        let until = Instant::now() + most;
        while self.statements.load(Ordering::SeqCst) > 0 && !stop.load(Ordering::Acquire) && Instant::now() < until {
            std::thread::sleep(GIVE_LOOK);
        }
    }
}

impl Drop for GoesFirst<'_> {
    fn drop(&mut self) {
        self.0.statements.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait(stop: &AtomicBool, pause: Duration) {
    let until = Instant::now() + pause;
    while !stop.load(Ordering::Acquire) && Instant::now() < until {
        std::thread::sleep(STOP_LOOK.min(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::database::{DocumentDatabase, Write};
    use crate::engine::StoreOptions;
    use crate::sql::{Budget, QueryError};
    use crate::statements::ModifyError;
    use crate::writes::{Op, Precondition};

    #[test]
    fn a_build_waits_for_a_statement_that_had_to_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
        let config = Config::parse("c.toml".as_ref(), text).unwrap();
        let database = DocumentDatabase::open(&config, folder.path(), StoreOptions::default()).unwrap().0;
        let (collection, key) = (database.collection("items").unwrap(), 1u32.to_be_bytes());
        let tree = database.collection_at(collection).info.tree;
        let right_of_way = &database.inner.core.right_of_way;
        let goes_first = || right_of_way.statements.load(Ordering::SeqCst) > 0;
        let mut firsts = Vec::new();
        let done = database.attempt::<(), ModifyError>(&Budget::default(), &mut |tx, _| {
            tx.get(tree, &key)?;
            firsts.push(goes_first());
            if firsts.len() == 1 {
                // Another write makes it begin again, where all commit. There it takes too long.
                let op = Op::Put { key: key.to_vec(), body: b"{\"id\":1}".to_vec() };
                database.write_now(&Write { collection, op, precondition: Precondition::None }).unwrap();
            }
            if firsts.len() == 2 { Err(QueryError::Deadline.into()) } else { Ok(()) }
        });
        assert!(done.is_ok() && firsts == [false, false, true] && !goes_first(), "{firsts:?}");

        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let statement = right_of_way.take();
            let build = scope.spawn(|| right_of_way.give(&stop));
            std::thread::sleep(2 * GIVE_LOOK);
            assert!(!build.is_finished());
            drop(statement);
            build.join().unwrap();
            let _statement = right_of_way.take();
            // It goes on beside statements that follow each other without a gap.
            let build = scope.spawn(|| right_of_way.give_for(2 * GIVE_LOOK, &stop));
            build.join().unwrap();
            let build = scope.spawn(|| right_of_way.give(&stop));
            stop.store(true, Ordering::Release);
            build.join().unwrap();
        });
    }

    #[test]
    fn work_is_repeated_while_the_engine_cannot_take_it_and_ends_with_any_other_error() {
        let stop = AtomicBool::new(false);
        let mut outcomes = vec![Ok(3), Err(StoreError::Full), Err(StoreError::Busy)];
        assert!(matches!(patiently(&stop, || outcomes.pop().unwrap()), Ok(3)));
        let mut outcomes = vec![Ok(3), Err(StoreError::Closed), Err(StoreError::Busy)];
        assert!(matches!(patiently(&stop, || outcomes.pop().unwrap()), Err(StoreError::Closed)));
        let mut runs = 0;
        let stopped = patiently(&stop, || {
            runs += 1;
            stop.store(runs == 3, Ordering::Release);
            Err::<(), _>(StoreError::Busy)
        });
        assert!(matches!(stopped, Err(StoreError::Busy)) && runs == 3);
    }
}
