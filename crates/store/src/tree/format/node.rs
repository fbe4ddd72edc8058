//! A node of a B+tree in its page: reading, searching, encoding.
//!
//! After the page header, in this order and without gaps:
//!
//! ```text
//!  leaf    | prefix, padded to 8 | heads u64 x n | slots (u16 offset, u16 key) x (n+1)       | cells … | zero |
//!  branch  | prefix, padded to 8 | heads u64 x n | children u32 x (n+1) | slots x (n+1) (*)  | cells … | zero |
//! ```
//!
//! - `prefix` is common to all keys of the node and not stored in them; it is empty if every key has at most 8 bytes.
//! - A head is the first 8 bytes of the rest of the key (its suffix), padded with zeros, as one integer whose order is the
//!   order of the bytes. Heads are adjacent, so a search touches one or two cache lines, and a key of at most 8 bytes needs
//!   nothing else.
//! - A slot holds the offset of the entry's cell in the page and the suffix's length (bit 15: the value is in overflow).
//!   Cells lie in key order. A cell ends where the next begins, so a value's length is not stored. Slot n closes the last cell.
//! - A cell is the suffix without its first 8 bytes (the tail), then in a leaf the value, or the place of its overflow
//!   extent (page u32, length u32).
//! - A branch has n separators and n+1 children: child i holds the keys k with separator(i-1) <= k < separator(i).
//!   (*) Slots and cells exist only with the flag `TAILS`. Without it each separator is its head alone: at most
//!   8 bytes, the last not zero. Then for every key k: k >= separator exactly if head(k) >= head(separator).
//!
//! Invariants: keys ascend strictly. `level` is 0 in a leaf and one above its children's in a branch, so no descent is
//! longer than the root's level, even over damaged pages. Reading trusts no byte: each offset is checked.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use super::page::{self, Damage, HEADER_BYTES, Header, Kind, LEVEL_MAX, PAGE_BYTES, Page, PageNo, get_u16};
use crate::base::head::{HEAD_BYTES, common_prefix, head};
use crate::base::limits::KEY_BYTES_MAX;

use crate::base::prefetch::{PREFETCHED_BYTES_MAX, prefetch, prefetch_all};

/// Flag of a branch: separators have slots and tails.
const TAILS: u16 = 1;
/// Bit of a slot's key field: the value is in overflow.
const OVERFLOW_BIT: u16 = 0x8000;
/// Bits of a slot's key field that hold the suffix's length.
const SUFFIX_MASK: u16 = 0x07ff;
const _: () = assert!(KEY_BYTES_MAX <= SUFFIX_MASK as usize);
/// Number of keys after the beginning of a range that are searched first for its end. Their heads lie in two or three cache lines.
const NEAR: usize = 16;
/// Maximum number of cells that a scan prefetches.
const PREFETCH_CELLS_MAX: usize = 20;
const SLOT_BYTES: usize = 4;
const CHILD_BYTES: usize = 4;
/// Bytes of an overflow reference in a leaf's cell.
pub(super) const OVERFLOW_REF_BYTES: usize = 8;

/// Reference to a value outside its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) struct OverflowRef {
    pub(in crate::tree) start: PageNo,
    pub(in crate::tree) len: u32,
}

