//! What the disk alone does, and what a folder takes of it.

#![allow(unsafe_code)] // posix_fadvise and syncfs have no safe wrapper in the standard library.

use crate::engine::Outcome;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes over which the floor's overwrites go round.
const FLOOR_FILE_BYTES: u64 = 16 << 20;
/// Unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;
/// Where /sys/block/DISK/stat has them (the kernel's Documentation/block/stat.rst), in units of 512 bytes too.
const SECTORS_WRITTEN: usize = 6;

/// Overwrites of so many bytes, each followed by fdatasync: the least that a durable commit of as many log bytes must do.
pub(crate) struct Overwrites {
    file: File,
    path: PathBuf,
    content: Vec<u8>,
    place: u64,
}

impl Overwrites {
    /// Makes the file, with all its space written once.
    pub(crate) fn new(folder: &Path, bytes: usize) -> Outcome<Overwrites> {
        let path = folder.join("overwrite");
        let file = File::options().write(true).create(true).truncate(true).open(&path)?;
        for start in (0..FLOOR_FILE_BYTES).step_by(1 << 20) {
            file.write_all_at(&vec![0; 1 << 20], start)?;
        }
        file.sync_all()?;
        Ok(Overwrites { file, path, content: vec![b'x'; bytes], place: 0 })
    }

    /// As many as fit into the time, a second.
    pub(crate) fn rate(&mut self, time: Duration) -> Outcome<f64> {
        let bytes = self.content.len() as u64;
        let mut count = 0;
        let started = Instant::now();
        while started.elapsed() < time {
            self.file.write_all_at(&self.content, self.place)?;
            self.file.sync_data()?;
            count += 1;
            self.place += bytes;
            if self.place + bytes > FLOOR_FILE_BYTES {
                self.place = 0;
            }
        }
        Ok(f64::from(count) / started.elapsed().as_secs_f64())
    }
}

impl Drop for Overwrites {
    fn drop(&mut self) {
        // It lies in a folder that is removed at the end.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Bytes that a database takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// The file or files of the data.
    pub(crate) data: u64,
    /// Logs.
    pub(crate) log: u64,
}

/// Measures a folder.
pub(crate) fn size(folder: &Path) -> Outcome<Size> {
    let mut size = Size::default();
    for path in files(folder)? {
        // Engines delete files while they are being counted.
        let Ok(metadata) = path.metadata() else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_log = name.starts_with("log") || [".log", ".jnl", "-wal", "-shm"].iter().any(|end| name.ends_with(end));
        let taken = metadata.blocks() * BLOCK_BYTES;
        *if is_log { &mut size.log } else { &mut size.data } += taken;
    }
    Ok(size)
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path).unwrap_or_default()) } else { found.push(path) }
    }
    Ok(found)
}

/// Takes a folder's files out of the page cache. Nobody may have them mapped.
pub(crate) fn cool(folder: &Path) -> Outcome<()> {
    for path in files(folder)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        // SAFETY: a plain system call on a descriptor that `file` keeps open; no memory is passed.
        let failed = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if failed != 0 {
            return Err(std::io::Error::from_raw_os_error(failed).into());
        }
    }
    Ok(())
}

/// Bytes written so far to the disk that holds this folder, whoever wrote them: nothing else may run. All that is dirty in
/// the file system is written first.
///
/// Not `write_bytes` of /proc/PID/io: it counts a page of the cache when it becomes dirty, and where the file system keeps
/// large ones, all of it for one byte.
pub(crate) fn bytes_written(folder: &Path) -> Outcome<u64> {
    let file = File::open(folder)?;
    // SAFETY: a plain system call on a descriptor that `file` keeps open; no memory is passed.
    if unsafe { libc::syncfs(file.as_raw_fd()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let device = file.metadata()?.dev();
    let path = format!("/sys/dev/block/{}:{}/stat", libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let sectors = text.split_whitespace().nth(SECTORS_WRITTEN).ok_or("no sectors written in the disk's statistics")?;
    Ok(sectors.parse::<u64>()? * BLOCK_BYTES)
}
