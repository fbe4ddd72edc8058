//! A rule that was announced, and the choice of rules that a check applies (`announced.rs`).

use schema::Schema;

use super::reference::ReferencePlace;
use crate::catalog::Readiness;

/// An announced rule, resolved to places in the row.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) rule: Rule,
    pub(crate) readiness: Readiness,
}

#[derive(Debug)]
pub(crate) enum Rule {
    /// Checked by the general checker, because the plain one relies on the row positions of the schema in force.
    Schema(Schema),
    Reference(ReferencePlace),
    Expire {
        field: String,
        place: usize,
    },
}

/// Which rules are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleScope {
    /// Those in force and those announced; writes must obey both.
    All,
    /// Those in force; stored documents satisfy them.
    InForce,
}

impl RuleScope {
    pub(super) fn is(self, readiness: &Readiness) -> bool {
        if self == RuleScope::All { readiness.is_obeyed() } else { readiness.is_ready() }
    }
}
