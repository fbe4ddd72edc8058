//! Damage: the files of a closed or killed store are changed in the ways that a disk or a person may change them.
//!
//! What must hold after any change:
//!
//! - `verify` without opening, opening, reading everything in both directions, `verify` again, following the changes,
//!   and further writes: each ends with a result or with an error that names file and place. None panics, none hangs.
//! - Data that is read is right, by any kind of read, up to the error that ends it. Where a read fails or the store
//!   does not open, `verify` reports the damage too, both without opening and on the open store.
//! - Everything acknowledged is there, except at the end of the log: transactions may be missing only where the last batch is
//!   unreadable and no later batch is left that records it as durable ([`Specimen::last_version`]; `FORMAT.md`, "Reading it back").

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;
use store::{Abort, Direction, KeyRange, Store, StoreError, Tx, Version};

use super::content::{Content, Files};
use super::platter::Event;
use super::specimen::{BLOCK, CHANGED, Entries, Specimen, State, options, start};
use super::sweep::text_of;

const SECTOR: usize = 512;
/// In a partial run, one in this many of the damages other than flips and cuts is tried.
const REST_STEP: u32 = 12;
/// One in this many damaged stores is also written to if it opens.
const WRITTEN_EVERY: u64 = 16;
/// Maximum entries that a walk over damaged pages may return: more than were written.
const WALK_MAX: usize = 20_000;
/// A damaged store takes some milliseconds. When none has finished during this many polls, one hangs. Polls are counted
/// instead of seconds because the process may be stopped for a while.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u32 = 600;

/// The bytes that overwrite a part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Zeros,
    Ones,
    /// Random bytes from this seed.
    Garbage(u64),
}

/// One change of the files, which are given by their index in the directory's order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    Flip {
        file: usize,
        at: usize,
        mask: u8,
    },
    Fill {
        file: usize,
        from: usize,
        len: usize,
        with: Fill,
    },
    Cut {
        file: usize,
        len: usize,
    },
    /// Random bytes are appended.
    Grow {
        file: usize,
        by: usize,
    },
    /// A block is copied over another one, as by a misdirected write.
    Stray {
        file: usize,
        from: usize,
        to: usize,
    },
    Remove {
        file: usize,
    },
    /// A file is copied over another one.
    Double {
        from: usize,
        to: usize,
    },
    Swap {
        one: usize,
        other: usize,
    },
    /// A file gets the name of the log segment with this number.
    Rename {
        file: usize,
        number: u64,
    },
    /// The log start of one meta page, or of both, is set to this segment, with a valid checksum.
    LogStart {
        page: usize,
        is_both: bool,
        segment: u64,
    },
    /// An additional file, as an unfinished copy or preparation leaves it.
    Beside {
        name: &'static str,
    },
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Everything is there, and no damage was reported.
    Right,
    /// Everything is there, and `verify` reports damage elsewhere.
    RightAndTold,
    /// It opens, some reads fail, and `verify` reports the damage.
    Told,
    /// Everything is there but the end of the log, which looks as if it had never been written.
    TailLost,
    /// It does not open, because of the tree file or because of the log.
    RefusedByTree,
    RefusedByLog,
}

/// The part of the damages that is tried.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// Of the flipped bytes and the cut lengths every `step`th from `first` on; if `step` is above 1, one in
    /// [`REST_STEP`] of the other damages.
    pub(crate) step: usize,
    pub(crate) first: usize,
}

impl Specimen {
    fn names(&self) -> Vec<&String> {
        self.files.keys().collect()
    }

