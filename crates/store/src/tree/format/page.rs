//! A page: 4 KB, its header, its checksum.
//!
//! ```text
//!  0        4        8      9       10      12            14      16         24
//!  +--------+--------+------+-------+-------+-------------+-------+----------+------ … ------+
//!  | crc32c | number | kind | level | count | prefix_len  | flags | sequence | body          |
//!  | u32    | u32    | u8   | u8    | u16   | u16         | u16   | u64      | 4072 bytes    |
//!  +--------+--------+------+-------+-------+-------------+-------+----------+------ … ------+
//! ```
//!
//! Integers are little-endian. `crc32c` covers bytes 4 to the end (of an overflow extent: to the end of its last page).
//! `number` is the page's own place, which reveals misdirected writes. `sequence` is that of the checkpoint that wrote
//! it. A page is written once as a whole and never changed in place.

/// Bytes of a page. 8 and 16 KB were no faster to read and cost more to write.
pub const PAGE_BYTES: usize = 4096;
/// Longest value kept in its leaf; a longer one goes to an overflow extent.
pub const VALUE_INLINE_MAX: usize = PAGE_BYTES / 4;
/// Highest level of a node. Even with the longest separators a branch has three children, and 3^31 exceeds the page
/// numbers, so no sound tree is deeper.
pub(in crate::tree) const LEVEL_MAX: u8 = 31;
/// Bytes of the header.
pub(in crate::tree) const HEADER_BYTES: usize = 24;
/// Bytes after the header.
pub(in crate::tree) const BODY_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// Number of meta pages, the first pages of the file.
pub(in crate::tree) const META_PAGES: u32 = 2;

const CRC_AT: usize = 0;
const NUMBER_AT: usize = CRC_AT + 4;
const KIND_AT: usize = NUMBER_AT + 4;
const LEVEL_AT: usize = KIND_AT + 1;
const COUNT_AT: usize = LEVEL_AT + 1;
const PREFIX_AT: usize = COUNT_AT + 2;
const FLAGS_AT: usize = PREFIX_AT + 2;
const SEQUENCE_AT: usize = FLAGS_AT + 2;
const _: () = assert!(SEQUENCE_AT + 8 == HEADER_BYTES);
/// In an overflow extent's header the value's length replaces prefix length and flags.
const OVERFLOW_LEN_AT: usize = PREFIX_AT;

/// The bytes of one page.
pub(in crate::tree) type Page = [u8; PAGE_BYTES];

/// A page's place in the file, in pages. 0 and 1 are the meta pages, so 0 also means "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNo(pub u32);

impl PageNo {
    /// No page: an empty tree's root.
    pub(in crate::tree) const NONE: PageNo = PageNo(0);

    /// Byte offset in the file.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_BYTES as u64
    }
}

/// Adjacent pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) struct Extent {
    pub(in crate::tree) start: PageNo,
    pub(in crate::tree) count: u32,
}

impl Extent {
    pub(in crate::tree) fn one(page: PageNo) -> Extent {
        Extent { start: page, count: 1 }
    }

    /// The number of the page after it.
    pub(in crate::tree) fn end(self) -> u32 {
        self.start.0.saturating_add(self.count)
    }

    pub(in crate::tree) fn holds(self, page: PageNo) -> bool {
        page >= self.start && page.0 - self.start.0 < self.count
    }

    pub(in crate::tree) fn pages(self) -> impl Iterator<Item = PageNo> {
        (self.start.0..self.end()).map(PageNo)
    }
}

/// The invariant that a page breaks. The caller adds file and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) struct Damage(pub(in crate::tree) &'static str);

/// The content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::tree) enum Kind {
    Leaf = 1,
    Branch = 2,
    Overflow = 3,
    SpaceBits = 4,
    SpaceDirectory = 5,
    Meta = 6,
}

