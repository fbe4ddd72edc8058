//! The order in which views are compiled: each one after the view that it reads.

use std::sync::Arc;

use super::definition::Definition;
use super::table;
use crate::catalog::Catalog;
use crate::sql::grouping::named_in_from;
use crate::sql::{SqlError, SqlErrorKind};

/// Longest chain of views that read one another.
pub const CHAIN_MAX: usize = 8;

/// The view that a query names in FROM, if it is one.
struct Named {
    place: usize,
    line: u64,
    column: u64,
}

/// Result of compiling views together.
pub(crate) struct CompiledViews {
    /// The definition of each, or its own mistake.
    pub(crate) definitions: Vec<Result<Definition, SqlError>>,
    /// The places of the views, each one after the view that it reads.
    pub(crate) by: Vec<usize>,
}

/// Compiles views, given by name and query, over the collections of a catalog and over one another.
pub(crate) fn compile(views: &[(&str, &str)], catalog: &Catalog) -> CompiledViews {
    let named: Vec<Option<Named>> = views.iter().map(|(_, query)| named(views, query)).collect();
    let depths: Vec<Result<usize, SqlError>> = (0..views.len()).map(|place| depth(views, &named, place)).collect();
    let mut by: Vec<usize> = (0..views.len()).collect();
    by.sort_by_key(|place| depths[*place].as_ref().map_or(usize::MAX, |depth| *depth));
    let mut all = Catalog { views: Vec::new(), ..catalog.clone() };
    let mut definitions: Vec<Option<Result<Definition, SqlError>>> = views.iter().map(|_| None).collect();
    for &place in &by {
        let (name, query) = views[place];
        let lower = named[place].as_ref();
        let broken = lower.filter(|lower| !matches!(definitions[lower.place], Some(Ok(_))));
        let definition = match (&depths[place], broken) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), Some(lower)) => {
                Err(mistake(lower, format!("the view \"{}\" has a mistake of its own", views[lower.place].0)))
            }
            (Ok(_), None) => Definition::compile(query, &all),
        };
        if let Ok(definition) = &definition {
            all.views.push(Arc::new(table::info(name, definition, place)));
        }
        definitions[place] = Some(definition);
    }
    CompiledViews { definitions: definitions.into_iter().flatten().collect(), by }
}

fn named(views: &[(&str, &str)], query: &str) -> Option<Named> {
    let (name, at) = named_in_from(query)?;
    let place = views.iter().position(|(view, _)| view.eq_ignore_ascii_case(&name))?;
    Some(Named { place, line: at.line, column: at.column })
}

/// The number of views below a view.
fn depth(views: &[(&str, &str)], named: &[Option<Named>], place: usize) -> Result<usize, SqlError> {
    let (mut path, mut at) = (vec![views[place].0], place);
    while let Some(lower) = &named[at] {
        let first = named[place].as_ref().unwrap_or(lower);
        path.push(views[lower.place].0);
        if lower.place == place {
            return Err(mistake(first, format!("views cannot read one another in a circle: {}", path.join(" reads "))));
        }
        if path.len() > CHAIN_MAX {
            return Err(mistake(first, format!("more than {CHAIN_MAX} views that read one another")));
        }
        at = lower.place;
    }
    Ok(path.len() - 1)
}

fn mistake(at: &Named, message: String) -> SqlError {
    SqlError { kind: SqlErrorKind::Invalid, message, line: at.line, column: at.column }
}
