//! Transactions: atomic, isolated, prepared again after a conflict, acknowledged exactly once.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;

use store::{
    Abort, Commit, Direction, KeyRange, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx,
};

struct Bench {
    store: Store,
    tree: TreeId,
    directory: tempfile::TempDir,
}

fn bench() -> Bench {
    bench_with(|_| ())
}

fn bench_with(set: impl FnOnce(&mut StoreOptions)) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::default();
    options.map_bytes = 1 << 32;
    set(&mut options);
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let tree = store.tree("t").unwrap();
    Bench { store, tree, directory }
}

impl Bench {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let reader = self.store.reader().unwrap();
        let snapshot = reader.snapshot();
        snapshot.get(self.tree, key).unwrap().map(|value| value.into_owned())
    }

    fn count(&self, key: &[u8]) -> u64 {
        self.get(key).map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
    }
}

fn increment(tx: &mut Tx<'_>, tree: TreeId, key: &[u8]) -> Result<(), Abort> {
    let old = tx.get(tree, key).map_err(|_| Abort)?.map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()));
    tx.put(tree, key, &(old + 1).to_le_bytes());
    Ok(())
}

#[test]
fn increments_from_many_threads_are_all_there() {
    let bench = bench_with(|options| options.memtable_bytes = 256 * 1024);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (store, tree) = (&bench.store, bench.tree);
            scope.spawn(move || {
                for round in 0..400u32 {
                    let change = &mut |tx: &mut Tx<'_>| {
                        increment(tx, tree, b"hot")?;
                        // Filler, so that checkpoints run in between.
                        tx.put(tree, &[thread, round as u8, (round >> 8) as u8], &[7; 300]);
                        increment(tx, tree, &[b'k', thread % 2])
                    };
                    store.commit(change).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.count(b"hot"), 3200);
    assert_eq!(bench.count(b"k\0") + bench.count(b"k\x01"), 3200);
    let stats = bench.store.stats();
    assert!(stats.redone > 0, "nobody lost a race: {stats:?}");
    assert!(stats.checkpoints > 1, "no checkpoint ran beside: {stats:?}");
}

#[test]
fn a_scan_that_others_add_to_is_computed_again() {
    let bench = bench();
    std::thread::scope(|scope| {
        for thread in 0..6u32 {
            let (store, tree) = (&bench.store, bench.tree);
            scope.spawn(move || {
                for round in 0..100u32 {
                    // Each row holds the number of rows before it: a missed conflict would give two rows the same number.
                    let change = &mut |tx: &mut Tx<'_>| {
                        let mut rows = 0u32;
                        let visit = &mut |_: &[u8], _: &[u8]| {
                            rows += 1;
                            ControlFlow::Continue(())
                        };
                        tx.scan(tree, KeyRange::ALL, Direction::Forward, visit).map_err(|_| Abort)?;
                        tx.put(tree, &(thread << 16 | round).to_be_bytes(), &rows.to_be_bytes());
                        Ok(())
                    };
                    store.commit(change).unwrap();
                }
            });
        }
    });
    let reader = bench.store.reader().unwrap();
    let mut numbers = Vec::new();
    let visit = &mut |_: &[u8], value: &[u8]| {
        numbers.push(u32::from_be_bytes(value.try_into().unwrap()));
        ControlFlow::Continue(())
    };
    reader.snapshot().scan(bench.tree, KeyRange::ALL, Direction::Forward, visit).unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
}

#[test]
fn versions_rise_by_one_and_stamps_hold_them() {
    let bench = bench();
    let tree = bench.tree;
    let mut versions = Vec::new();
    for key in [b"a", b"b", b"c"] {
        let commit = bench.store.commit(&mut |tx| {
            tx.put_stamped(tree, key, b"________text");
            Ok(())
        });
        versions.push(commit.unwrap().version.0);
        let value = bench.get(key).unwrap();
        assert_eq!(value[..8], versions.last().unwrap().to_le_bytes());
        assert_eq!(&value[8..], b"text");
    }
    assert_eq!(versions[1], versions[0] + 1);
    assert_eq!(versions[2], versions[0] + 2);
}

