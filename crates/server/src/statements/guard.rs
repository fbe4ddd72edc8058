//! Execution of a guard: the query that must return a row before its endpoint does anything.
//!
//! - It runs in the state that the endpoint reads, or in the transaction in which the endpoint writes: its result holds for the
//!   whole reply or write.
//! - It may scan only a few rows ([`docs::statements::GUARD_ROWS_MAX`]), so it can run on an event loop.
//! - Steps run it as their first step (`config::guard`). This module serves endpoints of one document, and of queries.

use crate::config::GuardConfig;
use crate::failure::refusal;
use crate::failure::{Failure, FailureKind};
use crate::requests::header_params::HeaderParams;
use crate::requests::params;
use crate::requests::params::value_of;
use docs::Moment;
use docs::catalog::Catalog;
use docs::config::Parameter;
use docs::engine::ErrorKind;
use docs::sql::{OwnedValue, PreparedQuery, QueryError};
use docs::statements::Guard;
use http::HttpRequest;
use std::sync::Arc;

/// A prepared guard.
#[derive(Debug)]
pub(crate) struct DeclaredGuard {
    query: Arc<PreparedQuery>,
    params: Box<[Parameter]>,
    header_params: Option<Box<HeaderParams>>,
    /// Source of each slot of the query.
    slots: Box<[Source]>,
    otherwise: u16,
    detail: Box<str>,
}

#[derive(Debug)]
enum Source {
    /// A parameter of the guard, by its index.
    Own(usize),
    /// One of the file's `[params]`.
    File(Parameter),
}

impl DeclaredGuard {
    /// Prepares a guard against a catalog.
    pub(crate) fn prepare(
        config: &GuardConfig,
        file: &[Parameter],
        catalog: &Catalog,
    ) -> Result<DeclaredGuard, String> {
        let query = PreparedQuery::prepare(&config.sql, catalog).map_err(|error| error.to_string())?.with_limit(1);
        let source = |name: &String| {
            if let Some(place) = config.params.iter().position(|own| own.name == *name) {
                return Ok(Source::Own(place));
            }
            let of_file = file.iter().find(|parameter| parameter.name == *name).cloned().map(Source::File);
            of_file.ok_or_else(|| {
                format!("the guard uses :{name}, which is no parameter of the guard, and not in [params]")
            })
        };
        let slots = query.parameters().iter().map(source).collect::<Result<_, String>>()?;
        Ok(DeclaredGuard {
            query: Arc::new(query),
            params: config.params.clone().into(),
            header_params: HeaderParams::of(&config.params),
            slots,
            otherwise: config.otherwise,
            detail: config.detail.as_str().into(),
        })
    }

    /// The names of its row's columns, which are parameters of the endpoint's statements.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.query.columns()
    }

    /// Index of a column of its row.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.query.columns().position(|column| column == name)
    }

    /// Approximate bytes of memory, without its plans.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<DeclaredGuard>() + self.query.bytes() + self.slots.len() * size_of::<Source>()
    }

    /// The guard with its arguments for a request.
    pub(crate) fn of(&self, request: &HttpRequest<'_>) -> Result<Guard, Failure> {
        let text = self.header_params.as_ref().map_or_else(|| Ok(String::new()), |own| own.own(request))?;
        let (mut scratch, mut given) = (Vec::new(), params::ParamValues::default());
        params::read(&self.params, &text, &mut scratch, &mut given)?;
        let values = self.slots.iter().map(|slot| match slot {
            Source::Own(place) => OwnedValue::new(&value_of(given.get(*place))),
            Source::File(parameter) => OwnedValue::new(&value_of(params::default_of(parameter))),
        });
        Ok(Guard::new(Arc::clone(&self.query), values.collect(), params::unix_ms()))
    }

    /// Its row in a state; ends the request if there is none.
    pub(crate) fn admit(&self, guard: &Guard, now: &Moment<'_>) -> Result<Vec<OwnedValue>, Ended> {
        match guard.row(now) {
            Ok(Some(row)) => Ok(row),
            Ok(None) => Err(Ended::Refused(self.refused())),
            Err(QueryError::Limit { what, limit }) => {
                let detail =
                    format!("the endpoint's guard exceeds its limit of {limit} {what}: it needs a key or an index");
                Err(Ended::Refused(Failure::new(FailureKind::Internal, detail)))
            }
            Err(error) => Err(Ended::Query(error)),
        }
    }

    /// The answer to a request for which it returns no row.
    pub(crate) fn refused(&self) -> Failure {
        Failure::unmet(self.otherwise, self.detail.to_string())
    }
}

/// Why a run returned no result.
pub(crate) enum Ended {
    Query(QueryError),
    NoRow,
    /// Its guard returns no row.
    Refused(Failure),
}

impl Ended {
    /// Whether another configuration had taken over before it began.
    pub(crate) fn is_of_reload(&self) -> bool {
        matches!(self, Ended::Query(error) if error.engine() == Some(ErrorKind::Busy))
    }

    /// Whether it would have had to wait for the disk.
    pub(crate) fn would_wait(&self) -> bool {
        matches!(self, Ended::Query(error) if error.engine() == Some(ErrorKind::WouldWait))
    }

    pub(crate) fn failure(self) -> Failure {
        match self {
            Ended::Query(error) => refusal::of_query(&error),
            Ended::NoRow => Failure::new(FailureKind::NotFound, "the query has no row"),
            Ended::Refused(failure) => failure,
        }
    }
}
