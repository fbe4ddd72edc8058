//! A small closed or killed store, all of whose states are known: damage is applied to copies of it.
//!
//! Its log segments have been recycled with their old batches in them. It has had checkpoints, deleted ranges, values
//! in overflow and a bulk build. It ends in one of three ways ([`Kind`]).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;
use store::{Change, Changeset, KeyRange, Store, StoreOptions, TreeId, Tx, Version};

use super::content::Files;
use super::disk::{Manner, SimulatedDisk};
use super::platter::Platter;

/// Number of transactions; a checkpoint is made after each of these counts.
const TRANSACTIONS: u32 = 100;
const CHECKPOINTS: [u32; 3] = [25, 40, 55];
/// A tree is built in bulk after this many.
const BULK_AT: u32 = 45;
pub(crate) const BLOCK: usize = 4096;
/// The trees that transactions change, and the tree that is built in bulk.
pub(crate) const CHANGED: [&str; 2] = ["a", "b"];
const BUILT: &str = "built";

/// How the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Closed: each batch with data is followed by one that records it as durable.
    Closed,
    /// Killed: no batch records the last one as durable.
    Killed,
    /// A backup: a tree file without free space, a log without a batch.
    Backup,
}

pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
/// The content of a store: entries by tree.
pub(crate) type State = BTreeMap<&'static str, Entries>;

/// A batch, with transactions or without, that replay reads.
#[derive(Clone, Debug)]
struct BatchPlace {
    file: String,
    offset: usize,
    bytes: Vec<u8>,
    sequence: u64,
    durable: u64,
    /// The last version before the batch.
    before: u64,
}

/// See the module documentation.
pub(crate) struct Specimen {
    pub(crate) kind: Kind,
    pub(crate) files: Files,
    /// The content from each version on.
    states: BTreeMap<u64, State>,
    pub(crate) trees: BTreeMap<&'static str, TreeId>,
    pub(crate) version: u64,
    /// The log from the newest checkpoint on.
    log: Vec<BatchPlace>,
    /// The changes that a reader returns for each version that is kept; see [`parts_of`].
    told: BTreeMap<u64, Vec<u8>>,
}

pub(crate) fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 64 * 1024;
    options.changes_kept_bytes = 64 * 1024;
    options.map_bytes = 1 << 28;
    options.readers_max = 8;
    options.places_bytes = 0;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

pub(crate) fn start(files: &Files) -> Arc<SimulatedDisk> {
    // Enough free space that no pages are written ahead and files stay small.
    let manner = Manner { has_direct: false, free_bytes: Some(1 << 40) };
    Arc::new(SimulatedDisk::start(&Platter::of(files.clone()), manner, None))
}

/// The files of the disk as a program that starts now would see them.
fn files_of(disk: &SimulatedDisk) -> Files {
    let mut platter = Platter::default();
    disk.take_record().iter().for_each(|event| platter.advance(event));
    platter.content()
}

/// All operations of a transaction in parts, each preceded by its length, until `take` refuses one.
fn parts_of(changeset: &Changeset<'_>, take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    changeset.changes().all(|change| {
        let (kind, tree, parts) = match change {
            Change::Put { tree, key, value } => (0, tree, [Some(key), Some(value)]),
            Change::Delete { tree, key } => (1, tree, [Some(key), None]),
            Change::DeleteRange { tree, from, to } => (2, tree, [Some(from), to]),
            Change::Reset { tree } => (3, tree, [None, None]),
            _ => return false,
        };
        let is_taken = take(&[kind]) && take(&tree.0.to_le_bytes());
        is_taken
            && parts.into_iter().all(|part| {
                let len = part.map_or(u32::MAX, |part| part.len() as u32);
                take(&len.to_le_bytes()) && take(part.unwrap_or_default())
            })
    })
}

/// Applies a change to a map of the same keys.
fn apply(entries: &mut Entries, change: &Change<'_>) {
    match change {
        Change::Put { key, value, .. } => drop(entries.insert(key.to_vec(), value.to_vec())),
        Change::Delete { key, .. } => drop(entries.remove(*key)),
        Change::DeleteRange { from, to, .. } => {
            entries.retain(|key, _| key.as_slice() < *from || to.is_some_and(|to| key.as_slice() >= to));
        }
        other => panic!("{other:?} is no change of an entry"),
    }
}

