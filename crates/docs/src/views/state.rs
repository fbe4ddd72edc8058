//! The stored state of a view's group: counts and sums, as bytes that can be added.
//!
//! A state and a change of a state have the same form: a document adds its own state, and is removed by adding the negation. So
//! changes may arrive in any order, from writes and from a build at once, and the result is the sum. Addition has an inverse,
//! and each sum has one encoding ([`ExactSum`] for the reals): equal contents are equal bytes, and a group without rows has no
//! bytes.
//!
//! ```text
//!  state   rows (zigzag varint) | entries, by ascending header
//!  entry   header (varint): number * 8 + kind | content; zero entries are left out
//!    kind 0  COUNT(x)            number: the slot       content: count (zigzag varint)
//!    kind 1  SUM(x), AVG, TOTAL  number: the slot       content: see below
//!    kind 2  COUNT(DISTINCT x)   number: the slot       content: count (zigzag varint)
//!    kind 4… how a group's value was written ([`WrittenForm`]): number: its place in GROUP BY, content: number of rows
//!  sum     number of integers (zigzag varint) | their sum (zigzag varint, 128 bits) | 0, or 1 and
//!            number of reals, of plus infinities, of minus infinities (zigzag varints) | exact sum of the finite ones
//! ```

use crate::encoding::{ExactSum, varint};

const KIND_BITS: u32 = 3;
const COUNT: u64 = 0;
const SUM: u64 = 1;
const DISTINCT: u64 = 2;
const FORM: u64 = 4;

/// How a group's value was written, if the group's key does not determine it: 5 and 5.0 are one group, and so are 1 and `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WrittenForm {
    /// A real that equals an integer.
    Real = 0,
    /// -0.0.
    NegativeZero = 1,
    /// `true` or `false`, selected by itself.
    Boolean = 2,
    /// The text of an object or array, selected by itself.
    Json = 3,
}

/// A number that SUM adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    /// Never NaN.
    Real(f64),
}

/// Writes the state of one row. Headers must come in ascending order: counts and sums by slot, then forms.
pub(crate) struct OneRow<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> OneRow<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> OneRow<'o> {
        out.clear();
        varint::push_signed(out, 1);
        OneRow { out }
    }

    pub(crate) fn count(&mut self, slot: usize) {
        header(self.out, slot, COUNT);
        varint::push_signed(self.out, 1);
    }

    pub(crate) fn sum(&mut self, slot: usize, number: Number) {
        header(self.out, slot, SUM);
        let mut sum = Sum::default();
        sum.add(number);
        sum.encode(self.out);
    }

    pub(crate) fn form(&mut self, place: usize, form: WrittenForm) {
        header(self.out, place, FORM + form as u64);
        varint::push_signed(self.out, 1);
    }
}

/// The change of a group when COUNT(DISTINCT) in a slot goes up or down.
pub(crate) fn distinct_change(slot: usize, by: i64, out: &mut Vec<u8>) {
    varint::push_signed(out, 0);
    header(out, slot, DISTINCT);
    varint::push_signed(out, by);
}

fn header(out: &mut Vec<u8>, number: usize, kind: u64) {
    varint::push(out, (number as u64) << KIND_BITS | kind);
}

/// Forms after slots, as the two are numbered separately.
fn order(header: u64) -> (bool, u64) {
    (header & ((1 << KIND_BITS) - 1) >= FORM, header)
}

/// The state of SUM, AVG and TOTAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    integers: i64,
    integer: i128,
    reals: i64,
    infinite: [i64; 2],
    real: ExactSum,
}

impl Sum {
    pub(crate) fn add(&mut self, number: Number) {
        match number {
            Number::Integer(integer) => {
                self.integers += 1;
                self.integer += i128::from(integer);
            }
            Number::Real(real) => {
                self.reals += 1;
                match real.is_infinite() {
                    false => self.real.add(real),
                    true => self.infinite[usize::from(real < 0.0)] += 1,
                }
            }
        }
    }

    /// The number of summands.
    pub(crate) fn count(&self) -> i64 {
        self.integers + self.reals
    }

