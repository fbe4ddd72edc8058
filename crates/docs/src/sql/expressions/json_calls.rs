//! The JSON functions: `json`, `json_extract`, `json_type`, `json_array_length`, `json_valid`, `json_quote`, `json_array`,
//! `json_object`, and the calls of those that change JSON (`json_edits`).
//!
//! As an argument of these functions, a result that is JSON is embedded as it is, and any other text as a string:
//! `json_array('[1]', json('[1]'))` is `["[1]",[1]]`. SQLite marks values with a subtype for that; here the argument's
//! expression decides. Only JSON by RFC 8259 is accepted: JSON5, which SQLite reads too, is malformed.

use super::expr::Expr;
use super::row::Scope;
use crate::sql::functions::json_edits::{self, Edit};
use crate::sql::functions::{Function, JsonFunction};
use crate::sql::limits::Fault;
use crate::sql::values::{FieldValue, TextBuilder, Value, Workspace, json, number, value};

/// Whether an expression's value may be JSON, as opposed to text.
pub(crate) fn may_be_json(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Call(Function::Json(_), _)
            | Expr::Arrow(false, ..)
            | Expr::Coalesce(_)
            | Expr::Case(..)
            | Expr::CaseOf(..)
    )
}

/// An expression's value, and whether it is JSON.
pub(crate) fn evaluate<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<(Value<'a>, bool), Fault> {
    match expr {
        Expr::Call(Function::Json(function), arguments) => call(*function, arguments, scope),
        Expr::Arrow(false, ..) => {
            let value = expr.evaluate(scope)?;
            Ok((value, !value.is_null()))
        }
        Expr::Coalesce(list) => {
            for e in list {
                let found = evaluate(e, scope)?;
                if !found.0.is_null() {
                    return Ok(found);
                }
            }
            Ok((Value::Null, false))
        }
        Expr::Case(arms, last) => {
            for (when, then) in arms {
                if when.passes(scope)? {
                    return evaluate(then, scope);
                }
            }
            evaluate(last, scope)
        }
        Expr::CaseOf(operand, arms, last) => evaluate(Expr::arm_of(operand, arms, last, scope)?, scope),
        other => Ok((other.evaluate(scope)?, false)),
    }
}

/// An expression in the form that a document stores: a field as it is stored, the result of a JSON function as JSON.
pub(crate) fn stored<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<FieldValue<'a>, Fault> {
    match expr {
        Expr::Column(_) | Expr::Path(..) | Expr::Outer(_) => expr.field(scope),
        Expr::Coalesce(list) => {
            for e in list {
                let found = stored(e, scope)?;
                if !matches!(found, FieldValue::Value(Value::Null) | FieldValue::Json(b"null")) {
                    return Ok(found);
                }
            }
            Ok(FieldValue::Value(Value::Null))
        }
        Expr::Case(arms, last) => {
            for (when, then) in arms {
                if when.passes(scope)? {
                    return stored(then, scope);
                }
            }
            stored(last, scope)
        }
        Expr::CaseOf(operand, arms, last) => stored(Expr::arm_of(operand, arms, last, scope)?, scope),
        Expr::Call(Function::Json(JsonFunction::Raw), arguments) => match arguments[0].evaluate(scope)? {
            Value::Text(json) => Ok(FieldValue::Json(json)),
            value => Ok(FieldValue::Value(value)),
        },
        other => Ok(match evaluate(other, scope)? {
            (Value::Text(json), true) => FieldValue::Json(json),
            (value, _) => FieldValue::Value(value),
        }),
    }
}

/// Calls a function; returns its value and whether that is JSON.
pub(crate) fn call<'a>(
    function: JsonFunction,
    arguments: &'a [Expr],
    scope: &Scope<'a>,
) -> Result<(Value<'a>, bool), Fault> {
    let workspace = scope.workspace();
    match function {
        JsonFunction::AsStored => return evaluate(&arguments[0], scope),
        JsonFunction::Raw => {
            return match arguments[0].evaluate(scope)? {
                Value::Text(json) => Ok((value::of_json(json, workspace)?, matches!(json.first(), Some(b'{' | b'[')))),
                value => Ok((value, false)),
            };
        }
        JsonFunction::Array => {
            let mut out = workspace.text();
            out.push(b'[')?;
            for (place, argument) in arguments.iter().enumerate() {
                if place > 0 {
                    out.push(b',')?;
                }
                push(evaluate(argument, scope)?, &mut out, workspace)?;
            }
            out.push(b']')?;
            return Ok((out.value(), true));
        }
        JsonFunction::Object => return object(arguments, scope).map(|value| (value, true)),
        JsonFunction::Member => return member(arguments, scope).map(|value| (value, false)),
        JsonFunction::Quote => {
            let (value, is_json) = evaluate(&arguments[0], scope)?;
            let mut out = workspace.text();
            push((value, is_json), &mut out, workspace)?;
            return Ok((out.value(), true));
        }
        _ => {}
    }
    let Some(text) = arguments[0].evaluate(scope)?.to_text(workspace)? else { return Ok((Value::Null, false)) };
    workspace.meter.tick_bytes(2 * text.len())?;
    let valid = json::is_valid(text);
    if function == JsonFunction::Valid {
        return Ok((Value::Integer(i64::from(valid)), false));
    }
    if !valid {
        return Err(Fault::Json);
    }
    match function {
        JsonFunction::Minify => Ok((Value::Text(json::minified(text, workspace)?), true)),
        JsonFunction::Extract => extract(text, &arguments[1..], scope),
        JsonFunction::Put(edit) => put(json::minified(text, workspace)?, edit, &arguments[1..], scope),
        JsonFunction::Remove => remove(json::minified(text, workspace)?, &arguments[1..], scope),
        JsonFunction::Patch => patch(json::minified(text, workspace)?, &arguments[1], scope),
        _ => {
            let Some(found) = at_path(text, arguments.get(1), scope)? else { return Ok((Value::Null, false)) };
            let value = match function {
                JsonFunction::Type => Value::text(json::type_name(found)),
                _ => Value::Integer(json::items(found).count() as i64),
            };
            Ok((value, false))
        }
    }
}

