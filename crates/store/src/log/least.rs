//! The minimal log: one short segment without a batch. A tree file beside it is a complete store.

use super::position::LogPosition;
use super::segment::{self, DATA_AT};
use crate::base::error::StoreError;
use crate::disk::{Access, Disk};

/// Room for the empty batch of the first start, and some more. Shorter than any setting allows, so that it is
/// recognized even if the tree file beside it is missing. When it is recycled it gets the configured size.
const BYTES: u64 = 60 << 10;

/// The start of a log of one segment.
pub(crate) const BEGINNING: LogPosition =
    LogPosition { segment: 1, offset: DATA_AT, previous: 0, sequence: 1, epoch: 1 };

/// Writes it; durable with its name after the directory's next sync.
pub(crate) fn create(disk: &dyn Disk) -> Result<(), StoreError> {
    let name = segment::live_name(BEGINNING.segment);
    let write = || -> std::io::Result<()> {
        let file = disk.open(&name, true, Access::Buffered)?;
        file.set_len(0)?;
        file.write_zeros(0, BYTES)?;
        file.write_all_at(&segment::encode_header(BEGINNING.segment, BYTES), 0)?;
        file.sync_data()
    };
    write().map_err(|error| StoreError::io(format!("create {name}"), error))
}

/// Whether the log's first segment is a minimal one, or a truncated one of another store.
pub(crate) fn is_there(disk: &dyn Disk) -> Result<bool, StoreError> {
    let name = segment::live_name(BEGINNING.segment);
    let len = disk.open(&name, false, Access::Buffered).and_then(|file| file.len());
    Ok(len.map_err(|error| StoreError::io(format!("length of {name}"), error))? <= BYTES)
}
