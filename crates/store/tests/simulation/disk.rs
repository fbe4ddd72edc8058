//! The simulated disk: files in memory, every operation recorded, faults at chosen operations.
//!
//! It loses nothing by itself. What a power failure would leave at any place of the record is computed afterwards
//! ([`Platter`]), so one run of the engine yields as many crashes as it has operations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use store::disk::{Access, DIRECT_ALIGN, DirectoryLock, Disk, DiskFile, Map};

use super::beside_engine::thread::{self, ThreadId};
use super::beside_engine::{Instant, point};
use super::content::{Content, Files};
use super::platter::{Event, FileNo, NameChange, Note, Platter, change};

const EIO: i32 = 5;

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The operation fails. A part of a write may have been done; the effect of a sync is unknown.
    Broken,
    /// Every operation that takes space fails with "no space", and so does a sync.
    Full,
    /// A read or a write transfers only a part of the bytes.
    Short,
    /// A read or a write is interrupted.
    Interrupted,
    /// A write succeeds, but the kernel fails to write its pages to the disk, in part or wholly. The next sync of the
    /// file returns the error, in whichever thread; later syncs do not (fsync(2), "ERRORS").
    WriteBack,
    /// When a thread syncs a file that other threads have written too, the write-back of all of them has failed.
    /// Otherwise as [`Fault::WriteBack`].
    Told,
}

/// The operations that fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPlan {
    pub(crate) fault: Fault,
    /// The first operation that fails, counted from 0. For [`Fault::Told`] it is counted among the syncs of what other
    /// threads wrote.
    pub(crate) at: u64,
    /// The number of operations that fail from there on.
    pub(crate) count: u64,
}

impl FaultPlan {
    fn meets(&self, number: u64) -> bool {
        number >= self.at && number - self.at < self.count
    }
}

/// Where the bytes of a file are: in a real file only if it is mapped.
enum Place {
    Memory(Content),
    Mapped(File),
}

/// Write-back errors of one file: how many there were, and whether a sync has returned the last one. Like the kernel's `errseq_t`,
/// an error is returned once by each open file; a file that is opened later returns it only if no sync has returned it before.
#[derive(Clone, Copy, Default)]
struct WriteErrors {
    count: u64,
    is_told: bool,
}

/// The delay with which a sync returns a write-back error: until this many events of other threads, or at most this time.
const TOLD_AFTER_EVENTS: usize = 100;
const TOLD_AFTER: Duration = Duration::from_millis(10);

struct State {
    names: BTreeMap<String, FileNo>,
    files: Vec<Place>,
    record: Vec<Event>,
    operations: u64,
    /// The number of syncs of data that other threads wrote.
    shared_syncs: u64,
    plan: Option<FaultPlan>,
    write_errors: BTreeMap<FileNo, WriteErrors>,
    /// The threads that have written to a file since its last sync.
    unsynced: BTreeMap<FileNo, Vec<ThreadId>>,
    /// The number of operations that failed.
    met: u64,
    /// The length of the record at the first failure, and whether that was a write, which may be there in part.
    first_met: Option<(usize, bool)>,
}

/// Properties of the disk that the store sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Direct writes are possible.
    pub(crate) has_direct: bool,
    /// The free space that it reports; it does not limit writes.
    pub(crate) free_bytes: Option<u64>,
}

/// See the module documentation.
pub(crate) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    manner: Manner,
}

struct SimulatedFile {
    state: Arc<Mutex<State>>,
    file: FileNo,
    is_direct: bool,
    /// The number of the file's write-back errors that this open file has returned, or that occurred before it was opened.
    errors_told: AtomicU64,
}

/// The kind of an operation, which decides whether a fault applies to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Look,
    Read,
    Write,
    TakeSpace,
    Names,
    SyncNames,
    Sync,
    SyncRange,
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

fn error_of(fault: Fault) -> io::Error {
    if fault == Fault::Full { io::ErrorKind::StorageFull.into() } else { broken() }
}

