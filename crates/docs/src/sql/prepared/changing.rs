//! Statements that write, prepared: the queries of an INSERT, UPDATE or DELETE. `crate::statements` executes them.

use sqlparser::ast::Statement;

use super::query::PreparedQuery;
use crate::catalog::Catalog;
use crate::sql::limits::SqlError;
use crate::sql::resolve::changes::{self, Changing};
use crate::sql::syntax::parse;

impl Changing<PreparedQuery> {
    /// Whether a text is an INSERT, UPDATE or DELETE, by its syntax.
    pub(crate) fn is_one(sql: &str) -> Result<bool, SqlError> {
        let (statement, _) = parse::statement(sql)?;
        Ok(matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)))
    }

    /// Prepares a statement against a catalog.
    pub(crate) fn prepare(sql: &str, catalog: &Catalog) -> Result<Changing<PreparedQuery>, SqlError> {
        let (statement, _) = parse::statement(sql)?;
        Ok(changes::resolve(&statement, catalog)?.map(|logical| PreparedQuery::of(logical, catalog.clone())))
    }
}
