//! Limits of the codec: the largest sizes that a peer may announce.

/// Bytes of one bulk string, Redis's `proto-max-bulk-len`.
pub const BULK_BYTES_MAX: u64 = 512 << 20;
/// Arguments of one request, the command's name included.
pub const ARGUMENTS_MAX: u64 = 1 << 20;
/// Elements of one aggregate of a reply; pairs of a map. Elements cost no memory, so this is the most that Redis itself can
/// send.
pub const ELEMENTS_MAX: u64 = u32::MAX as u64;
/// Depth of nested aggregates.
pub const DEPTH_MAX: usize = 128;
/// Bytes of one line without its end: an inline command, a length, a simple string, an error. Redis's `PROTO_INLINE_MAX_SIZE`.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// What a framer accepts. [`FrameLimits::default`] holds the constants of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of one bulk string.
    pub bulk_bytes_max: u64,
    /// Arguments of one request.
    pub arguments_max: u64,
    /// Elements of one aggregate of a reply.
    pub elements_max: u64,
    /// Depth of nested aggregates.
    pub depth_max: usize,
    /// Bytes of one line without its end.
    pub line_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> FrameLimits {
        FrameLimits {
            bulk_bytes_max: BULK_BYTES_MAX,
            arguments_max: ARGUMENTS_MAX,
            elements_max: ELEMENTS_MAX,
            depth_max: DEPTH_MAX,
            line_bytes_max: LINE_BYTES_MAX,
        }
    }
}
