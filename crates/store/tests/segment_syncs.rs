//! A sync that fails while a segment of the log is prepared: the kernel then considers the written pages clean, and
//! what is on the disk is unknown. The retry must write them again.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Access, Disk, DiskFile, SystemDisk};
use store::{Store, StoreOptions, Tx};

const SEGMENT_BYTES: u64 = 64 * 1024;
/// Time that the preparing thread may take for one retry.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file of the one failing sync, and what followed.
#[derive(Default)]
struct Attempt {
    /// The file of that sync, by the name under which it was opened.
    name: Option<String>,
    /// Start and end of each write to it since, up to the next sync.
    written: Vec<(u64, u64)>,
    is_synced: bool,
    /// Its removal has failed too: once.
    is_kept: bool,
}

/// The first sync of a file of this ending and length fails, and the first removal of that file.
struct OneSyncFails {
    ending: &'static str,
    len: u64,
    but: &'static str,
    attempt: Mutex<Attempt>,
}

impl Hooks for OneSyncFails {
    fn open(&self, _name: &str, access: Access) -> io::Result<()> {
        if access == Access::Direct { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
    }
    fn remove(&self, disk: &SystemDisk, name: &str) -> io::Result<()> {
        let mut attempt = self.attempt.lock().unwrap();
        if attempt.name.as_deref() == Some(name) && !attempt.is_kept {
            attempt.is_kept = true;
            return Err(io::Error::from_raw_os_error(5));
        }
        disk.remove(name)
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut attempt = self.attempt.lock().unwrap();
        if attempt.name.as_deref() == Some(name) && !attempt.is_synced {
            attempt.written.push((offset, offset + bytes.len() as u64));
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        let mut attempt = self.attempt.lock().unwrap();
        if attempt.name.is_none() && name.ends_with(self.ending) && name != self.but && file.len()? == self.len {
            attempt.name = Some(name.to_string());
            return Err(io::Error::from_raw_os_error(5));
        }
        if attempt.name.as_deref() == Some(name) {
            attempt.is_synced = true;
        }
        file.sync_data()
    }
}

fn options(segment_bytes: u64) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = segment_bytes;
    options.map_bytes = 1 << 28;
    options
}

/// The writes between the failed sync of a file with this ending and length, in `directory`, and its next sync.
fn written_again(directory: &Path, ending: &'static str, but: &'static str, len: u64) -> Vec<(u64, u64)> {
    let hooks = Arc::new(OneSyncFails { ending, len, but, attempt: Mutex::default() });
    let disk: Arc<dyn Disk> = Arc::new(HookedDisk::new(directory, &hooks));
    let (_store, _) = Store::open_on(disk, options(len)).unwrap();
    let began = Instant::now();
    loop {
        let mut attempt = hooks.attempt.lock().unwrap();
        if attempt.is_synced {
            return std::mem::take(&mut attempt.written);
        }
        drop(attempt);
        assert!(began.elapsed() < PATIENCE, "it was not tried again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_new_segment_is_written_again_from_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = written_again(directory.path(), ".new", "0000000001.new", SEGMENT_BYTES);
    written.sort_unstable();
    let end = written.iter().fold(0, |end, (from, to)| if *from <= end { end.max(*to) } else { end });
    assert_eq!(end, SEGMENT_BYTES, "{written:?}");
}

#[test]
fn a_recycled_segment_that_grows_gets_its_length_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options(SEGMENT_BYTES)).unwrap();
    let tree = store.tree("t").unwrap();
    for number in 0..100_u32 {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, &number.to_be_bytes(), &[7; 1000]);
            Ok(())
        };
        store.commit(change).unwrap();
    }
    store.checkpoint().unwrap();
    drop(store);
    let written = written_again(directory.path(), ".log", "", 2 * SEGMENT_BYTES);
    assert!(written.iter().any(|(_, end)| *end == 2 * SEGMENT_BYTES), "{written:?}");
    assert!(written.iter().any(|(start, _)| *start == 0), "{written:?}");
}
