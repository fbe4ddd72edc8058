//! Reusable buffers for bodies of replies: a reply that is made and sent on one thread allocates nothing for its body.

use std::cell::RefCell;
use std::io;
use std::ops::Deref;

/// Number of buffers that a thread keeps, and the largest capacity of a kept one.
const KEPT_MAX: usize = 4;
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of a body. When dropped, the buffer returns to the dropping thread's pool.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty buffer from the thread's pool.
    pub(crate) fn take() -> Buffer {
        let bytes = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        Buffer { bytes }
    }

    /// Its bytes, mutable.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Its bytes as a vector, to be moved elsewhere.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() == 0 || bytes.capacity() > KEPT_BYTES_MAX {
            return;
        }
        bytes.clear();
        // When the thread ends, its pool is gone; the buffer is then simply freed.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_buffer_is_used_again_unless_it_grew_large() {
        let mut buffer = Buffer::take();
        buffer.write_all(b"page").unwrap();
        drop(buffer);
        let mut again = Buffer::take();
        assert!(again.is_empty() && again.bytes.capacity() >= 4);
        again.write_all(&vec![b'x'; KEPT_BYTES_MAX + 1]).unwrap();
        drop(again);
        assert_eq!(Buffer::take().bytes.capacity(), 0);
    }
}
