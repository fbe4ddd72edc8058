//! The condition that hides documents whose time has come ([`crate::expire`]), in the terms of a query: its constant parts are
//! computed once for an execution.

use crate::sql::dates::DateFunction;
use crate::sql::expr::{Affinity, Comparison, Expr, Literal};
use crate::sql::functions::Function;

/// True for a field that is NULL, or holds a time that has not come.
pub(super) fn is_live(field: Expr, after_seconds: i64) -> Expr {
    let text = |text: &str| Expr::Literal(Literal::Text(text.as_bytes().into()));
    let before = text(&format!("-{after_seconds} seconds"));
    let later =
        |than: Expr| Expr::Compare(Comparison::Greater, Affinity::None, Box::new(field.clone()), Box::new(than));
    let now = |function: DateFunction, mut arguments: Vec<Expr>| {
        arguments.extend([text("now"), before.clone()]);
        arguments.extend((function == DateFunction::UnixEpoch).then(|| text("subsec")));
        Expr::Call(Function::Date(function), arguments)
    };
    let now_text = now(DateFunction::Strftime, vec![text("%Y-%m-%dT%H:%M:%fZ")]);
    let now_seconds = now(DateFunction::UnixEpoch, Vec::new());
    let kind = Expr::Call(Function::TypeOf, vec![field.clone()]);
    let is_text = Expr::Compare(Comparison::Equal, Affinity::None, Box::new(kind), Box::new(text("text")));
    Expr::Or(vec![
        Expr::IsNull(Box::new(field.clone())),
        Expr::Case(vec![(is_text, later(now_text))], Box::new(later(now_seconds))),
    ])
}
