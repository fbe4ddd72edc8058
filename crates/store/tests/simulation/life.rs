//! One life of a simulated store: the work of its writers between opening and the end.
//!
//! Everything follows from a seed except the scheduling of the engine's threads. The disk's record holds what really happened.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{
    Abort, Commit, Durability, KeyRange, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx,
};

use super::disk::{Manner, SimulatedDisk};
use super::history::{COUNTS, Operation, Stamp, Writer, check_writer};
use super::platter::{Note, Platter};

/// The number of keys of a writer in a tree: few, so that most puts replace a value.
const KEYS: u64 = 40;
/// Marks the id of a checkpoint note as that of a backup.
const BACKUP: u64 = 1 << 63;
/// Values of this length or more are stored in pages of their own.
const OVERFLOW_FROM: u32 = 1025;

/// The parameters of a life.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) options: StoreOptions,
    pub(crate) manner: Manner,
    /// Trees that all writers share.
    trees: u64,
    /// Transactions per writer.
    transactions: u64,
    /// The next six are percentages.
    bulk: u32,
    checkpoint: u32,
    overflow: u32,
    delete: u32,
    /// Of the deletions, the percentage that delete a range or a prefix.
    delete_range: u32,
    backup: u32,
    /// Maximum length of values that are not in overflow.
    value_len_max: u32,
    /// Transactions that are submitted before the first result is awaited.
    in_flight: usize,
    /// Other threads build trees, write checkpoints and make backups beside the writers, all the time.
    is_busy: bool,
    /// The store is closed at the end, not abandoned.
    pub(crate) is_closed: bool,
}

