//! Values computed once per execution, and cached between executions.
//!
//! An expression that calls functions on parameters only, such as `unixepoch(:now, 'unixepoch', printf('%+d years', -:age))`,
//! costs more than a short query's rows, and is often evaluated for the same few values. So a thread caches the last results,
//! keyed by the expression and its integer parameters. Only numbers and NULL are cached; an expression that may depend on the
//! time is computed each time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bumpalo::Bump;

use super::expr::Expr;
use super::row::{Fixed, Scope};
use crate::sql::functions::Function;
use crate::sql::functions::dates::DateFunction;
use crate::sql::limits::Fault;
use crate::sql::values::{OwnedValue, Value, Workspace};

/// Results that a thread caches.
const REMEMBERED_MAX: usize = 1 << REMEMBERED_BITS;
const REMEMBERED_BITS: u32 = 8;
/// Most parameters of a cached expression.
const ARGUMENTS_MAX: usize = 2;
/// 2^64 divided by the golden ratio, as for any multiplicative hash.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers of expressions, so that no two of a process share results. 0 is unused.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The cache key of an expression, without the parameters' values.
#[derive(Clone, Debug)]
pub(crate) struct Repeatable {
    number: u64,
    /// The slots of its parameters.
    parameters: Vec<usize>,
}

/// The repeatable expressions of a query. Its plans share their results: equal expressions have one number.
#[derive(Debug, Default)]
pub(crate) struct Repeatables {
    known: Mutex<Vec<(Expr, Repeatable)>>,
}

impl Repeatables {
    /// The cache key of an expression, if it is repeatable.
    pub(crate) fn of(&self, expr: &Expr) -> Option<Repeatable> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, repeatable)) = known.iter().find(|(known, _)| known == expr) {
            return Some(repeatable.clone());
        }
        let repeatable = Repeatable::of(expr)?;
        known.push((expr.clone(), repeatable.clone()));
        Some(repeatable)
    }
}

/// Results of a thread's earlier executions.
#[derive(Default)]
pub(crate) struct Remembered {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    number: u64,
    arguments: [i64; ARGUMENTS_MAX],
    result: Kept,
}

#[derive(Clone, Copy, Default)]
enum Kept {
    #[default]
    Null,
    Integer(i64),
    Real(f64),
}

impl Repeatable {
    /// `None` if the expression calls no function, has more than two parameters, or may depend on the time or on an inner or
    /// outer query.
    fn of(expr: &Expr) -> Option<Repeatable> {
        let (mut calls, mut parameters, mut timeless) = (false, Vec::new(), true);
        expr.walk(&mut |part| match part {
            Expr::Parameter(slot) if !parameters.contains(slot) => parameters.push(*slot),
            Expr::InInner(..) | Expr::ScalarInner(..) | Expr::ExistsInner(_) | Expr::Outer(_) => timeless = false,
            Expr::Call(function, arguments) => {
                calls = true;
                timeless &= is_timeless(*function, arguments);
            }
            _ => {}
        });
        let few = parameters.len() <= ARGUMENTS_MAX;
        (calls && timeless && few).then(|| Repeatable { number: NUMBER.fetch_add(1, Ordering::Relaxed), parameters })
    }

    /// The current values of its parameters, if all are integers.
    fn arguments(&self, fixed: &Fixed<'_>) -> Option<[i64; ARGUMENTS_MAX]> {
        let mut arguments = [0; ARGUMENTS_MAX];
        for (slot, argument) in self.parameters.iter().zip(&mut arguments) {
            let Value::Integer(integer) = fixed.parameters[*slot] else { return None };
            *argument = integer;
        }
        Some(arguments)
    }
}

/// Whether a call does not depend on the time. A date function does if its time value is 'now' or missing, never if it is a
/// number. A parameter counts as a number: results are cached only for integers.
fn is_timeless(function: Function, arguments: &[Expr]) -> bool {
    let place = match function {
        Function::Date(DateFunction::Strftime) => 1,
        Function::Date(DateFunction::TimeDiff) => return arguments.iter().all(is_number),
        Function::Date(_) => 0,
        _ => return true,
    };
    arguments.get(place).is_some_and(is_number)
}

fn is_number(time: &Expr) -> bool {
    matches!(time, Expr::Parameter(_) | Expr::Literal(OwnedValue::Integer(_) | OwnedValue::Real(_)))
}

impl Remembered {
    fn place(&mut self, number: u64, arguments: [i64; ARGUMENTS_MAX]) -> &mut Entry {
        if self.entries.is_empty() {
            self.entries.resize(REMEMBERED_MAX, Entry::default());
        }
        let mixed = arguments.iter().fold(number, |mixed, argument| (mixed ^ *argument as u64).wrapping_mul(SPREAD));
        &mut self.entries[(mixed >> (u64::BITS - REMEMBERED_BITS)) as usize]
    }

    fn value<'a>(&mut self, repeatable: &Repeatable, expr: &'a Expr, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        let Some(arguments) = repeatable.arguments(scope.fixed) else { return expr.evaluate(scope) };
        let entry = self.place(repeatable.number, arguments);
        if entry.number == repeatable.number && entry.arguments == arguments {
            return Ok(match entry.result {
                Kept::Null => Value::Null,
                Kept::Integer(integer) => Value::Integer(integer),
                Kept::Real(real) => Value::Real(real),
            });
        }
        let value = expr.evaluate(scope)?;
        let result = match value {
            Value::Null => Kept::Null,
            Value::Integer(integer) => Kept::Integer(integer),
            Value::Real(real) => Kept::Real(real),
            Value::Text(_) => return Ok(value),
        };
        *entry = Entry { number: repeatable.number, arguments, result };
        Ok(value)
    }
}

/// The constants of a plan, each as its value or its error, which is reported only when a row uses it. `repeatable` are the
/// cache keys.
pub(crate) fn evaluate<'a>(
    (constants, repeatable): (&'a [Expr], &[Option<Repeatable>]),
    fixed: &Fixed<'a>,
    arena: &'a Bump,
    remembered: &mut Remembered,
) -> Result<&'a [Result<Value<'a>, Fault>], Fault> {
    if constants.is_empty() {
        return Ok(&[]);
    }
    let mut known = Workspace::new(arena, fixed.meter).list(1)?;
    known.push(*fixed);
    let [fixed] = known.into_bump_slice() else { return Err(Fault::Plan) };
    let scope = Scope { frame: None, fixed, arena };
    let mut values = scope.workspace().list(constants.len())?;
    for (constant, repeatable) in constants.iter().zip(repeatable) {
        let value = match repeatable {
            Some(repeatable) => remembered.value(repeatable, constant, &scope),
            None => constant.evaluate(&scope),
        };
        // A deadline ends the execution, not only this expression.
        if matches!(value, Err(Fault::Deadline)) {
            return Err(Fault::Deadline);
        }
        values.push(value);
    }
    Ok(values.into_bump_slice())
}
