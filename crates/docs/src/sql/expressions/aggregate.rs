//! Aggregates, with and without groups: their states, and their results.
//!
//! SUM, AVG and TOTAL are exact and rounded once ([`RunningSum`]), as in a view: SQLite's last digit may differ. If an integer
//! SUM exceeds 64 bits only in between, SQLite returns an error; this version returns the sum.

use hashbrown::{HashMap, HashSet};

use super::expr::Expr;
use super::sum::RunningSum;
use crate::encoding::varint;
use crate::sql::functions::{Function, JsonFunction};
use crate::sql::limits::{Fault, Meter, TEXT_BYTES_MAX};
use crate::sql::values::value::compare;
use crate::sql::values::{FieldValue, IntegerText, Value, Workspace, number, sort};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    /// COUNT(*): has no argument.
    CountRows,
    Count,
    Sum,
    Avg,
    Total,
    Min,
    Max,
    GroupConcat,
    /// json_group_array: its argument is converted to JSON before it is added.
    JsonArray,
    /// json_group_object: its argument is a name with its value, as in an object's text.
    JsonObject,
}

impl AggregateKind {
    /// Whether its result is one text of all values, in the order of their rows.
    pub(crate) fn joins_texts(self) -> bool {
        matches!(self, AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject)
    }

    /// Whether its result is JSON.
    pub(crate) fn is_json(self) -> bool {
        matches!(self, AggregateKind::JsonArray | AggregateKind::JsonObject)
    }
}

/// One aggregate call of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateCall {
    pub(crate) kind: AggregateKind,
    /// COUNT(*) has none.
    pub(crate) argument: Option<Expr>,
    /// Of equal values only the first is aggregated.
    pub(crate) distinct: bool,
    /// Only rows that pass are aggregated.
    pub(crate) filter: Option<Expr>,
    /// The separator of GROUP_CONCAT; a comma if there is none.
    pub(crate) separator: Option<Expr>,
}

impl AggregateCall {
    /// Whether a row is added by [`AggregateState::step`] alone: without DISTINCT, without FILTER, and without a text to append to.
    pub(crate) fn is_plain(&self) -> bool {
        !self.distinct && self.filter.is_none() && !self.kind.joins_texts()
    }

    /// Whether it must keep its DISTINCT values: MIN and MAX need not.
    pub(crate) fn keeps_values(&self) -> bool {
        self.distinct && !matches!(self.kind, AggregateKind::Min | AggregateKind::Max)
    }

    /// The expression that DISTINCT compares, if it is not the argument: 1 and 1.0 are equal values, but different JSON.
    pub(crate) fn compared(&self) -> Option<&Expr> {
        match &self.argument {
            Some(Expr::Call(Function::Json(JsonFunction::Quote), values)) if self.kind.is_json() && self.distinct => {
                values.first()
            }
            _ => None,
        }
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.argument.iter().chain(&self.filter).chain(&self.separator)
    }

    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.argument.iter_mut().chain(&mut self.filter).chain(&mut self.separator)
    }

    /// The same call with each expression changed.
    pub(crate) fn map(&self, change: impl Fn(&Expr) -> Expr) -> AggregateCall {
        let mut call = self.clone();
        call.expressions_mut().for_each(|expr| *expr = change(expr));
        call
    }
}

/// Names of the aggregate functions.
pub(crate) const AGGREGATES: &[(&str, AggregateKind)] = &[
    ("count", AggregateKind::Count),
    ("sum", AggregateKind::Sum),
    ("avg", AggregateKind::Avg),
    ("total", AggregateKind::Total),
    ("min", AggregateKind::Min),
    ("max", AggregateKind::Max),
    ("group_concat", AggregateKind::GroupConcat),
    ("string_agg", AggregateKind::GroupConcat),
    ("json_group_array", AggregateKind::JsonArray),
    ("json_group_object", AggregateKind::JsonObject),
];

/// The state of an aggregate between rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct AggregateState {
    count: i64,
    sum: RunningSum,
    extreme: Extreme,
    rare: Option<Box<Rare>>,
}

/// A distinct value, and the bytes that are aggregated for it.
pub(crate) type DistinctValue = (Box<[u8]>, Box<[u8]>);