impl OverflowRef {
    pub(super) fn encode(self) -> [u8; OVERFLOW_REF_BYTES] {
        let mut bytes = [0; OVERFLOW_REF_BYTES];
        bytes[..4].copy_from_slice(&self.start.0.to_le_bytes());
        bytes[4..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<OverflowRef, Damage> {
        let bytes: &[u8; OVERFLOW_REF_BYTES] =
            bytes.try_into().map_err(|_| Damage("overflow place of a wrong size"))?;
        let [a, b, c, d, e, f, g, h] = *bytes;
        Ok(OverflowRef { start: PageNo(u32::from_le_bytes([a, b, c, d])), len: u32::from_le_bytes([e, f, g, h]) })
    }

    pub(in crate::tree) fn extent(self) -> page::Extent {
        page::Extent { start: self.start, count: page::overflow_pages(self.len as usize) }
    }
}

/// A leaf entry's value as the leaf stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) enum Stored<'p> {
    Inline(&'p [u8]),
    Overflow(OverflowRef),
}

/// Whether two short strings of one length are equal. A prefix mostly has 8 to 16 bytes, for which two loads of each
/// are faster than a call of memcmp.
#[inline]
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() > 2 * HEAD_BYTES {
        return one == other;
    }
    match (one.first_chunk::<HEAD_BYTES>(), one.last_chunk(), other.first_chunk(), other.last_chunk::<HEAD_BYTES>()) {
        (Some(a), Some(b), Some(c), Some(d)) => a == c && b == d,
        // Shorter than a head.
        _ => match (one.first_chunk::<4>(), one.last_chunk::<4>(), other.first_chunk(), other.last_chunk::<4>()) {
            (Some(a), Some(b), Some(c), Some(d)) => a == c && b == d,
            _ => head(one) == head(other),
        },
    }
}

/// The bytes after the head.
#[inline]
fn tail(suffix: &[u8]) -> &[u8] {
    suffix.get(HEAD_BYTES..).unwrap_or_default()
}

/// Number of heads below `head` (`or_equal`: or equal to it).
#[inline]
fn count_below(heads: &[[u8; HEAD_BYTES]], head: u64, or_equal: bool) -> usize {
    // Branch-free: which half holds the key is unpredictable, and a misprediction costs more than both loads.
    let limit = head.wrapping_add(u64::from(or_equal));
    if or_equal && head == u64::MAX {
        return heads.len();
    }
    let (mut base, mut size) = (0, heads.len());
    while size > 1 {
        let half = size / 2;
        let middle = base + half;
        let below = u64::from_le_bytes(heads[middle]) < limit;
        base = select_unpredictable(below, middle, base);
        size -= half;
    }
    match heads.get(base) {
        Some(bytes) => base + usize::from(u64::from_le_bytes(*bytes) < limit),
        None => 0,
    }
}

/// A node in its page. Parsing checks the places of the arrays once, so that the search need not.
#[derive(Clone, Copy)]
pub(in crate::tree) struct Node<'p> {
    page: &'p Page,
    prefix: &'p [u8],
    heads: &'p [[u8; HEAD_BYTES]],
    /// Empty in a leaf.
    children: &'p [[u8; CHILD_BYTES]],
    /// Empty in a branch without tails.
    slots: &'p [[u8; SLOT_BYTES]],
}

