//! Order-preserving encoding of values in index keys: bytes compare as the values do.
//!
//! NULL < numbers < text, as in queries; text is ordered by its bytes. An integer and a real that are equal as numbers have the
//! same encoding by [`lower`]; [`encode`] adds a tail that marks the kind, so that decoding restores the value exactly. An index
//! key is the fields by [`lower`] one after another, then the encoded primary key, which makes it unique. So equal fields are
//! adjacent, in the order of the fields that follow; [`super::index`] has the numbers whose kind the key does not tell.
//!
//! ```text
//!  NULL      05
//!  number    tag, then the big-endian bytes of its floor without leading zeros, then a tail for reals
//!              18+n  floor >= 0 in n bytes (0 has none)     17-n  floor < 0: its complement in n bytes, inverted
//!              tail: none = integer, EF = -0.0, F0 = a real equal to the integer, F1 + 8 bytes = a fraction
//!  huge real 0A (below -2^63) or 28 (2^63 and more), then 8 bytes
//!  text      30, its bytes with 00 written as 00 FF, then 00
//! ```
//!
//! The 8 bytes of a real are its bits, big-endian, with the sign bit flipped, all bits flipped for negatives.
//!
//! Invariants:
//!
//! - Every tag is below every tail byte (`TAIL_MIN`), so an integer, whatever field follows, sorts before the reals with the
//!   same floor. An encoding is never a prefix of another, except that of an integer, which is a prefix of the reals with its
//!   floor.
//! - [`lower`] and [`upper`] bound exactly the keys whose field equals a value, 5 and 5.0 alike.
//! - No encoding begins with [`WRITTEN`].

/// A value as SQL sees it, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// A missing field or null.
    Null,
    /// An integer within 64 bits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text.
    Text(&'a str),
}

const NULL: u8 = 0x05;
const HUGE_NEGATIVE: u8 = 0x0a;
const MINUS_ONE: u8 = 0x17;
const ZERO: u8 = 0x18;
/// The tags of the numbers with eight bytes.
const ZERO_END: u8 = ZERO + 8;
const MINUS_END: u8 = MINUS_ONE - 8;
const HUGE_POSITIVE: u8 = 0x28;
const TEXT: u8 = 0x30;
/// Begins a number as its document writes it, in place of an encoding: see [`super::index`].
pub(crate) const WRITTEN: u8 = 0x40;
const TEXT_END: u8 = 0x00;
const TEXT_ESCAPE: u8 = 0xff;
const TAIL_NEGATIVE_ZERO: u8 = 0xef;
const TAIL_REAL: u8 = 0xf0;
const TAIL_FRACTION: u8 = 0xf1;
/// Length of a fraction's tail: its tag and the real.
const TAIL_FRACTION_BYTES: usize = 9;
/// Length of a huge real after its tag.
const HUGE_BYTES: usize = 8;
/// Tails start here; every tag lies below.
const TAIL_MIN: u8 = TAIL_NEGATIVE_ZERO;
/// 2^63 as a real: the first value above the range of i64.
const I64_END: f64 = 9_223_372_036_854_775_808.0;

const _: () = assert!(MINUS_END > HUGE_NEGATIVE && ZERO_END < HUGE_POSITIVE && TEXT < WRITTEN && WRITTEN < TAIL_MIN);

/// Appends the encoding of `value`, self-delimiting.
#[inline]
pub fn encode(value: Scalar<'_>, out: &mut Vec<u8>) {
    lower(value, out);
    if let Scalar::Real(real) = value
        && in_i64(real)
        && real.floor() == real
    {
        out.push(if real == 0.0 && real.is_sign_negative() { TAIL_NEGATIVE_ZERO } else { TAIL_REAL });
    }
}

/// Appends the smallest bytes of any key whose next field equals `value`; they are above every key with a smaller value.
#[inline]
pub fn lower(value: Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Null => out.push(NULL),
        Scalar::Integer(integer) => integer_bytes(integer, out),
        Scalar::Real(real) => real_bytes(real, out),
        Scalar::Text(text) => text_bytes(text, out),
    }
}

/// Appends bytes above every key whose next field equals `value`, whatever follows, and below every key with a greater value.
#[inline]
pub fn upper(value: Scalar<'_>, out: &mut Vec<u8>) {
    lower(value, out);
    raise(out);
}

/// Turns the bytes of [`lower`] into those of [`upper`].
#[inline]
pub fn raise(out: &mut Vec<u8>) {
    out.push(TAIL_FRACTION);
}

