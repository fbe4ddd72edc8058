//! Mathematical functions over 64-bit reals, as in SQLite: NULL if an argument is no number, or if the result is undefined. An
//! infinite result is a value; a query that would return it ends with an error.

use std::f64::consts::PI;

use crate::sql::values::{IntegerText, Value, number};

/// Functions of one number, and of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mathematics {
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Degrees,
    Exp,
    Floor,
    Ln,
    /// To base 10, or to the first of two arguments.
    Log,
    Log2,
    Mod,
    Pi,
    Pow,
    Radians,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    Trunc,
}

pub(crate) fn call(function: Mathematics, arguments: &[Value<'_>]) -> Value<'static> {
    match arguments {
        [] => Value::Real(PI),
        [value] => number_of(*value).map_or(Value::Null, |value| of_one(function, value)),
        [a, b, ..] => match (number_of(*a), number_of(*b)) {
            (Some(a), Some(b)) => of_two(function, a.to_real(), b.to_real()),
            _ => Value::Null,
        },
    }
}

/// An integer or a real; of a text only if it is one as a whole.
fn number_of(value: Value<'_>) -> Option<Value<'static>> {
    match value {
        Value::Null => None,
        Value::Integer(integer) => Some(Value::Integer(integer)),
        Value::Real(real) => Some(Value::Real(real)),
        Value::Text(text) => {
            let prefix = number::real_prefix(text);
            if !prefix.any || !prefix.whole {
                return None;
            }
            match number::integer_prefix(text) {
                (integer, IntegerText::Whole) if !prefix.fraction => Some(Value::Integer(integer)),
                _ => Some(Value::Real(prefix.real)),
            }
        }
    }
}

fn of_one(function: Mathematics, value: Value<'static>) -> Value<'static> {
    let is_rounding = matches!(function, Mathematics::Ceil | Mathematics::Floor | Mathematics::Trunc);
    if is_rounding && matches!(value, Value::Integer(_)) {
        return value;
    }
    let x = value.to_real();
    let is_logarithm = matches!(function, Mathematics::Ln | Mathematics::Log | Mathematics::Log2);
    if is_logarithm && x <= 0.0 {
        return Value::Null;
    }
    Value::real(match function {
        Mathematics::Acos => x.acos(),
        Mathematics::Acosh => x.acosh(),
        Mathematics::Asin => x.asin(),
        Mathematics::Asinh => x.asinh(),
        Mathematics::Atan => x.atan(),
        Mathematics::Atanh => x.atanh(),
        Mathematics::Ceil => x.ceil(),
        Mathematics::Cos => x.cos(),
        Mathematics::Cosh => x.cosh(),
        Mathematics::Degrees => x * (180.0 / PI),
        Mathematics::Exp => x.exp(),
        Mathematics::Floor => x.floor(),
        Mathematics::Ln => x.ln(),
        Mathematics::Log => x.log10(),
        Mathematics::Log2 => x.log2(),
        Mathematics::Radians => x * (PI / 180.0),
        Mathematics::Sin => x.sin(),
        Mathematics::Sinh => x.sinh(),
        Mathematics::Sqrt => x.sqrt(),
        Mathematics::Tan => x.tan(),
        Mathematics::Tanh => x.tanh(),
        Mathematics::Trunc => x.trunc(),
        // They take two arguments or none, by the table of functions.
        Mathematics::Atan2 | Mathematics::Mod | Mathematics::Pi | Mathematics::Pow => f64::NAN,
    })
}

fn of_two(function: Mathematics, a: f64, b: f64) -> Value<'static> {
    Value::real(match function {
        Mathematics::Atan2 => a.atan2(b),
        Mathematics::Mod => a % b,
        Mathematics::Pow => a.powf(b),
        // To base `a`, which is more than 1.
        Mathematics::Log if a > 1.0 && b > 0.0 => b.ln() / a.ln(),
        _ => f64::NAN,
    })
}
