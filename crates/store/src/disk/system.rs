//! The real disk: files of one directory, with Linux system calls.
//!
//! The directory is opened once, and each name is looked up from its descriptor. So a store whose folder is moved goes on
//! in the moved folder, and a folder that takes the old path is never touched.

#![allow(unsafe_code)] // sync_file_range, prctl and signal have no safe wrapper in the libraries used here.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::ring::Ring;
use super::{Access, DirectoryLock, Disk, DiskFile, HeldLock, Map, ReadQueue, ScratchFile};
use crate::base::sync::{Instant, thread};

/// Mode of new files, less the process's umask.
const FILE_MODE: Mode = Mode::from_bits_retain(0o666);
/// How long a lock that is held is tried again, and the pause between two attempts.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// Unit of `st_blocks`: stat(3type).
const STAT_BLOCK_BYTES: u64 = 512;
/// The directory itself, looked up from its descriptor.
const ITSELF: &str = ".";

/// A directory of the file system. It is the same directory after it was moved: see the module's text.
#[derive(Debug)]
pub struct SystemDisk {
    directory: OwnedFd,
}

impl SystemDisk {
    /// Opens a directory, and creates it (with its parents) if missing.
    pub fn new(directory: &Path) -> io::Result<SystemDisk> {
        make_folders(directory, |folder| File::open(folder)?.sync_all())?;
        ignore_size_signal();
        let named = if directory.as_os_str().is_empty() { Path::new(ITSELF) } else { directory };
        Ok(SystemDisk {
            directory: fs::open(named, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?,
        })
    }

    /// Opens a file of the directory.
    fn file(&self, name: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        Ok(File::from(fs::openat(&self.directory, name, flags | OFlags::CLOEXEC, mode)?))
    }

    /// Returns an error for a name that is no regular file: opening a fifo would wait for a writer.
    fn refuse_irregular(&self, name: &str) -> io::Result<()> {
        match fs::statat(&self.directory, name, AtFlags::empty()) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
            }
            _ => Ok(()),
        }
    }
}

