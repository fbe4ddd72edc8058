//! The hash functions of twemproxy, bit for bit as libmemcached's hashkit computes them.
//!
//! Several differ from the usual functions of their names. The differences are kept, because a key must stay on the node that
//! twemproxy has chosen:
//!
//! - `crc16` keeps the bits that are shifted out of its 16 bits.
//! - `crc32` returns 15 bits above the lower half of a CRC-32; the whole CRC-32 is `crc32a`.
//! - The FNV functions and `one_at_a_time` sign-extend each byte: 0x80 and above count as negative. (So does `hsieh` for the last
//!   byte of three.)
//! - `fnv1a_64` computes with 32 bits.

use md5::{Digest, Md5};

/// A hash function, by its name in twemproxy's configuration (`hash:`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hash {
    /// Jenkins's one-at-a-time.
    OneAtATime,
    /// The first four bytes of MD5 (RFC 1321), little-endian.
    Md5,
    /// CRC-16 with the polynomial 0x1021, not truncated to 16 bits.
    Crc16,
    /// 15 bits of a CRC-32.
    Crc32,
    /// CRC-32 (ISO 3309), as in zlib.
    Crc32a,
    /// The lower half of 64-bit FNV-1.
    Fnv1_64,
    /// FNV-1a with the prime and the offset of 64 bits, computed in 32 bits.
    #[default]
    Fnv1a64,
    /// FNV-1 of 32 bits.
    Fnv1_32,
    /// FNV-1a of 32 bits.
    Fnv1a32,
    /// Hsieh's SuperFastHash.
    Hsieh,
    /// MurmurHash2, seeded by the length.
    Murmur,
    /// Jenkins's lookup3.
    Jenkins,
}