/// The fields of a page header.
#[derive(Clone, Copy, Debug)]
pub(in crate::tree) struct Header {
    pub(super) kind: Kind,
    pub(super) number: PageNo,
    pub(super) level: u8,
    pub(super) count: u16,
    pub(super) prefix_len: u16,
    pub(super) flags: u16,
    pub(super) sequence: u64,
}

impl Header {
    /// A header without node fields.
    pub(in crate::tree) fn plain(kind: Kind, number: PageNo, sequence: u64) -> Header {
        Header { kind, number, level: 0, count: 0, prefix_len: 0, flags: 0, sequence }
    }

    /// Writes everything but the checksum.
    pub(in crate::tree) fn write(&self, page: &mut Page) {
        put_u32(page, NUMBER_AT, self.number.0);
        page[KIND_AT] = self.kind as u8;
        page[LEVEL_AT] = self.level;
        put_u16(page, COUNT_AT, self.count);
        put_u16(page, PREFIX_AT, self.prefix_len);
        put_u16(page, FLAGS_AT, self.flags);
        put_u64(page, SEQUENCE_AT, self.sequence);
    }
}

/// Writes the length field of an overflow extent's header.
pub(in crate::tree) fn put_overflow_len(page: &mut Page, len: u32) {
    put_u32(page, OVERFLOW_LEN_AT, len);
}

/// The value length in an overflow extent's header.
pub(in crate::tree) fn overflow_len(page: &Page) -> u32 {
    get_u32(page, OVERFLOW_LEN_AT)
}

/// Number of overflow pages for a value of this length.
pub(crate) fn overflow_pages(len: usize) -> u32 {
    (HEADER_BYTES + len).div_ceil(PAGE_BYTES) as u32
}

#[inline]
pub(in crate::tree) fn kind_byte(page: &Page) -> u8 {
    page[KIND_AT]
}

#[inline]
pub(in crate::tree) fn number(page: &Page) -> PageNo {
    PageNo(get_u32(page, NUMBER_AT))
}

#[inline]
pub(super) fn level(page: &Page) -> u8 {
    page[LEVEL_AT]
}

#[inline]
pub(super) fn count(page: &Page) -> usize {
    usize::from(get_u16(page, COUNT_AT))
}

#[inline]
pub(super) fn prefix_len(page: &Page) -> usize {
    usize::from(get_u16(page, PREFIX_AT))
}

#[inline]
pub(super) fn flags(page: &Page) -> u16 {
    get_u16(page, FLAGS_AT)
}

/// The checkpoint that wrote the page.
pub(super) fn sequence(page: &Page) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| page[SEQUENCE_AT + i]))
}

/// Writes the checksum: the last step before a page is written.
pub(in crate::tree) fn seal(page: &mut Page) {
    let crc = crc32c::crc32c(&page[NUMBER_AT..]);
    put_u32(page, CRC_AT, crc);
}

/// Writes a checksum that was computed over more than the page.
pub(in crate::tree) fn put_crc(page: &mut Page, crc: u32) {
    put_u32(page, CRC_AT, crc);
}

/// The part of an extent that its checksum covers.
pub(in crate::tree) fn checked_part(extent: &[u8]) -> &[u8] {
    extent.get(NUMBER_AT..).unwrap_or_default()
}

/// Checks the checksum and the number of a page, or of a whole overflow extent.
pub(in crate::tree) fn check(extent: &[u8], place: PageNo) -> Result<(), Damage> {
    let first = extent.first_chunk::<PAGE_BYTES>().ok_or(Damage("page beyond the end of the file"))?;
    if crc32c::crc32c(checked_part(extent)) != get_u32(first, CRC_AT) {
        return Err(Damage("checksum differs"));
    }
    if number(first) != place {
        return Err(Damage("page carries another page's number"));
    }
    Ok(())
}

#[inline]
pub(super) fn get_u16(page: &Page, at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

#[inline]
pub(in crate::tree) fn get_u32(page: &Page, at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

pub(super) fn put_u16(page: &mut Page, at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(in crate::tree) fn put_u32(page: &mut Page, at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(in crate::tree) fn put_u64(page: &mut Page, at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