    /// The sum, if all summands are integers.
    pub(crate) fn integer(&self) -> Option<i128> {
        (self.reals == 0).then_some(self.integer)
    }

    /// The sum as a real, rounded once; NaN if it contains infinities of both signs.
    pub(crate) fn real(&self) -> f64 {
        match self.infinite {
            [0, 0] if self.reals == 0 => self.integer as f64,
            [0, 0] => {
                let mut all = self.real.clone();
                all.add_integer(self.integer);
                all.round()
            }
            [_, 0] => f64::INFINITY,
            [0, _] => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::push_signed(out, self.integers);
        varint::push_wide_signed(out, self.integer);
        let has_reals = self.reals != 0 || self.infinite != [0, 0] || !self.real.is_zero();
        out.push(u8::from(has_reals));
        if has_reals {
            varint::push_signed(out, self.reals);
            varint::push_signed(out, self.infinite[0]);
            varint::push_signed(out, self.infinite[1]);
            self.real.encode(out);
        }
    }

    /// Adds an encoded sum. Wraps around, so that a later subtraction restores the value.
    fn add_encoded(&mut self, bytes: &mut &[u8]) -> Option<()> {
        self.integers = self.integers.wrapping_add(varint::take_signed(bytes)?);
        self.integer = self.integer.wrapping_add(varint::take_wide_signed(bytes)?);
        let (flag, rest) = bytes.split_first()?;
        *bytes = rest;
        match flag {
            0 => Some(()),
            1 => {
                self.reals = self.reals.wrapping_add(varint::take_signed(bytes)?);
                for count in &mut self.infinite {
                    *count = count.wrapping_add(varint::take_signed(bytes)?);
                }
                self.real.add_encoded(bytes)
            }
            _ => None,
        }
    }

    fn negate(&mut self) {
        self.integers = self.integers.wrapping_neg();
        self.integer = self.integer.wrapping_neg();
        self.reals = self.reals.wrapping_neg();
        self.infinite = self.infinite.map(i64::wrapping_neg);
        self.real.negate();
    }

    fn is_zero(&self) -> bool {
        *self == Sum::default()
    }
}

/// The header of the next entry.
fn next_header(bytes: &mut &[u8]) -> Option<Option<u64>> {
    if bytes.is_empty() {
        return Some(None);
    }
    varint::take(bytes).map(Some)
}

/// Appends the sum of two states to `out`, nothing if it is zero. `None`: damaged, and `out` is invalid.
pub(crate) fn add(mut a: &[u8], mut b: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    let rows = take_rows(&mut a)?.wrapping_add(take_rows(&mut b)?);
    varint::push_signed(out, rows);
    let entries = out.len();
    let (mut left, mut right) = (next_header(&mut a)?, next_header(&mut b)?);
    loop {
        let smaller = match (left, right) {
            (None, None) => break,
            (Some(left), Some(right)) => order(left).cmp(&order(right)),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
        };
        match (smaller, left, right) {
            (std::cmp::Ordering::Less, Some(header), _) => {
                copy(header, &mut a, out)?;
                left = next_header(&mut a)?;
            }
            (std::cmp::Ordering::Greater, _, Some(header)) => {
                copy(header, &mut b, out)?;
                right = next_header(&mut b)?;
            }
            (_, Some(header), _) => {
                add_entry(header, &mut a, &mut b, out)?;
                left = next_header(&mut a)?;
                right = next_header(&mut b)?;
            }
            _ => return None,
        }
    }
    if rows == 0 && out.len() == entries {
        out.truncate(start);
    }
    Some(())
}

/// A state without any bytes is zero.
fn take_rows(bytes: &mut &[u8]) -> Option<i64> {
    if bytes.is_empty() { Some(0) } else { varint::take_signed(bytes) }
}

fn copy(header: u64, from: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    varint::push(out, header);
    let before = *from;
    skip(header, from)?;
    out.extend_from_slice(&before[..before.len() - from.len()]);
    Some(())
}

fn skip(header: u64, bytes: &mut &[u8]) -> Option<()> {
    match header & ((1 << KIND_BITS) - 1) {
        SUM => Sum::default().add_encoded(bytes),
        _ => varint::take_signed(bytes).map(drop),
    }
}

fn add_entry(header: u64, a: &mut &[u8], b: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    if header & ((1 << KIND_BITS) - 1) != SUM {
        let sum = varint::take_signed(a)?.wrapping_add(varint::take_signed(b)?);
        if sum != 0 {
            varint::push(out, header);
            varint::push_signed(out, sum);
        }
        return Some(());
    }
    let mut sum = Sum::default();
    sum.add_encoded(a)?;
    sum.add_encoded(b)?;
    if !sum.is_zero() {
        varint::push(out, header);
        sum.encode(out);
    }
    Some(())
}

/// Appends the negation of a state.
pub(crate) fn negated(mut state: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if state.is_empty() {
        return Some(());
    }
    varint::push_signed(out, varint::take_signed(&mut state)?.wrapping_neg());
    while let Some(header) = next_header(&mut state)? {
        varint::push(out, header);
        if header & ((1 << KIND_BITS) - 1) == SUM {
            let mut sum = Sum::default();
            sum.add_encoded(&mut state)?;
            sum.negate();
            sum.encode(out);
        } else {
            varint::push_signed(out, varint::take_signed(&mut state)?.wrapping_neg());
        }
    }
    Some(())
}

/// A decoded state, for display.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecodedState {
    pub(crate) rows: i64,
    counts: Vec<(usize, i64)>,
    distinct: Vec<(usize, i64)>,
    sums: Vec<(usize, Sum)>,
    forms: Vec<(usize, u64, i64)>,
}