/// Bytes above every key that begins with these concatenated encoded values, and below every greater key without this prefix.
/// An integer covers all numbers with its floor.
pub fn end_of(values: &[u8]) -> Vec<u8> {
    let mut end = values.to_vec();
    end.push(u8::MAX);
    end
}

/// Takes one value off the front of `bytes`; escaped text is unescaped into `scratch`. `None`: damaged.
#[inline]
pub fn decode<'a>(bytes: &mut &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Scalar<'a>> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        NULL => {
            *bytes = rest;
            Some(Scalar::Null)
        }
        HUGE_NEGATIVE | HUGE_POSITIVE => {
            let real = ordered_real(rest)?;
            if in_i64(real) || (real < 0.0) != (tag == HUGE_NEGATIVE) {
                return None;
            }
            *bytes = &rest[8..];
            Some(Scalar::Real(real))
        }
        TEXT => decode_text(bytes, rest, scratch),
        _ => decode_number(tag, bytes, rest),
    }
}

/// The integer at the front of `bytes`, if the value is one: a fast path for the most common kind.
#[inline]
pub fn decode_integer(bytes: &[u8]) -> Option<i64> {
    let (&tag, rest) = bytes.split_first()?;
    let (length, fill) = number_length(tag)?;
    let (digits, behind) = rest.split_at_checked(length)?;
    if digits.first() == Some(&(fill as u8)) || behind.first().is_some_and(|&tail| tail >= TAIL_MIN) {
        return None; // Damaged, or a real.
    }
    // With eight digit bytes no fill remains: the shift by 64 bits gives `None`.
    let integer = fill.checked_shl(8 * length as u32).unwrap_or(0) | leading(digits) as i64;
    ((integer < 0) == (fill < 0)).then_some(integer)
}

/// Up to eight bytes as one number, without a loop over them.
#[inline]
fn leading(bytes: &[u8]) -> u64 {
    if let Some(all) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*all);
    }
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // The two halves overlap with equal bytes.
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << (8 * (bytes.len() - 4)) | u64::from(u32::from_be_bytes(*last))
        }
        _ => bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

/// The length of a number's floor, and its fill: all ones for negatives, all zeros otherwise.
#[inline]
fn number_length(tag: u8) -> Option<(usize, i64)> {
    match tag {
        ZERO..=ZERO_END => Some((usize::from(tag - ZERO), 0)),
        MINUS_END..=MINUS_ONE => Some((usize::from(MINUS_ONE - tag), -1)),
        _ => None,
    }
}

/// Skips one value without decoding it. `None`: damaged.
#[inline]
pub fn skip(bytes: &mut &[u8]) -> Option<()> {
    let (&tag, rest) = bytes.split_first()?;
    let length = match number_length(tag) {
        Some((length, _)) => length,
        None => return skip_other(bytes),
    };
    let rest = rest.get(length..)?;
    let tail = match rest.first() {
        Some(&TAIL_FRACTION) => TAIL_FRACTION_BYTES,
        Some(&(TAIL_NEGATIVE_ZERO | TAIL_REAL)) => 1,
        _ => 0,
    };
    *bytes = rest.get(tail..)?;
    Some(())
}

fn skip_other(bytes: &mut &[u8]) -> Option<()> {
    let (&tag, rest) = bytes.split_first()?;
    let length = match tag {
        NULL => 0,
        HUGE_NEGATIVE | HUGE_POSITIVE => HUGE_BYTES,
        TEXT => text_length(rest)?,
        _ => return None,
    };
    *bytes = rest.get(length..)?;
    Some(())
}

/// The length of a text including its terminator.
fn text_length(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += rest.get(at..)?.iter().position(|&b| b == TEXT_END)? + 1;
        if rest.get(at) != Some(&TEXT_ESCAPE) {
            return Some(at);
        }
        at += 1;
    }
}

fn in_i64(real: f64) -> bool {
    (-I64_END..I64_END).contains(&real)
}

#[inline]
fn integer_bytes(integer: i64, out: &mut Vec<u8>) {
    let magnitude = if integer < 0 { !integer } else { integer } as u64;
    let bytes = 8 - magnitude.leading_zeros() / 8;
    let tag = if integer < 0 { MINUS_ONE - bytes as u8 } else { ZERO + bytes as u8 };
    // Sign-extended, a negative's low bytes are already the inverted bytes of its complement. Eight bytes are copied and then
    // truncated: a copy of a variable length would be a call to `memcpy`.
    let digits = (integer as u64).checked_shl(64 - 8 * bytes).unwrap_or(0);
    let end = out.len() + 1 + bytes as usize;
    let [a, b, c, d, e, f, g, h] = digits.to_be_bytes();
    out.extend_from_slice(&[tag, a, b, c, d, e, f, g, h]);
    out.truncate(end);
}