    /// All damages to be tried.
    pub(crate) fn damages(&self, seed: u64, share: Share) -> Vec<Damage> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut all = Vec::new();
        for (file, content) in self.files.values().enumerate() {
            all.extend(flips(file, content, share, 0xff));
            let lengths = (0..content.len()).filter(|len| {
                let is_edge = matches!(len % SECTOR, 0 | 1 | 511);
                // Every length of a small file, such as a backup's; of others the lengths around sectors.
                (is_edge || self.is_small()) && (len / SECTOR + len) % share.step == share.first
            });
            all.extend(lengths.map(|len| Damage::Cut { file, len }));
            for from in (0..content.len()).step_by(SECTOR) {
                let with = [Fill::Zeros, Fill::Ones, Fill::Garbage(from as u64)];
                all.extend(with.map(|with| Damage::Fill { file, from, len: SECTOR, with }));
            }
            self.damage_pages(file, content, &mut rng, &mut all);
            all.extend([1, 511, 4096, 70_000].map(|by| Damage::Grow { file, by }));
            all.push(Damage::Remove { file });
        }
        self.damage_batches(&mut all);
        self.damage_names(&mut all);
        // Last, because these mostly repeat the first flips.
        self.files.values().enumerate().for_each(|(file, content)| all.extend(flips(file, content, share, 0x01)));
        if share.step > 1 {
            let is_byte = |damage: &Damage| matches!(damage, Damage::Flip { .. } | Damage::Cut { .. });
            all.retain(|damage| is_byte(damage) || rng.random_range(0..REST_STEP) == 0);
        }
        all
    }

    fn is_small(&self) -> bool {
        self.files.values().map(Content::len).sum::<usize>() < 160 * 1024
    }

    /// Whole pages, the start of a file, the whole file, and ranges at random places.
    fn damage_pages(&self, file: usize, content: &Content, rng: &mut SmallRng, all: &mut Vec<Damage>) {
        let pages = content.len() / BLOCK;
        for page in 0..pages {
            let from = page * BLOCK;
            let with = [Fill::Zeros, Fill::Ones, Fill::Garbage(from as u64)];
            all.extend(with.map(|with| Damage::Fill { file, from, len: BLOCK, with }));
            all.push(Damage::Stray { file, from: rng.random_range(0..pages), to: page });
        }
        for len in [100, BLOCK, 2 * BLOCK, 5 * BLOCK, content.len()] {
            let with = [Fill::Zeros, Fill::Ones, Fill::Garbage(len as u64)];
            all.extend(with.map(|with| Damage::Fill { file, from: 0, len, with }));
        }
        for seed in 0..200 {
            let (from, len) = (rng.random_range(0..content.len()), rng.random_range(1..3 * BLOCK));
            let with = if seed % 2 == 0 { Fill::Zeros } else { Fill::Garbage(seed) };
            all.push(Damage::Fill { file, from, len, with });
        }
    }

    /// The inside of each batch, and everything from some batch on.
    fn damage_batches(&self, all: &mut Vec<Damage>) {
        let names = self.names();
        for (name, offset, len) in self.batches() {
            let file = names.iter().position(|other| *other == name).unwrap();
            let content = self.files[name].len();
            all.push(Damage::Fill { file, from: offset + len / 2, len: 8, with: Fill::Zeros });
            for with in [Fill::Zeros, Fill::Garbage(offset as u64)] {
                all.push(Damage::Fill { file, from: offset, len, with });
                all.push(Damage::Fill { file, from: offset, len: content - offset, with });
            }
        }
    }

    fn damage_names(&self, all: &mut Vec<Damage>) {
        let count = self.files.len();
        let segments = || (1..).take(40);
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                all.push(Damage::Double { from, to });
            }
            all.extend((from + 1..count).map(|other| Damage::Swap { one: from, other }));
            all.extend(segments().map(|number| Damage::Rename { file: from, number }));
        }
        // An existing segment would be a wrong log start with a valid checksum, which nothing can detect.
        let is_gone = |segment: &u64| !self.files.contains_key(&format!("{segment:010}.log"));
        for segment in segments().chain([0, u64::MAX]).filter(is_gone) {
            all.extend([0, 1].map(|page| Damage::LogStart { page, is_both: false, segment }));
            all.push(Damage::LogStart { page: 0, is_both: true, segment });
        }
        let names = ["tree.part", "tree.part.new", "tree.new", "0000000099.new", "0000000001.new", "x.sort", "7.log"];
        all.extend(names.map(|name| Damage::Beside { name }));
    }

    /// The files with this damage.
    pub(crate) fn damaged(&self, damage: Damage) -> Files {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let mut files = self.files.clone();
        let mut edit = |file: usize, change: &mut dyn FnMut(&mut Content)| change(files.get_mut(&names[file]).unwrap());
        match damage {
            Damage::Flip { file, at, mask } => edit(file, &mut |content| {
                let mut byte = [0];
                content.read(at, &mut byte);
                content.write(at, &[byte[0] ^ mask]);
            }),
            Damage::Fill { file, from, len, with } => edit(file, &mut |content| {
                let len = len.min(content.len() - from);
                content.write(from, &filled(with, len));
            }),
            Damage::Cut { file, len } => edit(file, &mut |content| content.set_len(len)),
            Damage::Grow { file, by } => {
                edit(file, &mut |content| content.write(content.len(), &filled(Fill::Garbage(by as u64), by)));
            }
            Damage::Stray { file, from, to } => edit(file, &mut |content| {
                let mut page = vec![0; BLOCK];
                content.read(from * BLOCK, &mut page);
                content.write(to * BLOCK, &page);
            }),
            Damage::Remove { file } => drop(files.remove(&names[file])),
            Damage::Double { from, to } => drop(files.insert(names[to].clone(), self.files[&names[from]].clone())),
            Damage::Swap { one, other } => {
                files.insert(names[one].clone(), self.files[&names[other]].clone());
                files.insert(names[other].clone(), self.files[&names[one]].clone());
            }
            Damage::Rename { file, number } => {
                let content = files.remove(&names[file]).unwrap();
                files.insert(format!("{number:010}.log"), content);
            }
            Damage::LogStart { page, is_both, segment } => {
                let tree = files.get_mut("tree").unwrap();
                let pages = if is_both { 0..2 } else { page..page + 1 };
                pages.for_each(|page| start_log_at(tree, page, segment));
            }
            Damage::Beside { name } => drop(files.insert(name.to_string(), Content::of(b"left behind"))),
        }
        files
    }

    /// The version that the damaged store must have if it opens: see [`Specimen::last_version`].
    pub(crate) fn least(&self, damage: Damage, files: &Files) -> u64 {
        match damage {
            Damage::Cut { .. } => self.version,
            _ => self.last_version(files),
        }
    }
}

