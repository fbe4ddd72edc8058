//! A tree file in a folder, for the tests that use one without a store.

use store::Version;
use store::disk::SystemDisk;
use store::log::LogPosition;
use store::tree::{Pace, TreeFile};

pub(crate) const NAME: &str = "trees";

/// Creates it if there is none.
pub(crate) fn open(directory: &tempfile::TempDir) -> TreeFile {
    let disk = SystemDisk::new(directory.path()).unwrap();
    if !directory.path().join(NAME).exists() {
        TreeFile::create(&disk, NAME, Version(0), LogPosition::default()).unwrap();
    }
    TreeFile::open(&disk, NAME, 1 << 32).unwrap().choose(0).unwrap()
}

/// A pace without limits.
pub(crate) fn no_pace() -> Pace {
    Box::new(|_, _, _| Ok(()))
}
