//! Calls of functions and aggregates, checked against their tables.

use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::Location;

use super::syntax::{plain_argument, single};
use super::{Clause, Column, Resolved, Resolver, RowSource, invalid, not_yet, shortened, unknown};
use crate::sql::expressions::{AGGREGATES, Affinity, AggregateCall, AggregateKind, Expr};
use crate::sql::functions::{FUNCTIONS, Function, JsonFunction, dates, format};
use crate::sql::values::{OwnedValue, json};

impl<'c> Resolver<'c> {
    pub(super) fn function(&mut self, function: &'c ast::Function, clause: Clause) -> Resolved<Expr> {
        // The position of its name: for the span of the whole call sqlparser walks over its arguments.
        let at = function.name.span().start;
        let name = single(&function.name).map(|ident| ident.value.to_ascii_lowercase()).unwrap_or_default();
        if function.over.is_some() || !function.within_group.is_empty() {
            return not_yet("OVER or WITHIN GROUP", at);
        }
        let (no_parameters, no_nulls) =
            (matches!(function.parameters, ast::FunctionArguments::None), function.null_treatment.is_none());
        let ast::FunctionArguments::List(list) = &function.args else {
            return not_yet(&format!("\"{}\" without parentheses", shortened(&name)), at);
        };
        if !list.clauses.is_empty() {
            return not_yet("ORDER BY or another clause inside a call", at);
        }
        if !no_parameters || !no_nulls {
            return not_yet("this form of call", at);
        }
        let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let star = matches!(&list.args[..], [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)]);
        let aggregate = AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let scalar_extreme = matches!(name.as_str(), "min" | "max") && list.args.len() > 1;
        if let Some(kind) = aggregate.filter(|_| !scalar_extreme) {
            let empty_count = name == "count" && list.args.is_empty();
            let arguments = if star || empty_count { &[][..] } else { &list.args };
            let filter = function.filter.as_deref();
            return self.aggregate((kind, &name, at), arguments, distinct, filter, clause);
        }
        if function.filter.is_some() {
            return invalid(&format!("FILTER belongs to an aggregate, and {name} is none"), at);
        }
        if !FUNCTIONS.iter().any(|(known, ..)| *known == name) && !is_special(&name) {
            return no_function(&name, at);
        }
        if distinct || star {
            return invalid(&format!("{name} takes neither DISTINCT nor *"), at);
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            let argument = self.expr(plain_argument(argument, at)?, clause)?;
            let embeds = matches!(name.as_str(), "json_array" | "json_object" | "json_quote");
            arguments.push(if embeds { self.embedded(argument, clause) } else { argument });
        }
        call(&name, arguments, at)
    }

    /// Marks an argument as JSON, not text, if it is an object or array of `json_each` or the result of a JSON aggregate. CASE
    /// and COALESCE return such a value unchanged, so it stays JSON. A subquery's value is text, as in SQLite.
    fn embedded(&mut self, argument: Expr, clause: Clause) -> Expr {
        let column = match argument {
            // After GROUP BY it is an ordinary value, as in SQLite.
            Expr::Column(column) if !self.logical.grouped || clause == Clause::Aggregate => column,
            Expr::Aggregate(slot) if self.logical.aggregates[slot].kind.is_json() => {
                return Expr::Call(Function::Json(JsonFunction::Minify), vec![argument]);
            }
            Expr::Coalesce(list) => {
                return Expr::Coalesce(list.into_iter().map(|e| self.embedded(e, clause)).collect());
            }
            Expr::Case(arms, last) => {
                let arms = arms.into_iter().map(|(when, then)| (when, self.embedded(then, clause))).collect();
                return Expr::Case(arms, Box::new(self.embedded(*last, clause)));
            }
            Expr::CaseOf(operand, arms, last) => {
                let arms = arms.into_iter().map(|(affinity, when, then)| (affinity, when, self.embedded(then, clause)));
                let arms = arms.collect();
                return Expr::CaseOf(operand, arms, Box::new(self.embedded(*last, clause)));
            }
            other => return other,
        };
        let Column { table, ref name, .. } = self.logical.columns[column];
        if name != "value" || !matches!(self.logical.tables[table].origin, RowSource::Each { .. }) {
            return argument;
        }
        let kind = Box::new(Expr::Column(self.column(table, "type")));
        let nested = ["array", "object"].map(|name| Expr::Literal(OwnedValue::Text(name.as_bytes().into()))).to_vec();
        let json = Expr::Call(Function::Json(JsonFunction::Minify), vec![argument.clone()]);
        Expr::Case(vec![(Expr::In(kind, Affinity::None, nested), json)], Box::new(argument))
    }

    pub(super) fn aggregate(
        &mut self,
        (kind, name, at): (AggregateKind, &str, Location),
        arguments: &'c [ast::FunctionArg],
        distinct: bool,
        filter: Option<&'c ast::Expr>,
        clause: Clause,
    ) -> Resolved<Expr> {
        if !matches!(clause, Clause::Select | Clause::Having | Clause::OrderBy) {
            return invalid(&format!("the aggregate {name} is not allowed here"), at);
        }
        if kind.is_json() {
            return self.json_aggregate((kind, name, at), arguments, distinct, filter);
        }
        let (kind, argument, separator) = match arguments {
            [] if kind == AggregateKind::Count && !distinct => (AggregateKind::CountRows, None, None),
            [argument] if name != "string_agg" => (kind, Some(argument), None),
            [argument, separator] if kind == AggregateKind::GroupConcat && !distinct => {
                (kind, Some(argument), Some(separator))
            }
            _ if kind == AggregateKind::GroupConcat => {
                return invalid(&format!("wrong number of arguments to {name}"), at);
            }
            _ => return invalid(&format!("the aggregate {name} takes one argument"), at),
        };
        let mut resolve = |argument: &'c ast::FunctionArg| self.expr(plain_argument(argument, at)?, Clause::Aggregate);
        let argument = argument.map(&mut resolve).transpose()?;
        let separator = separator.map(&mut resolve).transpose()?;
        let filter = filter.map(|filter| self.expr(filter, Clause::Aggregate)).transpose()?;
        self.check_own(argument.iter().chain(&separator).chain(&filter), at)?;
        Ok(self.aggregate_slot(AggregateCall { kind, argument, distinct, filter, separator }))
    }

    /// json_group_array and json_group_object, which embed values that are JSON already.
    fn json_aggregate(
        &mut self,
        (kind, name, at): (AggregateKind, &str, Location),
        arguments: &'c [ast::FunctionArg],
        distinct: bool,
        filter: Option<&'c ast::Expr>,
    ) -> Resolved<Expr> {
        let (function, count) = match kind {
            AggregateKind::JsonArray => (JsonFunction::Quote, 1),
            _ => (JsonFunction::Member, 2),
        };
        if arguments.len() != count {
            return invalid(&format!("wrong number of arguments to {name}: {}", arguments.len()), at);
        }
        if distinct && count > 1 {
            return invalid(&format!("DISTINCT needs an aggregate of one argument, and {name} takes two"), at);
        }
        let mut values = Vec::new();
        for argument in arguments {
            let value = self.expr(plain_argument(argument, at)?, Clause::Aggregate)?;
            values.push(self.embedded(value, Clause::Aggregate));
        }
        let argument = Some(Expr::Call(Function::Json(function), values));
        let filter = filter.map(|filter| self.expr(filter, Clause::Aggregate)).transpose()?;
        self.check_own(argument.iter().chain(&filter), at)?;
        Ok(self.aggregate_slot(AggregateCall { kind, argument, distinct, filter, separator: None }))
    }

    fn aggregate_slot(&mut self, call: AggregateCall) -> Expr {
        let aggregates = &mut self.logical.aggregates;
        let slot = aggregates.iter().position(|known| *known == call).unwrap_or_else(|| {
            aggregates.push(call);
            aggregates.len() - 1
        });
        Expr::Aggregate(slot)
    }
}

