//! `EXPLAIN` of a query: its plan as rows of text or as one JSON object; with `ANALYZE` after running it.

use docs::Moment;
use docs::sql::{
    Budget, ExecutionCounts, Explain, FieldValue, Means, PreparedQuery, QueryError, RowSink, Value, Workers,
};
use serde_json::Value as Json;

/// The one column of a plan's rows.
pub(super) const PLAN: &str = "plan";

/// The rows of an `EXPLAIN`: each a line of text, or one JSON object.
pub(crate) struct Explained {
    rows: Vec<Json>,
    /// Outcome of the run.
    outcome: ExecutionCounts,
}

impl Explained {
    /// Makes the plan for these values, and runs the query if requested.
    pub(crate) fn of(
        query: &PreparedQuery,
        explain: Explain,
        now: &Moment<'_>,
        values: &[Value<'_>],
        (budget, workers): (&Budget<'_>, Option<&Workers>),
    ) -> Result<Explained, QueryError> {
        let analysis = explain.analyze.then(|| query.analyze(now.view(), values, budget)).transpose()?;
        let means = Means { spills: budget.spill.is_some(), workers };
        let rows = match explain.json {
            true => vec![query.explain_run_json(values, &means, analysis.as_ref())?],
            false => query.explain_run(values, &means, analysis.as_ref())?.lines().map(Json::from).collect(),
        };
        let outcome = analysis.map(|analysis| analysis.outcome).unwrap_or_default();
        Ok(Explained { rows, outcome })
    }

    /// The outcome of the run, whose rows were dropped.
    pub(crate) fn outcome(&self) -> ExecutionCounts {
        ExecutionCounts { rows: self.rows.len() as u64, ..self.outcome }
    }

    /// Passes the rows to a sink.
    pub(crate) fn give(&self, sink: &mut dyn RowSink) {
        for row in &self.rows {
            sink.begin_row();
            match row {
                Json::String(line) => sink.field(0, FieldValue::Value(Value::text(line))),
                plan => sink.field(0, FieldValue::Json(plan.to_string().as_bytes())),
            }
            sink.end_row();
        }
    }

    /// The rows as JSON objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = Json> {
        self.rows.iter().map(|row| serde_json::json!({ PLAN: row }))
    }
}