/// The part of the state that few aggregates have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// The values of a DISTINCT aggregate so far, if nothing else is needed of them.
    seen: HashSet<Box<[u8]>>,
    /// Otherwise the values with the bytes that are aggregated for the first of equal values: a summand, or its arrival (u64)
    /// and text.
    values: HashMap<Box<[u8]>, Box<[u8]>>,
    /// Texts of GROUP_CONCAT(DISTINCT) and the JSON aggregates with their arrivals, not joined yet.
    texts: Vec<(u64, Box<[u8]>)>,
    /// The text of GROUP_CONCAT or a JSON aggregate so far, and the separator that precedes it if other text comes before it.
    text: Vec<u8>,
    lead: Vec<u8>,
}

/// Estimate of the bytes of a DISTINCT value besides its own.
const SEEN_OVERHEAD_BYTES: usize = 32;
/// The same for a value with bytes to aggregate.
const VALUE_OVERHEAD_BYTES: usize = 80;
/// Units of work for moving a value from one state to another.
const KEPT_UNITS: u64 = 4;
pub(in crate::sql) const ARRIVAL_BYTES: usize = 8;
const DAMAGED: Fault = Fault::Damaged("a group on disk");

#[derive(Clone, Debug, Default)]
enum Extreme {
    #[default]
    None,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
}

impl Extreme {
    fn value(&self) -> Value<'_> {
        match self {
            Extreme::None => Value::Null,
            Extreme::Integer(integer) => Value::Integer(*integer),
            Extreme::Real(real) => Value::Real(*real),
            Extreme::Text(text) => Value::Text(text),
        }
    }

    fn set(&mut self, value: Value<'_>) {
        match (value, &mut *self) {
            (Value::Text(text), Extreme::Text(kept)) => {
                kept.clear();
                kept.extend_from_slice(text);
            }
            (Value::Null, _) => *self = Extreme::None,
            (Value::Integer(integer), _) => *self = Extreme::Integer(integer),
            (Value::Real(real), _) => *self = Extreme::Real(real),
            (Value::Text(text), _) => *self = Extreme::Text(text.to_vec()),
        }
    }
}

impl AggregateState {
    /// Estimate of the bytes of a state, without its rare part.
    pub(crate) fn bytes(kind: AggregateKind) -> usize {
        let is_sum = matches!(kind, AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total);
        std::mem::size_of::<AggregateState>() + if is_sum { RunningSum::FAR_BYTES } else { 0 }
    }