/// A file without a name, on a tmpfs where there is one.
fn unnamed_file() -> io::Result<File> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempfile_in(memory) } else { tempfile::tempfile() }
}

impl Place {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Place::Mapped(file) => file.read_at(buffer, offset),
            Place::Memory(content) => Ok(content.read(offset as usize, buffer)),
        }
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Place::Mapped(file) => file.write_all_at(bytes, offset),
            Place::Memory(content) => {
                content.write(offset as usize, bytes);
                Ok(())
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        match self {
            Place::Mapped(file) => Ok(file.metadata()?.len()),
            Place::Memory(content) => Ok(content.len() as u64),
        }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        match self {
            Place::Mapped(file) => file.set_len(len),
            Place::Memory(content) => {
                content.set_len(len as usize);
                Ok(())
            }
        }
    }
}

impl State {
    /// Counts an operation; returns the fault that applies to it.
    fn count(&mut self, kind: Kind) -> Option<Fault> {
        let number = self.operations;
        self.operations += 1;
        let plan = self.plan?;
        let meets = match plan.fault {
            Fault::Broken => true,
            Fault::Full => matches!(kind, Kind::TakeSpace | Kind::Names | Kind::SyncNames | Kind::Sync),
            Fault::Short | Fault::Interrupted => matches!(kind, Kind::Read | Kind::Write | Kind::TakeSpace),
            Fault::WriteBack => matches!(kind, Kind::Write | Kind::TakeSpace),
            Fault::Told => false,
        };
        let is_met = meets && plan.meets(number);
        if is_met && self.first_met.is_none() {
            self.first_met = Some((self.record.len(), matches!(kind, Kind::Write | Kind::TakeSpace)));
        }
        self.met += u64::from(is_met);
        is_met.then_some(plan.fault)
    }

    fn note_writer(&mut self, file: FileNo) {
        let (writers, thread) = (self.unsynced.entry(file).or_default(), thread::current().id());
        if !writers.contains(&thread) {
            writers.push(thread);
        }
    }

    /// Counts a sync of data that other threads wrote; returns whether it must fail.
    fn meets_shared_sync(&mut self, file: FileNo) -> bool {
        let thread = thread::current().id();
        if self.unsynced.get(&file).is_none_or(|writers| writers.iter().all(|writer| *writer == thread)) {
            return false;
        }
        let number = self.shared_syncs;
        self.shared_syncs += 1;
        let is_met = self.plan.is_some_and(|plan| plan.fault == Fault::Told && plan.meets(number));
        self.met += u64::from(is_met);
        is_met
    }

    fn fail_to_write(&mut self, file: FileNo) {
        let errors = self.write_errors.entry(file).or_default();
        *errors = WriteErrors { count: errors.count + 1, is_told: false };
    }

    /// The same for a sync, which may also return an earlier write-back error. The second value is whether it does.
    fn refuse_sync(&mut self, kind: Kind, file: &SimulatedFile) -> (io::Result<()>, bool) {
        let refused = self.refuse(kind);
        if self.meets_shared_sync(file.file) {
            self.fail_to_write(file.file);
        }
        let errors = self.write_errors.entry(file.file).or_default();
        let is_told = file.errors_told.swap(errors.count, Ordering::Relaxed) < errors.count;
        errors.is_told |= is_told;
        if is_told { (Err(broken()), true) } else { (refused, false) }
    }

    /// The same for an operation that returns the error of its own fault.
    fn refuse(&mut self, kind: Kind) -> io::Result<()> {
        match self.count(kind) {
            None | Some(Fault::WriteBack | Fault::Told) => Ok(()),
            Some(fault) => Err(error_of(fault)),
        }
    }

    fn rename_as(&mut self, changed: NameChange) {
        change(&mut self.names, &changed);
        self.record.push(Event::Name(changed));
    }
}

