//! The real disk: files of one directory, with Linux system calls.

#![allow(unsafe_code)] // sync_file_range, statvfs and prctl have no safe wrapper in the standard library.

use std::ffi::CString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use super::ring::Ring;
use super::{Access, DirectoryLock, Disk, DiskFile, Map, ReadQueue, ScratchFile};

/// A directory of the file system.
#[derive(Debug)]
pub struct SystemDisk {
    directory: PathBuf,
}

impl SystemDisk {
    /// Opens a directory, and creates it (with its parents) if missing.
    pub fn new(directory: &Path) -> io::Result<SystemDisk> {
        make_folders(directory, |folder| File::open(folder)?.sync_all())?;
        ignore_size_signal();
        Ok(SystemDisk { directory: directory.to_path_buf() })
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

/// Returns an error for a name that is no regular file: opening a fifo would wait for a writer.
fn refuse_irregular(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
        _ => Ok(()),
    }
}

impl Disk for SystemDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        refuse_irregular(&self.directory.join(name))?;
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::ReadOnly).create(create).truncate(false);
        if access == Access::Direct {
            options.custom_flags(libc::O_DIRECT | libc::O_DSYNC);
        }
        Ok(Arc::new(SystemFile { file: options.open(self.directory.join(name))? }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            // A name that is not UTF-8 is not the store's.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn scratch(&self, bytes: u64) -> io::Result<Option<ScratchFile>> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(&self.directory);
        let file = match file {
            // An old kernel, or a file system without such files (open(2), "O_TMPFILE").
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
                return Ok(None);
            }
            file => file?,
        };
        let len = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a plain call on a descriptor that `file` keeps open.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } {
            0 => Ok(Some(ScratchFile { file, bytes: bytes as usize })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let path = CString::new(self.directory.as_os_str().as_bytes())?;
        let mut stat = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `path` ends with a zero byte, and the kernel fills `stat`, which has the size it expects.
        if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above succeeded, so it has written all of the structure.
        let stat = unsafe { stat.assume_init() };
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        refuse_irregular(&self.directory.join(name))?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.directory.join(name))?;
        match file.try_lock() {
            // The kernel releases the lock with the last descriptor: a killed process leaves nothing behind.
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self, name: &str) -> io::Result<Option<DirectoryLock>> {
        refuse_irregular(&self.directory.join(name))?;
        // Never written through: a read-only descriptor can be locked too, and there may be no permission to write.
        let file = match File::open(self.directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
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

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: a plain system call on a descriptor that `self.file` keeps open; no memory is passed.
        let result = unsafe { libc::sync_file_range(self.file.as_raw_fd(), start as i64, len as i64, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

    fn disk() -> (tempfile::TempDir, SystemDisk) {
        let directory = tempfile::tempdir().unwrap();
        let disk = SystemDisk::new(directory.path()).unwrap();
        (directory, disk)
    }

    #[test]
    fn a_map_follows_the_file_as_it_grows_and_refuses_what_lies_beyond() {
        let (_directory, disk) = disk();
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
    fn a_second_lock_of_the_same_directory_is_refused_until_the_first_is_dropped() {
        let (_directory, disk) = disk();
        let lock = disk.lock("lock").unwrap();
        assert_eq!(disk.lock("lock").err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        drop(lock);
        disk.lock("lock").unwrap();
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_refused_and_not_waited_for() {
        let (directory, disk) = disk();
        let path = CString::new(directory.path().join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: a plain call with a path that lives until it returns.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let errors =
            [disk.open("fifo", true, Access::Buffered).err(), disk.lock("fifo").err(), disk.lock_file("fifo").err()];
        for error in errors {
            assert_eq!(error.expect("refused").to_string(), "it is no regular file");
        }
    }

    #[test]
    fn a_file_is_locked_by_itself_and_not_made_for_it() {
        let (directory, disk) = disk();
        assert!(disk.lock_file("tree").unwrap().is_none());
        assert_eq!(disk.list().unwrap(), [""; 0]);
        std::fs::write(directory.path().join("tree"), b"pages").unwrap();
        let lock = disk.lock_file("tree").unwrap();
        assert!(lock.is_some());
        assert_eq!(disk.lock_file("tree").err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        drop(lock);
        assert!(disk.lock_file("tree").unwrap().is_some());
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

    #[test]
    fn reading_past_the_end_is_an_error_not_a_short_buffer() {
        let (_directory, disk) = disk();
        let file = disk.open("a", true, Access::Buffered).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read_exact_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
