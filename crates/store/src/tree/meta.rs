//! Meta page: where everything begins.
//!
//! ```text
//!  0        24      32       36      40        48          80                88             92              96
//!  +--------+-------+--------+-------+---------+-----------+-----------------+--------------+---------------+----
//!  | header | magic | format | page  | version | log start | catalog entries | catalog root | catalog level | …
//!  |        | 8 B   | u32    | u32   | u64     | 32 B      | u64             | u32          | u32           |
//!  +--------+-------+--------+-------+---------+-----------+-----------------+--------------+---------------+----
//!  96           100               104
//!  +------------+-----------------+----- … -----+------+
//!  | page count | directory count | directories | zero |
//!  | u32        | u32             | u32 x count |      |
//!  +------------+-----------------+----- … -----+------+
//! ```
//!
//! Two of them, pages 0 and 1. A checkpoint overwrites the one that is not in use, after everything it reaches is synced, so a
//! torn meta page loses nothing: the other one is whole. The header's sequence tells which is newer.

use super::page::{self, Damage, HEADER_BYTES, Header, Kind, META_PAGES, PAGE_BYTES, Page, PageNo, get_u32};
use super::root::Root;
use super::space_map::DIRECTORIES_MAX;
use crate::Version;
use crate::log::LogPosition;

const MAGIC: [u8; 8] = *b"SAPSTREE";
/// Version of the layout of all pages of the file.
pub(super) const FORMAT_VERSION: u32 = 1;

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
const _: () = assert!(DIRECTORIES_AT == 104 && DIRECTORIES_AT + 4 * DIRECTORIES_MAX <= PAGE_BYTES);

/// No file gets there by counting checkpoints.
const SEQUENCE_MAX: u64 = u64::MAX / 2;

/// One state of the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Number of the checkpoint: rises with each.
    pub sequence: u64,
    /// The last commit that the trees contain.
    pub version: Version,
    /// Where replay starts.
    pub log_start: LogPosition,
    /// Pages of the file.
    pub page_count: u32,
    /// The tree of the trees' roots.
    pub(super) catalog: Root,
    /// The pages that say where the space map lies.
    pub(super) directories: Vec<PageNo>,
}

impl Meta {
    /// The state of a new file.
    pub(super) fn empty(version: Version, log_start: LogPosition) -> Meta {
        Meta {
            sequence: 1,
            version,
            log_start,
            page_count: META_PAGES,
            catalog: Root::default(),
            directories: Vec::new(),
        }
    }

    /// Whether it reaches the same pages.
    pub(crate) fn is_same_state(&self, other: &Meta) -> bool {
        self.catalog == other.catalog && self.directories == other.directories
    }

    /// The page, for its place 0 or 1.
    pub(super) fn encode(&self, place: PageNo) -> Page {
        let mut page = [0; PAGE_BYTES];
        Header::plain(Kind::Meta, place, self.sequence).write(&mut page);
        page[MAGIC_AT..FORMAT_AT].copy_from_slice(&MAGIC);
        page::put_u32(&mut page, FORMAT_AT, FORMAT_VERSION);
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
        page::seal(&mut page);
        page
    }

    /// What a meta page says, if it is whole.
    pub(super) fn decode(page: &Page, place: PageNo) -> Result<Meta, MetaFault> {
        if page[MAGIC_AT..FORMAT_AT] != MAGIC {
            return Err(MetaFault::Damage(Damage("no magic number")));
        }
        page::check(page, place).map_err(MetaFault::Damage)?;
        let format = get_u32(page, FORMAT_AT);
        if format != FORMAT_VERSION || get_u32(page, PAGE_BYTES_AT) != PAGE_BYTES as u32 {
            return Err(MetaFault::Format(format));
        }
        let directory_count = get_u32(page, DIRECTORY_COUNT_AT) as usize;
        let level = u8::try_from(get_u32(page, CATALOG_LEVEL_AT)).unwrap_or(u8::MAX);
        if page::sequence(page) > SEQUENCE_MAX
            || page::kind_byte(page) != Kind::Meta as u8
            || directory_count > DIRECTORIES_MAX
            || level > page::LEVEL_MAX
        {
            return Err(MetaFault::Damage(Damage("meta page with fields out of bounds")));
        }
        let get_u64 = |at: usize| u64::from(get_u32(page, at)) | u64::from(get_u32(page, at + 4)) << 32;
        Ok(Meta {
            sequence: page::sequence(page),
            version: Version(get_u64(VERSION_AT)),
            log_start: LogPosition::decode(&std::array::from_fn(|i| page[LOG_START_AT + i])),
            page_count: get_u32(page, PAGE_COUNT_AT),
            catalog: Root { page: PageNo(get_u32(page, CATALOG_ROOT_AT)), level, entries: get_u64(CATALOG_ENTRIES_AT) },
            directories: (0..directory_count).map(|i| PageNo(get_u32(page, DIRECTORIES_AT + 4 * i))).collect(),
        })
    }
}

/// Why a meta page cannot be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetaFault {
    Damage(Damage),
    Format(u32),
}