impl Specimen {
    pub(crate) fn new(seed: u64, kind: Kind) -> Specimen {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = start(&Files::new());
        let (store, _) = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
        let trees = CHANGED.into_iter().chain([BUILT]).map(|name| (name, store.tree(name).unwrap())).collect();
        let empty: State = CHANGED.into_iter().chain([BUILT]).map(|name| (name, Entries::new())).collect();
        let states = BTreeMap::from([(0, empty)]);
        let mut specimen =
            Specimen { kind, files: Files::new(), states, trees, version: 0, log: Vec::new(), told: BTreeMap::new() };
        for number in 0..TRANSACTIONS {
            specimen.commit(&store, number, &mut rng);
            if number == BULK_AT {
                specimen.build(&store);
            }
            if CHECKPOINTS.contains(&number) {
                store.checkpoint().unwrap();
            }
        }
        specimen.version = store.stats().version;
        specimen.files = match kind {
            Kind::Killed => files_of(&disk),
            Kind::Closed => {
                drop(store);
                files_of(&disk)
            }
            Kind::Backup => {
                let to = start(&Files::new());
                store.backup_on(&*to, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
                files_of(&to)
            }
        };
        specimen.log = specimen.read_log();
        specimen.told = specimen.read_changes();
        specimen
    }

    /// The changes that a reader returns for the undamaged store; they are checked too.
    fn read_changes(&self) -> BTreeMap<u64, Vec<u8>> {
        let (store, _) = Store::open_on(start(&self.files), options()).unwrap();
        let oldest = store.stats().changes_oldest;
        let (mut state, mut told) = (self.state(oldest).clone(), BTreeMap::new());
        let mut reader = store.changes_since(Version(oldest)).unwrap();
        while let Some(changeset) = reader.next().unwrap() {
            assert!(self.advance(&mut state, &changeset).unwrap(), "version {}", changeset.version().0);
            let mut bytes = Vec::new();
            assert!(parts_of(&changeset, &mut |part| {
                bytes.extend(part);
                true
            }));
            told.insert(changeset.version().0, bytes);
        }
        assert_eq!(oldest + told.len() as u64, self.version);
        told
    }

    /// Whether the undamaged store returns the same changes for this version.
    pub(crate) fn is_told(&self, changeset: &Changeset<'_>) -> bool {
        self.told.get(&changeset.version().0).is_some_and(|told| {
            let mut rest = told.as_slice();
            let mut is_next = |part: &[u8]| rest.split_off(..part.len()).is_some_and(|next| next == part);
            parts_of(changeset, &mut is_next) && rest.is_empty()
        })
    }

    /// Applies the changes to the state; returns whether the result is right.
    pub(crate) fn advance(&self, state: &mut State, changeset: &Changeset<'_>) -> Result<bool, String> {
        let expected = self.state(changeset.version().0);
        for change in changeset.changes() {
            let (Change::Put { tree, .. }
            | Change::Delete { tree, .. }
            | Change::DeleteRange { tree, .. }
            | Change::Reset { tree }) = change
            else {
                return Err(format!("a change of a kind that was not made: {change:?}"));
            };
            // The catalog's trees are not compared.
            let Some((name, _)) = self.trees.iter().find(|(_, id)| **id == tree) else { continue };
            match change {
                Change::Reset { .. } => drop(state.insert(name, expected[name].clone())),
                change => apply(state.get_mut(name).unwrap(), &change),
            }
        }
        Ok(state == expected)
    }

    fn commit(&mut self, store: &Store, number: u32, rng: &mut SmallRng) {
        let mut state = self.state(u64::MAX).clone();
        let name = CHANGED[rng.random_range(0..CHANGED.len())];
        let (tree, entries) = (self.trees[name], state.get_mut(name).unwrap());
        let key = |of: u32| match of % 3 {
            0 => of.to_be_bytes().to_vec(),
            _ => format!("a/start/that/many/keys/have/{of:04}").into_bytes(),
        };
        let (from, to) = (key(rng.random_range(0..60)), key(rng.random_range(0..60)));
        let len = if number % 9 == 4 { rng.random_range(1025..6000) } else { rng.random_range(0..200) };
        let puts: Vec<_> = (0..rng.random_range(1..4u32))
            .map(|put| (key(rng.random_range(0..60)), vec![(number + put) as u8; len >> (put * 4)]))
            .collect();
        let (deleted, cuts) = (key(rng.random_range(0..60)), number % 11 == 7 && from < to);
        let range = KeyRange { from: Bound::Included(&from), to: Bound::Excluded(&to) };
        let change = &mut |tx: &mut Tx<'_>| {
            if cuts {
                tx.delete_range(tree, range);
            }
            tx.delete(tree, &deleted);
            puts.iter().for_each(|(key, value)| tx.put(tree, key, value));
            Ok(())
        };
        let version = store.commit(change).unwrap().version.0;
        if cuts {
            apply(entries, &Change::DeleteRange { tree, from: &from, to: Some(&to) });
        }
        entries.remove(&deleted);
        entries.extend(puts.iter().cloned());
        self.states.insert(version, state);
    }

