//! The predicate that hides expired documents ([`crate::expire`]), as an expression of the query language. Its constant parts
//! are computed once per execution.

use crate::catalog::ExpireInfo;
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::functions::Function;
use crate::sql::functions::dates::DateFunction;
use crate::sql::values::OwnedValue;

/// True if the document is not expired.
pub(super) fn is_live(field: Expr, expire: &ExpireInfo) -> Expr {
    match expire.since_seconds {
        None => has_time_left(field, expire.after_seconds),
        Some(since) => was_written(field, expire.after_seconds, since),
    }
}

/// Expiry by the time of the last write. True if that time is recent enough, or if such times have not been recorded for long
/// enough.
fn was_written(field: Expr, after_seconds: i64, since: i64) -> Expr {
    let text = |text: &str| Expr::Literal(OwnedValue::Text(text.as_bytes().into()));
    let arguments = vec![text("now"), text(&format!("-{after_seconds} seconds")), text("subsec")];
    let due = Expr::Call(Function::Date(DateFunction::UnixEpoch), arguments);
    let compare =
        |left: Expr, how: Comparison, right: Expr| Expr::Compare(how, Affinity::None, Box::new(left), Box::new(right));
    Expr::Or(vec![
        compare(due.clone(), Comparison::Less, Expr::Literal(OwnedValue::Integer(since))),
        compare(field, Comparison::Greater, due),
    ])
}

/// Expiry by a time in a field. True if the field is NULL, or the time is in the future.
fn has_time_left(field: Expr, after_seconds: i64) -> Expr {
    let text = |text: &str| Expr::Literal(OwnedValue::Text(text.as_bytes().into()));
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
    // A text with an offset does not sort by time: it is read.
    let seconds = Expr::Call(Function::Date(DateFunction::UnixEpoch), vec![field.clone(), text("subsec")]);
    let zone = Expr::Call(Function::Substr, vec![field.clone(), Expr::integer(-6), Expr::integer(1)]);
    let signs = ["+", "-"].map(|sign| Expr::Literal(OwnedValue::Text(sign.as_bytes().into()))).to_vec();
    let has_offset = Expr::In(Box::new(zone), Affinity::None, signs);
    let has_left = Expr::Compare(Comparison::Greater, Affinity::None, Box::new(seconds), Box::new(now_seconds.clone()));
    let of_text = Expr::Case(vec![(has_offset, has_left)], Box::new(later(now_text)));
    Expr::Or(vec![
        Expr::IsNull(Box::new(field.clone())),
        Expr::Case(vec![(is_text, of_text)], Box::new(later(now_seconds))),
    ])
}