impl<'p> Node<'p> {
    /// Parses a page that is expected to have this number and level.
    #[inline]
    pub(in crate::tree) fn parse(page: &'p Page, place: PageNo, level: u8) -> Result<Node<'p>, Damage> {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
        if page::number(page) != place {
            return Err(Damage("page carries another page's number"));
        }
        if page::kind_byte(page) != kind as u8 || page::level(page) != level || level > LEVEL_MAX {
            return Err(Damage("page is not the node that its parent names"));
        }
        let count = page::count(page);
        if level == 0 && count == 0 {
            return Err(Damage("leaf without entries"));
        }
        let prefix_len = page::prefix_len(page);
        let rest = page.get(HEADER_BYTES..).unwrap_or_default();
        let prefix = rest.get(..prefix_len).ok_or(Damage("prefix beyond the page"))?;
        let rest = rest.get(prefix_len.next_multiple_of(8)..).ok_or(Damage("prefix beyond the page"))?;
        let (heads, rest) = rest.split_at_checked(count * HEAD_BYTES).ok_or(Damage("heads beyond the page"))?;
        let array_bytes = (count + 1) * SLOT_BYTES;
        let (first, rest) = rest.split_at_checked(array_bytes).ok_or(Damage("slots beyond the page"))?;
        let (children, slots) = if level == 0 {
            (&[][..], first)
        } else if page::flags(page) & TAILS == 0 {
            (first, &[][..])
        } else {
            (first, rest.get(..array_bytes).ok_or(Damage("slots beyond the page"))?)
        };
        Ok(Node {
            page,
            prefix,
            heads: heads.as_chunks().0,
            children: children.as_chunks().0,
            slots: slots.as_chunks().0,
        })
    }

    /// Number of keys (in a branch: separators).
    #[inline]
    pub(in crate::tree) fn count(&self) -> usize {
        self.heads.len()
    }

    /// Bytes in use, for statistics.
    pub(in crate::tree) fn used_bytes(&self) -> usize {
        match self.slots.last() {
            Some(slot) => usize::from(u16::from_le_bytes([slot[0], slot[1]])).min(PAGE_BYTES),
            None => HEADER_BYTES + self.prefix.len().next_multiple_of(8) + self.count() * 12 + CHILD_BYTES,
        }
    }

    /// Number of keys below `key`, and whether the next one is `key` itself.
    #[inline]
    pub(in crate::tree) fn rank(&self, key: &[u8]) -> Result<(usize, bool), Damage> {
        let suffix = match self.suffix(key) {
            Ok(suffix) => suffix,
            Err(rank) => return Ok((rank, false)),
        };
        let head = head(suffix);
        self.rank_by_head(suffix, head, count_below(self.heads, head, false))
    }

    /// [`Node::rank`] of a key that is not below the first `from` keys, or `from` if it is. Quick if it is near: the end of a short
    /// range from its beginning.
    #[inline]
    pub(in crate::tree) fn rank_from(&self, key: &[u8], from: usize) -> Result<(usize, bool), Damage> {
        let suffix = match self.suffix(key) {
            Ok(suffix) => suffix,
            Err(rank) => return Ok((rank.max(from), false)),
        };
        let head = head(suffix);
        let rest = self.heads.get(from..).unwrap_or_default();
        let rest = match rest.split_at_checked(NEAR) {
            Some((near, [next, ..])) if u64::from_le_bytes(*next) >= head => near,
            _ => rest,
        };
        self.rank_by_head(suffix, head, from + count_below(rest, head, false))
    }

    /// The rank of a key from the number of keys whose heads are below its own.
    #[inline]
    fn rank_by_head(&self, suffix: &[u8], head: u64, rank: usize) -> Result<(usize, bool), Damage> {
        if self.heads.get(rank).is_none_or(|bytes| u64::from_le_bytes(*bytes) != head) {
            return Ok((rank, false));
        }
        // The head is the whole key, and no other key has it: nothing else must be compared.
        let is_alone = self.heads.get(rank + 1).is_none_or(|bytes| u64::from_le_bytes(*bytes) != head);
        if is_alone && suffix.len() <= HEAD_BYTES && self.suffix_len(rank) == suffix.len() {
            return Ok((rank, true));
        }
        self.rank_by_tails(suffix, head, rank)
    }

    /// The index of the child whose range holds `key`.
    #[inline]
    pub(in crate::tree) fn child_for(&self, key: &[u8]) -> Result<usize, Damage> {
        if self.slots.is_empty() {
            return Ok(match self.suffix(key) {
                Ok(suffix) => count_below(self.heads, head(suffix), true),
                Err(rank) => rank,
            });
        }
        let (rank, found) = self.rank(key)?;
        Ok(rank + usize::from(found))
    }

    /// The key without the prefix, or its rank if it does not have the prefix.
    #[inline]
    fn suffix<'k>(&self, key: &'k [u8]) -> Result<&'k [u8], usize> {
        if self.prefix.is_empty() {
            return Ok(key);
        }
        match key.split_at_checked(self.prefix.len()) {
            Some((start, suffix)) if is_equal(start, self.prefix) => Ok(suffix),
            _ if key < self.prefix => Err(0),
            _ => Err(self.count()),
        }
    }

    /// Searches the keys from `rank` on with this head: by tail, then by length (a head's padding zeros may be bytes of the key).
    fn rank_by_tails(&self, suffix: &[u8], head: u64, rank: usize) -> Result<(usize, bool), Damage> {
        let same = match self.heads.get(rank + 1) {
            Some(bytes) if u64::from_le_bytes(*bytes) == head => count_below(&self.heads[rank..], head, true),
            _ => 1,
        };
        let (mut low, mut high) = (rank, rank + same);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.tail(middle)?.cmp(tail(suffix)).then_with(|| self.suffix_len(middle).cmp(&suffix.len()));
            match found {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    /// How key `index` compares with `key`.
    #[inline]
    pub(in crate::tree) fn order_of(&self, index: usize, key: &[u8]) -> Result<Ordering, Damage> {
        let suffix = match self.suffix(key) {
            Ok(suffix) => suffix,
            Err(0) => return Ok(Ordering::Greater),
            Err(_) => return Ok(Ordering::Less),
        };
        let bytes = self.heads.get(index).ok_or(Damage("entry beyond the node's count"))?;
        Ok(match u64::from_le_bytes(*bytes).cmp(&head(suffix)) {
            Ordering::Equal => {
                self.tail(index)?.cmp(tail(suffix)).then_with(|| self.suffix_len(index).cmp(&suffix.len()))
            }
            order => order,
        })
    }

    /// Length of the suffix of key `index`.
    #[inline]
    fn suffix_len(&self, index: usize) -> usize {
        match self.slots.get(index) {
            Some(slot) => usize::from(u16::from_le_bytes([slot[2], slot[3]]) & SUFFIX_MASK),
            None => self
                .heads
                .get(index)
                .map_or(0, |head| HEAD_BYTES - (u64::from_le_bytes(*head).trailing_zeros() / 8) as usize),
        }
    }

    /// The bytes from slot `index`'s offset to the next one's.
    #[inline]
    fn cell(&self, index: usize) -> Result<&'p [u8], Damage> {
        let (Some(slot), Some(next)) = (self.slots.get(index), self.slots.get(index + 1)) else {
            return Err(Damage("entry beyond the node's count"));
        };
        let start = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
        let end = usize::from(u16::from_le_bytes([next[0], next[1]]));
        self.page.get(start..end).ok_or(Damage("cell beyond the page"))
    }

    #[inline]
    fn tail(&self, index: usize) -> Result<&'p [u8], Damage> {
        if self.slots.is_empty() {
            return Ok(&[]);
        }
        let tail_len = self.suffix_len(index).saturating_sub(HEAD_BYTES);
        self.cell(index)?.get(..tail_len).ok_or(Damage("key beyond its cell"))
    }

    /// The value of leaf entry `index`. Each slot is read once.
    #[inline]
    pub(in crate::tree) fn stored(&self, index: usize) -> Result<Stored<'p>, Damage> {
        let slots = self.slots.get(index..).and_then(<[_]>::first_chunk::<2>);
        let Some([slot, next]) = slots else { return Err(Damage("entry beyond the node's count")) };
        let start = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
        let end = usize::from(u16::from_le_bytes([next[0], next[1]]));
        let cell = self.page.get(start..end).ok_or(Damage("cell beyond the page"))?;
        let key = u16::from_le_bytes([slot[2], slot[3]]);
        let tail_len = usize::from(key & SUFFIX_MASK).saturating_sub(HEAD_BYTES);
        let value = cell.get(tail_len..).ok_or(Damage("key beyond its cell"))?;
        if key & OVERFLOW_BIT != 0 {
            OverflowRef::decode(value).map(Stored::Overflow)
        } else {
            Ok(Stored::Inline(value))
        }
    }

    /// Offset in the page of a slice of the page.
    #[inline]
    pub(in crate::tree) fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let inside = (slice.as_ptr() as usize).checked_sub(self.page.as_ptr() as usize)?;
        (inside + slice.len() <= self.page.len()).then_some(inside as u64)
    }

    /// Prefetches what a scan from entry `index` on reads first: the heads and slots of [`NEAR`] entries, and the first lines of
    /// their cells.
    #[inline]
    pub(in crate::tree) fn prefetch_entries(&self, index: usize) {
        let heads = self.heads.get(index..).unwrap_or_default();
        prefetch_all(heads.get(..NEAR).unwrap_or(heads).as_flattened());
        let Some(slot) = self.slots.get(index) else { return };
        prefetch(self.slots.get(index + NEAR..).unwrap_or_default());
        let cells = self.page.get(usize::from(u16::from_le_bytes([slot[0], slot[1]]))..).unwrap_or_default();
        prefetch_all(cells.get(..PREFETCHED_BYTES_MAX).unwrap_or(cells));
    }

    /// Prefetches the cells of a leaf if they are few and long. If they are many, the hardware prefetcher follows.
    #[inline]
    pub(in crate::tree) fn prefetch_cells(&self) {
        if self.slots.len() <= PREFETCH_CELLS_MAX {
            for slot in self.slots {
                let at = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
                prefetch(self.page.get(at..).unwrap_or_default());
            }
        }
    }

    /// Child `index` of a branch.
    #[inline]
    pub(in crate::tree) fn child(&self, index: usize) -> Result<PageNo, Damage> {
        let bytes = self.children.get(index).ok_or(Damage("child beyond the branch"))?;
        Ok(PageNo(u32::from_le_bytes(*bytes)))
    }

    /// The common prefix.
    pub(in crate::tree) fn prefix(&self) -> &'p [u8] {
        self.prefix
    }

    /// Appends key `index` without the node's prefix.
    #[inline]
    pub(in crate::tree) fn push_suffix(&self, index: usize, key: &mut Vec<u8>) -> Result<(), Damage> {
        let head = self.heads.get(index).ok_or(Damage("entry beyond the node's count"))?;
        let suffix_len = self.suffix_len(index);
        if self.prefix.len() + suffix_len > KEY_BYTES_MAX {
            return Err(Damage("key over its limit"));
        }
        let bytes = u64::from_le_bytes(*head).to_be_bytes();
        key.extend_from_slice(&bytes[..suffix_len.min(HEAD_BYTES)]);
        if suffix_len > HEAD_BYTES {
            key.extend_from_slice(self.tail(index)?);
        }
        Ok(())
    }

    /// Appends the suffix of key `index`, and returns the entry's value. The slots are read once, and up to eight bytes
    /// are copied as words, because a copy of a length known only at run time is a function call.
    #[inline]
    pub(in crate::tree) fn push_entry(&self, index: usize, key: &mut Vec<u8>) -> Result<Stored<'p>, Damage> {
        let slots = self.slots.get(index..).and_then(<[_]>::first_chunk::<2>);
        let (Some(head_bytes), Some([slot, next])) = (self.heads.get(index), slots) else {
            return Err(Damage("entry beyond the node's count"));
        };
        let suffix_len = usize::from(u16::from_le_bytes([slot[2], slot[3]]) & SUFFIX_MASK);
        if self.prefix.len() + suffix_len > KEY_BYTES_MAX {
            return Err(Damage("key over its limit"));
        }
        let start = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
        let end = usize::from(u16::from_le_bytes([next[0], next[1]]));
        let cell = self.page.get(start..end).ok_or(Damage("cell beyond the page"))?;
        let tail_len = suffix_len.saturating_sub(HEAD_BYTES);
        let (tail, value) = cell.split_at_checked(tail_len).ok_or(Damage("key beyond its cell"))?;
        let whole = key.len() + suffix_len;
        let head_bytes = u64::from_le_bytes(*head_bytes).to_be_bytes();
        match tail_len {
            0 => key.extend_from_slice(&head_bytes),
            1..=HEAD_BYTES => key.extend_from_slice([head_bytes, head(tail).to_be_bytes()].as_flattened()),
            _ => {
                key.extend_from_slice(&head_bytes);
                key.extend_from_slice(tail);
            }
        }
        key.truncate(whole);
        if u16::from_le_bytes([slot[2], slot[3]]) & OVERFLOW_BIT != 0 {
            return OverflowRef::decode(value).map(Stored::Overflow);
        }
        Ok(Stored::Inline(value))
    }

    /// Writes the whole key `index` into `key`.
    pub(in crate::tree) fn key_into(&self, index: usize, key: &mut Vec<u8>) -> Result<(), Damage> {
        key.clear();
        key.extend_from_slice(self.prefix);
        self.push_suffix(index, key)
    }
}

