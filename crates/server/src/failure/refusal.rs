//! From errors of the database to failures for clients, and how late replies report them.

use super::status::problem_with;
use super::{ErrorRules, Failure, FailureKind, PROBLEM, problem};
use docs::engine::{self, ErrorKind};
use docs::sql::{
    COMPUTED, GROUPS, LOOKED_UP, OF_JSON_EACH, QueryError, RESULT, ROW, ROWS_KEPT, ROWS_READ, SORTED, SPILLED,
};
use docs::statements::ModifyError;
use docs::{ReadError, WriteError};
use http::{LateReply, Reply};
use serde_json::{Map, Value as Json};

/// Answers a failure as a problem document.
pub(crate) fn fail(failure: &Failure, mut reply: Reply<'_>) {
    let status = failure.kind.status();
    if let Some((name, value)) = failure.field() {
        reply.header(name, value);
    }
    reply.send(status, PROBLEM, &problem(status, failure));
}

/// Answers a failure late.
pub(crate) fn refuse(errors: &ErrorRules, mut late: LateReply, failure: &Failure) {
    let (status, media, body) = errors.reply(failure);
    if let Some((name, value)) = failure.field() {
        late.header(name, value);
    }
    late.send(status, media, body.into_owned());
}

/// Answers a failure late as a problem document with members of its own.
pub(crate) fn refuse_with(mut late: LateReply, failure: &Failure, members: Map<String, Json>) {
    let status = failure.kind.status();
    if let Some((name, value)) = failure.field() {
        late.header(name, value);
    }
    late.send(status, PROBLEM, problem_with(status, failure, members));
}

/// The failure of a refused or failed write.
pub(crate) fn of_write(error: &WriteError) -> Failure {
    let kind = match error {
        WriteError::NotFound => FailureKind::NotFound,
        WriteError::PreconditionFailed => FailureKind::PreconditionFailed,
        WriteError::Invalid { .. } => FailureKind::Invalid,
        WriteError::Conflict { .. } => FailureKind::Conflict,
        WriteError::TooLarge { .. } => FailureKind::TooLarge,
        WriteError::Busy => FailureKind::Busy,
        WriteError::DiskFull => FailureKind::DiskFull,
        _ => FailureKind::Unavailable,
    };
    match error {
        // The engine names it by an option of its own, which no file has.
        WriteError::TooLarge { limit, .. } if error.exceeds_transaction() => {
            let takes = format!("what this writes takes over {limit} bytes with its index entries");
            Failure::new(kind, format!("{takes}: the most of one transaction, a part of `[server] memory`"))
        }
        WriteError::Invalid { why, pointer } if !pointer.is_empty() => Failure::new(kind, format!("{pointer}: {why}")),
        other => Failure::new(kind, other.to_string()),
    }
}

/// The failure of a statement that changed nothing.
pub(crate) fn of_modify(error: &ModifyError) -> Failure {
    match error {
        ModifyError::Write(error) => of_write(error),
        ModifyError::Query(error) => of_query(error),
        other => Failure::new(FailureKind::Internal, other.to_string()),
    }
}

/// The failure of a transaction that the store refused.
pub(crate) fn of_store(error: engine::StoreError) -> Failure {
    of_write(&WriteError::from(error))
}

/// The failure of a read.
pub(crate) fn of_read(error: &ReadError) -> Failure {
    let kind = match error.engine() {
        // No reader is free, or the configuration has just changed.
        Some(ErrorKind::Busy) => FailureKind::Busy,
        // The disk has no room for a view's verification to sort outside memory.
        Some(ErrorKind::DiskFull) => FailureKind::DiskFull,
        _ => {
            tracing::error!(%error, "a read failed");
            FailureKind::Internal
        }
    };
    Failure::new(kind, error.to_string())
}

