//! Meta page: the root of one state of the file.
//!
//! ```text
//!  0        24      32       36      40        48          80                88             92              96
//!  +--------+-------+--------+-------+---------+-----------+-----------------+--------------+---------------+----
//!  | header | magic | format | page  | version | log start | catalog entries | catalog root | catalog level | …
//!  |        | 8 B   | u32    | u32   | u64     | 32 B      | u64             | u32          | u32           |
//!  +--------+-------+--------+-------+---------+-----------+-----------------+--------------+---------------+----
//!  96           100               104           624       632
//!  +------------+-----------------+----- … -----+---------+------+
//!  | page count | directory count | directories | reaches | zero |
//!  | u32        | u32             | u32 x 130   | u64     |      |
//!  +------------+-----------------+----- … -----+---------+------+
//! ```
//!
//! There are two, pages 0 and 1. A checkpoint overwrites the one not in use, after everything that it reaches is
//! synced. So a torn meta page loses nothing: the other one is intact. The header's sequence shows which is newer.

use super::page::{
    self, BODY_BYTES, Damage, HEADER_BYTES, Header, Kind, META_PAGES, PAGE_BYTES, Page, PageNo, get_u32,
};
use super::root::Root;
use crate::base::key::Version;
use crate::log::{InTree, LogPosition};

/// Pages covered by one bits page of the space map (`tree/build/space_map.rs`).
pub(in crate::tree) const CHUNK_PAGES: u32 = (BODY_BYTES * 8) as u32;
/// Chunks referenced by one directory page.
pub(in crate::tree) const DIRECTORY_CHUNKS: usize = BODY_BYTES / 4;
/// Number of directories that covers all page numbers.
const DIRECTORIES_MAX: usize = (u32::MAX as usize / CHUNK_PAGES as usize + 1).div_ceil(DIRECTORY_CHUNKS);
const MAGIC: [u8; 8] = *b"SAPSTREE";
/// Version of the layout of all pages of the file.
pub(in crate::tree) const FORMAT_VERSION: u32 = 2;
/// The oldest version that can be read: without `reaches`.
const FORMAT_VERSION_OLDEST: u32 = 1;

const MAGIC_AT: usize = HEADER_BYTES;
const FORMAT_AT: usize = MAGIC_AT + 8;
const PAGE_BYTES_AT: usize = FORMAT_AT + 4;
const VERSION_AT: usize = PAGE_BYTES_AT + 4;
const LOG_START_AT: usize = VERSION_AT + 8;
const CATALOG_ENTRIES_AT: usize = LOG_START_AT + LogPosition::ENCODED_BYTES;
const CATALOG_ROOT_AT: usize = CATALOG_ENTRIES_AT + 8;
const CATALOG_LEVEL_AT: usize = CATALOG_ROOT_AT + 4;
const PAGE_COUNT_AT: usize = CATALOG_LEVEL_AT + 4;
const DIRECTORY_COUNT_AT: usize = PAGE_COUNT_AT + 4;
const DIRECTORIES_AT: usize = DIRECTORY_COUNT_AT + 4;
const REACHES_AT: usize = DIRECTORIES_AT + 4 * DIRECTORIES_MAX;
const _: () = assert!(DIRECTORIES_AT == 104 && REACHES_AT == 624 && REACHES_AT + 8 <= PAGE_BYTES);

/// No file reaches this by counting checkpoints.
const SEQUENCE_MAX: u64 = u64::MAX / 2;

/// One state of the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The format in which it was read or will be written: a rewritten page stays the same byte by byte.
    pub(in crate::tree) format: u32,
    /// Number of the checkpoint; rises with each.
    pub sequence: u64,
    /// The last version whose changes the trees contain completely.
    pub version: Version,
    /// The last version of which they may contain a part, while a checkpoint is between two of its pieces. Without the
    /// log up to there the trees are not a consistent state of the data.
    pub reaches: Version,
    /// Where replay starts.
    pub log_start: LogPosition,
    /// Pages of the file.
    pub page_count: u32,
    /// Root of the catalog.
    pub(in crate::tree) catalog: Root,
    /// The directory pages of the space map.
    pub(in crate::tree) directories: Vec<PageNo>,
}

