//! Equality of stored JSON values as the standard defines it: numbers by value, objects without regard to the order of fields.
//! Nothing is copied; the compared bytes are counted ([`super::meter`]).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};

use binjson::{JsonKind, JsonValue};
use jsonschema::json::cmp;
use serde_json::{Number, Value as Json};

use super::meter;

/// Elements that are hashed before the first search for equal ones; further searches follow at each doubling.
const FIRST_LOOK: usize = 1024;

/// A stored number. Integers outside 64 bits become reals, and reals beyond the largest double become it.
pub(super) fn number(value: JsonValue<'_>) -> Number {
    match value.as_i64() {
        Some(integer) => Number::from(integer),
        None => {
            let real = value.as_f64().unwrap_or_default().clamp(f64::MIN, f64::MAX);
            Number::from_f64(real).unwrap_or_else(|| Number::from(0))
        }
    }
}

/// Whether a stored value equals this one.
pub(super) fn is(stored: JsonValue<'_>, expected: &Json) -> bool {
    meter::enter(0);
    match (stored.kind(), expected) {
        (JsonKind::Null, Json::Null) => true,
        (JsonKind::Bool, Json::Bool(expected)) => stored.as_bool() == Some(*expected),
        (JsonKind::Integer | JsonKind::Number, Json::Number(_)) => {
            meter::read(stored.raw().len());
            cmp::equal(&Json::Number(number(stored)), expected)
        }
        (JsonKind::String, Json::String(expected)) => {
            meter::read(stored.raw().len().min(8 * expected.len() + 2));
            // An escape takes up to six bytes for one byte.
            stored.raw().len() <= 6 * expected.len() + 2 && stored.as_str().as_deref() == Some(expected)
        }
        (JsonKind::Array, Json::Array(expected)) => {
            meter::read(stored.raw().len());
            stored.len() == expected.len() && stored.elements().zip(expected).all(|(one, other)| is(one, other))
        }
        (JsonKind::Object, Json::Object(expected)) => {
            meter::read(stored.raw().len());
            let found = |(name, expected): (&String, &Json)| {
                meter::enter(name.len());
                stored.field(name).is_some_and(|value| is(value, expected))
            };
            stored.len() == expected.len() && expected.iter().all(found)
        }
        _ => false,
    }
}

/// Whether two stored values are equal.
fn are_equal(one: JsonValue<'_>, other: JsonValue<'_>) -> bool {
    let (one_raw, other_raw) = (one.raw(), other.raw());
    meter::enter(one_raw.len().min(other_raw.len()));
    if one_raw == other_raw {
        return true;
    }
    match (one.kind(), other.kind()) {
        (JsonKind::Integer | JsonKind::Number, JsonKind::Integer | JsonKind::Number) => {
            meter::read(one_raw.len() + other_raw.len());
            cmp::equal(&Json::Number(number(one)), &Json::Number(number(other)))
        }
        (JsonKind::Array, JsonKind::Array) => {
            meter::read(one_raw.len() + other_raw.len());
            one.len() == other.len() && one.elements().zip(other.elements()).all(|(one, other)| are_equal(one, other))
        }
        (JsonKind::Object, JsonKind::Object) => {
            meter::read(one_raw.len() + other_raw.len());
            let found = |(name, value): (binjson::StoredName<'_>, JsonValue<'_>)| {
                meter::enter(name.stored().len());
                let name = name.as_str().unwrap_or_default();
                other.field(&name).is_some_and(|found| are_equal(value, found))
            };
            one.len() == other.len() && one.fields().all(found)
        }
        // Equal strings, booleans and nulls have equal bytes.
        _ => false,
    }
}