#[test]
fn a_transaction_sees_its_own_changes_in_gets_and_scans() {
    let bench = bench();
    let tree = bench.tree;
    bench
        .store
        .commit(&mut |tx| {
            for key in [b"a", b"c", b"e"] {
                tx.put(tree, key, b"old");
            }
            Ok(())
        })
        .unwrap();
    let mut seen = Vec::new();
    bench
        .store
        .commit(&mut |tx| {
            seen.clear();
            tx.put(tree, b"b", b"new");
            tx.put(tree, b"c", b"new");
            tx.delete(tree, b"e");
            tx.put(tree, b"f", b"new");
            assert_eq!(tx.get(tree, b"c").unwrap().as_deref(), Some(&b"new"[..]));
            assert_eq!(tx.get(tree, b"e").unwrap(), None);
            for direction in [Direction::Forward, Direction::Backward] {
                let mut keys = String::new();
                tx.scan(tree, KeyRange::ALL, direction, &mut |key, value| {
                    keys.push(char::from(key[0]));
                    keys.push(char::from(value[0]));
                    if keys.len() < 6 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })
                .unwrap();
                seen.push(keys);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, ["aobncn", "fncnbn"]);
}

#[test]
fn an_aborted_transaction_changes_nothing() {
    let bench = bench();
    let tree = bench.tree;
    let before = bench.store.stats().version;
    let outcome = bench.store.commit(&mut |tx| {
        tx.put(tree, b"k", b"v");
        Err(Abort)
    });
    assert!(matches!(outcome, Err(StoreError::Aborted)));
    assert_eq!(bench.get(b"k"), None);
    assert_eq!(bench.store.stats().version, before);
}

#[test]
fn what_is_over_a_limit_is_refused_by_name() {
    let bench = bench_with(|options| options.memtable_bytes = 1 << 20);
    let tree = bench.tree;
    for (key, value, expected) in
        [(1025, 1, "key"), (1, 65 << 20, "value"), (1, 600_000, "transaction, by half of memtable_bytes,")]
    {
        let outcome = bench.store.commit(&mut |tx| {
            tx.put(tree, &vec![1; key], &vec![1; value]);
            Ok(())
        });
        assert!(matches!(outcome, Err(StoreError::Limit { what, .. }) if what == expected), "{expected}: {outcome:?}");
    }
    bench
        .store
        .commit(&mut |tx| {
            tx.put(tree, &[1; 1024], &[1; 200_000]);
            Ok(())
        })
        .unwrap();
    assert_eq!(bench.get(&[1; 1024]).map(|value| value.len()), Some(200_000));
}

/// Adds to a counter and sends its outcome; may panic when it is prepared the second time.
struct Add {
    tree: TreeId,
    prepared: u32,
    panics_when_redone: bool,
    outcome: mpsc::Sender<Result<Commit, StoreError>>,
}

impl RetriableTransaction for Add {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        self.prepared += 1;
        assert!(!(self.panics_when_redone && self.prepared > 1), "as the test wants it");
        increment(tx, self.tree, b"n")
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.outcome.send(outcome).unwrap();
    }
}

#[test]
fn a_panic_on_the_writers_thread_refuses_that_transaction_alone() {
    let bench = bench();
    let (sender, outcomes) = mpsc::channel();
    let reader = bench.store.reader().unwrap();
    for number in 0..200 {
        let add = Add { tree: bench.tree, prepared: 0, panics_when_redone: number % 2 == 1, outcome: sender.clone() };
        assert!(matches!(bench.store.submit(&reader, Box::new(add)), Submit::Queued));
    }
    let outcomes: Vec<_> = outcomes.iter().take(200).collect();
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(StoreError::Aborted))));
    assert!((100..200).contains(&done), "{done} done");
    assert_eq!(bench.count(b"n"), done as u64);
}