fn real_bytes(real: f64, out: &mut Vec<u8>) {
    if !in_i64(real) {
        // JSON has no NaN; a computed one sorts as the greatest number and is preserved.
        out.push(if real < 0.0 { HUGE_NEGATIVE } else { HUGE_POSITIVE });
        out.extend_from_slice(&real_ordered(real));
        return;
    }
    let floor = real.floor();
    integer_bytes(floor as i64, out);
    if floor != real {
        out.push(TAIL_FRACTION);
        out.extend_from_slice(&real_ordered(real));
    }
}

fn text_bytes(text: &str, out: &mut Vec<u8>) {
    out.push(TEXT);
    let mut rest = text.as_bytes();
    while let Some(zero) = rest.iter().position(|&b| b == TEXT_END) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(TEXT_ESCAPE);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.push(TEXT_END);
}

fn real_ordered(real: f64) -> [u8; 8] {
    let bits = real.to_bits();
    let flipped = if bits >> 63 == 1 { !bits } else { bits ^ (1 << 63) };
    flipped.to_be_bytes()
}

fn ordered_real(bytes: &[u8]) -> Option<f64> {
    let flipped = u64::from_be_bytes(*bytes.first_chunk()?);
    let bits = if flipped >> 63 == 1 { flipped ^ (1 << 63) } else { !flipped };
    Some(f64::from_bits(bits))
}

#[inline]
fn decode_number<'a>(tag: u8, bytes: &mut &'a [u8], rest: &'a [u8]) -> Option<Scalar<'a>> {
    let (length, fill) = number_length(tag)?;
    let fill = fill as u8;
    let digits = rest.get(..length)?;
    if digits.first() == Some(&fill) {
        return None; // A shorter encoding exists: damaged.
    }
    let mut all = [fill; 8];
    all[8 - length..].copy_from_slice(digits);
    let integer = i64::from_be_bytes(all);
    if (integer < 0) != (fill == 0xff) {
        return None;
    }
    let rest = &rest[length..];
    let (value, used) = match rest.first() {
        Some(&TAIL_NEGATIVE_ZERO) if integer == 0 => (Scalar::Real(-0.0), 1),
        Some(&TAIL_REAL) => (Scalar::Real(integer as f64), 1),
        Some(&TAIL_FRACTION) => {
            let real = ordered_real(&rest[1..])?;
            if !in_i64(real) || real.floor() as i64 != integer {
                return None;
            }
            (Scalar::Real(real), 9)
        }
        _ => (Scalar::Integer(integer), 0),
    };
    *bytes = &rest[used..];
    Some(value)
}

