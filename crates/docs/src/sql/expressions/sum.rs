//! The running sum of SUM, AVG and TOTAL. It is exact: the result depends neither on the order of rows nor on their
//! distribution among threads, and a view's sum equals its query's to the last bit.
//!
//! Integers are added in 128 bits. Most reals are added in another 128 bits, as whole multiples of 2^-80, which represent every
//! real from 2^-28 to 2^45 exactly. That takes fewer steps than compensated summation (Kahan, Babuška, Neumaier), which SQLite
//! uses and which is not exact. All other reals, and those that would overflow, are added to a sum wide enough for every real
//! ([`ExactSum`]).

use crate::encoding::{ExactSum, ONE_BIT, varint};

/// Reals are kept as whole multiples of 2^-`FIXED_BITS`.
const FIXED_BITS: u32 = 80;
/// The biased exponent of a double whose last bit stands for 2^-80.
const EXPONENT_MIN: u32 = 1075 - FIXED_BITS;
/// Number of shifts that a mantissa of 53 bits allows: one of the 128 bits is the sign.
const SHIFTS: u32 = 127 - FRACTION_BITS - 1;
const FRACTION_BITS: u32 = 52;
const EXPONENT_MASK: u32 = 0x7ff;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningSum {
    integer: i128,
    fixed: i128,
    is_real: bool,
    far: Option<Box<Far>>,
}

/// The part that few sums have.
#[derive(Clone, Debug, Default)]
struct Far {
    exact: ExactSum,
    /// Whether +infinity and -infinity were added.
    infinite: [bool; 2],
}

impl RunningSum {
    /// The bytes that it may have on the heap.
    pub(crate) const FAR_BYTES: usize = std::mem::size_of::<Far>();

    #[inline]
    pub(crate) fn add_integer(&mut self, integer: i64) {
        // Only 2^64 rows could exceed 128 bits.
        self.integer += i128::from(integer);
    }

    #[inline]
    pub(crate) fn add_real(&mut self, real: f64) {
        self.is_real = true;
        let bits = real.to_bits();
        let exponent = (bits >> FRACTION_BITS) as u32 & EXPONENT_MASK;
        let shift = exponent.wrapping_sub(EXPONENT_MIN);
        if shift < SHIFTS {
            let mantissa = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
            let magnitude = i128::from(mantissa) << shift;
            let moved = if real < 0.0 { -magnitude } else { magnitude };
            if let Some(sum) = self.fixed.checked_add(moved) {
                self.fixed = sum;
                return;
            }
        }
        self.add_far(real);
    }

    /// Adds a real that is too large, too small or would overflow; also zero, the infinities and NaN.
    #[cold]
    fn add_far(&mut self, real: f64) {
        if real == 0.0 {
            return;
        }
        let far = self.far.get_or_insert_default();
        if real.is_nan() {
            far.infinite = [true; 2];
        } else if real.is_infinite() {
            far.infinite[usize::from(real < 0.0)] = true;
        } else {
            far.exact.add(real);
        }
    }

    /// Adds another sum.
    pub(crate) fn add_sum(&mut self, other: &RunningSum) {
        self.integer += other.integer;
        self.is_real |= other.is_real;
        let fixed = self.fixed.checked_add(other.fixed);
        if fixed.is_none() || other.far.is_some() {
            let far = self.far.get_or_insert_default();
            if let Some(other) = &other.far {
                far.exact.add_sum(&other.exact);
                far.infinite = [far.infinite[0] | other.infinite[0], far.infinite[1] | other.infinite[1]];
            }
            if fixed.is_none() {
                far.exact.add_scaled(other.fixed, ONE_BIT - FIXED_BITS as usize);
            }
        }
        self.fixed = fixed.unwrap_or(self.fixed);
    }