/// The failure of a query that ended without its whole result.
pub(crate) fn of_query(error: &QueryError) -> Failure {
    let kind = match error {
        QueryError::Limit { what: ROWS_KEPT, .. } => {
            let detail =
                format!("{error}, a part of `[server] memory`; allowed: fewer, or rows that are joined instead");
            return Failure::new(FailureKind::TooLarge, detail);
        }
        QueryError::Limit { what: ROWS_READ, .. } => {
            return Failure::new(FailureKind::TooLarge, format!("{error} (`[server] scan_rows_max`)"));
        }
        QueryError::Limit { what: GROUPS | SORTED, .. } => {
            let detail = format!(
                "{error}, a part of `[server] memory`; allowed: less, or more on disk where that may take it (`[server] query_spill`)"
            );
            return Failure::new(FailureKind::TooLarge, detail);
        }
        QueryError::Limit { what: RESULT | LOOKED_UP | OF_JSON_EACH | COMPUTED | ROW, .. } => {
            return Failure::new(FailureKind::TooLarge, format!("{error}, a part of `[server] memory`"));
        }
        QueryError::Limit { what: SPILLED, .. } => {
            return Failure::new(FailureKind::TooLarge, format!("{error} (`[server] query_spill`)"));
        }
        QueryError::Deadline => {
            return Failure::new(FailureKind::OutOfTime, format!("{error} (`[server] query_seconds`)"));
        }
        QueryError::Limit { .. } => FailureKind::TooLarge,
        QueryError::Spill(error) if error.kind() == std::io::ErrorKind::StorageFull => FailureKind::DiskFull,
        QueryError::Unbuilt(_) => FailureKind::Unavailable,
        QueryError::Value(_) | QueryError::JsonPath { .. } | QueryError::Parameters { .. } => FailureKind::Invalid,
        _ if error.engine() == Some(ErrorKind::Busy) => {
            return Failure::new(FailureKind::Busy, "the configuration has just changed: try again");
        }
        // The consumer of its rows has gone, or knows itself why it takes no more.
        QueryError::Unwanted => FailureKind::Internal,
        _ => {
            tracing::error!(%error, "a query failed");
            FailureKind::Internal
        }
    };
    Failure::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_the_setting_that_moves_it() {
        for (what, settings) in [
            (ROWS_KEPT, &["memory"][..]),
            (ROWS_READ, &["scan_rows_max"]),
            (GROUPS, &["memory", "query_spill"]),
            (SORTED, &["memory", "query_spill"]),
            (RESULT, &["memory"]),
            (LOOKED_UP, &["memory"]),
            (OF_JSON_EACH, &["memory"]),
            (COMPUTED, &["memory"]),
            (ROW, &["memory"]),
            (SPILLED, &["query_spill"]),
        ] {
            let failure = of_query(&QueryError::Limit { what, limit: 7 });
            assert_eq!(failure.kind, FailureKind::TooLarge);
            assert!(failure.detail.contains(&format!("7 {what}")), "{}", failure.detail);
            for setting in settings {
                assert!(failure.detail.contains(&format!("`[server] {setting}`")), "{}", failure.detail);
            }
        }
    }

    #[test]
    fn what_a_statement_or_its_parameters_cause_is_no_internal_error() {
        for error in [
            QueryError::Value("integer overflow"),
            QueryError::JsonPath { at: 1 },
            QueryError::Parameters { expected: 1, given: 0 },
        ] {
            assert_eq!(of_query(&error).kind, FailureKind::Invalid, "{error}");
        }
    }

    #[test]
    fn a_write_that_passing_reads_or_writes_keep_out_is_told_when_to_come_again() {
        for error in [engine::StoreError::Busy, engine::StoreError::Pinned { states: 64 }] {
            let failure = of_store(error);
            assert_eq!((failure.kind, failure.field()), (FailureKind::Busy, Some(("Retry-After", "1"))));
        }
    }

    #[test]
    fn a_full_disk_and_a_view_that_is_not_built_are_no_internal_errors() {
        for failure in [of_read(&ReadError::Store(engine::StoreError::Full)), of_store(engine::StoreError::Full)] {
            assert_eq!((failure.kind, failure.field()), (FailureKind::DiskFull, Some(("Retry-After", "10"))));
            assert_eq!(failure.kind.status().0, 503);
        }
        let failure = of_query(&QueryError::Unbuilt("the view `v` is being built".to_owned()));
        assert_eq!((failure.kind, &failure.detail[..]), (FailureKind::Unavailable, "the view `v` is being built"));
    }
}