/// The content of an entry of a new node.
#[derive(Clone, Copy, Debug)]
pub(in crate::tree) enum Payload<'a> {
    Value(&'a [u8]),
    Overflow(OverflowRef),
    Child(PageNo),
}

impl Payload<'_> {
    /// Bytes in the cell.
    pub(in crate::tree) fn cell_bytes(&self) -> usize {
        match self {
            Payload::Value(value) => value.len(),
            Payload::Overflow(_) => OVERFLOW_REF_BYTES,
            Payload::Child(_) => 0,
        }
    }
}

/// Whether the head alone determines a separator's suffix.
#[inline]
fn is_head_only(suffix: &[u8]) -> bool {
    suffix.len() <= HEAD_BYTES && suffix.last() != Some(&0)
}

/// Bytes that a node with some keys takes, updated as keys are added in order.
#[derive(Clone, Copy, Default)]
pub(in crate::tree) struct NodeSize {
    count: usize,
    prefix_len: usize,
    /// Bytes of tails and payloads.
    cell_bytes: usize,
    longest: usize,
    /// True for a leaf, and for a branch with a separator that its head alone does not determine.
    needs_slots: bool,
}

impl NodeSize {
    /// The size of a node with these ascending keys. For a branch: with these separators, without the first child's key.
    pub(in crate::tree) fn of<'k>(keys: impl Iterator<Item = (&'k [u8], usize)> + Clone, level: u8) -> NodeSize {
        let longest = keys.clone().map(|(key, _)| key.len()).max().unwrap_or(0);
        let mut ends = keys.clone().map(|(key, _)| key);
        let first = ends.next().unwrap_or_default();
        let last = ends.last().unwrap_or(first);
        let prefix_len = if longest <= HEAD_BYTES { 0 } else { common_prefix(first, last) };
        let mut size = NodeSize { count: 0, prefix_len, cell_bytes: 0, longest, needs_slots: level == 0 };
        for (key, payload) in keys {
            let suffix = key.get(prefix_len..).unwrap_or_default();
            size.count += 1;
            size.cell_bytes += tail(suffix).len() + payload;
            size.needs_slots |= !is_head_only(suffix);
        }
        size
    }

    /// The size with one more key, if it can be computed without reading the other keys again.
    #[inline]
    pub(in crate::tree) fn with(&self, first: &[u8], key: &[u8], payload: usize) -> Option<NodeSize> {
        if self.longest > HEAD_BYTES {
            let prefix = first.get(..self.prefix_len)?;
            key.strip_prefix(prefix)?;
        } else if key.len() > HEAD_BYTES {
            return None;
        }
        let suffix = key.get(self.prefix_len..)?;
        Some(NodeSize {
            count: self.count + 1,
            prefix_len: self.prefix_len,
            cell_bytes: self.cell_bytes + tail(suffix).len() + payload,
            longest: self.longest.max(key.len()),
            needs_slots: self.needs_slots || !is_head_only(suffix),
        })
    }

    /// Used bytes of the page.
    pub(in crate::tree) fn bytes(&self, level: u8) -> usize {
        let arrays = self.count * HEAD_BYTES + (self.count + 1) * SLOT_BYTES;
        let fixed = HEADER_BYTES + self.prefix_len.next_multiple_of(8) + arrays;
        match (level, self.needs_slots) {
            (0, _) => fixed + self.cell_bytes,
            (_, false) => fixed,
            (_, true) => fixed + (self.count + 1) * SLOT_BYTES + self.cell_bytes,
        }
    }

    /// Whether such a node fits into a page.
    pub(in crate::tree) fn fits(&self, level: u8) -> bool {
        self.bytes(level) <= PAGE_BYTES
    }
}

