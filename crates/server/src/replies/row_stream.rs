//! Rows of a query as JSON, lines or CSV, sent while they are made (`pipe.rs`).

use super::media::RowFormat;
use super::pipe;
use super::rows::Csv;
use docs::Moment;
use docs::sql::{Budget, ExecutionCounts, PreparedQuery, QueryError, Scratch, Value};

/// The text before and after an array of rows.
pub(super) type Around<'a> = (&'a [u8], &'a [u8]);

/// Runs a query on a state; unsent bytes are left in `rest`.
pub(crate) fn stream(
    query: &PreparedQuery,
    (now, values, shape): (&Moment<'_>, &[Value<'_>], RowFormat),
    (before, behind): Around<'_>,
    scratch: &mut Scratch,
    budget: &Budget<'_>,
    (reply, rest): (&mut pipe::Reply<'_>, &mut Vec<u8>),
) -> Result<ExecutionCounts, QueryError> {
    // Now, while an error can still be reported.
    now.check_indexes().map_err(QueryError::Store)?;
    let outcome = match shape {
        RowFormat::Csv => {
            let csv = Csv::new(query.columns(), rest);
            query.execute(now.view(), values, scratch, budget, &mut reply.sink(csv, now, budget))?
        }
        RowFormat::Json => {
            rest.extend_from_slice(before);
            rest.push(b'[');
            let rows = query.json_rows(rest, b',');
            let outcome = query.execute(now.view(), values, scratch, budget, &mut reply.sink(rows, now, budget))?;
            rest.push(b']');
            rest.extend_from_slice(behind);
            outcome
        }
        RowFormat::Lines => {
            let rows = query.json_rows(rest, b'\n');
            let outcome = query.execute(now.view(), values, scratch, budget, &mut reply.sink(rows, now, budget))?;
            rest.extend((outcome.rows > 0).then_some(b'\n'));
            outcome
        }
    };
    now.check_indexes().map_err(QueryError::Store)?;
    Ok(outcome)
}
