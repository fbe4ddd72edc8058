//! Tables of field and element positions: writing them, and reading them without trusting the bytes.
//!
//! Every position is the offset in the JSON text of a key's opening quote, or of an element's first byte. All numbers have the
//! document's width W.
//!
//! ```text
//!  an object of n <= 256 fields, in the order sent
//!  +--------------+-----------------+
//!  | hashes       | positions       |    hashes are compared sixteen at a time; a value ends before the comma
//!  | n x u8       | n x W           |    that precedes the next field's position
//!  +--------------+-----------------+
//!  an object of more fields: b = n/4 buckets, rounded up to a power of two, chosen by the low bits of the hash
//!  +--------------+-----------------+
//!  | bucket ends  | positions       |    a bucket holds the positions from the end of the one before it to its own end,
//!  | b x W        | n x W           |    in the order sent; four are compared on average
//!  +--------------+-----------------+
//!  an array of n elements: the position of each s-th, s (a power of two) chosen from n and the array's length
//!  +--------------+-----------------+
//!  | log2(s) | n  | positions       |    those of elements s, 2s, 3s …
//!  | u8      | W  | (n-1)/s x W     |
//!  +--------------+-----------------+
//!  the nested tables: a directory in the order of the text, then the tables, an object's preceded by its n
//!  +---------+--------------------------------------+------------------------------+
//!  | entries | position, offset                     | tables                       |
//!  | W       | entries x (W, W)                     | offsets count from here      |
//!  +---------+--------------------------------------+------------------------------+
//! ```
//!
//! A sorted table with binary search was considered for small objects. It needs a second number for each field to keep the
//! order sent, and its branches are unpredictable, while a block comparison has none.

use crate::key::Key;
use crate::lanes::BLOCK;
use crate::scan::equal_bytes;
use crate::skip::value_end;

/// Up to this many fields the hashes are compared linearly.
pub(crate) const LINEAR_FIELDS_MAX: usize = 256;

/// Shorter inner objects and arrays never have a table: even the smallest would cost more than a sixteenth.
pub(crate) const INNER_TEXT_MIN: usize = 144;

/// An array's table has about one position for each this many bytes.
const ARRAY_STRIDE_BYTES: usize = 128;

/// The width of positions in a text of `text_len` bytes.
pub(crate) fn width_for(text_len: usize) -> usize {
    match text_len {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Buckets of an object with `count` fields, more than [`LINEAR_FIELDS_MAX`].
#[cold]
fn bucket_count(count: usize) -> usize {
    (count / 4).next_power_of_two()
}

/// Bytes of an object's table body.
pub(crate) fn body_bytes(count: usize, width: usize) -> usize {
    if count <= LINEAR_FIELDS_MAX { count * (1 + width) } else { (bucket_count(count) + count) * width }
}

/// Size of a nested object's table, including its directory entry.
pub(crate) fn object_bytes(count: usize, width: usize) -> usize {
    3 * width + body_bytes(count, width)
}

/// Size of an array's table, including its directory entry.
pub(crate) fn array_bytes(count: usize, text_len: usize, width: usize) -> usize {
    3 * width + 1 + array_positions(count, array_stride(count, text_len)) * width
}

/// Number of elements for each position in an array's table.
pub(crate) fn array_stride(count: usize, text_len: usize) -> usize {
    (count * ARRAY_STRIDE_BYTES / text_len.max(1)).next_power_of_two()
}

/// Positions in the table of an array.
pub(crate) fn array_positions(count: usize, stride: usize) -> usize {
    count.saturating_sub(1) / stride
}

/// Appends the low `width` bytes of `number`.
pub(crate) fn append_number(out: &mut Vec<u8>, number: u32, width: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..width]);
}

/// Appends the body of an object's table, from `(position, hash)` of each field in the order sent.
pub(crate) fn append_body(out: &mut Vec<u8>, fields: impl ExactSizeIterator<Item = (u32, u32)> + Clone, width: usize) {
    let count = fields.len();
    let base = out.len();
    out.resize(base + body_bytes(count, width), 0);
    let body = &mut out[base..];
    match width {
        1 => fill_body::<1>(body, fields),
        2 => fill_body::<2>(body, fields),
        _ => fill_body::<4>(body, fields),
    }
}

fn fill_body<const W: usize>(body: &mut [u8], fields: impl ExactSizeIterator<Item = (u32, u32)> + Clone) {
    let count = fields.len();
    if count > LINEAR_FIELDS_MAX {
        return fill_buckets::<W>(body, fields);
    }
    let (hashes, positions) = body.split_at_mut(count);
    let positions = positions.as_chunks_mut::<W>().0;
    for ((place, hash), (hash_byte, position)) in fields.zip(hashes.iter_mut().zip(positions)) {
        *hash_byte = hash_byte_of(hash);
        *position = low_bytes(place);
    }
}