/// Whether a function is an expression of its own and not in the table of functions.
fn is_special(name: &str) -> bool {
    matches!(name, "coalesce" | "ifnull" | "iif" | "if" | "like" | "glob")
}

fn no_function<T>(name: &str, at: Location) -> Resolved<T> {
    unknown(&format!("no function \"{}\" in this version", shortened(name)), at)
}

/// A scalar call, its arguments checked against the table of functions.
pub(super) fn call(name: &str, mut arguments: Vec<Expr>, at: Location) -> Resolved<Expr> {
    let count = arguments.len();
    match (name, count) {
        ("coalesce", 2..) | ("ifnull", 2) => return Ok(Expr::Coalesce(arguments)),
        ("iif" | "if", 2..) => {
            let last = if count % 2 == 1 { arguments.pop() } else { None };
            let mut arms = Vec::new();
            let mut rest = arguments.into_iter();
            while let (Some(when), Some(then)) = (rest.next(), rest.next()) {
                arms.push((when, then));
            }
            return Ok(Expr::Case(arms, Box::new(last.unwrap_or(Expr::Literal(OwnedValue::Null)))));
        }
        ("glob", 2) => {
            if let (Some(text), Some(wanted)) = (arguments.pop(), arguments.pop()) {
                return Ok(Expr::Glob(Box::new(text), Box::new(wanted)));
            }
            return invalid("GLOB takes two arguments", at);
        }
        ("like", 2 | 3) => {
            let escape = if count == 3 { arguments.pop().map(Box::new) } else { None };
            let (text, wanted) = (arguments.pop(), arguments.pop());
            if let (Some(text), Some(wanted)) = (text, wanted) {
                return Ok(Expr::Like(Box::new(text), Box::new(wanted), escape));
            }
            return invalid("LIKE takes two or three arguments", at);
        }
        _ => {}
    }
    let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
        if is_special(name) {
            return invalid(&format!("wrong number of arguments to {name}"), at);
        }
        return no_function(name, at);
    };
    if !(least..=most).contains(&count) {
        return invalid(&format!("wrong number of arguments to {name}: {count}"), at);
    }
    if function == Function::Json(JsonFunction::Object) && count % 2 == 1 {
        return invalid("json_object takes names and values in pairs", at);
    }
    if matches!(function, Function::Json(JsonFunction::Put(_))) && count.is_multiple_of(2) {
        return invalid(&format!("{name} takes JSON, and paths and values in pairs"), at);
    }
    check_literals(function, &arguments, at)?;
    Ok(Expr::Call(function, arguments))
}