/// The value at a path, or the whole text without a path. `None`: there is none, or the path is NULL.
fn at_path<'a>(text: &'a [u8], path: Option<&'a Expr>, scope: &Scope<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let Some(path) = path else { return Ok(Some(json::trimmed(text))) };
    match path.evaluate(scope)?.to_text(scope.workspace())? {
        None => Ok(None),
        Some(path) => json::at_path(json::trimmed(text), path, scope.fixed.meter),
    }
}

/// Applies pairs of a path and a value, one after the other; a pair whose path is NULL has no effect.
fn put<'a>(mut text: &'a [u8], edit: Edit, pairs: &'a [Expr], scope: &Scope<'a>) -> Result<(Value<'a>, bool), Fault> {
    let workspace = scope.workspace();
    for pair in pairs.chunks_exact(2) {
        let path = pair[0].evaluate(scope)?.to_text(workspace)?;
        let mut json = workspace.text();
        push(evaluate(&pair[1], scope)?, &mut json, workspace)?;
        if let Some(path) = path {
            text = json_edits::put(text, path, json::minified(json.finish(), workspace)?, edit, workspace)?;
        }
    }
    Ok((Value::Text(text), true))
}

/// Removes the values at the paths. NULL if a path is NULL, or if everything is removed.
fn remove<'a>(mut text: &'a [u8], paths: &'a [Expr], scope: &Scope<'a>) -> Result<(Value<'a>, bool), Fault> {
    let workspace = scope.workspace();
    for path in paths {
        let Some(path) = path.evaluate(scope)?.to_text(workspace)? else { return Ok((Value::Null, false)) };
        let Some(left) = json_edits::remove(text, path, workspace)? else { return Ok((Value::Null, false)) };
        text = left;
    }
    Ok((Value::Text(text), true))
}

fn patch<'a>(text: &'a [u8], patch: &'a Expr, scope: &Scope<'a>) -> Result<(Value<'a>, bool), Fault> {
    let workspace = scope.workspace();
    let Some(patch) = patch.evaluate(scope)?.to_text(workspace)? else { return Ok((Value::Null, false)) };
    workspace.meter.tick_bytes(2 * patch.len())?;
    if !json::is_valid(patch) {
        return Err(Fault::Json);
    }
    let mut out = workspace.text();
    json_edits::patch(Some(text), json::minified(patch, workspace)?, &mut out, workspace)?;
    Ok((out.value(), true))
}

fn extract<'a>(text: &'a [u8], paths: &'a [Expr], scope: &Scope<'a>) -> Result<(Value<'a>, bool), Fault> {
    let workspace = scope.workspace();
    if let [path] = paths {
        return Ok(match at_path(text, Some(path), scope)? {
            None => (Value::Null, false),
            Some(found) if matches!(found.first(), Some(b'{' | b'[')) => {
                (Value::Text(json::minified(found, workspace)?), true)
            }
            Some(found) => (value::of_json(found, workspace)?, false),
        });
    }
    let mut out = workspace.text();
    out.push(b'[')?;
    for (place, path) in paths.iter().enumerate() {
        if path.evaluate(scope)?.is_null() {
            return Ok((Value::Null, false));
        }
        if place > 0 {
            out.push(b',')?;
        }
        match at_path(text, Some(path), scope)? {
            None => out.extend(b"null")?,
            Some(found) => out.extend(json::minified(found, workspace)?)?,
        }
    }
    out.push(b']')?;
    Ok((out.value(), true))
}

fn object<'a>(arguments: &'a [Expr], scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let mut out = scope.workspace().text();
    out.push(b'{')?;
    for (place, pair) in arguments.chunks_exact(2).enumerate() {
        let Value::Text(name) = pair[0].evaluate(scope)? else { return Err(Fault::JsonLabel) };
        if place > 0 {
            out.push(b',')?;
        }
        json::push_string(name, &mut out)?;
        out.push(b':')?;
        push(evaluate(&pair[1], scope)?, &mut out, scope.workspace())?;
    }
    out.push(b'}')?;
    Ok(out.value())
}

/// A name with its value; NULL if the name is NULL.
fn member<'a>(arguments: &'a [Expr], scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
    let [name, value] = arguments else { return Ok(Value::Null) };
    let Some(name) = name.evaluate(scope)?.to_text(scope.workspace())? else { return Ok(Value::Null) };
    let mut out = scope.workspace().text();
    json::push_string(name, &mut out)?;
    out.push(b':')?;
    push(evaluate(value, scope)?, &mut out, scope.workspace())?;
    Ok(out.value())
}

/// Appends a value as JSON.
fn push<'a>(
    (value, is_json): (Value<'a>, bool),
    out: &mut TextBuilder<'a>,
    workspace: Workspace<'a>,
) -> Result<(), Fault> {
    match value {
        Value::Null => out.extend(b"null"),
        Value::Text(text) if is_json => out.extend(text),
        Value::Text(text) => json::push_string(text, out),
        Value::Real(real) if real.is_infinite() => out.extend(number::infinite_text(real)),
        number => out.extend(number.to_text(workspace)?.unwrap_or_default()),
    }
}