/// Creates a folder with its missing parents, durably: the name of each new folder is synced in its parent.
fn make_folders(folder: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.is_dir();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    for folder in missing.into_iter().rev() {
        match std::fs::create_dir(folder) {
            // Another process was faster, and may not have synced yet; or the path ends with `..`.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes a write beyond the process's file size limit return an error instead of ending the process: setrlimit(2), "RLIMIT_FSIZE".
fn ignore_size_signal() {
    static IGNORED: Once = Once::new();
    IGNORED.call_once(|| {
        // SAFETY: no handler is installed: the signal is ignored.
        let _before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    });
}

impl Disk for SystemDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.refuse_irregular(name)?;
        let mut flags = if access == Access::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
        if create {
            flags |= OFlags::CREATE;
        }
        if access == Access::Direct {
            flags |= OFlags::DIRECT | OFlags::DSYNC;
        }
        Ok(Arc::new(SystemFile { file: self.file(name, flags, FILE_MODE)? }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.directory)? {
            // A name that is not UTF-8 is not the store's.
            if let Ok(name) = entry?.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_string());
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        // By a descriptor of this call: the kernel reports an error once for each, and two threads may sync at a time.
        self.file(ITSELF, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?.sync_all()
    }

    fn scratch(&self, bytes: u64) -> io::Result<Option<ScratchFile>> {
        let file = match self.file(ITSELF, OFlags::RDWR | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
            // An old kernel, or a file system without such files (open(2), "O_TMPFILE").
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
                return Ok(None);
            }
            file => SystemFile { file: file? },
        };
        file.allocate(0, bytes)?;
        Ok(Some(ScratchFile { file: file.file, bytes: bytes as usize }))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let found = fs::fstatvfs(&self.directory)?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.refuse_irregular(name)?;
        let file = self.file(name, OFlags::WRONLY | OFlags::CREATE, FILE_MODE)?;
        hold(&file)?;
        Ok(Box::new(file))
    }

    fn lock_file(&self, name: &str) -> io::Result<Option<DirectoryLock>> {
        self.refuse_irregular(name)?;
        // Never written through: a read-only descriptor can be locked too, and there may be no permission to write.
        let file = match self.file(name, OFlags::RDONLY, Mode::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        hold(&file)?;
        Ok(Some(Box::new(file)))
    }
}

/// Locks a file against other processes, until its last descriptor is closed: a killed process leaves nothing behind. A process that
/// was just forked holds its parent's locks until it executes its program, so a lock that is held is tried again for
/// [`LOCK_PATIENCE`].
fn hold(file: &File) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

impl HeldLock for File {
    fn has_name(&self) -> io::Result<bool> {
        Ok(fs::fstat(self)?.st_nlink > 0)
    }
}

struct SystemFile {
    file: File,
}

impl DiskFile for SystemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, start: u64, len: u64) -> io::Result<()> {
        let found = fs::fstat(&self.file)?;
        let (size, end) = (found.st_size as u64, start + len);
        // As many blocks as its length has: there are no holes before the end.
        let is_whole = found.st_blocks as u64 * STAT_BLOCK_BYTES >= size;
        let from = if is_whole { start.max(size) } else { start };
        if from >= end {
            return Ok(());
        }
        match retry_on_intr(|| fs::fallocate(&self.file, FallocateFlags::empty(), from, end - from)) {
            // A file system without such a call: fallocate(2), "EOPNOTSUPP". Its holes stay.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if end <= size => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(from.max(size), end - from.max(size)),
            Err(error) => {
                // Space that was allocated beyond the end is given back.
                self.file.set_len(self.len()?)?;
                Err(error.into())
            }
            Ok(()) => Ok(()),
        }
    }

    fn len_max(&self) -> u64 {
        getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: a plain system call on a descriptor that `self.file` keeps open; no memory is passed.
        let result = unsafe { libc::sync_file_range(self.file.as_raw_fd(), start as i64, len as i64, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn has_name(&self) -> io::Result<bool> {
        self.file.has_name()
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        Map::of_file(&self.file, reserve)
    }

    fn read_queue(&self, places: usize, place_bytes: usize) -> io::Result<Box<dyn ReadQueue>> {
        Ok(Box::new(Ring::new(&self.file, places, place_bytes)?))
    }
}

/// Makes sleeps of the calling thread end on time: otherwise the kernel adds up to 50 µs, to wake the processor less
/// often (prctl(2), PR_SET_TIMERSLACK). A failure is ignored.
pub(crate) fn end_sleeps_in_time() {
    #[cfg(not(miri))]
    // SAFETY: a plain system call that sets a number of the calling thread; no memory is passed.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_map_follows_the_file_as_it_grows_and_refuses_what_lies_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let disk = SystemDisk::new(directory.path()).unwrap();
        let file = disk.open("a", true, Access::Buffered).unwrap();
        let map = file.map(1 << 30).unwrap();
        assert_eq!(map.bytes(0, 1), None);
        file.write_all_at(b"hello", 0).unwrap();
        assert_eq!(map.cover().unwrap(), 5);
        assert_eq!(map.bytes(0, 5), Some(&b"hello"[..]));
        assert_eq!(map.bytes(1, 5), None);
        assert_eq!(map.bytes(u64::MAX, 2), None);
        file.write_zeros(5, 1_000_000).unwrap();
        map.cover().unwrap();
        assert_eq!(map.bytes(1_000_004, 1), Some(&[0][..]));
        assert_eq!(map.bytes(0, 5), Some(&b"hello"[..]));
    }

    #[test]
    fn each_folder_that_is_made_is_synced_into_the_one_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let made = |folder: &str| {
            let mut synced = Vec::new();
            let folder = directory.path().join(folder);
            make_folders(&folder, |parent| {
                synced.push(parent.strip_prefix(directory.path()).unwrap().to_path_buf());
                Ok(())
            })
            .unwrap();
            assert!(folder.is_dir());
            synced
        };
        assert_eq!(made("a/b/c"), ["", "a", "a/b"].map(PathBuf::from));
        assert_eq!(made("a/b/d/e/"), ["a/b", "a/b/d"].map(PathBuf::from));
        assert!(made("a/b").is_empty());
        std::fs::write(directory.path().join("file"), b"").unwrap();
        assert!(make_folders(&directory.path().join("file/f"), |_| Ok(())).is_err());
        let refused = make_folders(&directory.path().join("g"), |_| Err(io::ErrorKind::Other.into()));
        assert!(refused.is_err(), "a folder that may not survive a crash is none");
    }
}