fn fill_buckets<const W: usize>(body: &mut [u8], fields: impl ExactSizeIterator<Item = (u32, u32)> + Clone) {
    let buckets = bucket_count(fields.len());
    let (ends, positions) = body.split_at_mut(buckets * W);
    let (ends, positions) = (ends.as_chunks_mut::<W>().0, positions.as_chunks_mut::<W>().0);
    // `ends` first holds sizes, then starts; filling a bucket moves its start to its end.
    for (_, hash) in fields.clone() {
        let size = &mut ends[hash as usize & (buckets - 1)];
        *size = low_bytes(number(size) + 1);
    }
    let mut start = 0;
    for end in ends.iter_mut() {
        let size = number(end);
        *end = low_bytes(start);
        start += size;
    }
    for (place, hash) in fields {
        let next = &mut ends[hash as usize & (buckets - 1)];
        positions[number(next) as usize] = low_bytes(place);
        *next = low_bytes(number(next) + 1);
    }
}

#[inline]
fn low_bytes<const W: usize>(number: u32) -> [u8; W] {
    let bytes = number.to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}

#[inline]
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[inline]
fn hash_byte_of(hash: u32) -> u8 {
    (hash >> 24) as u8
}

/// The number of `width` bytes at `at`; `None` beyond the end.
#[inline]
pub(crate) fn read_number(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    match width {
        1 => number_at::<1>(bytes, at),
        2 => number_at::<2>(bytes, at),
        _ => number_at::<4>(bytes, at),
    }
}

/// The number of `W` bytes at `at`; `None` beyond the end.
#[inline(always)]
pub(crate) fn number_at<const W: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk::<W>().map(|bytes| number(bytes) as usize)
}

/// A field that was found: its index in the table, and the range of its value in the text.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) index: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The table of one object: a view into the stored document.
#[derive(Clone, Copy)]
pub(crate) struct FieldTable<'a> {
    /// From the table's body to the end of the document. So reads beyond a damaged table stay in the document's own text.
    body: &'a [u8],
    pub(crate) count: usize,
    width: usize,
    /// End of the object in the text.
    object_end: usize,
}

impl<'a> FieldTable<'a> {
    #[inline]
    pub(crate) fn new(body: &'a [u8], count: usize, width: usize, object_end: usize) -> Self {
        Self { body, count, width, object_end }
    }

