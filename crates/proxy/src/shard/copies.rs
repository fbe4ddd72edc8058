//! Copies of requests, kept until they are answered: a cluster may redirect them (`cluster.rs`).

/// Copies of the unanswered requests of a node connection, concatenated.
#[derive(Default)]
pub(crate) struct Copies {
    bytes: Vec<u8>,
    start: usize,
}

impl Copies {
    pub(crate) fn push(&mut self, request: &[u8]) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(request);
    }

    /// Bytes of storage.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn front(&self, bytes: u32) -> &[u8] {
        &self.bytes[self.start..self.start + bytes as usize]
    }

    /// Drops the copy of the first request, which was answered.
    pub(crate) fn drop_front(&mut self, bytes: u32) {
        self.start += bytes as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_given_back_in_their_order() {
        let mut copies = Copies::default();
        for round in 0..100_u8 {
            copies.push(&[round; 10]);
            copies.push(&[round; 5]);
            assert_eq!(copies.front(10), [round; 10]);
            copies.drop_front(10);
            assert_eq!(copies.front(5), [round; 5]);
            copies.drop_front(5);
        }
        assert!(copies.bytes.len() < 100);
    }
}