#[test]
fn submitted_transactions_are_finished_once_each_even_when_the_store_closes_behind_them() {
    let bench = bench();
    let (sender, outcomes) = mpsc::channel();
    let reader = bench.store.reader().unwrap();
    for _ in 0..500 {
        let add = Add { tree: bench.tree, prepared: 0, panics_when_redone: false, outcome: sender.clone() };
        assert!(matches!(bench.store.submit(&reader, Box::new(add)), Submit::Queued));
    }
    drop((reader, sender));
    let Bench { store, directory, tree } = bench;
    drop(store);
    let outcomes: Vec<_> = outcomes.iter().collect();
    assert_eq!(outcomes.len(), 500);
    assert!(outcomes.iter().all(Result::is_ok));
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    assert_eq!(Bench { store, tree, directory }.count(b"n"), 500);
}

#[test]
fn gathered_transactions_are_committed_when_a_tick_ends_or_the_reader_is_dropped_or_another_thread_commits() {
    const FOR_LONG: Duration = Duration::from_secs(60);
    let bench = bench();
    let (sender, outcomes) = mpsc::channel();
    let submit = |reader: &store::Reader| {
        let add = Add { tree: bench.tree, prepared: 0, panics_when_redone: false, outcome: sender.clone() };
        assert!(matches!(bench.store.submit(reader, Box::new(add)), Submit::Queued));
    };
    let expect = |count: usize| {
        (0..count).for_each(|_| assert!(outcomes.recv_timeout(FOR_LONG).expect("the committer is woken").is_ok()));
    };
    let reader = bench.store.reader().unwrap();
    reader.gather_submissions();
    let mut all = 0;
    for round in 0..300_u64 {
        let count = 1 + round as usize % 20;
        // Every third round in several ticks.
        for number in 0..count {
            submit(&reader);
            if round % 3 == 0 {
                reader.tick_ended(1 + round * 1000 + number as u64);
            }
        }
        while reader.tick_ended(1 + round * 1000 + 999) {}
        expect(count);
        all += count;
    }
    submit(&reader);
    reader.stop_gathering();
    expect(1);
    submit(&reader);
    expect(1);
    reader.gather_submissions();
    submit(&reader);
    drop(reader);
    expect(1);
    let reader = bench.store.reader().unwrap();
    reader.gather_submissions();
    submit(&reader);
    bench.store.commit(&mut |tx| increment(tx, bench.tree, b"n")).unwrap();
    expect(1);
    assert_eq!(bench.count(b"n"), all as u64 + 5);
}

#[test]
fn a_full_queue_gives_the_transaction_back() {
    check_refusal(|options| options.queue_max = 4);
}

/// However short the queue, the bytes of its prepared transactions have a bound of their own.
#[test]
fn a_queue_that_holds_too_many_bytes_gives_the_transaction_back() {
    check_refusal(|options| options.queue_bytes_max = 2_000);
}