impl DecodedState {
    /// `None`: damaged.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<DecodedState> {
        let mut state = DecodedState { rows: take_rows(&mut bytes)?, ..DecodedState::default() };
        while let Some(header) = next_header(&mut bytes)? {
            let (number, kind) = ((header >> KIND_BITS) as usize, header & ((1 << KIND_BITS) - 1));
            match kind {
                COUNT => state.counts.push((number, varint::take_signed(&mut bytes)?)),
                DISTINCT => state.distinct.push((number, varint::take_signed(&mut bytes)?)),
                SUM => {
                    let mut sum = Sum::default();
                    sum.add_encoded(&mut bytes)?;
                    state.sums.push((number, sum));
                }
                FORM.. => state.forms.push((number, kind - FORM, varint::take_signed(&mut bytes)?)),
                _ => return None,
            }
        }
        Some(state)
    }

    pub(crate) fn count(&self, slot: usize) -> i64 {
        find(&self.counts, slot).copied().unwrap_or(0)
    }

    pub(crate) fn distinct(&self, slot: usize) -> i64 {
        find(&self.distinct, slot).copied().unwrap_or(0)
    }

    pub(crate) fn sum(&self, slot: usize) -> Option<&Sum> {
        find(&self.sums, slot)
    }

    /// How the group's value at a place is displayed: plainly if any row wrote it plainly, else in the lowest form.
    pub(crate) fn form(&self, place: usize) -> Option<WrittenForm> {
        let forms = || self.forms.iter().filter(|(at, ..)| *at == place);
        let odd: i64 = forms().map(|(.., rows)| rows).sum();
        if odd < self.rows {
            return None;
        }
        match forms().find(|(.., rows)| *rows > 0)?.1 {
            0 => Some(WrittenForm::Real),
            1 => Some(WrittenForm::NegativeZero),
            2 => Some(WrittenForm::Boolean),
            _ => Some(WrittenForm::Json),
        }
    }

    /// Whether any of the group's values has a form.
    pub(crate) fn has_forms(&self) -> bool {
        !self.forms.is_empty()
    }
}