    /// Adds one row's value.
    #[inline]
    pub(crate) fn step(&mut self, kind: AggregateKind, value: Value<'_>) {
        match kind {
            AggregateKind::CountRows => self.count += 1,
            _ if value.is_null() => {}
            AggregateKind::Count => self.count += 1,
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total => self.add(value),
            AggregateKind::Min | AggregateKind::Max => {
                let wanted =
                    if kind == AggregateKind::Min { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
                if self.count == 0 || compare(value, self.extreme.value()) == wanted {
                    self.extreme.set(value);
                }
                self.count += 1;
            }
            AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject => self.count += 1,
        }
    }

    /// Adds one row's value to an aggregate that is not plain; returns how many more bytes it holds. DISTINCT compares
    /// `compared`; `separator` is that of GROUP_CONCAT; `arrival` is the number of the value.
    pub(crate) fn step_rare(
        &mut self,
        call: &AggregateCall,
        (value, compared): (Value<'_>, Value<'_>),
        (separator, arrival): (&[u8], u64),
        workspace: Workspace<'_>,
    ) -> Result<usize, Fault> {
        let mut grown = 0;
        if call.distinct && !value.is_null() {
            let mut key = Vec::new();
            workspace.meter.row_room().take(FieldValue::Value(compared))?;
            sort::push_key(compared, false, &mut key)?;
            let rare = self.rare.get_or_insert_default();
            if rare.seen.contains(&key[..]) || rare.values.contains_key(&key[..]) {
                return Ok(0);
            }
            grown += rare.keep(key.into_boxed_slice(), call.value_of(value, arrival, workspace)?);
        }
        if call.kind.joins_texts()
            && let Some(text) = value.to_text(workspace)?
        {
            let first = self.count == 0;
            let rare = self.rare.get_or_insert_default();
            grown += separator.len() + text.len();
            if first {
                rare.lead.extend_from_slice(separator);
            }
            let (kept, separator) = (&mut rare.text, if first { &[][..] } else { separator });
            if kept.len() + separator.len() + text.len() > TEXT_BYTES_MAX {
                return Err(Fault::TextTooLong);
            }
            kept.extend_from_slice(separator);
            kept.extend_from_slice(text);
        }
        self.step(call.kind, value);
        Ok(grown)
    }

    #[inline]
    fn add(&mut self, value: Value<'_>) {
        self.count += 1;
        match summand(value) {
            Value::Integer(integer) => self.sum.add_integer(integer),
            other => self.sum.add_real(other.to_real()),
        }
    }

    /// Adds the state of later rows; returns how many more bytes it holds.
    pub(crate) fn add_part(
        &mut self,
        part: AggregateState,
        call: &AggregateCall,
        meter: &Meter<'_>,
    ) -> Result<usize, Fault> {
        let mut grown = 0;
        if part.count > 0 && matches!(call.kind, AggregateKind::Min | AggregateKind::Max) {
            let before = self.extreme_bytes();
            self.add_extreme(&part, call.kind);
            grown += self.extreme_bytes().saturating_sub(before);
        }
        match part.rare {
            Some(rare) if call.distinct && !rare.values.is_empty() => {
                for (key, value) in rare.values {
                    meter.tick(KEPT_UNITS)?;
                    let own = self.rare.get_or_insert_default();
                    if !own.values.contains_key(&key) {
                        self.step(call.kind, summand_of(&value)?);
                        grown += self.rare.get_or_insert_default().keep(key, value);
                    }
                }
                return Ok(grown);
            }
            Some(rare) if call.distinct => {
                let own = self.rare.get_or_insert_default();
                for key in rare.seen {
                    meter.tick(KEPT_UNITS)?;
                    let bytes = key.len() + SEEN_OVERHEAD_BYTES;
                    grown += if own.seen.insert(key) { bytes } else { 0 };
                }
                self.count = own.seen.len() as i64;
                return Ok(grown);
            }
            Some(rare) if part.count > 0 => {
                let own = self.rare.get_or_insert_default();
                if own.text.len() + rare.lead.len() + rare.text.len() > TEXT_BYTES_MAX {
                    return Err(Fault::TextTooLong);
                }
                grown += rare.lead.len() + rare.text.len();
                if self.count == 0 {
                    own.lead = rare.lead;
                } else {
                    own.text.extend_from_slice(&rare.lead);
                }
                own.text.extend_from_slice(&rare.text);
            }
            _ => {}
        }
        self.count += part.count;
        self.sum.add_sum(&part.sum);
        Ok(grown)
    }

    /// Bytes of a text that is the minimum or maximum.
    pub(crate) fn extreme_bytes(&self) -> usize {
        if let Extreme::Text(text) = &self.extreme { text.capacity() } else { 0 }
    }

    /// Bytes that it holds on the heap, for texts and DISTINCT values.
    pub(crate) fn rare_bytes(&self) -> usize {
        let rare = self.rare.as_ref().map_or(0, |rare| {
            let seen: usize = rare.seen.iter().map(|key| key.len() + SEEN_OVERHEAD_BYTES).sum();
            let values: usize = rare.values.iter().map(|(key, value)| value_bytes(key, value)).sum();
            seen + values + rare.text.len() + rare.lead.len()
        });
        self.extreme_bytes() + rare
    }

    /// Removes and returns the values of a DISTINCT aggregate that keeps them, each with the bytes that are aggregated for it;
    /// the keys are made by [`sort::push_key`]. The state is empty afterwards.
    pub(crate) fn take_values(&mut self) -> Vec<DistinctValue> {
        let rare = std::mem::take(self).rare.map_or_else(Rare::default, |rare| *rare);
        let seen = rare.seen.into_iter().map(|key| (key, Box::default()));
        rare.values.into_iter().chain(seen).collect()
    }

    /// Adds a value that differs from all before. [`Self::end_values`] must follow.
    pub(crate) fn add_value(&mut self, call: &AggregateCall, value: &[u8]) -> Result<(), Fault> {
        match call.kind {
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total => {
                self.step(call.kind, summand_of(value)?);
            }
            AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject => {
                let (arrival, text) = value.split_first_chunk::<ARRIVAL_BYTES>().ok_or(DAMAGED)?;
                let rare = self.rare.get_or_insert_default();
                // Counting the bytes here limits the texts in memory to the length of one result.
                self.count += text.len() as i64 + 1;
                if self.count > TEXT_BYTES_MAX as i64 + 1 {
                    return Err(Fault::TextTooLong);
                }
                rare.texts.push((u64::from_be_bytes(*arrival), text.into()));
            }
            _ => self.count += 1,
        }
        Ok(())
    }

    /// Ends the values: joins their texts.
    pub(crate) fn end_values(&mut self, meter: &Meter<'_>) -> Result<(), Fault> {
        let Some(rare) = self.rare.as_mut().filter(|rare| !rare.texts.is_empty()) else { return Ok(()) };
        let texts = std::mem::take(&mut rare.texts);
        let mut order: Vec<(u64, &[u8])> = texts.iter().map(|(arrival, text)| (*arrival, &text[..])).collect();
        sort::sort_in_pieces(&mut order, |(arrival, _)| *arrival, meter)?;
        self.count = order.len() as i64;
        for (number, (_, text)) in order.into_iter().enumerate() {
            meter.tick(1)?;
            rare.text.extend((number > 0).then_some(b','));
            rare.text.extend_from_slice(text);
        }
        Ok(())
    }

    /// Appends its encoding, without the values of a DISTINCT aggregate.
    pub(crate) fn encode(&self, call: &AggregateCall, out: &mut Vec<u8>) {
        varint::push_signed(out, self.count);
        match call.kind {
            AggregateKind::CountRows | AggregateKind::Count => {}
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total => self.sum.encode(out),
            AggregateKind::Min | AggregateKind::Max => sort::push_field(FieldValue::Value(self.extreme.value()), out),
            AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject => {
                let texts = self.rare.as_ref().map_or([&[][..]; 2], |rare| [&rare.lead[..], &rare.text]);
                texts.into_iter().for_each(|text| sort::push_field(FieldValue::Json(text), out));
            }
        }
    }

    /// Decodes a state from the front of `bytes`.
    pub(crate) fn decode(call: &AggregateCall, bytes: &mut &[u8]) -> Result<AggregateState, Fault> {
        let mut state =
            AggregateState { count: varint::take_signed(bytes).ok_or(DAMAGED)?, ..AggregateState::default() };
        match call.kind {
            AggregateKind::CountRows | AggregateKind::Count => {}
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total => {
                state.sum = RunningSum::decode(bytes).ok_or(DAMAGED)?;
            }
            AggregateKind::Min | AggregateKind::Max => match sort::take_field(bytes) {
                FieldValue::Value(value) => state.extreme.set(value),
                FieldValue::Json(_) => return Err(DAMAGED),
            },
            AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject => {
                let (FieldValue::Json(lead), FieldValue::Json(text)) =
                    (sort::take_field(bytes), sort::take_field(bytes))
                else {
                    return Err(DAMAGED);
                };
                if state.count > 0 {
                    let rare = state.rare.get_or_insert_default();
                    (rare.lead, rare.text) = (lead.to_vec(), text.to_vec());
                }
            }
        }
        Ok(state)
    }

    fn add_extreme(&mut self, part: &AggregateState, kind: AggregateKind) {
        let value = part.extreme.value();
        let wanted = if kind == AggregateKind::Min { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        if self.count == 0 || compare(value, self.extreme.value()) == wanted {
            self.extreme.set(value);
        }
    }

    /// The result over the rows added.
    pub(crate) fn finish<'a>(&'a self, kind: AggregateKind, workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
        let text = || self.rare.as_ref().map_or(&[][..], |rare| &rare.text);
        Ok(match kind {
            AggregateKind::CountRows | AggregateKind::Count => Value::Integer(self.count),
            AggregateKind::Total => Value::real(self.sum.real()),
            AggregateKind::JsonArray => bracketed(b"[]", text(), workspace)?,
            AggregateKind::JsonObject => bracketed(b"{}", text(), workspace)?,
            _ if self.count == 0 => Value::Null,
            AggregateKind::Avg => Value::real(self.sum.real() / self.count as f64),
            AggregateKind::Sum => match self.sum.integer() {
                Some(sum) => Value::Integer(i64::try_from(sum).map_err(|_| Fault::IntegerOverflow)?),
                None => Value::real(self.sum.real()),
            },
            AggregateKind::Min | AggregateKind::Max => self.extreme.value(),
            AggregateKind::GroupConcat => Value::Text(text()),
        })
    }
}

impl AggregateCall {
    /// The bytes that are aggregated for a DISTINCT value; empty if its presence is enough.
    fn value_of(&self, value: Value<'_>, arrival: u64, workspace: Workspace<'_>) -> Result<Box<[u8]>, Fault> {
        let mut out = Vec::new();
        match self.kind {
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total => {
                sort::push_field(FieldValue::Value(summand(value)), &mut out);
            }
            AggregateKind::GroupConcat | AggregateKind::JsonArray | AggregateKind::JsonObject => {
                out.extend_from_slice(&arrival.to_be_bytes());
                out.extend_from_slice(value.to_text(workspace)?.unwrap_or_default());
            }
            _ => {}
        }
        Ok(out.into_boxed_slice())
    }
}

impl Rare {
    /// Keeps a new value; returns its bytes.
    fn keep(&mut self, key: Box<[u8]>, value: Box<[u8]>) -> usize {
        if value.is_empty() {
            let bytes = key.len() + SEEN_OVERHEAD_BYTES;
            self.seen.insert(key);
            return bytes;
        }
        let bytes = value_bytes(&key, &value);
        self.values.insert(key, value);
        bytes
    }
}

fn value_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + VALUE_OVERHEAD_BYTES
}