#[inline]
fn decode_text<'a>(bytes: &mut &'a [u8], rest: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Scalar<'a>> {
    let end = rest.iter().position(|&b| b == TEXT_END)?;
    if rest.get(end + 1) != Some(&TEXT_ESCAPE) {
        *bytes = &rest[end + 1..];
        return std::str::from_utf8(&rest[..end]).ok().map(Scalar::Text);
    }
    scratch.clear();
    let mut at = 0;
    loop {
        let zero = at + rest.get(at..)?.iter().position(|&b| b == TEXT_END)?;
        scratch.extend_from_slice(&rest[at..zero]);
        at = zero + 1;
        if rest.get(at) != Some(&TEXT_ESCAPE) {
            break;
        }
        scratch.push(TEXT_END);
        at += 1;
    }
    *bytes = &rest[at..];
    std::str::from_utf8(scratch).ok().map(Scalar::Text)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Owned {
        Null,
        Integer(i64),
        Real(f64),
        Text(String),
    }

    impl Owned {
        fn scalar(&self) -> Scalar<'_> {
            match self {
                Owned::Null => Scalar::Null,
                Owned::Integer(i) => Scalar::Integer(*i),
                Owned::Real(r) => Scalar::Real(*r),
                Owned::Text(t) => Scalar::Text(t),
            }
        }

        fn class(&self) -> u8 {
            match self {
                Owned::Null => 0,
                Owned::Integer(_) | Owned::Real(_) => 1,
                Owned::Text(_) => 2,
            }
        }
    }

    /// Compares an integer with a real exactly, the slow way: through the real's integer part and the rest.
    fn integer_to_real(integer: i64, real: f64) -> Ordering {
        if real >= I64_END {
            return Ordering::Less;
        }
        if real < -I64_END {
            return Ordering::Greater;
        }
        (integer as i128).cmp(&(real.floor() as i128)).then(if real.floor() < real {
            Ordering::Less
        } else {
            Ordering::Equal
        })
    }

    fn value_order(a: &Owned, b: &Owned) -> Ordering {
        match (a, b) {
            (Owned::Integer(a), Owned::Integer(b)) => a.cmp(b),
            (Owned::Real(a), Owned::Real(b)) => a.partial_cmp(b).unwrap(),
            (Owned::Integer(a), Owned::Real(b)) => integer_to_real(*a, *b),
            (Owned::Real(a), Owned::Integer(b)) => integer_to_real(*b, *a).reverse(),
            (Owned::Text(a), Owned::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => a.class().cmp(&b.class()),
        }
    }

    fn number() -> impl Strategy<Value = Owned> {
        prop_oneof![
            any::<i64>().prop_map(Owned::Integer),
            (-300i64..300).prop_map(Owned::Integer),
            (0u32..64, -1i64..=1).prop_map(|(bit, by)| Owned::Integer((1i64 << bit).wrapping_add(by))),
            (-1200i64..1200).prop_map(|quarters| Owned::Real(quarters as f64 / 4.0)),
            (0u32..70, -1i32..=1, any::<bool>()).prop_map(|(bit, step, negative)| {
                let real = f64::from_bits((2f64.powi(bit as i32).to_bits() as i64 + i64::from(step)) as u64);
                Owned::Real(if negative { -real } else { real })
            }),
            any::<f64>().prop_filter("JSON has no NaN", |r| !r.is_nan()).prop_map(Owned::Real),
            prop_oneof![Just(0.0), Just(-0.0), Just(-1e-320), Just(f64::INFINITY), Just(f64::NEG_INFINITY)]
                .prop_map(Owned::Real),
        ]
    }

    fn value() -> impl Strategy<Value = Owned> {
        prop_oneof![
            1 => Just(Owned::Null),
            6 => number(),
            2 => "[\u{0}\u{1}a\u{ff}я]{0,4}".prop_map(Owned::Text),
            1 => ".{0,12}".prop_map(Owned::Text),
        ]
    }

    fn encoded(value: &Owned) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value.scalar(), &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn bytes_compare_as_the_values_whatever_follows(a in value(), b in value(), c in value(), d in value()) {
            let order = value_order(&a, &b);
            let left = [encoded(&a), encoded(&c)].concat();
            let right = [encoded(&b), encoded(&d)].concat();
            if order != Ordering::Equal {
                prop_assert_eq!(left.cmp(&right), order, "{:?} {:?}", a, b);
                prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), order);
            }
        }

        #[test]
        fn bounds_hold_exactly_the_equal_values(a in value(), b in value(), c in value()) {
            let (mut from, mut to) = (Vec::new(), Vec::new());
            lower(a.scalar(), &mut from);
            upper(a.scalar(), &mut to);
            for key in [encoded(&b), [encoded(&b), encoded(&c)].concat()] {
                prop_assert_eq!(key >= from, value_order(&b, &a) != Ordering::Less);
                prop_assert_eq!(key < to, value_order(&b, &a) != Ordering::Greater);
            }
        }

        #[test]
        fn decoding_gives_the_value_back_and_leaves_the_rest(a in value(), b in value()) {
            let bytes = [encoded(&a), encoded(&b)].concat();
            let mut rest = &bytes[..];
            let mut scratch = Vec::new();
            let found = decode(&mut rest, &mut scratch).unwrap();
            prop_assert_eq!(found, a.scalar());
            let integer = if let Owned::Integer(integer) = a { Some(integer) } else { None };
            prop_assert_eq!(decode_integer(&bytes), integer);
            if let (Scalar::Real(found), Owned::Real(sent)) = (found, &a) {
                prop_assert_eq!(found.to_bits(), sent.to_bits());
            }
            prop_assert_eq!(rest, &encoded(&b)[..]);
            let mut rest = &bytes[..];
            skip(&mut rest).unwrap();
            prop_assert_eq!(rest, &encoded(&b)[..]);
        }

        #[test]
        fn damaged_bytes_are_an_error_or_a_value_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut rest = &bytes[..];
            let mut scratch = Vec::new();
            let found = decode(&mut rest, &mut scratch).is_some();
            let mut view = &bytes[..];
            let skipped = skip(&mut view).is_some();
            prop_assert!(skipped || !found);
        }
    }

    #[test]
    fn small_integers_are_short() {
        assert_eq!(encoded(&Owned::Integer(0)), [0x18]);
        assert_eq!(encoded(&Owned::Integer(-1)), [0x17]);
        assert_eq!(encoded(&Owned::Integer(1_503_966_608)).len(), 5);
        assert_eq!(encoded(&Owned::Integer(i64::MIN)).len(), 9);
    }
}