fn one_of<T: Copy>(rng: &mut SmallRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

impl Plan {
    /// A random life.
    pub(crate) fn any(seed: u64, durability: Durability) -> Plan {
        let mut rng = SmallRng::seed_from_u64(seed);
        let rng = &mut rng;
        let mut options = StoreOptions::default();
        options.durability = durability;
        options.memtable_bytes = 256 * 1024;
        options.log_segment_bytes = 64 * 1024;
        options.map_bytes = 1 << 28;
        options.readers_max = 8;
        options.places_bytes = 0;
        options.checkpoint_interval = Duration::from_secs(3600);
        options.changes_kept_bytes = one_of(rng, &[0, 64 << 10, 512 << 10]);
        // With little free space pages are written ahead for checkpoints.
        let free_bytes = one_of(rng, &[None, Some(1 << 40), Some(1 << 40), Some(1 << 20)]);
        Plan {
            seed: rng.random(),
            options,
            manner: Manner { has_direct: rng.random_bool(0.5), free_bytes },
            trees: one_of(rng, &[1, 2, 5, 40]),
            transactions: one_of(rng, &[3, 20, 60, 120]),
            bulk: one_of(rng, &[0, 0, 3]),
            checkpoint: one_of(rng, &[0, 2, 5, 20]),
            overflow: one_of(rng, &[0, 2, 10]),
            delete: one_of(rng, &[5, 30, 60]),
            delete_range: one_of(rng, &[0, 20, 50]),
            backup: one_of(rng, &[0, 0, 3]),
            value_len_max: one_of(rng, &[20, 200, 1000]),
            in_flight: one_of(rng, &[1, 1, 8]),
            is_busy: false,
            is_closed: rng.random_bool(0.7),
        }
    }

    /// A short life with all kinds of operations, of one writer that waits for each transaction.
    pub(crate) fn for_faults(seed: u64) -> Plan {
        let manner = Manner { has_direct: seed.is_multiple_of(2), free_bytes: Some(1 << 40) };
        Plan {
            manner,
            trees: 3,
            transactions: 25,
            bulk: 8,
            checkpoint: 10,
            overflow: 10,
            delete: 30,
            delete_range: 30,
            backup: 4,
            value_len_max: 200,
            in_flight: 1,
            is_closed: true,
            ..Plan::any(seed, Durability::Commit)
        }
    }

    /// The same with other threads. With little free space, the thread that makes room extends and syncs the tree file too.
    pub(crate) fn for_faults_beside_others(seed: u64) -> Plan {
        let free_bytes = if seed.is_multiple_of(3) { 1 << 20 } else { 1 << 40 };
        let plan = Plan::for_faults(seed);
        Plan { is_busy: true, manner: Manner { free_bytes: Some(free_bytes), ..plan.manner }, ..plan }
    }

    fn tree(&self, rng: &mut SmallRng, writer: &Writer) -> String {
        match writer.attached.last() {
            Some((_, name)) if rng.random_bool(0.3) => name.clone(),
            _ => format!("t{}", rng.random_range(0..self.trees)),
        }
    }

    fn value_len(&self, rng: &mut SmallRng) -> u32 {
        if rng.random_range(0..100) < self.overflow {
            rng.random_range(OVERFLOW_FROM..12_000)
        } else {
            rng.random_range(0..=self.value_len_max)
        }
    }

    fn operations(&self, rng: &mut SmallRng, number: u8, writer: &Writer) -> Vec<Operation> {
        let next = writer.begun + 1;
        let count = one_of(rng, &[1, 2, 4, 8]);
        let mut operations = Vec::new();
        for operation in 0..count {
            let tree = self.tree(rng, writer);
            let key = key(number, rng.random_range(0..KEYS));
            operations.push(if rng.random_range(0..100) < self.delete {
                // One range at most: changes return overlapping ranges as one.
                let has_range = operations.iter().any(|other| matches!(other, Operation::DeleteRange { .. }));
                match rng.random_range(0..100) < self.delete_range && !has_range {
                    true => range(rng, number, tree, key),
                    false => Operation::Delete { tree, key },
                }
            } else {
                let stamp = Stamp { number: next, operation, len: self.value_len(rng) };
                Operation::Put { tree, key, stamp }
            });
        }
        operations
    }
}

/// Keys of several lengths, most with a long common prefix.
fn key(writer: u8, number: u64) -> Vec<u8> {
    let mut key = vec![writer];
    match number % 4 {
        0 => key.extend_from_slice(&number.to_be_bytes()),
        1 => key.extend_from_slice(format!("short{number}").as_bytes()),
        _ => key.extend_from_slice(format!("a/start/that/many/keys/have/in/common/{number:06}").as_bytes()),
    }
    key
}

/// Between two keys, or all keys with a prefix of this one: its group's, or all of the writer's in the tree.
fn range(rng: &mut SmallRng, writer: u8, tree: String, key: Vec<u8>) -> Operation {
    let above = |prefix: &[u8]| {
        let (last, start) = prefix.split_last().unwrap();
        [start, &[last + 1]].concat()
    };
    let other = self::key(writer, rng.random_range(0..KEYS));
    let (from, to) = match rng.random_range(0..8) {
        0 => (vec![writer], vec![writer + 1]),
        1..4 => {
            let prefix = &key[..key.len().min(rng.random_range(2..44))];
            // Zeros and digits: none is the highest byte.
            (prefix.to_vec(), above(prefix))
        }
        _ if key == other => (key.clone(), above(&key)),
        _ => (key.clone().min(other.clone()), key.max(other)),
    };
    Operation::DeleteRange { tree, from, to }
}

/// One transaction of a writer.
struct Step {
    disk: Arc<SimulatedDisk>,
    writer: u8,
    number: u64,
    counts: TreeId,
    changes: Vec<(TreeId, Operation)>,
    told: mpsc::Sender<(u64, Result<u64, StoreError>)>,
}

impl Step {
    fn change(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        let count = tx.get(self.counts, &[self.writer]).map_err(|_| Abort)?;
        let count = count.map_or(0, |bytes| u64::from_le_bytes((*bytes).try_into().unwrap()));
        if count + 1 != self.number {
            return Err(Abort);
        }
        for (tree, operation) in &self.changes {
            match operation {
                Operation::Put { key, stamp, .. } => tx.put(*tree, key, &stamp.bytes()),
                Operation::Delete { key, .. } => tx.delete(*tree, key),
                Operation::DeleteRange { from, to, .. } => {
                    tx.delete_range(*tree, KeyRange { from: Bound::Included(from), to: Bound::Excluded(to) });
                }
            }
        }
        tx.put(self.counts, &[self.writer], &self.number.to_le_bytes());
        Ok(())
    }
}

impl RetriableTransaction for Step {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        self.change(tx)
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        let outcome = outcome.map(|commit| commit.version.0);
        if let Ok(version) = outcome {
            self.disk.note(Note::Acknowledged(self.writer, self.number, version));
        }
        // A writer that stopped no longer receives.
        let _ = self.told.send((self.number, outcome));
    }
}

