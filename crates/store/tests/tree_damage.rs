//! Damaged tree files: every byte of a small file changed in turn gives an error with its place, or right data; never a panic, and
//! never wrong data that `verify` does not tell.

#![allow(clippy::unwrap_used)] // The lint's exception for tests does not reach helper functions of test files.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::SystemDisk;
use store::log::LogPosition;
use store::tree::{PAGE_BYTES, TreeFile};
use store::{Error, TreeId, Version};

const NAME: &str = "trees";
const MAP_BYTES: u64 = 1 << 26;
const TREE: TreeId = TreeId(2);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Two checkpoints: a tree of two levels with short and long keys, a value in overflow. The models by version.
fn write_file(disk: &SystemDisk) -> Vec<Model> {
    TreeFile::create(disk, NAME, Version(0), LogPosition::default()).unwrap();
    let file = TreeFile::open(disk, NAME, MAP_BYTES).unwrap().choose(0).unwrap();
    let mut models = vec![Model::new()];
    for version in 1..=2u8 {
        let mut model = models[usize::from(version) - 1].clone();
        for number in 0..30u8 {
            let mut key = b"common/start/".to_vec();
            key.extend_from_slice(&vec![number; 1 + usize::from(number % 11)]);
            model.insert(key, vec![version; usize::from(number) * 7]);
        }
        model.insert(b"long".to_vec(), vec![version; 5000]);
        let mut writer = file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
        writer.set_name(TREE, "a tree").unwrap();
        writer.merge(TREE, model.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())))).unwrap();
        writer.finish(Version(version.into()), LogPosition::default()).unwrap();
        models.push(model);
    }
    models
}

fn read_all(disk: &SystemDisk, models: &[Model]) -> Result<(), Error> {
    let file = TreeFile::open(disk, NAME, MAP_BYTES)?.choose(0)?;
    let view = file.view();
    let model = &models[view.meta().version.0 as usize];
    let mut is_right = view.list().map(|info| (info.name, info.entries)).collect::<Vec<_>>()
        == [(Some("a tree".to_string()), model.len() as u64)];
    let mut failed = None;
    for (key, value) in model {
        match view.get(TREE, key) {
            Ok(found) => is_right &= found == Some(value.as_slice()),
            Err(error) => failed = Some(error),
        }
    }
    for forward in [true, false] {
        let mut cursor = view.cursor(TREE);
        let mut found = Vec::new();
        let walked = (|| {
            if forward {
                cursor.seek(Bound::Unbounded)?
            } else {
                cursor.seek_back(Bound::Unbounded)?
            }
            while cursor.is_valid() {
                assert!(found.len() < 100_000, "a walk without end");
                found.push((cursor.key().to_vec(), cursor.value()?.to_vec()));
                if forward { cursor.next()? } else { cursor.previous()? }
            }
            Ok(())
        })();
        match walked {
            Ok(()) => {
                if !forward {
                    found.reverse();
                }
                is_right &= found.iter().map(|(key, value)| (key, value)).eq(model);
            }
            Err(error) => failed = Some(error),
        }
    }
    let report = view.verify();
    assert!(report.is_clean() || !report.faults.is_empty());
    assert!(is_right || !report.is_clean(), "wrong data that verify does not tell");
    assert!(failed.is_none() || !report.is_clean(), "an error that verify does not tell");
    // A checkpoint over the damage reports it or is right: it never panics.
    let mut writer = file.begin(Box::new(|_, _, _| Ok(())))?;
    writer.merge(TREE, model.keys().map(|key| (key.as_slice(), None)))?;
    failed.map_or(Ok(()), Err)
}

/// Overwrites bytes, reads everything, and puts the bytes back. Whether an error was told.
#[track_caller]
fn check_damage(path: &Path, disk: &SystemDisk, models: &[Model], offset: u64, bytes: &[u8]) -> bool {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut old = vec![0; bytes.len()];
    file.read_exact_at(&mut old, offset).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    let outcome = read_all(disk, models);
    if let Err(error) = &outcome {
        assert!(matches!(error, Error::Corrupt { .. } | Error::Format { .. }), "byte {offset}: {error}");
    }
    file.write_all_at(&old, offset).unwrap();
    file.set_len(len).unwrap();
    outcome.is_err()
}

fn live_pages(disk: &SystemDisk) -> u64 {
    let space = TreeFile::open(disk, NAME, MAP_BYTES).unwrap().choose(0).unwrap().space_stat();
    space.pages - space.free
}

#[test]
fn every_changed_byte_gives_an_error_or_right_data() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new(directory.path()).unwrap();
    let models = write_file(&disk);
    let path = directory.path().join(NAME);
    read_all(&disk, &models).unwrap();
    let content = std::fs::read(&path).unwrap();
    let mut errors = 0;
    let end = live_pages(&disk) * PAGE_BYTES as u64;
    for offset in 0..end {
        let byte = content[offset as usize];
        // One bit in turn, and where zeros lie anything else too: long runs of padding are not worth more.
        errors += u64::from(check_damage(&path, &disk, &models, offset, &[byte ^ (1 << (offset % 8))]));
    }
    println!("{errors} errors told of {end} bytes changed");
    assert!(errors > 1000);
}

#[test]
fn garbage_of_any_length_gives_an_error_or_right_data() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new(directory.path()).unwrap();
    let models = write_file(&disk);
    let path = directory.path().join(NAME);
    let end = live_pages(&disk) * PAGE_BYTES as u64;
    let mut rng = SmallRng::seed_from_u64(5);
    for _ in 0..3000 {
        let offset = rng.random_range(0..end - 4096);
        let count = [2, 8, 64, 4096][rng.random_range(0..4)];
        let fill = [None, Some(0), Some(0xff)][rng.random_range(0..3)];
        let bytes: Vec<u8> = (0..count).map(|_| fill.unwrap_or_else(|| rng.random())).collect();
        check_damage(&path, &disk, &models, offset, &bytes);
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused_with_a_place() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new(directory.path()).unwrap();
    write_file(&disk);
    let path = directory.path().join(NAME);
    let content = std::fs::read(&path).unwrap();
    for len in (0..content.len()).step_by(1777) {
        std::fs::write(&path, &content[..len]).unwrap();
        let error = TreeFile::open(&disk, NAME, MAP_BYTES).err();
        assert!(matches!(error, Some(Error::Corrupt { .. })), "{len}: {error:?}");
    }
}