/// Each byte with these bits inverted.
fn flips(file: usize, content: &Content, share: Share, mask: u8) -> impl Iterator<Item = Damage> {
    (share.first..content.len()).step_by(share.step).map(move |at| Damage::Flip { file, at, mask })
}

fn filled(fill: Fill, len: usize) -> Vec<u8> {
    match fill {
        Fill::Zeros => vec![0; len],
        Fill::Ones => vec![0xff; len],
        Fill::Garbage(seed) => {
            let mut rng = SmallRng::seed_from_u64(seed);
            (0..len).map(|_| rng.random()).collect()
        }
    }
}

fn start_log_at(tree: &mut Content, page: usize, segment: u64) {
    let mut bytes = vec![0; BLOCK];
    tree.read(page * BLOCK, &mut bytes);
    bytes[48..56].copy_from_slice(&segment.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    tree.write(page * BLOCK, &bytes);
}

/// Checks that an error names a place; returns whether it is in the tree file.
fn place_of(error: &StoreError, doing: &str) -> Result<bool, String> {
    match error {
        StoreError::Corrupt { file, what, .. } if !what.is_empty() => {
            let is_known = file.starts_with("tree") || file.ends_with(".log");
            if is_known { Ok(file.starts_with("tree")) } else { Err(format!("{doing}: no place in `{error}`")) }
        }
        StoreError::Format { .. } => Ok(true),
        StoreError::Io { context, source } if source.kind() == ErrorKind::NotFound && context == "open tree" => {
            Ok(true)
        }
        other => Err(format!("{doing}: {other}")),
    }
}

/// Checks damaged files in every way; `last` is the version with which the store must open.
pub(crate) fn check(specimen: &Specimen, files: &Files, last: u64, is_written: bool) -> Result<Outcome, String> {
    let checked = catch_unwind(AssertUnwindSafe(|| look(specimen, files, last, is_written)));
    checked.unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic))))
}

