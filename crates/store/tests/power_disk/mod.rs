//! A directory in memory whose power fails: what was not synced is there in part, in sectors, or not at all.

#![allow(clippy::unwrap_used, dead_code)] // Shared by tests, none of which uses all of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand::rngs::SmallRng;
use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map};

const SECTOR: usize = 512;

/// Names and contents.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What programs see, what is durable, and what was written since.
struct Content {
    file: File,
    durable: Mutex<Vec<u8>>,
    unsynced: Mutex<Vec<Unsynced>>,
}

enum Unsynced {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Default)]
struct Directory {
    names: BTreeMap<String, Arc<Content>>,
    /// As they were after each change since the last sync of the directory, the synced one first.
    history: Vec<BTreeMap<String, Arc<Content>>>,
    left: u64,
}

/// See the module's text.
pub(crate) struct PowerDisk {
    directory: Arc<Mutex<Directory>>,
}

impl PowerDisk {
    /// A disk with these files, all durable, whose power fails with the `left`-th operation.
    pub(crate) fn new(files: &Files, left: u64) -> PowerDisk {
        let content = |bytes: &Vec<u8>| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            Arc::new(Content { file, durable: Mutex::new(bytes.clone()), unsynced: Mutex::default() })
        };
        let names: BTreeMap<_, _> = files.iter().map(|(name, bytes)| (name.clone(), content(bytes))).collect();
        let directory = Directory { history: vec![names.clone()], names, left };
        PowerDisk { directory: Arc::new(Mutex::new(directory)) }
    }

    /// Operations until the power fails.
    pub(crate) fn left(&self) -> u64 {
        self.directory.lock().unwrap().left
    }

    /// What is on the disk after the power has failed.
    pub(crate) fn after_crash(&self, rng: &mut SmallRng) -> Files {
        let directory = self.directory.lock().unwrap();
        let names = &directory.history[rng.random_range(0..directory.history.len())];
        names.iter().map(|(name, content)| (name.clone(), survive(content, rng))).collect()
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Content>>) -> io::Result<T>) -> io::Result<T> {
        let mut directory = self.directory.lock().unwrap();
        spend(&mut directory)?;
        let changed = change(&mut directory.names)?;
        let names = directory.names.clone();
        directory.history.push(names);
        Ok(changed)
    }
}

fn spend(directory: &mut Directory) -> io::Result<()> {
    directory.left = directory.left.saturating_sub(1);
    if directory.left == 0 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
}

fn survive(content: &Content, rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = content.durable.lock().unwrap().clone();
    let luck = rng.random_range(0..=4u32);
    for unsynced in content.unsynced.lock().unwrap().iter() {
        match unsynced {
            Unsynced::Length(len) if rng.random_range(0..4) < luck => bytes.resize(*len as usize, 0),
            Unsynced::Length(_) => {}
            Unsynced::Write(offset, written) => {
                for (index, sector) in written.chunks(SECTOR).enumerate() {
                    if rng.random_range(0..4) < luck {
                        apply(&mut bytes, offset + (index * SECTOR) as u64, sector);
                    }
                }
            }
        }
    }
    bytes
}

fn apply(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
    let end = offset as usize + written.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset as usize..end].copy_from_slice(written);
}

impl Disk for PowerDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let found = self.directory.lock().unwrap().names.get(name).cloned();
        let content = match found {
            Some(content) => content,
            None if create => self.change(|names| {
                let file = tempfile::tempfile()?;
                let content = Arc::new(Content { file, durable: Mutex::default(), unsynced: Mutex::default() });
                names.insert(name.to_string(), Arc::clone(&content));
                Ok(content)
            })?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(PowerFile { content, directory: Arc::clone(&self.directory) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.directory.lock().unwrap().names.keys().cloned().collect())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|names| names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into()))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|names| {
            let content = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            names.insert(to.to_string(), content);
            Ok(())
        })
    }
    fn sync_dir(&self) -> io::Result<()> {
        let mut directory = self.directory.lock().unwrap();
        spend(&mut directory)?;
        directory.history = vec![directory.names.clone()];
        Ok(())
    }
    fn lock(&self, _name: &str) -> io::Result<DirectoryLock> {
        Ok(Box::new(()))
    }
}

struct PowerFile {
    content: Arc<Content>,
    directory: Arc<Mutex<Directory>>,
}

impl PowerFile {
    fn note(&self, unsynced: Unsynced) -> io::Result<()> {
        let mut directory = self.directory.lock().unwrap();
        // With the last operation the write may still reach the disk; after it nothing is noted.
        if directory.left > 0 {
            self.content.unsynced.lock().unwrap().push(unsynced);
        }
        spend(&mut directory)
    }
}

impl DiskFile for PowerFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.content.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.note(Unsynced::Write(offset, bytes.to_vec()))?;
        self.content.file.write_all_at(bytes, offset)?;
        Ok(bytes.len())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.file.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.note(Unsynced::Length(len))?;
        self.content.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        spend(&mut self.directory.lock().unwrap())?;
        let mut durable = self.content.durable.lock().unwrap();
        for unsynced in self.content.unsynced.lock().unwrap().drain(..) {
            match unsynced {
                Unsynced::Length(len) => durable.resize(len as usize, 0),
                Unsynced::Write(offset, written) => apply(&mut durable, offset, &written),
            }
        }
        Ok(())
    }
    fn sync_range(&self, _start: u64, _len: u64) -> io::Result<()> {
        if self.directory.lock().unwrap().left == 0 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        Map::of_file(&self.content.file, reserve)
    }
}
