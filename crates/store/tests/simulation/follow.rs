//! Compares what readers of changes and `verify` return for a recovered store with what its writers did.
//!
//! - From the oldest version that is kept on, each version is returned once, in order. It contains exactly the operations
//!   of one transaction, and the numbers of each writer's transactions rise by one up to the last one that is there.
//! - After a checkpoint `verify` counts the expected entries of each tree and the expected pages of its values in
//!   overflow. The space map has as many live pages as `verify` reaches, apart from the meta pages.

use std::collections::{BTreeMap, BTreeSet};

use store::{Change, Changeset, Store, StoreError, TreeId, Version};

use super::history::{COUNTS, Operation, Stamp, Writer};

const PAGE_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 24;
/// Longer values are stored in pages of their own.
const INLINE_MAX: u32 = 1024;
/// Meta pages.
const META_PAGES: u64 = 2;

/// The trees of the writers, by id.
fn names(store: &Store, history: &[Writer]) -> Result<BTreeMap<TreeId, String>, String> {
    let known: BTreeSet<&str> = history.iter().flat_map(Writer::tree_names).chain([COUNTS]).collect();
    let mut names = BTreeMap::new();
    for name in known {
        if let Some(tree) = store.existing_tree(name).map_err(|error| error.to_string())? {
            names.insert(tree, name.to_string());
        }
    }
    Ok(names)
}

/// The writer and the number in the name of a tree that was built in bulk.
fn built_by(name: &str) -> Option<(usize, u64)> {
    let (writer, number) = name.strip_prefix("bulk-")?.split_once('-')?;
    Some((writer.parse().ok()?, number.parse().ok()?))
}

/// The known state of one writer.
#[derive(Clone, Copy, Default)]
struct Followed {
    /// The last transaction whose changes were returned.
    last: Option<u64>,
    /// A later transaction that reset a bulk tree; it may have failed after that.
    announced: Option<u64>,
}

/// Follows all changes that are kept. `counts` is the number of transactions of each writer.
pub(crate) fn check_changes(store: &Store, history: &[Writer], counts: &[u64]) -> Result<(), String> {
    let stats = store.stats();
    let names = names(store, history)?;
    let mut followed = vec![Followed::default(); history.len()];
    let mut version = stats.changes_oldest;
    let mut reader = match store.changes_since(Version(version)) {
        Ok(reader) => reader,
        Err(StoreError::Gone { .. }) => return Ok(()),
        Err(error) => return Err(format!("changes: {error}")),
    };
    loop {
        let changeset = match reader.next() {
            Ok(Some(changeset)) => changeset,
            Ok(None) => break,
            // A memtable that was full at the end is merged at once, which frees log segments.
            Err(StoreError::Gone { .. }) => return Ok(()),
            Err(error) => return Err(format!("changes after {version}: {error}")),
        };
        version += 1;
        if changeset.version().0 != version {
            return Err(format!("changes of version {} for those of {version}", changeset.version().0));
        }
        let told = Told::of(&changeset, &names);
        told.check(history, &mut followed).map_err(|wrong| format!("changes of version {version}: {wrong}"))?;
    }
    if version != stats.version {
        return Err(format!("changes end at version {version}, not at {}", stats.version));
    }
    for (writer, (followed, count)) in followed.iter().zip(counts).enumerate() {
        if followed.last.is_some_and(|last| last != *count && followed.announced != Some(*count)) {
            return Err(format!("changes of writer {writer} end at {:?}, there are {count}", followed.last));
        }
    }
    Ok(())
}

type Range<'c> = (&'c str, &'c [u8], Option<&'c [u8]>);

/// The changes of one version. Those of the catalog, which name trees, are left out.
#[derive(Default)]
struct Told<'c> {
    version: u64,
    counts: Vec<(usize, u64)>,
    keys: BTreeMap<(&'c str, &'c [u8]), Option<&'c [u8]>>,
    ranges: Vec<Range<'c>>,
    resets: Vec<&'c str>,
    is_repeated: bool,
}

