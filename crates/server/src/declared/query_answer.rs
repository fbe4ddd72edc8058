//! Answers of declared queries: on the loop within a small budget. A query that takes longer than about a millisecond, or makes a
//! larger result, is run again on the pool with the service's whole budget, and answered late ([`super::late_query`]): a loop is
//! never blocked for long. The next queries of its kind go to the pool at once ([`crate::threads::loop_time`]), which refuses
//! them if its queue is full.

use super::late_query::{LateQuery, QueryRequest};
use super::query::{DeclaredQuery, Values, WholeReply};
use crate::access::token::Permit;
use crate::failure::Failure;
use crate::failure::refusal;
use crate::reads::cold::ReadLimits;
use crate::reads::named::Unread;
use crate::replies::large;
use crate::replies::media::{JSON, RowFormat};
use crate::service::cold_read;
use crate::service::kept_request::KeptRequest;
use crate::service::permission;
use crate::service::query_limits::QueryLimits;
use crate::service::{Local, PathTexts, Service};
use crate::statements::guard::Ended;
use crate::statements::paging::{self, Page};
use crate::threads::loop_time::{Habit, LoopTime};
use crate::threads::query_state::PLAN_FIELD;
use docs::sql::{Budget, COMPUTED, OwnedValue, QueryError, ROW, Value};
use docs::statements::Guard;
use http::{HttpRequest, LateReply, Params, Reply, Status};
use std::sync::Arc;
use std::time::Instant;