fn find<T>(list: &[(usize, T)], slot: usize) -> Option<&T> {
    list.iter().find(|(number, _)| *number == slot).map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    struct Of {
        counts: [bool; 3],
        sums: [Option<Number>; 2],
        form: Option<WrittenForm>,
    }

    fn number() -> impl Strategy<Value = Number> {
        prop_oneof![
            any::<i64>().prop_map(Number::Integer),
            (-50i64..50).prop_map(Number::Integer),
            (-1000i32..1000).prop_map(|tenths| Number::Real(f64::from(tenths) / 10.0)),
            prop_oneof![Just(1e300), Just(f64::INFINITY), Just(-0.0), Just(f64::NEG_INFINITY), Just(5e-324)]
                .prop_map(Number::Real),
        ]
    }

    fn row() -> impl Strategy<Value = Of> {
        let form = prop_oneof![
            Just(None),
            Just(Some(WrittenForm::Real)),
            Just(Some(WrittenForm::NegativeZero)),
            Just(Some(WrittenForm::Boolean)),
            Just(Some(WrittenForm::Json))
        ];
        (any::<[bool; 3]>(), prop::option::of(number()), prop::option::of(number()), form)
            .prop_map(|(counts, a, b, form)| Of { counts, sums: [a, b], form })
    }

    fn encoded(of: &Of) -> Vec<u8> {
        let mut out = Vec::new();
        let mut row = OneRow::begin(&mut out);
        (0..3).filter(|slot| of.counts[*slot]).for_each(|slot| row.count(slot));
        for (place, number) in of.sums.iter().enumerate() {
            if let Some(number) = number {
                row.sum(place + 3, *number);
            }
        }
        if let Some(form) = of.form {
            row.form(1, form);
        }
        out
    }

    fn sum(states: &[Vec<u8>]) -> Vec<u8> {
        states.iter().fold(Vec::new(), |sum, state| {
            let mut out = Vec::new();
            add(&sum, state, &mut out).unwrap();
            out
        })
    }

    fn undo(state: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        negated(state, &mut out).unwrap();
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn states_add_in_any_order_and_come_apart_again(rows in prop::collection::vec(row(), 0..10), cut in 0usize..10) {
            let states: Vec<Vec<u8>> = rows.iter().map(encoded).collect();
            let mut backwards = states.clone();
            backwards.reverse();
            prop_assert_eq!(sum(&states), sum(&backwards));
            let cut = cut.min(states.len());
            prop_assert_eq!(sum(&states), sum(&[sum(&states[..cut]), sum(&states[cut..])]));
            // If everything is removed in another order than it was added, no bytes are left.
            let mut all = backwards;
            all.extend(states.iter().map(|state| undo(state)));
            prop_assert_eq!(sum(&all), Vec::<u8>::new());
            prop_assert_eq!(sum(&[undo(&sum(&states)), sum(&states)]), Vec::<u8>::new());
        }

        #[test]
        fn a_state_tells_what_its_rows_had(rows in prop::collection::vec(row(), 1..10)) {
            let states: Vec<Vec<u8>> = rows.iter().map(encoded).collect();
            let state = DecodedState::read(&sum(&states)).unwrap();
            prop_assert_eq!(state.rows, rows.len() as i64);
            for slot in 0..3 {
                prop_assert_eq!(state.count(slot), rows.iter().filter(|row| row.counts[slot]).count() as i64);
            }
            for place in 0..2 {
                let numbers: Vec<Number> = rows.iter().filter_map(|row| row.sums[place]).collect();
                let found = state.sum(place + 3).map_or((0, None), |sum| (sum.count(), sum.integer()));
                prop_assert_eq!(found.0, numbers.len() as i64);
                let integers: Option<Vec<i128>> = numbers.iter().map(|n| match n {
                    Number::Integer(integer) => Some(i128::from(*integer)),
                    Number::Real(_) => None,
                }).collect();
                if !numbers.is_empty() {
                    prop_assert_eq!(found.1, integers.map(|integers| integers.iter().sum()));
                }
            }
            let forms: Vec<WrittenForm> = rows.iter().filter_map(|row| row.form).collect();
            let expected = if forms.len() < rows.len() { None } else { forms.iter().min().copied() };
            prop_assert_eq!(state.form(1), expected);
        }

        #[test]
        fn damaged_states_are_none_or_a_state_never_a_panic(a in prop::collection::vec(any::<u8>(), 0..24), b in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = add(&a, &b, &mut Vec::new());
            let _ = negated(&a, &mut Vec::new());
            let _ = DecodedState::read(&b);
        }
    }
}