/// The same for one damage of the specimen.
pub(crate) fn check_damage(specimen: &Specimen, number: u64, damage: Damage) -> Result<Outcome, String> {
    let files = specimen.damaged(damage);
    check(specimen, &files, specimen.least(damage, &files), number.is_multiple_of(WRITTEN_EVERY))
}

/// Examines the files without opening a store: the version that is reported, and whether a fault is.
fn examine(files: &Files) -> Result<(Option<u64>, bool), String> {
    let disk = start(files);
    let found = match Store::examine_on(&*disk) {
        Ok(found) => (Some(found.version.0), !found.is_clean() || found.torn_meta.is_some()),
        Err(error) => {
            place_of(&error, "verify without opening")?;
            (None, true)
        }
    };
    // Data that may be only in the kernel's cache is written again unchanged.
    let contents: Vec<&Content> = files.values().collect();
    let is_same = |event: &Event| match event {
        Event::Write { file, offset, bytes, .. } => {
            let mut there = vec![0; bytes.len()];
            contents[*file].read(*offset as usize, &mut there) == bytes.len() && there[..] == bytes[..]
        }
        Event::Sync(_) | Event::SyncNames => true,
        _ => false,
    };
    if disk.take_record().iter().all(is_same) { Ok(found) } else { Err("verify changes what it looks at".to_string()) }
}

fn look(specimen: &Specimen, files: &Files, last: u64, is_written: bool) -> Result<Outcome, String> {
    let (told_version, is_told) = examine(files)?;
    let disk = start(files);
    let store = match Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options()) {
        Ok((store, _)) => store,
        Err(error) => {
            let is_tree = place_of(&error, "opening")?;
            if !is_told {
                return Err(format!("verify has nothing to tell, and opening says: {error}"));
            }
            return Ok(if is_tree { Outcome::RefusedByTree } else { Outcome::RefusedByLog });
        }
    };
    let version = store.stats().version;
    if version != last {
        return Err(format!("version {version}, not {last} of {}", specimen.version));
    }
    if told_version.is_some_and(|told| told != version) && !is_told {
        return Err(format!("verify tells version {told_version:?}, there is {version}"));
    }
    let is_right = is_right(specimen, &store, specimen.state(version))?;
    let is_clean = store.verify().is_clean();
    if !is_right && (is_clean || !is_told) {
        return Err(format!("damage that verify does not tell (open: {is_clean}, not open: {})", !is_told));
    }
    follow(specimen, &store, version)?;
    if is_written {
        write_on(specimen, &store, version)?;
    }
    Ok(match (is_right, version == specimen.version) {
        (false, _) => Outcome::Told,
        (true, false) => Outcome::TailLost,
        (true, true) if is_told || !is_clean => Outcome::RightAndTold,
        (true, true) => Outcome::Right,
    })
}

/// Reads everything, forwards, backwards, by leaves, by key and in a transaction; returns whether no read failed. An
/// error must name its place. Data read before it, and by all other reads, must be right.
fn is_right(specimen: &Specimen, store: &Store, state: &State) -> Result<bool, String> {
    let mut is_right = true;
    for (name, entries) in state {
        let mut is_true = true;
        if let Err(error) = read(specimen, store, name, entries, &mut is_true) {
            place_of(&error, "reading")?;
            is_right = false;
        }
        if !is_true {
            return Err(format!("what is read of {name} is wrong and no error"));
        }
    }
    Ok(is_right)
}