/// Writes a node into a zeroed page. `entries` ascend and fit; in a branch the first one's key is not stored.
pub(in crate::tree) fn encode<'k>(
    page: &mut Page,
    number: PageNo,
    level: u8,
    sequence: u64,
    entries: impl Iterator<Item = (&'k [u8], Payload<'k>)> + Clone,
) {
    let keyed = entries.clone().skip(usize::from(level > 0));
    let size = NodeSize::of(keyed.clone().map(|(key, payload)| (key, payload.cell_bytes())), level);
    assert!(size.fits(level), "a node was planned that does not fit its page");
    let prefix_len = size.prefix_len;
    let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
    let flags = if level > 0 && size.needs_slots { TAILS } else { 0 };
    Header { kind, number, level, count: size.count as u16, prefix_len: prefix_len as u16, flags, sequence }
        .write(page);
    if let Some((key, _)) = keyed.clone().next() {
        page[HEADER_BYTES..HEADER_BYTES + prefix_len].copy_from_slice(&key[..prefix_len]);
    }
    let heads_at = HEADER_BYTES + prefix_len.next_multiple_of(8);
    let mut array_at = heads_at + size.count * HEAD_BYTES;
    if level > 0 {
        for (index, (_, payload)) in entries.enumerate() {
            let Payload::Child(child) = payload else { panic!("a branch holds children only") };
            page::put_u32(page, array_at + index * CHILD_BYTES, child.0);
        }
        array_at += (size.count + 1) * CHILD_BYTES;
    }
    for (index, (key, _)) in keyed.clone().enumerate() {
        page::put_u64(page, heads_at + index * HEAD_BYTES, head(&key[prefix_len..]));
    }
    if size.needs_slots {
        encode_cells(page, array_at, prefix_len, size.count, keyed);
    }
}