    /// Whether the fields are in the order sent.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.count <= LINEAR_FIELDS_MAX
    }

    /// The position at `index` of the table.
    #[inline]
    pub(crate) fn position(&self, index: usize) -> Option<usize> {
        match self.width {
            1 => self.position_of::<1>(index),
            2 => self.position_of::<2>(index),
            _ => self.position_of::<4>(index),
        }
    }

    #[inline(always)]
    fn position_of<const W: usize>(&self, index: usize) -> Option<usize> {
        if index >= self.count {
            return None;
        }
        let before = if self.is_in_order() { self.count } else { bucket_count(self.count) * W };
        number_at::<W>(self.body, before + index * W)
    }

    /// Looks for `key`.
    #[inline]
    pub(crate) fn find(&self, text: &[u8], key: &Key<'_>) -> Option<Found> {
        let hash = key.hash();
        match self.width {
            _ if !self.is_in_order() => self.find_bucket(text, key, hash),
            1 => self.find_linear::<1>(text, key, hash_byte_of(hash)),
            2 => self.find_linear::<2>(text, key, hash_byte_of(hash)),
            _ => self.find_linear::<4>(text, key, hash_byte_of(hash)),
        }
    }

    /// The field at `index`, if `key` is its key.
    #[inline]
    pub(crate) fn find_at(&self, index: usize, text: &[u8], key: &Key<'_>) -> Option<Found> {
        match self.width {
            1 => self.check_at::<1>(index, text, key),
            2 => self.check_at::<2>(index, text, key),
            _ => self.check_at::<4>(index, text, key),
        }
    }

    #[inline(always)]
    fn find_linear<const W: usize>(&self, text: &[u8], key: &Key<'_>, hash: u8) -> Option<Found> {
        for base in (0..self.count).step_by(BLOCK) {
            let in_block = (self.count - base).min(BLOCK);
            let mut hits = match equal_bytes(self.body, base, hash) {
                Some(mask) => mask & (u32::MAX >> (32 - in_block)),
                None => self.equal_hashes_plain(base, in_block, hash),
            };
            while hits != 0 {
                let index = base + hits.trailing_zeros() as usize;
                if let Some(found) = self.check_at::<W>(index, text, key) {
                    return Some(found);
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// For very small documents, whose hashes begin less than a block before the end.
    #[cold]
    fn equal_hashes_plain(&self, base: usize, in_block: usize, hash: u8) -> u32 {
        let equal = |&index: &usize| self.body.get(base + index) == Some(&hash);
        (0..in_block).filter(equal).fold(0, |mask, index| mask | 1 << index)
    }

    #[inline(never)]
    fn find_bucket(&self, text: &[u8], key: &Key<'_>, hash: u32) -> Option<Found> {
        let bucket = hash as usize & (bucket_count(self.count) - 1);
        let end = read_number(self.body, bucket * self.width, self.width)?.min(self.count);
        let start = match bucket {
            0 => 0,
            _ => read_number(self.body, (bucket - 1) * self.width, self.width)?,
        };
        (start..end).find_map(|index| self.find_at(index, text, key))
    }

    #[inline(always)]
    fn check_at<const W: usize>(&self, index: usize, text: &[u8], key: &Key<'_>) -> Option<Found> {
        let position = self.position_of::<W>(index)?;
        if !key.begins(text.get(position..)?) {
            return None;
        }
        let start = position + key.len() + 3;
        let end = if !self.is_in_order() {
            walked_end(text, start)?
        } else if index + 1 < self.count {
            self.position_of::<W>(index + 1)?.checked_sub(1)?
        } else {
            self.object_end.checked_sub(1)?
        };
        (start < end && end < text.len()).then_some(Found { index, start, end })
    }

    /// The bytes that distinguish objects with different keys: hashes in the order sent, or the sizes of the buckets.
    pub(crate) fn fingerprint_bytes(&self) -> &'a [u8] {
        let len = if self.is_in_order() { self.count } else { bucket_count(self.count) * self.width };
        self.body.get(..len).unwrap_or_default()
    }
}

/// The end of the value at `start`, for tables in which the next position does not give it.
#[cold]
#[inline(never)]
fn walked_end(text: &[u8], start: usize) -> Option<usize> {
    value_end(text, start)
}

/// The positions of every `2^stride_log2`-th element of an array, and the array's length.
#[derive(Clone, Copy)]
pub(crate) struct ElementTable<'a> {
    positions: &'a [u8],
    pub(crate) count: usize,
    stride_log2: u32,
    width: usize,
}

impl ElementTable<'_> {
    /// The nearest element with a known position at or before `index`: its index and position. `None` before the first known
    /// one.
    pub(crate) fn nearest(&self, index: usize) -> Option<(usize, usize)> {
        let slot = index >> self.stride_log2;
        let position = read_number(self.positions, slot.checked_sub(1)? * self.width, self.width)?;
        Some((slot << self.stride_log2, position))
    }
}

/// The nested tables of a document.
#[derive(Clone, Copy)]
pub(crate) struct NestedTables<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) width: usize,
}

impl<'a> NestedTables<'a> {
    /// The table of the object that begins at `place`.
    pub(crate) fn object(&self, place: usize, end: usize) -> Option<FieldTable<'a>> {
        let table = self.table(place)?;
        let count = read_number(table, 0, self.width)?;
        Some(FieldTable::new(table.get(self.width..)?, count, self.width, end))
    }

    /// The table of the array that begins at `place`.
    pub(crate) fn array(&self, place: usize) -> Option<ElementTable<'a>> {
        let table = self.table(place)?;
        let stride_log2 = u32::from(*table.first()?).min(31);
        let count = read_number(table, 1, self.width)?;
        Some(ElementTable { positions: table.get(1 + self.width..)?, count, stride_log2, width: self.width })
    }

    /// Binary search in the directory.
    fn table(&self, place: usize) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        let (entries, pair) = (read_number(self.bytes, 0, self.width)?, 2 * self.width);
        let directory = self.bytes.get(self.width..self.width + entries.checked_mul(pair)?)?;
        let (mut low, mut high) = (0, entries);
        while low < high {
            let middle = (low + high) / 2;
            if read_number(directory, middle * pair, self.width)? < place { low = middle + 1 } else { high = middle }
        }
        if read_number(directory, low * pair, self.width)? != place {
            return None;
        }
        let offset = read_number(directory, low * pair + self.width, self.width)?;
        self.bytes.get(self.width + directory.len() + offset..)
    }
}