#[track_caller]
fn check_refusal(set: impl FnOnce(&mut StoreOptions)) {
    let bench = bench_with(set);
    let (sender, outcomes) = mpsc::channel();
    let reader = bench.store.reader().unwrap();
    let (mut queued, mut refused) = (0, 0);
    while refused == 0 && queued < 1_000_000 {
        let add = Add { tree: bench.tree, prepared: 0, panics_when_redone: false, outcome: sender.clone() };
        match bench.store.submit(&reader, Box::new(add)) {
            Submit::Queued => queued += 1,
            Submit::Busy(_) => refused += 1,
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(outcomes.iter().take(queued).filter(Result::is_ok).count(), queued);
    assert_eq!(bench.count(b"n"), queued as u64);
    assert_eq!(bench.store.stats().queue_bytes, 0);
}

#[test]
fn commits_by_many_threads_share_syncs() {
    let bench = bench();
    std::thread::scope(|scope| {
        for thread in 0..32u8 {
            let (store, tree) = (&bench.store, bench.tree);
            scope.spawn(move || {
                for round in 0..50u8 {
                    store
                        .commit(&mut |tx| {
                            tx.put(tree, &[thread, round], b"v");
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
    });
    let stats = bench.store.stats();
    assert!(stats.commits >= 1600 && stats.groups < stats.commits, "{stats:?}");
}

#[test]
fn a_refused_transaction_counts_as_no_commit_on_its_callers_thread() {
    let bench = bench();
    let before = bench.store.stats().inline_commits;
    for _ in 0..20 {
        // There is no fold function, so the writer refuses it.
        let refused = bench.store.commit(&mut |tx| {
            tx.fold(bench.tree, b"n", b"operand");
            Ok(())
        });
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }
    assert_eq!(bench.store.stats().inline_commits, before);
}

#[test]
fn a_tree_keeps_its_id_and_two_who_make_it_at_once_get_the_same() {
    let bench = bench();
    let ids: Vec<TreeId> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| bench.store.tree("shared").unwrap())).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0] && *id != bench.tree));
    assert_eq!(bench.store.existing_tree("nobody's").unwrap(), None);
    let Bench { store, directory, tree } = bench;
    store.checkpoint().unwrap();
    drop(store);
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.existing_tree("shared").unwrap(), Some(ids[0]));
    assert_eq!(store.tree("t").unwrap(), tree);
}

#[test]
fn a_snapshot_that_is_never_given_back_stops_neither_writers_nor_checkpoints() {
    let bench = bench_with(|options| options.memtable_bytes = 256 * 1024);
    let (store, tree) = (&bench.store, bench.tree);
    let put = |value: u32| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, b"k", &value.to_le_bytes());
            Ok(())
        };
        store.commit(change).unwrap();
    };
    put(0);
    let reader = store.reader().unwrap();
    let held = reader.snapshot();
    for value in 1..=150 {
        put(value);
        store.checkpoint().unwrap();
    }
    assert_eq!(held.get(tree, b"k").unwrap().as_deref(), Some(&0u32.to_le_bytes()[..]));
    assert_eq!(bench.get(b"k").as_deref(), Some(&150u32.to_le_bytes()[..]));
    assert!(store.stats().retired_generations < 4, "{:?}", store.stats());
}

#[test]
fn commits_go_on_when_every_reader_is_taken() {
    let bench = bench_with(|options| options.readers_max = 3);
    let readers: Vec<_> = (0..3).map(|_| bench.store.reader().unwrap()).collect();
    assert!(matches!(bench.store.reader().err(), Some(StoreError::Busy)));
    let tree = bench.tree;
    bench.store.commit(&mut |tx| increment(tx, tree, b"n")).unwrap();
    drop(readers);
    assert_eq!(bench.count(b"n"), 1);
}

#[test]
fn a_transaction_over_very_many_trees_is_refused_or_done_and_never_hangs() {
    let bench = bench_with(|options| options.memtable_bytes = 256 * 1024);
    for trees in [2, 20, 200, 400] {
        let outcome = bench.store.commit(&mut |tx| {
            (0..trees).for_each(|tree| tx.put(TreeId(1000 + tree), b"k", b"v"));
            Ok(())
        });
        assert!(matches!(outcome, Ok(_) | Err(StoreError::Limit { what: "transaction", .. })), "{outcome:?}");
        assert!(outcome.is_ok() || trees > 20);
    }
}

/// Puts one large value and sends whether it was acknowledged.
struct Large {
    tree: TreeId,
    number: u32,
    told: mpsc::Sender<bool>,
}

impl RetriableTransaction for Large {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        tx.put(self.tree, &self.number.to_be_bytes(), &[7; 60_000]);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.told.send(outcome.is_ok()).unwrap();
    }
}

/// A writer may fill both memtables before the checkpointer, which has just merged the previous one, checks again.
#[test]
fn writers_that_fill_memtables_faster_than_they_are_merged_go_on() {
    let bench = bench_with(|options| options.memtable_bytes = 256 * 1024);
    let reader = bench.store.reader().unwrap();
    let (told, outcomes) = mpsc::channel();
    for number in 0..1_500 {
        let told = told.clone();
        let mut next: Box<dyn RetriableTransaction> = Box::new(Large { tree: bench.tree, number, told });
        while let Submit::Busy(again) = bench.store.submit(&reader, next) {
            std::thread::yield_now();
            next = again;
        }
        // A few dozen wait at any time.
        if number >= 32 {
            let outcome = outcomes.recv_timeout(std::time::Duration::from_secs(20));
            assert_eq!(outcome, Ok(true), "write {number}: {:?}", bench.store.stats());
        }
    }
    assert!(bench.store.stats().checkpoints > 10);
}