fn bracketed<'a>(brackets: &[u8; 2], text: &[u8], workspace: Workspace<'a>) -> Result<Value<'a>, Fault> {
    let mut out = workspace.text_within(text.len() + 2)?;
    out.extend(&brackets[..1])?;
    out.extend(text)?;
    out.extend(&brackets[1..])?;
    Ok(out.value())
}

fn summand_of(mut value: &[u8]) -> Result<Value<'_>, Fault> {
    match sort::take_field(&mut value) {
        FieldValue::Value(value) => Ok(value),
        FieldValue::Json(_) => Err(DAMAGED),
    }
}

/// The summand of a value that is not NULL.
#[inline]
pub(crate) fn summand(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Text(text) => match number::integer_prefix(text) {
            (integer, IntegerText::Whole) => Value::Integer(integer),
            _ => Value::Real(value.to_real()),
        },
        Value::Integer(integer) => Value::Integer(integer),
        other => Value::Real(other.to_real()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::limits::Budget;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn texts_of_a_group_are_brought_into_their_order_and_the_time_is_asked_for() {
        let call = AggregateCall {
            kind: AggregateKind::GroupConcat,
            argument: None,
            distinct: true,
            filter: None,
            separator: None,
        };
        let (mut state, count) = (AggregateState::default(), 200_000u64);
        for number in 0..count {
            let arrival = number.wrapping_mul(77_773) % count;
            let text = if arrival < 10 { b'0' + arrival as u8 } else { b'x' };
            state.add_value(&call, &[&arrival.to_be_bytes()[..], &[text]].concat()).expect("a value");
        }
        let asked = AtomicUsize::new(0);
        let over = || {
            asked.fetch_add(1, Ordering::Relaxed);
            false
        };
        state.end_values(&Meter::new(&Budget { deadline: Some(&over), ..Budget::default() })).expect("time");
        let text = &state.rare.as_ref().expect("texts").text;
        assert!(text.starts_with(b"0,1,2,3,4,5,6,7,8,9,x,x,"), "{:?}", &text[..32]);
        assert_eq!(text.len() as u64, 2 * count - 1);
        assert!(asked.into_inner() > 500);
    }
}
