//! A position in the log between two batches, with what identifies the batch that belongs there.
//!
//! ```text
//!  0         8        12         16         24      32
//!  +---------+--------+----------+----------+-------+
//!  | segment | offset | previous | sequence | epoch |
//!  | u64     | u32    | u32      | u64      | u64   |
//!  +---------+--------+----------+----------+-------+
//! ```
//!
//! Little-endian. It has no checksum of its own: it is part of a meta page, which has one. A recycled segment may hold
//! an old batch with a valid checksum at any position, so segment and offset alone are not enough.

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the segment.
    pub segment: u64,
    /// Byte offset within it.
    pub offset: u32,
    /// Checksum of the previous batch.
    pub previous: u32,
    /// Sequence number of the batch that belongs here.
    pub sequence: u64,
    /// Epoch of the previous batch; the next one's is the same or, after a recovery, higher.
    pub epoch: u64,
}

impl LogPosition {
    /// Bytes of the encoded form.
    pub const ENCODED_BYTES: usize = 32;

    /// The encoding drawn above.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[0..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.previous.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes
    }

    /// Any 32 bytes decode; the log checks whether the position exists.
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> LogPosition {
        LogPosition {
            segment: u64_at(bytes, 0),
            offset: u32_at(bytes, 8),
            previous: u32_at(bytes, 12),
            sequence: u64_at(bytes, 16),
            epoch: u64_at(bytes, 24),
        }
    }
}

/// Little-endian field of a byte layout. The caller ensures that it is inside.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

/// See [`u32_at`].
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_the_encoding() {
        let position = LogPosition { segment: 1 << 40, offset: 7, previous: 0xdead_beef, sequence: 3 << 33, epoch: 5 };
        assert_eq!(LogPosition::decode(&position.encode()), position);
    }
}
