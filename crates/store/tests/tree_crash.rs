//! Power fails at every write of a series of checkpoints: the file recovers to the last acknowledged state, or to the
//! one that was just being written, whole.
//!
//! A recording disk keeps every write and sync. For each of them a file is constructed as the disk might hold it then:
//! everything up to the last sync, and any part of the later writes, torn at 512-byte sectors.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use crate::hooked_disk::{HookedDisk, Hooks};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::{DiskFile, SystemDisk};
use store::log::LogPosition;
use store::tree::TreeFile;
use store::{Direction, KeyRange, TreeId, Version};

const NAME: &str = "trees";
const MAP_BYTES: u64 = 1 << 32;
const SECTOR: usize = 512;
const TREES: [TreeId; 2] = [TreeId(1), TreeId(5)];

#[derive(Clone)]
enum Operation {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
    /// A checkpoint of this version was acknowledged.
    Acknowledged(u64),
}

#[derive(Default)]
struct Record(Mutex<Vec<Operation>>);

impl Record {
    fn push(&self, operation: Operation) {
        self.0.lock().unwrap().push(operation);
    }
}

impl Hooks for Record {
    fn write_at(&self, _name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = file.write_at(bytes, offset)?;
        self.push(Operation::Write(offset, bytes[..count].to_vec()));
        Ok(count)
    }
    fn set_len(&self, _name: &str, file: &dyn DiskFile, len: u64) -> io::Result<()> {
        self.push(Operation::Length(len));
        file.set_len(len)
    }
    fn sync_data(&self, _name: &str, file: &dyn DiskFile) -> io::Result<()> {
        self.push(Operation::Sync);
        file.sync_data()
    }
    fn sync_range(&self, _name: &str, _file: &dyn DiskFile, _start: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// Checkpoints of random changes, some by bulk build, some dropped half way; returns the models by version.
fn write_series(rng: &mut SmallRng, record: &Arc<Record>, checkpoints: u64) -> Vec<Model> {
    let directory = tempfile::tempdir().unwrap();
    let disk = HookedDisk::new(directory.path(), record);
    TreeFile::create(&disk, NAME, Version(0), LogPosition::default()).unwrap();
    let mut file = TreeFile::open(&disk, NAME, MAP_BYTES).unwrap().choose(0).unwrap();
    let mut models = vec![Model::new()];
    record.push(Operation::Acknowledged(0));
    for version in 1..=checkpoints {
        let mut model = models[version as usize - 1].clone();
        if version % 7 == 0 {
            drop(file);
            file = TreeFile::open(&disk, NAME, MAP_BYTES).unwrap().choose(0).unwrap();
        }
        let mut writer = file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
        for tree in TREES {
            if version % 5 == 0 && tree == TREES[0] {
                let mut bulk = file.bulk(Box::new(|_, _, _| Ok(())));
                writer.delete_range(tree, &[], None).unwrap();
                model.retain(|(id, _), _| *id != tree.0);
                for number in 0..rng.random_range(1..400u32) {
                    let value = vec![version as u8; rng.random_range(0..200)];
                    bulk.push(&number.to_be_bytes(), &value).unwrap();
                    model.insert((tree.0, number.to_be_bytes().to_vec()), value);
                }
                writer.attach(tree, bulk.finish().unwrap()).unwrap();
            }
            let mut edits = BTreeMap::new();
            for _ in 0..rng.random_range(1..80) {
                let len = if rng.random_ratio(1, 40) { 9000 } else { rng.random_range(0..300) };
                let value = (!rng.random_ratio(2, 5)).then(|| vec![version as u8; len]);
                edits.insert(rng.random_range(0..400u32).to_be_bytes(), value);
            }
            writer.merge(tree, edits.iter().map(|(key, value)| (&key[..], value.as_deref()))).unwrap();
            for (key, value) in edits {
                match value {
                    Some(value) => model.insert((tree.0, key.to_vec()), value),
                    None => model.remove(&(tree.0, key.to_vec())),
                };
            }
        }
        if version % 6 == 0 {
            // A checkpoint that fails half way leaves writes behind and nothing else.
            drop(writer);
            model = models[version as usize - 1].clone();
            writer = file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
        }
        writer.finish(Version(version), LogPosition { segment: version, ..LogPosition::default() }).unwrap();
        models.push(model);
        record.push(Operation::Acknowledged(version));
    }
    models
}

fn apply(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset as usize..end].copy_from_slice(bytes);
}

/// The file after a crash during these unsynced operations: each sector of each write with a probability of `share` percent.
fn crash_image(synced: &[u8], unsynced: &[Operation], share: u32, rng: &mut SmallRng) -> Vec<u8> {
    let mut image = synced.to_vec();
    for operation in unsynced {
        match operation {
            Operation::Write(offset, bytes) => {
                for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                    if rng.random_ratio(share, 100) {
                        apply(&mut image, offset + (index * SECTOR) as u64, sector);
                    }
                }
            }
            Operation::Length(len) => image.resize(image.len().max(*len as usize), 0),
            Operation::Sync | Operation::Acknowledged(_) => {}
        }
    }
    image
}

#[track_caller]
fn check_recovery(image: &[u8], acknowledged: u64, models: &[Model]) {
    let directory = tempfile::tempdir().unwrap();
    let disk = SystemDisk::new(directory.path()).unwrap();
    std::fs::write(directory.path().join(NAME), image).unwrap();
    let metas = TreeFile::open(&disk, NAME, MAP_BYTES).unwrap().metas().count();
    for index in 0..metas {
        // The older meta page must be recoverable too: the engine may find that the newest one's log start is missing.
        let file = TreeFile::open(&disk, NAME, MAP_BYTES).unwrap().choose(index).unwrap();
        let view = file.view();
        let version = view.meta().version.0;
        if index == 0 {
            assert!(version == acknowledged || version == acknowledged + 1, "{version} after {acknowledged}");
        }
        assert_eq!(view.meta().log_start.segment, version);
        let report = view.verify();
        assert!(report.is_clean(), "version {version}: {:?}", report.faults);
        let mut found = Model::new();
        for tree in TREES {
            view.scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
                found.insert((tree.0, key.to_vec()), value.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        assert!(found == models[version as usize], "the data of version {version} differs");
    }
}

#[track_caller]
fn check_every_crash(seed: u64, checkpoints: u64) {
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let record = Arc::new(Record::default());
    let models = write_series(&mut rng, &record, checkpoints);
    let record = record.0.lock().unwrap();
    let (mut synced, mut since, mut acknowledged, mut crashes) = (Vec::new(), 0, None, 0);
    for (index, operation) in record.iter().enumerate() {
        match operation {
            Operation::Acknowledged(version) => acknowledged = Some(*version),
            Operation::Sync => {
                synced = crash_image(&synced, &record[since..index], 100, &mut rng);
                since = index + 1;
            }
            _ => {}
        }
        let Some(acknowledged) = acknowledged else { continue };
        for share in [100, 50] {
            check_recovery(&crash_image(&synced, &record[since..=index], share, &mut rng), acknowledged, &models);
            crashes += 1;
        }
    }
    println!("{crashes} crashes");
}

#[test]
fn every_crash_recovers_to_a_whole_checkpoint() {
    check_every_crash(11, 24);
}

#[test]
#[ignore = "long: cargo test --release -p store --test suite tree_crash:: -- --ignored"]
fn every_crash_of_many_series_recovers_to_a_whole_checkpoint() {
    for seed in 1000..1060 {
        check_every_crash(seed, 40);
    }
}