fn read(
    specimen: &Specimen,
    store: &Store,
    name: &str,
    entries: &Entries,
    is_true: &mut bool,
) -> Result<(), StoreError> {
    if store.existing_tree(name)? != specimen.trees.get(name).copied() {
        // The version is older than the tree, or the catalog is damaged.
        *is_true = entries.is_empty();
        return Ok(());
    }
    let (tree, reader) = (specimen.trees[name], store.reader()?);
    let snapshot = reader.snapshot();
    let mut failed = None;
    let mut compare = |direction, expected: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
        let mut count = 0;
        let scanned = snapshot.scan(tree, KeyRange::ALL, direction, &mut |key, value| {
            count += 1;
            assert!(count < WALK_MAX, "a walk without end");
            *is_true &= expected.next().is_some_and(|(one, other)| one == key && other == value);
            ControlFlow::Continue(())
        });
        *is_true &= scanned.is_err() || expected.next().is_none();
        failed = scanned.err().or(failed.take());
    };
    compare(Direction::Forward, &mut entries.iter());
    compare(Direction::Backward, &mut entries.iter().rev());
    let mut count = 0;
    let visited = snapshot.scan_leaves(tree, KeyRange::ALL, Direction::Forward, &mut |leaf| {
        count += leaf.len();
        ControlFlow::Continue(())
    });
    match visited {
        Ok(is_visited) => *is_true &= !is_visited || count == entries.len(),
        Err(error) => failed = Some(error),
    }
    for (key, value) in entries {
        match snapshot.get(tree, key) {
            Ok(found) => *is_true &= found.as_deref() == Some(value),
            Err(error) => failed = Some(error),
        }
    }
    let prepared = store.commit(&mut |tx: &mut Tx<'_>| {
        for (key, value) in entries {
            match tx.get(tree, key) {
                Ok(found) => *is_true &= found.as_deref() == Some(value),
                Err(error) => failed = Some(error),
            }
        }
        Err(Abort)
    });
    if !matches!(prepared, Err(StoreError::Aborted)) {
        prepared?;
    }
    failed.map_or(Ok(()), Err)
}

/// The readable changes contain each version once, complete and in order, until the end or an error.
fn follow(specimen: &Specimen, store: &Store, last: u64) -> Result<(), String> {
    let oldest = store.stats().changes_oldest;
    let (mut state, mut is_behind_told) = (State::new(), true);
    let is_end = |error: &StoreError| matches!(error, StoreError::Gone { .. }) || place_of(error, "following").is_ok();
    let mut reader = match store.changes_since(Version(oldest)) {
        Ok(reader) => reader,
        Err(error) if is_end(&error) => return Ok(()),
        Err(error) => return Err(format!("following: {error}")),
    };
    let mut version = oldest;
    loop {
        let changeset = match reader.next() {
            Ok(Some(changeset)) => changeset,
            Ok(None) if version == last => return Ok(()),
            Ok(None) => return Err(format!("following ends at version {version}, not at {last}")),
            Err(error) if is_end(&error) => return Ok(()),
            Err(error) => return Err(format!("following: {error}")),
        };
        version += 1;
        if changeset.version().0 != version {
            return Err(format!("changes of version {} for those of {version}", changeset.version().0));
        }
        if is_behind_told && specimen.is_told(&changeset) {
            continue;
        }
        // Other operations than before the damage: from here on the resulting content is compared.
        if is_behind_told {
            (is_behind_told, state) = (false, specimen.state(version - 1).clone());
        }
        if !specimen.advance(&mut state, &changeset)? {
            return Err(format!("the changes of version {version} make other data than there was"));
        }
    }
}

