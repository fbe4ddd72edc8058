//! Expressions: operators, literals, parameters, conversions.

use sqlparser::ast::{self, BinaryOperator, CeilFloorKind, DateTimeField, Spanned, UnaryOperator};
use sqlparser::tokenizer::Location;

use super::syntax::{parts, query, unnested};
use super::{Clause, DEPTH_MAX, PARAMETERS_MAX, Resolved, Resolver, invalid, not_yet, shortened};
use crate::sql::expressions::{Affinity, Arithmetic, CastType, Comparison, Expr};
use crate::sql::functions::{Function, Mathematics};
use crate::sql::limits::{SqlError, SqlErrorKind};
use crate::sql::values::{OwnedValue, number};

impl<'c> Resolver<'c> {
    pub(super) fn expr(&mut self, expr: &'c ast::Expr, clause: Clause) -> Resolved<Expr> {
        // Parentheses are levels of the text only, not of the expression.
        let expr = unnested(expr);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("the expression nests deeper than {DEPTH_MAX}");
            return Err(SqlError::at(SqlErrorKind::Limit, &message, Some(expr.span().start)));
        }
        let resolved = self.expr_inside(expr, clause);
        self.depth -= 1;
        resolved
    }

    /// The affinity of a comparison between two expressions.
    pub(super) fn affinity(&self, a: &Expr, b: &Expr) -> Affinity {
        Affinity::between(self.logical.kind(a), self.logical.kind(b))
    }

    pub(super) fn boxed(&mut self, expr: &'c ast::Expr, clause: Clause) -> Resolved<Box<Expr>> {
        self.expr(expr, clause).map(Box::new)
    }

    pub(super) fn list(&mut self, list: &'c [ast::Expr], clause: Clause) -> Resolved<Vec<Expr>> {
        list.iter().map(|expr| self.expr(expr, clause)).collect()
    }

    pub(super) fn expr_inside(&mut self, expr: &'c ast::Expr, clause: Clause) -> Resolved<Expr> {
        use ast::Expr as E;
        // Computed only for an error: sqlparser walks over the whole expression for its span.
        let at = || expr.span().start;
        Ok(match expr {
            E::Identifier(ident) => self.name(std::slice::from_ref(ident), Vec::new(), clause)?,
            E::CompoundIdentifier(idents) => self.name(idents, Vec::new(), clause)?,
            E::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain, clause)?,
            E::JsonAccess { value, path } => self.json_access(value, &path.path, clause)?,
            E::Value(value) => self.literal(&value.value, value.span.start)?,
            E::UnaryOp { op, expr: inner } => self.unary(*op, inner, clause, &at)?,
            E::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => self.chain(expr, op, clause)?,
            E::BinaryOp { left, op, right } => self.binary(left, op, right, clause)?,
            E::IsNull(inner) => Expr::IsNull(self.boxed(inner, clause)?),
            E::IsNotNull(inner) => Expr::NotNull(self.boxed(inner, clause)?),
            E::IsTrue(inner) => Expr::IsTruth(self.boxed(inner, clause)?, true, true),
            E::IsNotTrue(inner) => Expr::IsTruth(self.boxed(inner, clause)?, true, false),
            E::IsFalse(inner) => Expr::IsTruth(self.boxed(inner, clause)?, false, true),
            E::IsNotFalse(inner) => Expr::IsTruth(self.boxed(inner, clause)?, false, false),
            E::IsDistinctFrom(a, b) => self.is(a, b, false, clause)?,
            E::IsNotDistinctFrom(a, b) => self.is(a, b, true, clause)?,
            E::InList { expr: inner, list, negated } if parts(inner).is_some() => {
                negate(*negated, self.row_in_list(inner, list, clause)?)
            }
            E::Between { expr: inner, negated, low, high } if parts(inner).is_some() => {
                let from = self.row_comparison(inner, Comparison::GreaterOrEqual, low, clause)?;
                let to = self.row_comparison(inner, Comparison::LessOrEqual, high, clause)?;
                negate(*negated, Expr::And(vec![from, to]))
            }
            E::InList { expr: inner, list, negated } => {
                let inner = self.boxed(inner, clause)?;
                let affinity = self.logical.kind(&inner).0;
                negate(*negated, Expr::In(inner, affinity, self.list(list, clause)?))
            }
            E::Between { expr: inner, negated, low, high } => {
                let (e, low, high) = (self.boxed(inner, clause)?, self.boxed(low, clause)?, self.boxed(high, clause)?);
                let (a, b) = (self.affinity(&e, &low), self.affinity(&e, &high));
                negate(*negated, Expr::Between(e, a, low, b, high))
            }
            E::Like { negated, any: false, expr: inner, pattern, escape_char } => {
                let escape = escape_char.as_ref().map(|escape| self.escape(escape, clause)).transpose()?;
                negate(*negated, Expr::Like(self.boxed(inner, clause)?, self.boxed(pattern, clause)?, escape))
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), clause)?
            }
            E::Cast { kind: ast::CastKind::Cast, expr: inner, data_type, format: None } => {
                let to = cast_type(&data_type.to_string(), &at)?;
                Expr::Cast(to, self.boxed(inner, clause)?)
            }
            E::Function(function) => self.function(function, clause)?,
            E::Substring { expr: inner, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(inner, clause)?];
                let from = substring_from.as_deref();
                arguments.push(from.map_or(Ok(Expr::integer(1)), |from| self.expr(from, clause))?);
                if let Some(count) = substring_for {
                    arguments.push(self.expr(count, clause)?);
                }
                Expr::Call(Function::Substr, arguments)
            }
            E::Ceil { expr: inner, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                Expr::Call(Function::Mathematics(Mathematics::Ceil), vec![self.expr(inner, clause)?])
            }
            E::Floor { expr: inner, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                Expr::Call(Function::Mathematics(Mathematics::Floor), vec![self.expr(inner, clause)?])
            }
            E::Trim { expr: inner, trim_where: None, trim_what: None, trim_characters } => {
                let mut arguments = vec![self.expr(inner, clause)?];
                arguments.extend(self.list(trim_characters.as_deref().unwrap_or_default(), clause)?);
                if arguments.len() > 2 {
                    return invalid("TRIM takes one or two arguments", at());
                }
                Expr::Call(Function::Trim, arguments)
            }
            E::Subquery(query) => self.scalar_query(query, clause)?,
            E::InSubquery { expr: inner, subquery, negated } => {
                let values = parts(inner).unwrap_or(std::slice::from_ref(inner));
                negate(*negated, self.in_query(values, subquery, clause)?)
            }
            E::Exists { subquery, negated } => negate(*negated, self.exists(subquery, clause)?),
            E::Collate { .. } => return not_yet("COLLATE (compare LOWER(…) of both sides instead)", at()),
            E::Tuple(_) => return invalid("a row value is allowed only in a comparison, BETWEEN or IN", at()),
            _ => return not_yet(&format!("\"{}\"", shortened(&expr.to_string())), at()),
        })
    }

    /// `a AND b AND c` as one list: the tree is deep on its left, the list is flat.
    pub(super) fn chain(&mut self, expr: &'c ast::Expr, wanted: &BinaryOperator, clause: Clause) -> Resolved<Expr> {
        let mut terms = Vec::new();
        let mut rest = expr;
        while let ast::Expr::BinaryOp { left, op, right } = rest
            && op == wanted
        {
            terms.push(&**right);
            rest = left;
        }
        terms.push(rest);
        terms.reverse();
        let terms = terms.into_iter().map(|term| self.expr(term, clause)).collect::<Resolved<Vec<_>>>()?;
        Ok(if *wanted == BinaryOperator::And { Expr::And(terms) } else { Expr::Or(terms) })
    }

    pub(super) fn escape(&mut self, escape: &'c ast::Expr, clause: Clause) -> Resolved<Box<Expr>> {
        let resolved = self.expr(escape, clause)?;
        if let Expr::Literal(OwnedValue::Text(text)) = &resolved
            && crate::sql::functions::pattern::length(text) != 1
        {
            return invalid("ESCAPE takes one character", escape.span().start);
        }
        Ok(Box::new(resolved))
    }

    pub(super) fn is(
        &mut self,
        left: &'c ast::Expr,
        right: &'c ast::Expr,
        same: bool,
        clause: Clause,
    ) -> Resolved<Expr> {
        if parts(left).is_some() || parts(right).is_some() && query(left).is_some() {
            return self.row_is(left, right, same, clause);
        }
        let (a, b) = (self.boxed(left, clause)?, self.boxed(right, clause)?);
        let affinity = self.affinity(&a, &b);
        Ok(Expr::Is(same, affinity, a, b))
    }

    pub(super) fn unary(
        &mut self,
        op: UnaryOperator,
        inner: &'c ast::Expr,
        clause: Clause,
        at: &dyn Fn() -> Location,
    ) -> Resolved<Expr> {
        // The least integer has no positive counterpart that could be negated.
        if op == UnaryOperator::Minus
            && let ast::Expr::Value(value) = inner
            && let ast::Value::Number(text, false) = &value.value
        {
            return Ok(match number_literal(&text.replace('_', "")) {
                _ if text == "9223372036854775808" => Expr::integer(i64::MIN),
                Some(OwnedValue::Integer(integer)) if integer != i64::MIN => Expr::integer(-integer),
                Some(OwnedValue::Real(real)) => Expr::Literal(OwnedValue::Real(-real)),
                _ => return not_yet(&format!("the number {text}"), at()),
            });
        }
        let inner = self.boxed(inner, clause)?;
        Ok(match op {
            UnaryOperator::Minus => Expr::Arithmetic(Arithmetic::Subtract, Box::new(Expr::integer(0)), inner),
            // A computed value of no affinity, as in SQLite.
            UnaryOperator::Plus if self.logical.kind(&inner) != (Affinity::None, true) => Expr::Coalesce(vec![*inner]),
            UnaryOperator::Plus => *inner,
            UnaryOperator::Not => Expr::Not(inner),
            UnaryOperator::BitwiseNot => Expr::BitNot(inner),
            other => return not_yet(&format!("the operator {other}"), at()),
        })
    }

    pub(super) fn binary(
        &mut self,
        left: &'c ast::Expr,
        op: &BinaryOperator,
        right: &'c ast::Expr,
        clause: Clause,
    ) -> Resolved<Expr> {
        use BinaryOperator as B;
        let comparison = match op {
            B::Eq => Some(Comparison::Equal),
            B::NotEq => Some(Comparison::NotEqual),
            B::Lt => Some(Comparison::Less),
            B::LtEq => Some(Comparison::LessOrEqual),
            B::Gt => Some(Comparison::Greater),
            B::GtEq => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        let is_row = || parts(left).is_some() || parts(right).is_some() && query(left).is_some();
        if let Some(comparison) = comparison
            && is_row()
        {
            return self.row_comparison(left, comparison, right, clause);
        }
        let (a, b) = (self.boxed(left, clause)?, self.boxed(right, clause)?);
        if let Some(comparison) = comparison {
            let affinity = self.affinity(&a, &b);
            return Ok(Expr::Compare(comparison, affinity, a, b));
        }
        let arithmetic = match op {
            B::Plus => Arithmetic::Add,
            B::Minus => Arithmetic::Subtract,
            B::Multiply => Arithmetic::Multiply,
            B::Divide => Arithmetic::Divide,
            B::Modulo => Arithmetic::Remainder,
            B::BitwiseAnd => Arithmetic::And,
            B::BitwiseOr => Arithmetic::Or,
            B::PGBitwiseShiftLeft => Arithmetic::ShiftLeft,
            B::PGBitwiseShiftRight => Arithmetic::ShiftRight,
            B::StringConcat => return Ok(Expr::Concat(a, b)),
            B::Arrow => return Ok(Expr::Arrow(false, a, b)),
            B::LongArrow => return Ok(Expr::Arrow(true, a, b)),
            B::Glob => return Ok(Expr::Glob(a, b)),
            other => return not_yet(&format!("the operator {other}"), left.span().start),
        };
        Ok(Expr::Arithmetic(arithmetic, a, b))
    }

    pub(super) fn case(
        &mut self,
        operand: Option<&'c ast::Expr>,
        conditions: &'c [ast::CaseWhen],
        last: Option<&'c ast::Expr>,
        clause: Clause,
    ) -> Resolved<Expr> {
        let last = Box::new(match last {
            Some(last) => self.expr(last, clause)?,
            None => Expr::Literal(OwnedValue::Null),
        });
        let operand = operand.map(|operand| self.boxed(operand, clause)).transpose()?;
        let mut arms = Vec::new();
        for arm in conditions {
            arms.push((self.expr(&arm.condition, clause)?, self.expr(&arm.result, clause)?));
        }
        Ok(match operand {
            None => Expr::Case(arms, last),
            Some(operand) => {
                let arms = arms.into_iter().map(|(when, then)| (self.affinity(&operand, &when), when, then)).collect();
                Expr::CaseOf(operand, arms, last)
            }
        })
    }

    pub(super) fn literal(&mut self, value: &ast::Value, at: Location) -> Resolved<Expr> {
        Ok(Expr::Literal(match value {
            ast::Value::Null => OwnedValue::Null,
            ast::Value::Boolean(truth) => OwnedValue::Integer(i64::from(*truth)),
            ast::Value::SingleQuotedString(text) => OwnedValue::Text(text.as_bytes().into()),
            ast::Value::Number(text, false) => match number_literal(&text.replace('_', "")) {
                Some(literal) => literal,
                None => return not_yet(&format!("the number {text}"), at),
            },
            ast::Value::Placeholder(name) => return self.parameter(name, at),
            other => return not_yet(&format!("the literal {}", shortened(&other.to_string())), at),
        }))
    }

    pub(super) fn parameter(&mut self, name: &str, at: Location) -> Resolved<Expr> {
        let Some(name) = name.strip_prefix(':').filter(|name| !name.is_empty()) else {
            return not_yet("a parameter other than :name", at);
        };
        let parameters = &mut self.logical.parameters;
        if let Some(slot) = parameters.iter().position(|parameter| parameter == name) {
            return Ok(Expr::Parameter(slot));
        }
        if parameters.len() == PARAMETERS_MAX {
            return invalid(&format!("more than {PARAMETERS_MAX} parameters"), at);
        }
        parameters.push(name.to_owned());
        Ok(Expr::Parameter(parameters.len() - 1))
    }
}

pub(super) fn negate(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

pub(super) fn number_literal(text: &str) -> Option<OwnedValue> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok().map(|bits| OwnedValue::Integer(bits as i64));
    }
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(integer) = text.parse()
    {
        return Some(OwnedValue::Integer(integer));
    }
    let prefix = number::real_prefix(text.as_bytes());
    (prefix.any && prefix.whole).then_some(OwnedValue::Real(prefix.real))
}

/// The affinity of a type's name, by SQLite's rules.
pub(super) fn cast_type(name: &str, at: &dyn Fn() -> Location) -> Resolved<CastType> {
    let name = name.to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    Ok(match () {
        () if has(&["INT"]) => CastType::Integer,
        () if has(&["CHAR", "CLOB", "TEXT"]) => CastType::Text,
        () if has(&["BLOB"]) || name.is_empty() => return not_yet("BLOB", at()),
        () if has(&["REAL", "FLOA", "DOUB"]) => CastType::Real,
        () => CastType::Numeric,
    })
}
