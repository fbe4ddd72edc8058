//! The properties that must hold for any bytes in a store's files; used by these tests and by the targets of `fuzz/`.

#![allow(dead_code, clippy::unwrap_used)] // Each driver uses a part of it; a failed step is a failed test.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::Path;

use store::disk::SystemDisk;
use store::log::LogPosition;
use store::tree::{PAGE_BYTES, TreeFile};
use store::{Direction, Durability, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx, Version};

const BLOCK: usize = 4096;
/// The log segment that [`write_store`] fills.
pub(crate) const LOG_NAME: &str = "0000000001.log";
/// The tree file of [`write_tree`].
pub(crate) const TREE_NAME: &str = "trees";
const TREE: TreeId = TreeId(2);
const MAP_BYTES: u64 = 1 << 26;
/// Maximum entries that a walk over damaged pages may return: more than were written.
const WALK_MAX: usize = 20_000;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A new folder, on a tmpfs where there is one: syncs prove nothing here, and cost nothing there.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.durability = Durability::None;
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 64 * 1024;
    options.map_bytes = MAP_BYTES;
    options
}

/// Writes a store with some commits in its log and none in its tree; returns its content after each commit.
pub(crate) fn write_store(directory: &Path) -> Vec<State> {
    let mut options = options();
    options.durability = Durability::Commit;
    let (store, _) = Store::open(directory, options).unwrap();
    let tree = store.tree("t").unwrap();
    let mut states = vec![State::new()];
    for number in 0..8u8 {
        let mut state = states[usize::from(number)].clone();
        let (key, value) = (vec![b'k', number], vec![number; usize::from(number) * 40]);
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, &key, &value);
            tx.delete(tree, &[b'k', number / 2]);
            Ok(())
        };
        store.commit(change).unwrap();
        state.insert(key.clone(), value.clone());
        state.remove(&[b'k', number / 2][..]);
        states.push(state);
    }
    states
}

/// Gives changed blocks a valid checksum again, so that the checks after the checksum are reached.
pub(crate) fn reseal_log(bytes: &mut [u8]) {
    for block in (0..bytes.len() / BLOCK).map(|number| number * BLOCK) {
        if block == 0 {
            let crc = crc32c::crc32c(&bytes[..32]);
            bytes[32..36].copy_from_slice(&crc.to_le_bytes());
            continue;
        }
        let length = u32::from_le_bytes(bytes[block + 4..block + 8].try_into().unwrap()) as usize;
        if bytes[block..].starts_with(b"SLOG") && (64..=bytes.len() - block).contains(&length) {
            let crc = crc32c::crc32c(&bytes[block..block + 60]);
            let crc = crc32c::crc32c_append(crc, &bytes[block + 64..block + length]);
            bytes[block + 60..block + 64].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// The same for the pages of a tree file. An overflow extent's checksum spans pages, and stays wrong.
pub(crate) fn reseal_pages(bytes: &mut [u8]) {
    for page in bytes.chunks_exact_mut(PAGE_BYTES) {
        let crc = crc32c::crc32c(&page[4..]);
        page[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn content(store: &Store) -> Result<State, StoreError> {
    let mut state = State::new();
    let Some(tree) = store.existing_tree("t")? else { return Ok(state) };
    let reader = store.reader()?;
    let whole = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
    reader.snapshot().scan(tree, whole, Direction::Forward, &mut |key, value| {
        state.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

/// Opens a store whose log holds `bytes`; returns whether it opened. It must open with the content after some commit,
/// or report damage. With resealed checksums any content is accepted, but no panic.
pub(crate) fn check_log(directory: &Path, bytes: &[u8], states: &[State], is_resealed: bool) -> bool {
    fs::write(directory.join(LOG_NAME), bytes).unwrap();
    match Store::open(directory, options()) {
        Ok((store, _)) => {
            let content = content(&store);
            if !is_resealed {
                assert!(states.contains(&content.unwrap()), "a state that never was");
            }
            true
        }
        Err(StoreError::Corrupt { file, what, .. }) => {
            assert!(!file.is_empty() && !what.is_empty());
            false
        }
        Err(StoreError::Format { .. }) => false,
        Err(error) => {
            assert!(is_resealed, "{error}");
            false
        }
    }
}

/// A tree file after two checkpoints: two levels, short and long keys, a value in overflow.
pub(crate) fn write_tree(directory: &Path) {
    let disk = SystemDisk::new(directory).unwrap();
    TreeFile::create(&disk, TREE_NAME, Version(0), LogPosition::default()).unwrap();
    let file = TreeFile::open(&disk, TREE_NAME, MAP_BYTES).unwrap().choose(0).unwrap();
    for version in 1..=2u8 {
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = (0..60u8)
            .map(|number| (vec![number; 1 + usize::from(number % 11)], vec![version; usize::from(number) * 5]))
            .chain([(b"long".to_vec(), vec![version; 5000])])
            .collect();
        let mut writer = file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
        writer.set_name(TREE, "a tree").unwrap();
        writer.merge(TREE, entries.iter().map(|(key, value)| (&key[..], Some(&value[..])))).unwrap();
        writer.finish(Version(version.into()), LogPosition::default()).unwrap();
    }
}

/// Reads, verifies and changes a tree file of these bytes through every function; returns whether it opened. Errors are
/// accepted, panics and endless walks are not.
pub(crate) fn check_tree(directory: &Path, bytes: &[u8]) -> bool {
    fs::write(directory.join(TREE_NAME), bytes).unwrap();
    let disk = SystemDisk::new(directory).unwrap();
    let Ok(file) = TreeFile::open(&disk, TREE_NAME, MAP_BYTES).and_then(|opening| opening.choose(0)) else {
        return false;
    };
    let view = file.view();
    let trees: Vec<TreeId> = view.list().map(|info| info.tree).take(8).collect();
    for tree in trees.into_iter().chain([TREE]) {
        for key in [&b""[..], b"long", &[7; 8], &[255; 300]] {
            let _ = view.get(tree, key);
            let below = KeyRange { from: Bound::Unbounded, to: Bound::Excluded(key) };
            let _ = view.scan(tree, below, Direction::Backward, &mut |_, _| ControlFlow::Break(()));
        }
        let mut steps = 0;
        let _ = view.scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
            assert!(steps < WALK_MAX, "a walk without end");
            steps += 1;
            ControlFlow::Continue(())
        });
    }
    let _ = (view.verify().is_clean(), file.space_stat());
    if let Ok(mut writer) = file.begin(Box::new(|_, _, _| Ok(()))) {
        let edits: [(&[u8], Option<&[u8]>); 3] = [(&[50; 7], None), (b"a", Some(b"new")), (b"long", None)];
        let changed = writer.merge(TREE, edits);
        let _ = changed.and_then(|_| writer.finish(Version(9), LogPosition::default()).map(drop));
    }
    true
}