impl Hash {
    /// All functions, with their names in a configuration.
    pub const ALL: [(&'static str, Hash); 12] = [
        ("one_at_a_time", Hash::OneAtATime),
        ("md5", Hash::Md5),
        ("crc16", Hash::Crc16),
        ("crc32", Hash::Crc32),
        ("crc32a", Hash::Crc32a),
        ("fnv1_64", Hash::Fnv1_64),
        ("fnv1a_64", Hash::Fnv1a64),
        ("fnv1_32", Hash::Fnv1_32),
        ("fnv1a_32", Hash::Fnv1a32),
        ("hsieh", Hash::Hsieh),
        ("murmur", Hash::Murmur),
        ("jenkins", Hash::Jenkins),
    ];

    /// The hash of a key, which must not be empty.
    pub fn of(self, key: &[u8]) -> u32 {
        match self {
            Hash::OneAtATime => one_at_a_time(key),
            Hash::Md5 => md5_word(key, 0),
            Hash::Crc16 => key.iter().fold(0, |crc: u32, byte| (crc << 8) ^ crc16_of((crc >> 8) as u8 ^ byte)),
            Hash::Crc32 => (crc32fast::hash(key) >> 16) & 0x7fff,
            Hash::Crc32a => crc32fast::hash(key),
            Hash::Fnv1_64 => {
                let step = |hash: u64, byte: &u8| hash.wrapping_mul(FNV_64_PRIME) ^ signed(*byte) as u64;
                key.iter().fold(FNV_64_START, step) as u32
            }
            Hash::Fnv1a64 => {
                let step = |hash: u32, byte: &u8| (hash ^ signed(*byte) as u32).wrapping_mul(FNV_64_PRIME as u32);
                key.iter().fold(FNV_64_START as u32, step)
            }
            Hash::Fnv1_32 => {
                let step = |hash: u32, byte: &u8| hash.wrapping_mul(FNV_32_PRIME) ^ signed(*byte) as u32;
                key.iter().fold(FNV_32_START, step)
            }
            Hash::Fnv1a32 => {
                let step = |hash: u32, byte: &u8| (hash ^ signed(*byte) as u32).wrapping_mul(FNV_32_PRIME);
                key.iter().fold(FNV_32_START, step)
            }
            Hash::Hsieh => hsieh(key),
            Hash::Murmur => murmur(key),
            Hash::Jenkins => jenkins(key),
        }
    }
}

const FNV_64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x100_0000_01b3;
const FNV_32_START: u32 = 2_166_136_261;
const FNV_32_PRIME: u32 = 16_777_619;

/// The byte as C's `char`, which has a sign on x86.
fn signed(byte: u8) -> i64 {
    i64::from(byte as i8)
}

/// One of the four little-endian words of a text's MD5.
pub(super) fn md5_word(text: &[u8], number: usize) -> u32 {
    let digest = Md5::digest(text);
    u32::from_le_bytes(std::array::from_fn(|byte| digest[number * 4 + byte]))
}

/// The table entry of a byte for the polynomial 0x1021 (CRC-16/XMODEM).
const fn crc16_of(byte: u8) -> u32 {
    CRC16[byte as usize] as u32
}

static CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-16/XMODEM, by which Redis Cluster places keys.
pub(super) fn crc16(key: &[u8]) -> u16 {
    key.iter().fold(0, |crc: u16, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

fn one_at_a_time(key: &[u8]) -> u32 {
    let step = |mut hash: u32, byte: &u8| {
        hash = hash.wrapping_add(signed(*byte) as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    };
    let mut hash = key.iter().fold(0, step);
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

fn hsieh(key: &[u8]) -> u32 {
    let pair = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let (blocks, rest) = key.as_chunks::<4>();
    let mut hash: u32 = 0;
    for block in blocks {
        hash = hash.wrapping_add(pair(block));
        hash = (hash << 16) ^ (pair(&block[2..]) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match rest {
        [_, _, last] => {
            hash = hash.wrapping_add(pair(rest));
            hash ^= hash << 16;
            hash ^= (signed(*last) as u32) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [_, _] => {
            hash = hash.wrapping_add(pair(rest));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [only] => {
            hash = hash.wrapping_add(u32::from(*only));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

fn murmur(key: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let length = key.len() as u32;
    let mut hash = 0xdead_beef_u32.wrapping_mul(length) ^ length;
    let (blocks, rest) = key.as_chunks::<4>();
    for block in blocks {
        let mut word = u32::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        word ^= word >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ word.wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

/// Up to four bytes as a number.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

/// Jenkins's lookup3 (`hashlittle`) with the initial value 13.
fn jenkins(key: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(13);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = key;
    while rest.len() > 12 {
        let (block, behind) = rest.split_at(12);
        a = a.wrapping_add(little_endian(&block[..4]));
        b = b.wrapping_add(little_endian(&block[4..8]));
        c = c.wrapping_add(little_endian(&block[8..]));
        mix(&mut a, &mut b, &mut c);
        rest = behind;
    }
    if rest.is_empty() {
        return c;
    }
    let mut words = rest.chunks(4).map(little_endian);
    a = a.wrapping_add(words.next().unwrap_or(0));
    b = b.wrapping_add(words.next().unwrap_or(0));
    c = c.wrapping_add(words.next().unwrap_or(0));
    for (turned, by, from) in [(2, 14, 1), (0, 11, 2), (1, 25, 0), (2, 16, 1), (0, 4, 2), (1, 14, 0), (2, 24, 1)] {
        let mut all = [a, b, c];
        all[turned] = (all[turned] ^ all[from]).wrapping_sub(all[from].rotate_left(by));
        [a, b, c] = all;
    }
    c
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for by in [[4, 6, 8], [16, 19, 4]] {
        for (turn, by) in by.into_iter().enumerate() {
            // In each turn x loses z and mixes in z rotated, and z gains y.
            let (x, y, z) = match turn {
                0 => (&mut *a, &mut *b, &mut *c),
                1 => (&mut *b, &mut *c, &mut *a),
                _ => (&mut *c, &mut *a, &mut *b),
            };
            *x = x.wrapping_sub(*z) ^ z.rotate_left(by);
            *z = z.wrapping_add(*y);
        }
    }
}