/// Changes many keys, so that checkpoints read the damaged pages: they report the damage, or their result is right.
fn write_on(specimen: &Specimen, store: &Store, version: u64) -> Result<(), String> {
    let mut state = specimen.state(version).clone();
    for name in CHANGED {
        let (tree, entries) = (specimen.trees[name], state.get_mut(name).unwrap());
        let keys: Vec<Vec<u8>> = entries.keys().step_by(2).cloned().collect();
        let change = &mut |tx: &mut Tx<'_>| {
            keys.iter().for_each(|key| tx.delete(tree, key));
            tx.put(tree, b"new", name.as_bytes());
            Ok(())
        };
        match store.commit(change) {
            Ok(_) => {
                keys.iter().for_each(|key| drop(entries.remove(key)));
                entries.insert(b"new".to_vec(), name.as_bytes().to_vec());
            }
            Err(StoreError::Poisoned) => return Ok(()),
            Err(error) => return place_of(&error, "writing").map(drop),
        }
    }
    if let Err(error) = store.checkpoint() {
        return if matches!(error, StoreError::Poisoned) { Ok(()) } else { place_of(&error, "checkpoint").map(drop) };
    }
    let is_right = is_right(specimen, store, &state)?;
    if is_right || !store.verify().is_clean() {
        return Ok(());
    }
    Err("after a checkpoint: damage that verify does not tell".to_string())
}

/// Outcomes by the kind of damage.
pub(crate) type Counts = BTreeMap<(&'static str, Outcome), u64>;

/// The results of many damages.
#[derive(Default)]
pub(crate) struct Tried {
    pub(crate) counts: Counts,
    pub(crate) failures: Vec<(Damage, String)>,
}

/// Tries the damages one by one on some threads, until `failures_max` have failed. Calls `progress` with the numbers of
/// tried and of failed damages. A damage that hangs ends the process, because the thread cannot be stopped.
pub(crate) fn try_all(
    specimen: &Specimen,
    damages: &[Damage],
    threads: usize,
    failures_max: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Tried {
    let (next, mut tried, mut count) = (AtomicUsize::new(0), Tried::default(), 0);
    let at: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
    let (tell, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        for at in &at {
            let (tell, next) = (tell.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(damage) = damages.get(number) else { return };
                    at.store(number, Ordering::Relaxed);
                    if tell.send((*damage, check_damage(specimen, number as u64, *damage))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut looks = 0;
        while tried.failures.len() < failures_max {
            match outcomes.recv_timeout(LOOK_EVERY) {
                Ok((damage, checked)) => {
                    (looks, count) = (0, count + 1);
                    match checked {
                        Ok(outcome) => *tried.counts.entry((damage.name(), outcome)).or_insert(0) += 1,
                        Err(wrong) => tried.failures.push((damage, wrong)),
                    }
                    progress(count, tried.failures.len());
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => looks += 1,
            }
            if looks > LOOKS_MAX {
                let under_way = at.iter().map(|at| &damages[at.load(Ordering::Relaxed)]);
                eprintln!("one of these hangs: {:?}", under_way.collect::<Vec<_>>());
                std::process::exit(1);
            }
        }
        drop(outcomes);
    });
    tried
}

impl Damage {
    /// The kind of damage, for the counts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Damage::Flip { .. } => "byte flipped",
            Damage::Fill { with: Fill::Zeros, .. } => "part of zeros",
            Damage::Fill { .. } => "part of garbage",
            Damage::Cut { .. } => "file cut",
            Damage::Grow { .. } => "file with garbage behind",
            Damage::Stray { .. } => "block in another's place",
            Damage::Remove { .. } => "file gone",
            Damage::Double { .. } => "file doubled",
            Damage::Swap { .. } => "files swapped",
            Damage::Rename { .. } => "file renamed",
            Damage::LogStart { .. } => "log start elsewhere",
            Damage::Beside { .. } => "foreign file",
        }
    }
}