    /// Appends its encoding.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_real) | u8::from(self.far.is_some()) << 1);
        varint::push_wide_signed(out, self.integer);
        varint::push_wide_signed(out, self.fixed);
        if let Some(far) = &self.far {
            out.extend_from_slice(&far.infinite.map(u8::from));
            far.exact.encode(out);
        }
    }

    /// Decodes a sum from the front of `bytes`.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<RunningSum> {
        let flags = take(bytes, 1)?.first().copied()?;
        let (integer, fixed) = (varint::take_wide_signed(bytes)?, varint::take_wide_signed(bytes)?);
        let mut far = None;
        if flags & 2 != 0 {
            let infinite = [take(bytes, 1)? != [0], take(bytes, 1)? != [0]];
            let mut exact = ExactSum::default();
            exact.add_encoded(bytes)?;
            far = Some(Box::new(Far { exact, infinite }));
        }
        Some(RunningSum { integer, fixed, is_real: flags & 1 != 0, far })
    }

    /// The sum, if only integers were added.
    pub(crate) fn integer(&self) -> Option<i128> {
        (!self.is_real).then_some(self.integer)
    }

    /// The sum as a real, rounded once; NaN if infinities of both signs were added.
    pub(crate) fn real(&self) -> f64 {
        if !self.is_real {
            return self.integer as f64;
        }
        let (mut exact, infinite) = match &self.far {
            Some(far) => (far.exact.clone(), far.infinite),
            None => (ExactSum::default(), [false; 2]),
        };
        match infinite {
            [false, false] => {
                exact.add_integer(self.integer);
                exact.add_scaled(self.fixed, ONE_BIT - FIXED_BITS as usize);
                exact.round()
            }
            [true, false] => f64::INFINITY,
            [false, true] => f64::NEG_INFINITY,
            [true, true] => f64::NAN,
        }
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn real() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |real| real.is_finite()),
            (-1_000_000i32..1_000_000).prop_map(|tenths| f64::from(tenths) / 10.0),
            (-90i32..60, any::<u32>()).prop_map(|(power, digits)| 2f64.powi(power) * (1.0 + f64::from(digits) / 7e9)),
            prop_oneof![
                Just(f64::MAX),
                Just(-f64::MAX),
                Just(5e-324),
                Just(0.0),
                Just(-0.0),
                Just(-1e13),
                Just(3.5e13)
            ],
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_sum_is_the_exact_one_rounded_once(reals in prop::collection::vec(real(), 1..40), integers in prop::collection::vec(any::<i64>(), 0..5)) {
            let (mut running, mut exact) = (RunningSum::default(), ExactSum::default());
            for real in &reals {
                running.add_real(*real);
                exact.add(*real);
            }
            for integer in &integers {
                running.add_integer(*integer);
                exact.add_integer(i128::from(*integer));
            }
            prop_assert_eq!(running.real().to_bits(), exact.round().to_bits(), "{} {}", running.real(), exact.round());
        }

        #[test]
        fn parts_add_up(reals in prop::collection::vec(real(), 0..40), integers in prop::collection::vec(any::<i64>(), 0..5), cut in 0usize..40) {
            let (mut whole, mut parts) = (RunningSum::default(), [RunningSum::default(), RunningSum::default()]);
            for (number, real) in reals.iter().enumerate() {
                whole.add_real(*real);
                parts[usize::from(number < cut)].add_real(*real);
            }
            for (number, integer) in integers.iter().enumerate() {
                whole.add_integer(*integer);
                parts[number % 2].add_integer(*integer);
            }
            let [mut sum, other] = parts;
            let mut bytes = Vec::new();
            other.encode(&mut bytes);
            let mut rest = &bytes[..];
            sum.add_sum(&RunningSum::decode(&mut rest).expect("it was just encoded"));
            prop_assert!(rest.is_empty());
            prop_assert_eq!((sum.real().to_bits(), sum.integer()), (whole.real().to_bits(), whole.integer()));
        }

        #[test]
        fn order_does_not_matter(reals in prop::collection::vec(real(), 0..40)) {
            let (mut there, mut back) = (RunningSum::default(), RunningSum::default());
            reals.iter().for_each(|real| there.add_real(*real));
            reals.iter().rev().for_each(|real| back.add_real(*real));
            prop_assert_eq!(there.real().to_bits(), back.real().to_bits());
        }
    }

    #[test]
    fn what_has_no_room_any_more_is_not_lost() {
        let mut sum = RunningSum::default();
        (0..10_000).for_each(|_| sum.add_real(3.5e13));
        (0..9_999).for_each(|_| sum.add_real(-3.5e13));
        sum.add_real(2f64.powi(-28));
        assert_eq!(sum.real(), 3.5e13 + 2f64.powi(-28));
    }

    #[test]
    fn integers_alone_stay_integers_and_infinities_show() {
        let mut sum = RunningSum::default();
        [i64::MAX, i64::MAX, i64::MIN].into_iter().for_each(|integer| sum.add_integer(integer));
        assert_eq!(sum.integer(), Some(i128::from(i64::MAX - 1)));
        sum.add_integer(i64::MAX);
        assert_eq!(sum.integer(), Some(i128::from(i64::MAX) * 2 - 1));
        sum.add_real(f64::INFINITY);
        assert_eq!((sum.integer(), sum.real()), (None, f64::INFINITY));
        sum.add_real(f64::NEG_INFINITY);
        assert!(sum.real().is_nan());
    }
}