impl Meta {
    /// The state of a new file.
    pub(in crate::tree) fn empty(version: Version, log_start: LogPosition) -> Meta {
        Meta {
            format: FORMAT_VERSION,
            sequence: 1,
            version,
            reaches: version,
            log_start,
            page_count: META_PAGES,
            catalog: Root::default(),
            directories: Vec::new(),
        }
    }

    /// The part of the log that the trees contain.
    pub(crate) fn in_tree(&self) -> InTree {
        InTree { start: self.log_start, version: self.version.0, reaches: self.reaches.0 }
    }

    /// Whether it reaches the same pages.
    pub(crate) fn is_same_state(&self, other: &Meta) -> bool {
        self.catalog == other.catalog && self.directories == other.directories
    }

    /// The page, for its place 0 or 1.
    pub(in crate::tree) fn encode(&self, place: PageNo) -> Page {
        let mut page = [0; PAGE_BYTES];
        Header::plain(Kind::Meta, place, self.sequence).write(&mut page);
        page[MAGIC_AT..FORMAT_AT].copy_from_slice(&MAGIC);
        page::put_u32(&mut page, FORMAT_AT, self.format);
        page::put_u32(&mut page, PAGE_BYTES_AT, PAGE_BYTES as u32);
        page::put_u64(&mut page, VERSION_AT, self.version.0);
        page[LOG_START_AT..CATALOG_ENTRIES_AT].copy_from_slice(&self.log_start.encode());
        page::put_u64(&mut page, CATALOG_ENTRIES_AT, self.catalog.entries);
        page::put_u32(&mut page, CATALOG_ROOT_AT, self.catalog.page.0);
        page::put_u32(&mut page, CATALOG_LEVEL_AT, u32::from(self.catalog.level));
        page::put_u32(&mut page, PAGE_COUNT_AT, self.page_count);
        page::put_u32(&mut page, DIRECTORY_COUNT_AT, self.directories.len() as u32);
        for (index, directory) in self.directories.iter().enumerate() {
            page::put_u32(&mut page, DIRECTORIES_AT + 4 * index, directory.0);
        }
        if self.format > FORMAT_VERSION_OLDEST {
            page::put_u64(&mut page, REACHES_AT, self.reaches.0);
        }
        page::seal(&mut page);
        page
    }

    /// Decodes a meta page, if it is intact.
    pub(in crate::tree) fn decode(page: &Page, place: PageNo) -> Result<Meta, MetaFault> {
        if page[MAGIC_AT..FORMAT_AT] != MAGIC {
            return Err(MetaFault::Damage(Damage("no magic number")));
        }
        page::check(page, place).map_err(MetaFault::Damage)?;
        let format = get_u32(page, FORMAT_AT);
        if !(FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&format)
            || get_u32(page, PAGE_BYTES_AT) != PAGE_BYTES as u32
        {
            return Err(MetaFault::Format(format));
        }
        let get_u64 = |at: usize| u64::from(get_u32(page, at)) | u64::from(get_u32(page, at + 4)) << 32;
        let version = get_u64(VERSION_AT);
        let reaches = if format > FORMAT_VERSION_OLDEST { get_u64(REACHES_AT) } else { version };
        let directory_count = get_u32(page, DIRECTORY_COUNT_AT) as usize;
        let level = u8::try_from(get_u32(page, CATALOG_LEVEL_AT)).unwrap_or(u8::MAX);
        if page::sequence(page) > SEQUENCE_MAX
            || page::kind_byte(page) != Kind::Meta as u8
            || directory_count > DIRECTORIES_MAX
            || level > page::LEVEL_MAX
            || reaches < version
        {
            return Err(MetaFault::Damage(Damage("meta page with fields out of bounds")));
        }
        Ok(Meta {
            format,
            sequence: page::sequence(page),
            version: Version(version),
            reaches: Version(reaches),
            log_start: LogPosition::decode(&std::array::from_fn(|i| page[LOG_START_AT + i])),
            page_count: get_u32(page, PAGE_COUNT_AT),
            catalog: Root { page: PageNo(get_u32(page, CATALOG_ROOT_AT)), level, entries: get_u64(CATALOG_ENTRIES_AT) },
            directories: (0..directory_count).map(|i| PageNo(get_u32(page, DIRECTORIES_AT + 4 * i))).collect(),
        })
    }
}

/// Why a meta page cannot be used.
#[derive(Clone, Copy, Debug)]
pub(in crate::tree) enum MetaFault {
    Damage(Damage),
    Format(u32),
}