/// The error that stopped a writer, if one did.
pub(crate) type Stopped = Result<(), StoreError>;

/// One writer's work on an open store.
pub(crate) struct Client<'l> {
    pub(crate) disk: &'l Arc<SimulatedDisk>,
    pub(crate) store: &'l Store,
    pub(crate) plan: &'l Plan,
    pub(crate) number: u8,
    pub(crate) writer: &'l mut Writer,
}

impl Client<'_> {
    /// Runs its transactions. It stops at the first failure, because later ones cannot succeed.
    pub(crate) fn work(&mut self) -> Stopped {
        let mut rng = SmallRng::seed_from_u64(self.plan.seed ^ u64::from(self.number));
        let reader = self.store.reader()?;
        let (told, outcomes) = mpsc::channel();
        let mut in_flight = 0;
        for turn in 0..self.plan.transactions {
            if rng.random_range(0..100) < self.plan.checkpoint {
                self.checkpoint(turn)?;
            }
            if in_flight == 0 && rng.random_range(0..100) < self.plan.bulk {
                self.attach(&mut rng)?;
            }
            if in_flight == 0 && rng.random_range(0..100) < self.plan.backup {
                self.backup(turn)?;
            }
            let mut step = Box::new(self.next_step(&mut rng, told.clone())?);
            if self.plan.in_flight == 1 {
                self.commit(&mut step)?;
                continue;
            }
            match self.store.submit(&reader, step) {
                Submit::Queued => in_flight += 1,
                Submit::Busy(_) => return Err(StoreError::Busy),
            }
            while in_flight >= self.plan.in_flight {
                self.hear(&outcomes)?;
                in_flight -= 1;
            }
        }
        while in_flight > 0 {
            self.hear(&outcomes)?;
            in_flight -= 1;
        }
        Ok(())
    }

    fn next_step(
        &mut self,
        rng: &mut SmallRng,
        told: mpsc::Sender<(u64, Result<u64, StoreError>)>,
    ) -> Result<Step, StoreError> {
        let operations = self.plan.operations(rng, self.number, self.writer);
        let counts = self.store.tree(COUNTS)?;
        let mut changes = Vec::new();
        for operation in &operations {
            changes.push((self.store.tree(operation.tree())?, operation.clone()));
        }
        let number = self.writer.begin(&operations);
        let disk = Arc::clone(self.disk);
        disk.note(Note::Begun(self.number, number));
        Ok(Step { disk, writer: self.number, number, counts, changes, told })
    }

    fn commit(&mut self, step: &mut Step) -> Result<(), StoreError> {
        let commit = self.store.commit(&mut |tx| step.change(tx))?;
        self.disk.note(Note::Acknowledged(self.number, step.number, commit.version.0));
        self.writer.acknowledge(step.number, commit.version.0);
        Ok(())
    }

    fn hear(&mut self, outcomes: &mpsc::Receiver<(u64, Result<u64, StoreError>)>) -> Result<(), StoreError> {
        let (number, outcome) = outcomes.recv().expect("each submitted transaction is finished");
        self.writer.acknowledge(number, outcome?);
        Ok(())
    }

    fn checkpoint(&mut self, turn: u64) -> Result<(), StoreError> {
        let id = turn << 8 | u64::from(self.number);
        self.disk.note(Note::CheckpointBegun(id));
        self.store.checkpoint()?;
        self.disk.note(Note::CheckpointDone(id));
        Ok(())
    }

    /// A copy holds what was acknowledged before it was begun, and each other transaction whole or not at all.
    fn backup(&mut self, turn: u64) -> Result<(), StoreError> {
        let manner = Manner { has_direct: false, free_bytes: Some(1 << 40) };
        let to = Arc::new(SimulatedDisk::start(&Platter::default(), manner, None));
        let id = turn << 8 | u64::from(self.number) | BACKUP;
        self.disk.note(Note::CheckpointBegun(id));
        self.store.backup_on(&*to, &mut |_| ControlFlow::Continue(()))?;
        self.disk.note(Note::CheckpointDone(id));
        let (copy, _) = Store::open_on(to, self.plan.options.clone()).expect("a copy opens");
        let found = check_writer(&copy, usize::from(self.number), self.writer);
        assert_eq!(found, Ok(self.writer.begun), "transactions in a copy");
        Ok(())
    }

    /// Attaches a whole tree, as one transaction.
    fn attach(&mut self, rng: &mut SmallRng) -> Result<(), StoreError> {
        let number = self.writer.begun + 1;
        let tree = format!("bulk-{}-{number}", self.number);
        let (id, counts) = (self.store.tree(&tree)?, self.store.tree(COUNTS)?);
        let mut entries: Vec<(Vec<u8>, Stamp)> = (0..rng.random_range(1..300))
            .map(|operation| (key(self.number, operation), operation as u32))
            .map(|(key, operation)| (key, Stamp { number, operation, len: self.plan.value_len(rng) }))
            .collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut build = self.store.bulk()?;
        for (key, stamp) in &entries {
            build.push(key, &stamp.bytes())?;
        }
        let operations: Vec<_> =
            entries.into_iter().map(|(key, stamp)| Operation::Put { tree: tree.clone(), key, stamp }).collect();
        self.writer.begin(&operations);
        self.disk.note(Note::Begun(self.number, number));
        let row = (counts, vec![self.number], number.to_le_bytes().to_vec());
        let commit = self.store.attach(vec![(id, build)], &[row])?;
        self.disk.note(Note::Acknowledged(self.number, number, commit.version.0));
        self.writer.acknowledge(number, commit.version.0);
        self.writer.attached.push((number, tree));
        Ok(())
    }
}