impl SimulatedDisk {
    /// Starts with the content of a platter: after a power failure, or after a kill, where a part of it is not durable.
    pub(crate) fn start(platter: &Platter, manner: Manner, plan: Option<FaultPlan>) -> SimulatedDisk {
        let (names, files) = platter.cached();
        let files = files.into_iter().map(Place::Memory).collect();
        let state = State {
            names,
            files,
            record: Vec::new(),
            operations: 0,
            shared_syncs: 0,
            plan,
            write_errors: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            met: 0,
            first_met: None,
        };
        SimulatedDisk { state: Arc::new(Mutex::new(state)), manner }
    }

    /// A disk with these durable files, whose power fails at this operation.
    pub(crate) fn powered(files: &Files, operations: u64) -> SimulatedDisk {
        let manner = Manner { has_direct: false, free_bytes: None };
        let plan = FaultPlan { fault: Fault::Broken, at: operations, count: u64::MAX };
        SimulatedDisk::start(&Platter::of(files.clone()), manner, Some(plan))
    }

    /// The files that are left after the power failure, which began as `files`. Without a failure so far the power fails now.
    pub(crate) fn after_power_failure(&self, files: &Files, rng: &mut SmallRng) -> Files {
        let mut platter = Platter::of(files.clone());
        let state = self.state.lock().unwrap();
        let (end, is_write) = state.first_met.unwrap_or((state.record.len(), false));
        state.record[..end].iter().for_each(|event| platter.advance(event));
        let under_way = state.record.get(end).filter(|_| is_write);
        platter.crash(under_way, rng).content()
    }

    /// Adds a note to the record.
    pub(crate) fn note(&self, note: Note) {
        self.state.lock().unwrap().record.push(Event::Note(note));
    }

    /// Takes the record so far.
    pub(crate) fn take_record(&self) -> Vec<Event> {
        std::mem::take(&mut self.state.lock().unwrap().record)
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state.lock().unwrap().operations
    }

    /// Whether the fault has had an operation that it could apply to.
    pub(crate) fn has_reached(&self, plan: &FaultPlan) -> bool {
        let state = self.state.lock().unwrap();
        let passed = if plan.fault == Fault::Told { state.shared_syncs } else { state.operations };
        passed > plan.at
    }

    /// The number of operations to which the fault has applied.
    pub(crate) fn met(&self) -> u64 {
        self.state.lock().unwrap().met
    }

    /// The length of the record at the first failure, and whether that was a write.
    pub(crate) fn first_met(&self) -> Option<(usize, bool)> {
        self.state.lock().unwrap().first_met
    }

    /// The free space that it reports.
    pub(crate) fn free(&self) -> Option<u64> {
        self.manner.free_bytes
    }

