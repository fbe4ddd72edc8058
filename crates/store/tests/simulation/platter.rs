//! The platter: what a disk would hold if the power failed at this point.
//!
//! Each file and the directory have two layers: the durable content, and the changes since. When the power fails, of these changes
//!
//! - any subset of the 512-byte sectors of any writes has reached the disk, in any order: each sector has its durable
//!   content or that of any one of the writes that covered it;
//! - a file's new length may be there with or without its new bytes (zeros then), or neither;
//! - any of the created, renamed and removed names are there: in most crashes a prefix of the list, as on a journaling
//!   file system, in some any part of it;
//! - the operation that is running counts as one of the changes, also a direct write, which otherwise is durable at once.
//!
//! When only the process is killed, everything written stays, durable or not
//! ([`SimulatedDisk::start`](super::disk::SimulatedDisk::start) starts from both layers).

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;

use super::content::Content;

const SECTOR: usize = 512;

/// A file, numbered in the order of creation: its name may change.
pub(crate) type FileNo = usize;

/// A change of the directory.
#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Create(String, FileNo),
    Rename(String, String, FileNo),
    Remove(String),
}

/// An event on a disk; the record holds them in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Name(NameChange),
    Write {
        file: FileNo,
        offset: u64,
        bytes: Arc<[u8]>,
        is_direct: bool,
    },
    Length(FileNo, u64),
    Sync(FileNo),
    /// The kernel considers the pages clean, although any part of them may be missing on the disk. The number seeds that choice.
    SyncFailed(FileNo, u64),
    SyncNames,
    /// The same for the directory: changed names that are not on the disk by now will not get there, unless they are changed again.
    SyncNamesFailed(u64),
    /// No event of the disk: a mark in the record that the driver looks for.
    Note(Note),
}

/// See [`Event::Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// This writer is about to commit its transaction of this number.
    Begun(u8, u64),
    /// The writer received the commit of its transaction, with this version.
    Acknowledged(u8, u64, u64),
    /// The writer received an error for its transaction, which changed nothing.
    Refused(u8, u64),
    /// A checkpoint was requested, and has completed.
    CheckpointBegun(u64),
    CheckpointDone(u64),
    /// The store has been opened.
    Opened,
}

#[derive(Clone)]
enum Pending {
    Write(u64, Arc<[u8]>),
    Length(u64),
}

#[derive(Clone, Default)]
struct FileLayers {
    durable: Content,
    pending: Vec<Pending>,
}

type Names = BTreeMap<String, FileNo>;

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Platter {
    files: Vec<FileLayers>,
    names: Names,
    pending_names: Vec<NameChange>,
    /// The names that programs see.
    shown: Names,
}

pub(crate) fn change(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Create(name, file) => drop(names.insert(name.clone(), *file)),
        NameChange::Rename(from, to, file) => {
            if names.get(from) == Some(file) {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
        NameChange::Remove(name) => drop(names.remove(name)),
    }
}

impl FileLayers {
    fn pend(&mut self, pending: Pending) {
        self.pending.push(pending);
    }

    fn settle(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            pending.apply_whole(&mut self.durable);
        }
    }

    fn cached(&self) -> Content {
        let mut content = self.durable.clone();
        self.pending.iter().for_each(|pending| pending.apply_whole(&mut content));
        content
    }

    /// The durable bytes with a random part of the later writes.
    fn survive(&self, rng: &mut SmallRng) -> Content {
        let mut content = self.durable.clone();
        if self.pending.is_empty() {
            return content;
        }
        let luck = Luck::any(rng, self.pending.len());
        for (index, pending) in self.pending.iter().enumerate() {
            pending.apply_part(&mut content, &luck, index, rng);
        }
        content
    }
}

/// Which writes to one file survive one crash: by sector or whole, with a probability.
struct Luck {
    /// The probability, in eighths.
    share: u32,
    is_torn: bool,
    /// Writes outside of this range of indices are lost: it is a prefix, a suffix, one write, or all.
    from: usize,
    to: usize,
}

impl Luck {
    fn any(rng: &mut SmallRng, count: usize) -> Luck {
        let one = rng.random_range(0..count);
        let (from, to) = match rng.random_range(0..8u32) {
            0 => (0, one + 1),
            1 => (one, count),
            2 => (one, one + 1),
            _ => (0, count),
        };
        Luck { share: rng.random_range(0..=8), is_torn: rng.random_bool(0.6), from, to }
    }

    fn reaches(&self, index: usize, rng: &mut SmallRng) -> bool {
        (self.from..self.to).contains(&index) && (self.share == 8 || rng.random_range(0..8) < self.share)
    }
}