/// Slots and cells of [`encode`].
fn encode_cells<'k>(
    page: &mut Page,
    slots_at: usize,
    prefix_len: usize,
    count: usize,
    keyed: impl Iterator<Item = (&'k [u8], Payload<'k>)>,
) {
    let mut cell_at = slots_at + (count + 1) * SLOT_BYTES;
    let mut slot_at = slots_at;
    for (key, payload) in keyed {
        let suffix = &key[prefix_len..];
        let overflow = if matches!(payload, Payload::Overflow(_)) { OVERFLOW_BIT } else { 0 };
        page::put_u16(page, slot_at, cell_at as u16);
        page::put_u16(page, slot_at + 2, suffix.len() as u16 | overflow);
        slot_at += SLOT_BYTES;
        let tail = tail(suffix);
        page[cell_at..cell_at + tail.len()].copy_from_slice(tail);
        cell_at += tail.len();
        match payload {
            Payload::Value(value) => page[cell_at..cell_at + value.len()].copy_from_slice(value),
            Payload::Overflow(place) => {
                page[cell_at..cell_at + OVERFLOW_REF_BYTES].copy_from_slice(&place.encode());
            }
            Payload::Child(_) => {}
        }
        cell_at += payload.cell_bytes();
    }
    page::put_u16(page, slot_at, cell_at as u16);
    debug_assert_eq!(usize::from(get_u16(page, slot_at)), cell_at);
}