/// Whether all elements of an array differ. Their 64-bit hashes, made with a random key, are kept; only elements with equal
/// hashes are compared.
pub(super) fn are_unique(array: JsonValue<'_>) -> bool {
    let state = RandomState::new();
    let mut hashes = Hashes { all: Vec::new(), taken: 0 };
    let mut look_at = FIRST_LOOK;
    for element in array.elements() {
        hashes.push(hash(&state, element));
        if hashes.all.len() == look_at {
            look_at *= 2;
            if !hashes.equal_ones().is_empty() && has_equal(&state, array, &hashes.equal_ones()) {
                return false;
            }
        }
    }
    let equal = hashes.equal_ones();
    equal.is_empty() || !has_equal(&state, array, &equal)
}

/// Hashes of elements; their memory is counted.
struct Hashes {
    all: Vec<u64>,
    taken: usize,
}

impl Hashes {
    fn push(&mut self, hash: u64) {
        if self.all.len() == self.all.capacity() {
            let more = self.all.capacity().max(64);
            // While the vector grows, the old allocation exists too.
            let grown = (self.all.capacity() + 2 * more) * size_of::<u64>();
            meter::take_bytes(grown);
            self.taken += grown;
            self.all.reserve_exact(more);
        }
        self.all.push(hash);
    }

    /// The hashes that occur more than once, in order.
    fn equal_ones(&mut self) -> Vec<u64> {
        meter::read(self.all.len() * size_of::<u64>());
        self.all.sort_unstable();
        let mut equal: Vec<u64> =
            self.all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).take(FIRST_LOOK).collect();
        equal.dedup();
        equal
    }
}

impl Drop for Hashes {
    fn drop(&mut self) {
        meter::give_bytes(self.taken);
    }
}

/// Whether two of the elements with these hashes are equal. Unequal elements with one hash are extremely rare.
fn has_equal(state: &RandomState, array: JsonValue<'_>, equal: &[u64]) -> bool {
    let mut seen: Vec<(u64, JsonValue<'_>)> = Vec::new();
    for element in array.elements() {
        let hash = hash(state, element);
        if equal.binary_search(&hash).is_err() {
            continue;
        }
        if seen.iter().any(|(other, before)| *other == hash && are_equal(*before, element)) {
            return true;
        }
        meter::take_bytes(4 * size_of::<(u64, JsonValue<'_>)>());
        meter::read(seen.len() * size_of::<(u64, JsonValue<'_>)>());
        seen.push((hash, element));
    }
    false
}

fn hash(state: &RandomState, value: JsonValue<'_>) -> u64 {
    let mut hasher = state.build_hasher();
    hash_into(state, value, &mut hasher);
    hasher.finish()
}

fn hash_into(state: &RandomState, value: JsonValue<'_>, hasher: &mut impl Hasher) {
    let raw = value.raw();
    meter::enter(raw.len());
    match value.kind() {
        JsonKind::Integer | JsonKind::Number => hash_number(value, hasher),
        JsonKind::Array => {
            hasher.write_u8(b'[');
            value.elements().for_each(|element| hash_into(state, element, hasher));
            hasher.write_u8(b']');
        }
        JsonKind::Object => {
            let fields = value.fields().fold(0u64, |sum, (name, value)| {
                let mut field = state.build_hasher();
                name.stored().hash(&mut field);
                hash_into(state, value, &mut field);
                sum.wrapping_add(field.finish())
            });
            hasher.write_u8(b'{');
            hasher.write_u64(fields);
        }
        _ => raw.hash(hasher),
    }
}

/// Equal numbers have the same hash: whole numbers within 64 bits are hashed as integers.
fn hash_number(value: JsonValue<'_>, hasher: &mut impl Hasher) {
    let number = number(value);
    let real = number.as_f64().unwrap_or_default();
    // 2^63 does not fit i64.
    let whole = number.as_i64().or_else(|| (real.fract() == 0.0 && real.abs() < 2f64.powi(63)).then_some(real as i64));
    match whole {
        Some(whole) => hasher.write_i64(whole),
        None => hasher.write_u64(real.to_bits()),
    }
}