    /// Replaces the planned fault.
    pub(crate) fn set_plan(&self, plan: Option<FaultPlan>) {
        self.state.lock().unwrap().plan = plan;
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        point();
        if access == Access::Direct && !self.manner.has_direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut state = self.state.lock().unwrap();
        let found = state.names.get(name).copied();
        state.refuse(if found.is_none() && create { Kind::Names } else { Kind::Look })?;
        let file = match found {
            Some(file) => file,
            None if create => {
                let file = state.files.len();
                state.files.push(Place::Memory(Content::default()));
                state.rename_as(NameChange::Create(name.to_string(), file));
                file
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let is_direct = access == Access::Direct;
        let errors = state.write_errors.get(&file).copied().unwrap_or_default();
        let errors_told = errors.count - u64::from(errors.count > 0 && !errors.is_told);
        Ok(Arc::new(SimulatedFile { state: Arc::clone(&self.state), file, is_direct, errors_told: errors_told.into() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        point();
        let mut state = self.state.lock().unwrap();
        state.refuse(Kind::Look)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        // Removing needs no space.
        state.refuse(Kind::Look)?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename_as(NameChange::Remove(name.to_string()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        state.refuse(Kind::Names)?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.rename_as(NameChange::Rename(from.to_string(), to.to_string(), file));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        let synced = state.refuse(Kind::SyncNames);
        let seed = state.operations;
        state.record.push(if synced.is_ok() { Event::SyncNames } else { Event::SyncNamesFailed(seed) });
        synced
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(self.manner.free_bytes)
    }

    fn lock(&self, _name: &str) -> io::Result<DirectoryLock> {
        self.state.lock().unwrap().refuse(Kind::Look)?;
        Ok(Box::new(()))
    }
}

impl SimulatedFile {
    fn sync(&self, kind: Kind) -> io::Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        let (synced, is_told) = state.refuse_sync(kind, self);
        if synced.is_err() {
            // A failed write-back marks the pages clean, also those of a range.
            let seed = state.operations;
            state.record.push(Event::SyncFailed(self.file, seed));
        } else if kind == Kind::Sync {
            state.record.push(Event::Sync(self.file));
        }
        if synced.is_err() || kind == Kind::Sync {
            state.unsynced.remove(&self.file);
        }
        let recorded = state.record.len();
        drop(state);
        // Only this thread has received the error. Until it reacts, syncs of other threads succeed.
        let began = Instant::now();
        while is_told && began.elapsed() < TOLD_AFTER {
            let now = self.state.lock().unwrap().record.len();
            if now < recorded || now - recorded > TOLD_AFTER_EVENTS {
                break;
            }
            thread::sleep(Duration::from_micros(100));
        }
        synced
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        point();
        let mut state = self.state.lock().unwrap();
        let wanted = buffer.len();
        let wanted = match state.count(Kind::Read) {
            None | Some(Fault::WriteBack | Fault::Told) => wanted,
            Some(Fault::Short) => wanted.div_ceil(2),
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(_) => return Err(broken()),
        };
        state.files[self.file].read_at(&mut buffer[..wanted], offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        point();
        if self.is_direct {
            let address = bytes.as_ptr().align_offset(DIRECT_ALIGN);
            assert_eq!((bytes.len() % DIRECT_ALIGN, offset % DIRECT_ALIGN as u64, address), (0, 0, 0));
        }
        let mut state = self.state.lock().unwrap();
        let grows = offset + bytes.len() as u64 > state.files[self.file].len()?;
        let mut fault = state.count(if grows { Kind::TakeSpace } else { Kind::Write });
        if fault == Some(Fault::WriteBack) {
            fault = None;
            // A direct write needs no write-back.
            if !self.is_direct {
                state.fail_to_write(self.file);
            }
        }
        let part = (bytes.len() / 2).next_multiple_of(DIRECT_ALIGN).min(bytes.len());
        let done = match fault {
            None => bytes,
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(_) => &bytes[..part],
        };
        state.files[self.file].write_at(done, offset)?;
        let (file, is_direct) = (self.file, self.is_direct && matches!(fault, None | Some(Fault::Short)));
        if !is_direct {
            state.note_writer(file);
        }
        state.record.push(Event::Write { file, offset, bytes: done.into(), is_direct });
        match fault {
            Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Broken) => Err(broken()),
            _ => Ok(done.len()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.state.lock().unwrap();
        state.refuse(Kind::Look)?;
        state.files[self.file].len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        let grows = len > state.files[self.file].len()?;
        state.refuse(if grows { Kind::TakeSpace } else { Kind::Look })?;
        state.files[self.file].set_len(len)?;
        state.record.push(Event::Length(self.file, len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Kind::Sync)
    }

    fn sync_range(&self, _start: u64, _len: u64) -> io::Result<()> {
        self.sync(Kind::SyncRange)
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        let mut state = self.state.lock().unwrap();
        state.refuse(Kind::Look)?;
        if let Place::Memory(content) = &state.files[self.file] {
            let file = unnamed_file()?;
            file.set_len(content.len() as u64)?;
            content.written().try_for_each(|(offset, bytes)| file.write_all_at(bytes, offset))?;
            state.files[self.file] = Place::Mapped(file);
        }
        match &state.files[self.file] {
            Place::Mapped(file) => Map::of_file(file, reserve),
            Place::Memory(_) => Err(broken()),
        }
    }
}