impl DeclaredQuery {
    /// Answers one request.
    pub(crate) fn answer(
        self: &Arc<Self>,
        service: &Service,
        local: &mut Local,
        request: &HttpRequest<'_>,
        params: &Params<'_, '_>,
        (unread, permit): (&mut Option<Unread>, &Permit),
        reply: Reply<'_>,
    ) {
        let Local { session, text, out, scratch, path_texts, cold, lp, .. } = local;
        let mut values = Values::new(self.slots.len());
        match self.read_values(request.query(), params, text, path_texts, values.slots()) {
            Ok(()) => {}
            // A missing required document takes precedence over a bad parameter.
            Err(failure) if unread.is_some() => return self.fail_late(service, failure, unread.take(), reply),
            Err(failure) => return service.fail(&failure, reply),
        }
        let mut page = None;
        if let Some(pages) = self.pages.as_deref() {
            match self.page(pages, request.query(), values.as_slice()) {
                Ok(found) => page = Some(found),
                Err(failure) if unread.is_some() => return self.fail_late(service, failure, unread.take(), reply),
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        let mut guard = None;
        if let Some(declared) = &self.guard {
            match declared.of(request) {
                Ok(found) => guard = Some(found),
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        let asks = |page, now_ms, unread| {
            self.asked((service, request, permit), (values.as_slice(), page), now_ms, (guard.clone(), unread))
        };
        if request.names_media() && !self.one_row {
            let shape = RowFormat::of_accept(request);
            if shape != RowFormat::Json && page.is_none() {
                let asked = asks(None, self.now_ms(), unread.take());
                return self.hand_over(service, asked, reply);
            } else if shape != RowFormat::Json {
                return service.fail(&paging::not_json(), reply);
            }
        }
        let habit = Habit::of(values.as_slice());
        if self.habits.is_long(habit, lp) && unread.is_none() {
            return self.hand_over(service, asks(page, self.now_ms(), None), reply);
        }
        let time = LoopTime::new(lp);
        let is_over = || time.is_over();
        let budget = Budget {
            rows_max: service.scan_rows_max,
            output_bytes_max: service.loop_query_bytes,
            memory_bytes_max: service.loop_query_bytes,
            spill: None,
            deadline: Some(&is_over),
            now_ms: self.now_ms(),
        };
        if unread.is_some() {
            self.answer_cold(service, asks(page, budget.now_ms, unread.take()), reply);
            return cold_read::count_cold(service, cold);
        }
        match self.run(session, (values.as_slice(), page.as_ref(), guard.as_ref()), scratch, &budget, out) {
            Err(ended) if ended.would_wait() => {
                self.answer_cold(service, asks(page, budget.now_ms, None), reply);
                cold_read::count_cold(service, cold);
            }
            Ok(outcome) => {
                let mut reply = reply;
                let asked = (values.as_slice(), page.as_ref());
                if service.queries.is_reported(&outcome) {
                    self.report_plan(&service.queries, &outcome, asked);
                }
                if request.header(PLAN_FIELD).is_some() && permission::wants_plan(service, request) {
                    reply.header(PLAN_FIELD, &self.plan_of(asked).0);
                }
                large::send(&service.replies, &service.errors, reply, Status(200), JSON, out);
            }
            // Any other limit would be reached on the pool again.
            Err(Ended::Query(error))
                if matches!(error, QueryError::Deadline | QueryError::Limit { what: COMPUTED | ROW, .. })
                    || matches!(error, QueryError::Limit { limit, .. } if limit == service.loop_query_bytes as u64) =>
            {
                out.clear();
                self.habits.set_long(habit, lp);
                service.queries.count_left_loop();
                self.hand_over(service, asks(page, budget.now_ms, None), reply);
            }
            Err(ended) if ended.is_of_reload() => {
                out.clear();
                self.hand_over(service, asks(page, budget.now_ms, None), reply);
            }
            Err(ended) => service.fail(&ended.failure(), reply),
        }
    }

    /// The request's query, for a thread that waits.
    #[cold]
    fn asked(
        &self,
        (service, request, permit): (&Service, &HttpRequest<'_>, &Permit),
        (values, page): (&[Value<'_>], Option<Page>),
        now_ms: i64,
        (guard, required): (Option<Guard>, Option<Unread>),
    ) -> QueryRequest {
        let values = values.iter().map(OwnedValue::new).collect();
        let kept = KeptRequest::of(request, permission::wants_plan(service, request));
        QueryRequest { kept, permit: permit.clone(), values, page, guard, now_ms, required }
    }

    /// Runs it on the pool, from the beginning.
    #[cold]
    fn hand_over(self: &Arc<Self>, service: &Service, asked: QueryRequest, reply: Reply<'_>) {
        let query = LateQuery::new(self, service, asked, QueryLimits::of(service));
        Arc::new(query).start(reply.later_watched());
    }

    /// The query of a request that began with another configuration's endpoint; or an answer, if it is invalid.
    #[cold]
    pub(super) fn asked_again(
        self: &Arc<Self>,
        service: &Service,
        (request, params): (&KeptRequest, &Params<'_, '_>),
        permit: Permit,
        ends: Instant,
    ) -> Result<LateQuery, Failure> {
        let (mut text, mut path_texts) = (Vec::new(), PathTexts::default());
        let mut values = Values::new(self.slots.len());
        self.read_values(&request.query, params, &mut text, &mut path_texts, values.slots())?;
        let page = self.pages.as_deref().map(|pages| self.page(pages, &request.query, values.as_slice()));
        let page = page.transpose()?;
        if page.is_some() && request.shape != RowFormat::Json {
            return Err(paging::not_json());
        }
        let values = values.as_slice().iter().map(OwnedValue::new).collect();
        let (kept, now_ms) = (request.clone(), self.now_ms());
        // Endpoints with a guard do not come here: the kept request has no header fields.
        let asked = QueryRequest { kept, permit, values, page, guard: None, now_ms, required: None };
        Ok(LateQuery::new(self, service, asked, QueryLimits::of(service).until(ends)))
    }

    /// Runs it again, from the beginning, on threads that may wait for the disk.
    fn answer_cold(self: &Arc<Self>, service: &Service, asked: QueryRequest, reply: Reply<'_>) {
        let wants_plan = asked.kept.wants_plan;
        let (errors, replies) = (Arc::clone(&service.errors), service.replies.clone());
        let query = Arc::new(LateQuery::new(self, service, asked, QueryLimits::of(service)));
        let for_pool = Arc::clone(&query);
        let read = move |session: &docs::ReaderSession, limits: ReadLimits| query.run_cold(session, limits);
        let done = move |mut late: LateReply, outcome: Result<WholeReply, Failure>| match outcome {
            Ok((body, plan)) => {
                if wants_plan {
                    late.header(PLAN_FIELD, &plan);
                }
                large::send_late(&replies, &errors, late, Status(200), JSON, body);
            }
            Err(failure) => refusal::refuse(&errors, late, &failure),
        };
        let late = reply.later_watched();
        cold_read::read_or(service, &service.errors, late, (read, done), |late, _| for_pool.start(late));
    }

    /// Answers a failed request, with 404 if a required document does not exist.
    #[cold]
    fn fail_late(&self, service: &Service, failure: Failure, required: Option<Unread>, reply: Reply<'_>) {
        let errors = Arc::clone(&service.errors);
        let read = move |session: &docs::ReaderSession, _: ReadLimits| {
            required.iter().try_for_each(|required| required.check(session)).map(Some)
        };
        cold_read::read_late(service, &service.errors, reply.later_watched(), read, move |late, checked| {
            refusal::refuse(&errors, late, &checked.err().unwrap_or(failure));
        });
    }
}
