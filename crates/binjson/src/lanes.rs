//! Comparing sixteen bytes at once.
//!
//! Every x86-64 processor has SSE2, so nothing is detected at run time; other processors use a plain implementation. The tests
//! of `scan.rs` compare the implementation in use with a search byte by byte. Blocks are loaded as integers, which the compiler
//! turns into one load, so no pointer is used.

// The compiler treats a call of a function with a target feature as unsafe even if the target always has the feature.
#![allow(unsafe_code)]

/// Bytes compared in one step.
pub(crate) const BLOCK: usize = 16;

/// Bit `i` is set where byte `i` equals `wanted`.
#[inline]
pub(crate) fn equal(block: &[u8; BLOCK], wanted: u8) -> u32 {
    // SAFETY: SSE2 is part of x86-64; elsewhere this is a plain function.
    unsafe { blocks::equal(block, wanted) }
}

/// Bit `i` is set where byte `i` is a quote, a backslash or a control character.
#[inline]
pub(crate) fn string_stops(block: &[u8; BLOCK]) -> u32 {
    // SAFETY: SSE2 is part of x86-64; elsewhere this is a plain function.
    unsafe { blocks::string_stops(block) }
}

/// Bit `i` is set where byte `i` is a quote or a bracket.
#[inline]
pub(crate) fn structure_stops(block: &[u8; BLOCK]) -> u32 {
    // SAFETY: SSE2 is part of x86-64; elsewhere this is a plain function.
    unsafe { blocks::structure_stops(block) }
}

/// The bytes that end a run inside a string.
#[inline]
pub(crate) fn is_string_stop(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The bytes that begin or end a string, object or array.
#[inline]
pub(crate) fn is_structure_stop(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')
}

#[cfg(target_arch = "x86_64")]
mod blocks {
    use super::BLOCK;
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(block: &[u8; BLOCK]) -> __m128i {
        let whole = u128::from_le_bytes(*block);
        _mm_set_epi64x((whole >> 64) as i64, whole as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn mask(found: __m128i) -> u32 {
        _mm_movemask_epi8(found) as u32
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn equal(block: &[u8; BLOCK], wanted: u8) -> u32 {
        mask(_mm_cmpeq_epi8(load(block), _mm_set1_epi8(wanted as i8)))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn string_stops(block: &[u8; BLOCK]) -> u32 {
        let bytes = load(block);
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        mask(_mm_or_si128(_mm_or_si128(quote, backslash), control))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn structure_stops(block: &[u8; BLOCK]) -> u32 {
        let bytes = load(block);
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        // `[` and `{` differ in bit 5 alone, and so do `]` and `}`.
        let folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        let open = _mm_cmpeq_epi8(folded, _mm_set1_epi8(b'{' as i8));
        let close = _mm_cmpeq_epi8(folded, _mm_set1_epi8(b'}' as i8));
        mask(_mm_or_si128(quote, _mm_or_si128(open, close)))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod blocks {
    use super::{BLOCK, is_string_stop, is_structure_stop};

    fn mask(block: &[u8; BLOCK], wanted: impl Fn(u8) -> bool) -> u32 {
        block.iter().enumerate().fold(0, |mask, (i, &byte)| mask | u32::from(wanted(byte)) << i)
    }

    // Unsafe only to have the signature of the SSE2 function; it requires nothing of the caller.
    pub(super) unsafe fn equal(block: &[u8; BLOCK], wanted: u8) -> u32 {
        mask(block, |byte| byte == wanted)
    }

    // Unsafe only to have the signature of the SSE2 function; it requires nothing of the caller.
    pub(super) unsafe fn string_stops(block: &[u8; BLOCK]) -> u32 {
        mask(block, is_string_stop)
    }

    // Unsafe only to have the signature of the SSE2 function; it requires nothing of the caller.
    pub(super) unsafe fn structure_stops(block: &[u8; BLOCK]) -> u32 {
        mask(block, is_structure_stop)
    }
}