    fn build(&mut self, store: &Store) {
        let mut state = self.state(u64::MAX).clone();
        let mut build = store.bulk().unwrap();
        for number in 0..150u32 {
            let (key, value) = (format!("built/{number:04}").into_bytes(), vec![number as u8; 30]);
            build.push(&key, &value).unwrap();
            state.get_mut(BUILT).unwrap().insert(key, value);
        }
        let version = store.attach(vec![(self.trees[BUILT], build)], &[]).unwrap().version.0;
        self.states.insert(version, state);
    }

    /// The content after all transactions up to this version.
    pub(crate) fn state(&self, version: u64) -> &State {
        self.states.range(..=version).next_back().unwrap().1
    }

    /// Reads the log from the newest meta page on, as `FORMAT.md` describes.
    fn read_log(&self) -> Vec<BatchPlace> {
        let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let short = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let tree = self.files["tree"].to_vec();
        let meta = tree.chunks(BLOCK).take(2).max_by_key(|page| number(page, 16)).unwrap();
        let (mut segment, mut offset) = (number(meta, 48), short(meta, 56) as usize);
        let (mut previous, mut sequence) = (short(meta, 60), number(meta, 64));
        let (mut places, mut version) = (Vec::new(), number(meta, 40));
        loop {
            let file = format!("{segment:010}.log");
            let Some(content) = self.files.get(&file) else { return places };
            let mut header = [0; 64];
            content.read(offset, &mut header);
            let follows = header.starts_with(b"SLOG")
                && (number(&header, 8), number(&header, 16)) == (sequence, segment)
                && short(&header, 52) == previous;
            if follows {
                let mut bytes = vec![0; short(&header, 4) as usize];
                content.read(offset, &mut bytes);
                let len = bytes.len();
                let (durable, count) = (number(&header, 40), u64::from(short(&header, 48)));
                places.push(BatchPlace { file, offset, bytes, sequence, durable, before: version });
                version += count;
                (previous, sequence) = (short(&header, 60), sequence + 1);
                offset += len.next_multiple_of(BLOCK);
            } else if offset != BLOCK {
                (segment, offset) = (segment + 1, BLOCK);
            } else {
                return places;
            }
        }
    }

    /// The last version that can be recovered from these files: all of them, unless the end of the log is destroyed
    /// along with every batch that records it as durable. A truncated segment is detected by its length.
    pub(crate) fn last_version(&self, files: &Files) -> u64 {
        let is_whole = |place: &&BatchPlace| {
            let mut bytes = vec![0; place.bytes.len()];
            files.get(&place.file).is_some_and(|file| file.read(place.offset, &mut bytes) == bytes.len())
                && bytes == place.bytes
        };
        let Some(lost) = self.log.iter().find(|place| !is_whole(place)) else { return self.version };
        let is_told = self.log.iter().filter(is_whole).any(|later| later.durable >= lost.sequence);
        if is_told { self.version } else { lost.before }
    }

    /// Batches of the log that replay reads.
    pub(crate) fn batches(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.log.iter().map(|place| (place.file.as_str(), place.offset, place.bytes.len()))
    }
}