/// Runs all writers at the same time; returns the first error that stopped one.
pub(crate) fn work(disk: &Arc<SimulatedDisk>, store: &Store, plan: &Plan, writers: &mut [Writer]) -> Stopped {
    if !plan.is_busy {
        return work_alone(disk, store, plan, writers);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = [build, checkpoint, back_up].map(|turn| {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // A thread that receives an error ends; the writers decide whether the life continues.
                    turn(store, plan)?;
                    std::thread::sleep(BESIDE_EVERY);
                }
                Ok(())
            })
        });
        let worked = work_alone(disk, store, plan, writers);
        is_over.store(true, Ordering::Relaxed);
        let told: Vec<Stopped> = others.into_iter().map(|other| other.join().unwrap()).collect();
        for error in told.into_iter().filter_map(Result::err) {
            let is_the_disks = matches!(
                error,
                StoreError::Io { .. }
                    | StoreError::Full
                    | StoreError::Unknown(_)
                    | StoreError::Poisoned
                    | StoreError::Busy
            );
            assert!(is_the_disks, "beside the writers: {error}");
        }
        worked
    })
}

/// The pause between two turns of a thread beside the writers.
const BESIDE_EVERY: Duration = Duration::from_micros(300);
/// Entries of a build beside the writers: it is paced, and therefore synced, more than once while they commit.
const BESIDE_ENTRIES: u64 = 700;

/// Builds a tree that is never attached: its pages and their syncs are interleaved with those of checkpoints.
fn build(store: &Store, _: &Plan) -> Stopped {
    let mut build = store.bulk()?;
    (0..BESIDE_ENTRIES).try_for_each(|key| build.push(&key.to_be_bytes(), &[7; 1000]))?;
    build.into_entries().map(drop)
}

fn checkpoint(store: &Store, _: &Plan) -> Stopped {
    store.checkpoint()
}

fn back_up(store: &Store, plan: &Plan) -> Stopped {
    let manner = Manner { has_direct: false, free_bytes: Some(1 << 40) };
    let to = Arc::new(SimulatedDisk::start(&Platter::default(), manner, None));
    store.backup_on(&*to, &mut |_| ControlFlow::Continue(()))?;
    let (copy, _) = Store::open_on(to, plan.options.clone()).expect("a copy opens");
    let report = copy.verify();
    assert!(report.is_clean(), "a copy: {:?}", report.faults);
    Ok(())
}

fn work_alone(disk: &Arc<SimulatedDisk>, store: &Store, plan: &Plan, writers: &mut [Writer]) -> Stopped {
    let mut clients: Vec<Client<'_>> =
        (0..).zip(writers).map(|(number, writer)| Client { disk, store, plan, number, writer }).collect();
    if let [client] = &mut clients[..] {
        return client.work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| client.work())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).find(Result::is_err).unwrap_or(Ok(()))
    })
}
