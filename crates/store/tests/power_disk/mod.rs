//! A disk whose power fails.
//!
//! It keeps for each file what is durable and what was written since; for the directory what is durable and what was
//! renamed since. At the crash any of the unsynced sectors (512 bytes) of each write reaches the disk, any number of
//! the unsynced directory changes, in their order (as a journaling file system has it), and nothing else.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand::rngs::SmallRng;
use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map};

const SECTOR: usize = 512;

enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// One file: the bytes that programs see, and those that would survive.
struct Content {
    file: File,
    durable: Mutex<(Vec<u8>, Vec<Pending>)>,
}

#[derive(Clone)]
enum NameChange {
    Create(String, Arc<Content>),
    Rename(String, String),
    Remove(String),
}

type Names = BTreeMap<String, Arc<Content>>;

struct State {
    names: Names,
    durable_names: Names,
    pending: Vec<NameChange>,
    /// Writes, syncs and changes of names until the power fails.
    left: u64,
}

pub(crate) struct PowerDisk {
    state: Arc<Mutex<State>>,
}

struct PowerFile {
    content: Arc<Content>,
    is_direct: bool,
    state: Arc<Mutex<State>>,
}

fn is_dead(state: &Mutex<State>) -> bool {
    state.lock().unwrap().left == 0
}

/// Counts an operation; an error when the power fails with this one or is gone.
fn spend(state: &mut State) -> io::Result<()> {
    state.left = state.left.saturating_sub(1);
    if state.left == 0 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
}

fn change(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Create(name, content) => drop(names.insert(name.clone(), Arc::clone(content))),
        NameChange::Rename(from, to) => {
            let content = names.remove(from).unwrap();
            names.insert(to.clone(), content);
        }
        NameChange::Remove(name) => drop(names.remove(name)),
    }
}

impl PowerDisk {
    pub(crate) fn new(files: BTreeMap<String, Vec<u8>>, left: u64) -> PowerDisk {
        let content = |bytes: Vec<u8>| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            Arc::new(Content { file, durable: Mutex::new((bytes, Vec::new())) })
        };
        let names: Names = files.into_iter().map(|(name, bytes)| (name, content(bytes))).collect();
        let state = State { durable_names: names.clone(), names, pending: Vec::new(), left };
        PowerDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn rename_as(&self, renamed: NameChange) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.left == 0 {
            return Err(io::Error::from_raw_os_error(5));
        }
        change(&mut state.names, &renamed);
        state.pending.push(renamed);
        spend(&mut state)
    }

    /// What is on the disk after the power has failed.
    pub(crate) fn after_crash(&self, rng: &mut SmallRng) -> BTreeMap<String, Vec<u8>> {
        let mut state = self.state.lock().unwrap();
        let reached = rng.random_range(0..=state.pending.len());
        let mut names = std::mem::take(&mut state.durable_names);
        state.pending[..reached].iter().for_each(|pending| change(&mut names, pending));
        names.into_iter().map(|(name, content)| (name, survive(&content, rng))).collect()
    }
}

/// The durable bytes of a file, with any part of what was written since.
fn survive(content: &Content, rng: &mut SmallRng) -> Vec<u8> {
    let (mut bytes, pending) = std::mem::take(&mut *content.durable.lock().unwrap());
    let luck = rng.random_range(0..=4u32);
    for pending in pending {
        match pending {
            Pending::Length(len) if rng.random_range(0..4) < luck => bytes.resize(len as usize, 0),
            Pending::Length(_) => {}
            Pending::Write(offset, written) => {
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
        let found = self.state.lock().unwrap().names.get(name).cloned();
        let content = match found {
            Some(content) => content,
            None if create => {
                let durable = Mutex::new((Vec::new(), Vec::new()));
                let content = Arc::new(Content { file: tempfile::tempfile()?, durable });
                self.rename_as(NameChange::Create(name.to_string(), Arc::clone(&content)))?;
                content
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let is_direct = access == Access::Direct;
        Ok(Arc::new(PowerFile { content, is_direct, state: Arc::clone(&self.state) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().unwrap().names.keys().cloned().collect())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.rename_as(NameChange::Remove(name.to_string()))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename_as(NameChange::Rename(from.to_string(), to.to_string()))
    }
    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        spend(&mut state)?;
        state.pending.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }
    fn lock(&self, _name: &str) -> io::Result<DirectoryLock> {
        Ok(Box::new(()))
    }
}

impl PowerFile {
    fn sync(&self) {
        let mut durable = self.content.durable.lock().unwrap();
        let (bytes, pending) = &mut *durable;
        for pending in pending.drain(..) {
            match pending {
                Pending::Length(len) => bytes.resize(len as usize, 0),
                Pending::Write(offset, written) => apply(bytes, offset, &written),
            }
        }
    }

    fn pend(&self, pending: Pending) -> io::Result<()> {
        if is_dead(&self.state) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.content.durable.lock().unwrap().1.push(pending);
        spend(&mut self.state.lock().unwrap())
    }
}

impl DiskFile for PowerFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.content.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.is_direct {
            assert_eq!((bytes.len() % 4096, offset % 4096, bytes.as_ptr().align_offset(4096)), (0, 0, 0));
        }
        self.pend(Pending::Write(offset, bytes.to_vec()))?;
        self.content.file.write_all_at(bytes, offset)?;
        if self.is_direct {
            self.sync();
        }
        Ok(bytes.len())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.file.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pend(Pending::Length(len))?;
        self.content.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        spend(&mut self.state.lock().unwrap())?;
        self.sync();
        Ok(())
    }
    fn sync_range(&self, _start: u64, _len: u64) -> io::Result<()> {
        if is_dead(&self.state) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        Map::of_file(&self.content.file, reserve)
    }
}