impl<'c> Told<'c> {
    fn of(changeset: &Changeset<'c>, names: &'c BTreeMap<TreeId, String>) -> Told<'c> {
        let mut told = Told { version: changeset.version().0, ..Told::default() };
        let name = |tree| names.get(&tree).map_or("", String::as_str);
        for change in changeset.changes() {
            match change {
                Change::Put { tree: TreeId(0), .. } => {}
                Change::Put { tree, key, value } if name(tree) == COUNTS => {
                    let number = u64::from_le_bytes(value.try_into().unwrap());
                    told.counts.push((usize::from(key[0]), number));
                }
                Change::Put { tree, key, value } => told.key(name(tree), key, Some(value)),
                Change::Delete { tree, key } => told.key(name(tree), key, None),
                Change::DeleteRange { tree, from, to } => told.ranges.push((name(tree), from, to)),
                Change::Reset { tree } => told.resets.push(name(tree)),
                other => panic!("{other:?}"),
            }
        }
        told
    }

    fn key(&mut self, tree: &'c str, key: &'c [u8], value: Option<&'c [u8]>) {
        self.is_repeated |= self.keys.insert((tree, key), value).is_some();
    }

    fn check(&self, history: &[Writer], followed: &mut [Followed]) -> Result<(), String> {
        if self.is_repeated {
            return Err("a key twice".to_string());
        }
        if let Some((writer, number)) = self.resets.iter().find_map(|name| built_by(name)) {
            followed[writer].announced = Some(number);
            return Ok(());
        }
        let (writer, number) = match self.counts[..] {
            [only] => only,
            [] if self.keys.is_empty() && self.ranges.is_empty() => return Ok(()),
            _ => return Err(format!("no transaction of one writer: {:?}", self.counts)),
        };
        let before = followed[writer];
        let follows = before.last.is_none() || [before.last, before.announced].contains(&Some(number - 1));
        if !follows {
            return Err(format!("writer {writer}: {number} after {:?}", before.last));
        }
        followed[writer] = Followed { last: Some(number), announced: None };
        if history[writer].version_of(number).is_some_and(|version| version != self.version) {
            return Err(format!("writer {writer}: {number} was acknowledged with another version"));
        }
        let Some(operations) = history[writer].operations_of(number) else { return Ok(()) };
        self.compare(operations).map_err(|wrong| format!("writer {writer}, {number}: {wrong}"))
    }

    /// Compares the changes with the operations of the transaction. Each key is returned once; the deletion of a key
    /// may be part of that of its range.
    fn compare(&self, operations: &[Operation]) -> Result<(), String> {
        let (mut keys, mut ranges) = (BTreeMap::<(&str, &[u8]), Option<Stamp>>::new(), Vec::<Range<'_>>::new());
        for operation in operations {
            match operation {
                Operation::Put { tree, key, stamp } => drop(keys.insert((tree, key), Some(*stamp))),
                Operation::Delete { tree, key } => drop(keys.insert((tree, key), None)),
                Operation::DeleteRange { tree, from, to } => {
                    keys.retain(|(of, key), _| of != tree || !(from.as_slice()..to.as_slice()).contains(key));
                    ranges.push((tree, from, Some(to)));
                }
            }
        }
        if self.ranges != ranges {
            return Err(format!("ranges {:?}, not {ranges:?}", self.ranges));
        }
        let is_deleted_anyway = |tree: &str, key: &[u8]| {
            ranges.iter().any(|(of, from, to)| *of == tree && key >= *from && to.is_none_or(|to| key < to))
        };
        for ((tree, key), stamp) in &keys {
            let is_right = match (self.keys.get(&(*tree, *key)), stamp) {
                (Some(told), _) => told.map(<[u8]>::to_vec) == stamp.map(Stamp::bytes),
                (None, None) => is_deleted_anyway(tree, key),
                (None, Some(_)) => false,
            };
            if !is_right {
                return Err(format!("tree {tree}, {key:?}: {stamp:?} is not what it tells"));
            }
        }
        let foreign = self.keys.keys().find(|place| !keys.contains_key(place));
        foreign.map_or(Ok(()), |foreign| Err(format!("{foreign:?} was not changed")))
    }
}

/// Makes a checkpoint and compares the counts of `verify` with the expected ones.
pub(crate) fn check_counts(store: &Store, history: &[Writer], counts: &[u64]) -> Result<(), String> {
    store.checkpoint().map_err(|error| format!("checkpoint: {error}"))?;
    let inventory = store.stat();
    let report = &inventory.report;
    if !report.is_clean() {
        return Err(format!("verify after a checkpoint: {:?}", report.faults));
    }
    for (tree, name) in names(store, history)? {
        let stamps = || history.iter().zip(counts).flat_map(|(writer, count)| writer.entries(&name, *count));
        let entries = match name.as_str() {
            COUNTS => counts.iter().filter(|count| **count > 0).count() as u64,
            _ => stamps().count() as u64,
        };
        let overflow = stamps().filter(|(_, stamp)| stamp.len > INLINE_MAX);
        let overflow: u64 = overflow.map(|(_, stamp)| (HEADER_BYTES + u64::from(stamp.len)).div_ceil(PAGE_BYTES)).sum();
        let told = report.trees.iter().find(|stat| stat.info.tree == tree);
        let told = told.map_or((0, 0), |stat| (stat.info.entries, stat.overflow_pages));
        if told != (entries, overflow) {
            return Err(format!("tree {name}: {told:?} entries and overflow pages, not {:?}", (entries, overflow)));
        }
    }
    let of_trees: u64 = report.trees.iter().map(|stat| stat.leaf_pages + stat.branch_pages + stat.overflow_pages).sum();
    let told = (report.reached_pages, inventory.space.live);
    let expected = of_trees + report.system_pages;
    if told != (expected + META_PAGES, expected) {
        return Err(format!("{told:?} pages reached and live, {expected} are in use"));
    }
    Ok(())
}