/// Refuses a call whose literal arguments are unsupported.
pub(super) fn check_literals(function: Function, arguments: &[Expr], at: Location) -> Resolved<()> {
    let text = |argument: &Expr| match argument {
        Expr::Literal(OwnedValue::Text(text)) => Some(text.to_vec()),
        _ => None,
    };
    match function {
        Function::Printf => match text(&arguments[0]).and_then(|text| format::unsupported(&text)) {
            Some(conversion) => not_yet(&format!("the conversion %{conversion}"), at),
            None => Ok(()),
        },
        Function::Json(function) => {
            let is_path = |place: &usize| match function {
                JsonFunction::Put(_) => place % 2 == 1,
                JsonFunction::Extract | JsonFunction::Remove | JsonFunction::Type | JsonFunction::ArrayLength => {
                    *place > 0
                }
                _ => false,
            };
            let paths = (0..arguments.len()).filter(is_path).filter_map(|place| text(&arguments[place]));
            paths.into_iter().try_for_each(|path| check_path(&path, at))
        }
        Function::Date(_) => match arguments.iter().filter_map(text).find(|text| dates::unsupported_modifier(text)) {
            Some(modifier) => not_yet(&format!("the modifier '{}'", String::from_utf8_lossy(&modifier)), at),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Refuses a constant JSON path that is malformed. SQLite does so when it first evaluates it.
fn check_path(path: &[u8], at: Location) -> Resolved<()> {
    match json::mistake_in(path) {
        None => Ok(()),
        Some(character) => {
            let path = String::from_utf8_lossy(path);
            invalid(
                &format!(
                    "the JSON path '{}' cannot be read at its character {character}: it is like $.name[0]",
                    shortened(&path)
                ),
                at,
            )
        }
    }
}