impl Pending {
    fn apply_whole(&self, content: &mut Content) {
        match self {
            Pending::Write(offset, bytes) => content.write(*offset as usize, bytes),
            Pending::Length(len) => content.set_len(*len as usize),
        }
    }

    fn apply_part(&self, content: &mut Content, luck: &Luck, index: usize, rng: &mut SmallRng) {
        match self {
            Pending::Length(len) => {
                if luck.reaches(index, rng) {
                    content.set_len(*len as usize);
                }
            }
            Pending::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                if end > content.len() && rng.random_bool(0.3) {
                    content.set_len(end);
                }
                if !luck.is_torn {
                    if luck.reaches(index, rng) {
                        content.write(*offset as usize, bytes);
                    }
                    return;
                }
                for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                    if luck.reaches(index, rng) {
                        content.write(*offset as usize + number * SECTOR, sector);
                    }
                }
            }
        }
    }
}

impl Platter {
    /// A disk that holds these files, all durable.
    pub(crate) fn of(files: BTreeMap<String, Content>) -> Platter {
        let mut platter = Platter::default();
        for (name, durable) in files {
            platter.names.insert(name.clone(), platter.files.len());
            platter.shown.insert(name, platter.files.len());
            platter.files.push(FileLayers { durable, pending: Vec::new() });
        }
        platter
    }

    /// The number of files that were ever created.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// The directory and the content of all files as programs see them.
    pub(crate) fn cached(&self) -> (Names, Vec<Content>) {
        (self.shown.clone(), self.files.iter().map(FileLayers::cached).collect())
    }

    /// The files as programs see them, by name.
    pub(crate) fn content(&self) -> BTreeMap<String, Content> {
        let (names, mut files) = self.cached();
        names.into_iter().map(|(name, file)| (name, std::mem::take(&mut files[file]))).collect()
    }

    /// Applies one event.
    pub(crate) fn advance(&mut self, event: &Event) {
        match event {
            Event::Name(changed) => {
                if let NameChange::Create(_, file) = changed {
                    self.files.resize_with((*file + 1).max(self.files.len()), FileLayers::default);
                }
                change(&mut self.shown, changed);
                self.pending_names.push(changed.clone());
            }
            Event::Write { file, offset, bytes, is_direct: false } => {
                self.files[*file].pend(Pending::Write(*offset, Arc::clone(bytes)));
            }
            Event::Write { file, offset, bytes, is_direct: true } => {
                self.files[*file].durable.write(*offset as usize, bytes);
            }
            Event::Length(file, len) => self.files[*file].pend(Pending::Length(*len)),
            Event::Sync(file) => self.files[*file].settle(),
            Event::SyncFailed(file, seed) => {
                let mut rng = <SmallRng as rand::SeedableRng>::seed_from_u64(*seed);
                let survived = self.files[*file].survive(&mut rng);
                self.files[*file] = FileLayers { durable: survived, pending: Vec::new() };
            }
            Event::SyncNames => {
                for pending in std::mem::take(&mut self.pending_names) {
                    change(&mut self.names, &pending);
                }
            }
            Event::SyncNamesFailed(seed) => {
                let mut rng = <SmallRng as rand::SeedableRng>::seed_from_u64(*seed);
                self.names = self.surviving_names(&mut rng);
                self.pending_names.clear();
            }
            Event::Note(_) => {}
        }
    }

    /// What is left after a power failure during `under_way`. All of it is durable.
    pub(crate) fn crash(&self, under_way: Option<&Event>, rng: &mut SmallRng) -> Platter {
        let with_it;
        let state = match under_way {
            Some(Event::Write { file, offset, bytes, .. }) => {
                let mut state = self.clone();
                state.files[*file].pend(Pending::Write(*offset, Arc::clone(bytes)));
                with_it = state;
                &with_it
            }
            Some(event @ (Event::Name(_) | Event::Length(..))) => {
                let mut state = self.clone();
                state.advance(event);
                with_it = state;
                &with_it
            }
            _ => self,
        };
        let names = state.surviving_names(rng);
        Platter::of(names.into_iter().map(|(name, file)| (name, state.files[file].survive(rng))).collect())
    }

    fn surviving_names(&self, rng: &mut SmallRng) -> Names {
        let mut names = self.names.clone();
        let reached = rng.random_range(0..=self.pending_names.len());
        let is_journaled = rng.random_bool(0.75);
        for (index, pending) in self.pending_names.iter().enumerate() {
            if if is_journaled { index < reached } else { rng.random_bool(0.5) } {
                change(&mut names, pending);
            }
        }
        names
    }
}
