//! The bytes of a simulated file, in blocks that copies share: a crash copies whole disks, which are mostly zeros or unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 4096;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// A directory.
pub(crate) type Files = BTreeMap<String, Content>;

type Block = Option<Arc<[u8; BLOCK]>>;

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Content {
    /// `None` is zeros. The bytes after the end of the file are zeros too.
    blocks: Vec<Block>,
    len: usize,
}

impl Content {
    pub(crate) fn of(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Truncates the file, or extends it with zeros.
    pub(crate) fn set_len(&mut self, len: usize) {
        if len < self.len && !len.is_multiple_of(BLOCK) {
            let (block, from) = (len / BLOCK, len % BLOCK);
            if let Some(block) = &mut self.blocks[block] {
                Arc::make_mut(block)[from..].fill(0);
            }
        }
        self.len = len;
        self.blocks.resize(len.div_ceil(BLOCK), None);
    }

    /// Overwrites, and extends the file where it is shorter.
    pub(crate) fn write(&mut self, offset: usize, mut bytes: &[u8]) {
        self.set_len(self.len.max(offset + bytes.len()));
        let mut at = offset;
        while !bytes.is_empty() {
            let (block, from) = (at / BLOCK, at % BLOCK);
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - from));
            if part == ZEROS {
                self.blocks[block] = None;
            } else {
                let block = self.blocks[block].get_or_insert_with(|| Arc::new(ZEROS));
                Arc::make_mut(block)[from..from + part.len()].copy_from_slice(part);
            }
            (bytes, at) = (rest, at + part.len());
        }
    }

    /// Reads the bytes that exist; returns how many.
    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(buffer.len());
        let mut done = 0;
        while done < count {
            let (block, from) = ((offset + done) / BLOCK, (offset + done) % BLOCK);
            let part = (count - done).min(BLOCK - from);
            let bytes = self.blocks[block].as_deref().unwrap_or(&ZEROS);
            buffer[done..done + part].copy_from_slice(&bytes[from..from + part]);
            done += part;
        }
        count
    }

    /// The blocks that are not all zeros, with their offsets.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let blocks = self.blocks.iter().enumerate();
        blocks.filter_map(move |(number, block)| {
            let (start, bytes) = (number * BLOCK, block.as_deref()?);
            Some((start as u64, &bytes[..BLOCK.min(self.len - start)]))
        })
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }
}
