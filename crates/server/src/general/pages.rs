//! Pages of a query: `{"sql": …, "limit": N, "after": TOKEN}` gives `{"items":[…],"after":TOKEN}`, null at the end.
//!
//! A token is a cursor (`statements/cursor.rs`) of the statement and its parameters.

use super::fail;
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::replies::large;
use crate::replies::media::{JSON, RowFormat};
use crate::requests::params;
use crate::service::Service;
use crate::service::query_limits::QueryLimits;
use crate::statements::cursor::{self, StatementChecksum};
use crate::statements::paging::{self, Page};
use crate::statements::statement::ParameterValues;
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::{InFlight, Taken};
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::DocumentDatabase;
use docs::sql::{PAGE_ROWS_MAX, QueryError, Value};
use http::{LateReply, Reply, Status};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Default of rows in a page.
const ROWS_DEFAULT: u64 = 100;

/// The requested page.
pub(super) struct PageWanted(Page);

impl PageWanted {
    /// Reads the page from the request; `None`, if it requests all rows.
    pub(super) fn read(
        limit: Option<Json>,
        after: Option<Json>,
        sql: &str,
        parameters: &Map<String, Json>,
    ) -> Result<Option<PageWanted>, Failure> {
        if limit.is_none() && after.is_none() {
            return Ok(None);
        }
        let invalid = |detail: String| Failure::new(FailureKind::Invalid, detail);
        let rows_max = match limit {
            None => ROWS_DEFAULT,
            Some(limit) => limit.as_u64().filter(|rows| (1..=PAGE_ROWS_MAX).contains(rows)).ok_or_else(|| {
                let limit = limit.to_string();
                invalid(format!("limit is {}; allowed: 1 to {PAGE_ROWS_MAX}", params::echo(&limit)))
            })?,
        };
        let parameters = serde_json::to_vec(parameters).unwrap_or_default();
        let of = StatementChecksum::of(sql).and(&parameters);
        let after = match after {
            None | Some(Json::Null) => None,
            Some(Json::String(token)) => Some(
                cursor::read(&token, of)
                    .ok_or_else(|| invalid("`after` is no token of this statement with these parameters".to_owned()))?,
            ),
            Some(other) => {
                let other = other.to_string();
                return Err(invalid(format!("after is {}; allowed: a token or null", params::echo(&other))));
            }
        };
        Ok(Some(PageWanted(Page::new(rows_max, after, of))))
    }

    /// Answers with the page.
    pub(super) fn answer(
        self,
        service: &Service,
        (sql, arguments, taken): (String, ParameterValues, Taken),
        shape: RowFormat,
        (permit, reply): (&Permit, Reply<'_>),
    ) {
        if shape != RowFormat::Json {
            return fail(&paging::not_json(), reply);
        }
        let (database, replies) = (service.database.clone(), service.replies.clone());
        let (limits, queries) = (QueryLimits::of(service), Arc::clone(&service.queries));
        let errors = Arc::new(ErrorRules::default());
        let late = reply.later_watched();
        let client = ClientWatch::of(&late, permit, &service.pool);
        background::run_until(limits.ends(), &service.pool, &Arc::clone(&errors), late, move |mut late| {
            let of = (&sql[..], &arguments);
            let page = loop {
                let page = self.run(&database.newest(), of, (&limits, &client), &queries, &mut late);
                if let Some(page) = page.transpose() {
                    break page;
                }
            };
            drop((sql, arguments, taken));
            send(&replies, &errors, late, client.permitted(page));
        });
    }

    /// Makes the page; `None` if another configuration has taken over before it began.
    fn run(
        &self,
        database: &DocumentDatabase,
        (sql, arguments): (&str, &ParameterValues),
        (limits, client): (&QueryLimits, &ClientWatch),
        queries: &Queries,
        late: &mut LateReply,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let invalid = |detail: String| Failure::new(FailureKind::Invalid, detail);
        let prepared = queries.statements.paged(sql, database.catalog());
        let paged = prepared.map_err(|error| invalid(error.to_string()))?;
        let at = self.0.at();
        let names = paged.parameters().iter();
        let values = names.map(|name| arguments.value(name).ok_or(name));
        let values: Result<Vec<Value<'_>>, &String> = values.collect();
        let values = values.map_err(|name| invalid(format!("the parameter :{name} is not given")))?;
        let session = database.session().map_err(|_| Failure::new(FailureKind::Busy, "no reader is free"))?;
        let now = session.now();
        if now.is_superseded() {
            return Ok(None);
        }
        let mut out = b"{\"items\":[".to_vec();
        let ran = limits.clone().run_for(client, params::unix_ms(), |budget| {
            let ran = paged.write((now.view(), at), &values, &mut queries.scratch(), budget, &mut out)?;
            now.check_indexes().map_err(QueryError::Store)?;
            Ok(ran)
        });
        let (plan, scans) = paged.plan_line(&values, at);
        let (outcome, end) = ran.map_err(|error| {
            queries.count_ended(&error, &plan, scans, sql, Some(client.presence()));
            client.failure(refusal::of_query(&error))
        })?;
        queries.count(&outcome, &plan, scans, sql, Some(client.presence()));
        late.header(PLAN_FIELD, &plan);
        // Its cursor comes back in a body, which has its own limit.
        self.0.close(end, &mut out);
        Ok(Some(out))
    }
}

fn send(replies: &InFlight, errors: &ErrorRules, late: LateReply, page: Result<Vec<u8>, Failure>) {
    match page {
        Ok(body) => large::send_late(replies, errors, late, Status(200), JSON, body),
        Err(failure) => refusal::refuse(errors, late, &failure),
    }
}
