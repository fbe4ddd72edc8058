//! A declared query on a thread of the pool. Rows of an array are sent while they are made; one row, and a page, are answered
//! whole.
//!
//! While the query waits for its thread, another configuration may take over. Then its indexes are no longer maintained, and its
//! request is routed again by the newest configuration: on the same thread, and within the same time limit. So a reload makes no
//! request fail.

use super::query::{DeclaredQuery, WholeReply};
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::cold::{ReadLimits, Sessions};
use crate::reads::named::Unread;
use crate::replies::large;
use crate::replies::media::JSON;
use crate::replies::pipe;
use crate::replies::row_stream;
use crate::service::Service;
use crate::service::kept_request::KeptRequest;
use crate::service::query_limits::QueryLimits;
use crate::service::rerouting::{PoolQuery, PoolStep, Rerouting};
use crate::statements::guard::Ended;
use crate::statements::paging::Page;
use crate::threads::background;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::InFlight;
use crate::threads::loop_time::Habit;
use crate::threads::query_pool::QueryPool;
use crate::threads::query_state::{PLAN_FIELD, Queries};
use docs::sql::{Budget, OwnedValue, QueryError, Value};
use docs::statements::Guard;
use docs::{DocumentDatabase, Moment, ReaderSession};
use http::{LateReply, Status};
use std::sync::{Arc, Weak};

/// A request of a declared query.
pub(crate) struct QueryRequest {
    pub(crate) kept: KeptRequest,
    pub(crate) permit: Permit,
    pub(crate) values: Vec<OwnedValue>,
    pub(crate) page: Option<Page>,
    /// The arguments of its guard.
    pub(crate) guard: Option<Guard>,
    /// The time of the statement's date functions.
    pub(crate) now_ms: i64,
    /// A document whose existence is still to be checked.
    pub(crate) required: Option<Unread>,
}

impl QueryRequest {
    /// Bytes held while it waits, besides its own structure.
    fn bytes(&self) -> usize {
        let texts = self.kept.path.len() + self.kept.query.len();
        self.values.iter().fold(texts, |bytes, value| bytes + size_of::<OwnedValue>() + value.bytes())
    }

    fn habit(&self) -> Habit {
        Habit::of_given(self.values.iter().map(|value| !matches!(value.value(), Value::Null)))
    }
}

/// See the module's documentation.
pub(crate) struct LateQuery {
    query: Arc<DeclaredQuery>,
    request: QueryRequest,
    limits: QueryLimits,
    database: DocumentDatabase,
    sessions: Arc<Sessions>,
    pool: Arc<QueryPool>,
    errors: Arc<ErrorRules>,
    replies: InFlight,
    queries: Arc<Queries>,
    newest: Option<Weak<dyn Rerouting>>,
}

impl LateQuery {
    /// 404 unless the required document exists. A sender that the guard refuses does not learn whether it does.
    fn check_required(&self, session: &ReaderSession) -> Result<(), Failure> {
        let Some(required) = &self.request.required else { return Ok(()) };
        self.query.admit(self.request.guard.as_ref(), &session.now()).map_err(Ended::failure)?;
        required.check(session)
    }

    #[cold]
    pub(crate) fn new(
        query: &Arc<DeclaredQuery>,
        service: &Service,
        request: QueryRequest,
        limits: QueryLimits,
    ) -> LateQuery {
        LateQuery {
            query: Arc::clone(query),
            request,
            limits,
            database: service.database.clone(),
            sessions: Arc::clone(&service.pool_sessions),
            pool: Arc::clone(&service.pool),
            errors: Arc::clone(&service.errors),
            replies: service.replies.clone(),
            queries: Arc::clone(&service.queries),
            newest: service.newest.get().cloned(),
        }
    }

    /// Runs it on a thread for cold reads; `None` if that thread's limits are too small, or another configuration has taken over.
    pub(super) fn run_cold(&self, session: &ReaderSession, limits: ReadLimits) -> Result<Option<WholeReply>, Failure> {
        self.request.permit.check()?;
        self.check_required(session)?;
        let values = (&self.request.values[..], self.request.page.as_ref(), self.request.guard.as_ref());
        let run = |budget: &Budget<'_>| self.query.run_whole(session, values, budget, &self.queries);
        match self.limits.clone().within(limits).run(self.request.now_ms, run) {
            Err(Ended::Query(QueryError::Limit { .. })) => Ok(None),
            Err(ended) if ended.is_of_reload() => Ok(None),
            outcome => outcome.map(Some).map_err(Ended::failure),
        }
    }

    /// Queues it for the pool, which answers.
    pub(crate) fn start(self: Arc<Self>, late: LateReply) {
        let (pool, errors) = (Arc::clone(&self.pool), Arc::clone(&self.errors));
        match pool.place(late.host(), self.request.bytes(), self.query.habits.expected(self.request.habit())) {
            Ok(place) => {
                background::run_placed(self.limits.ends(), (&pool, place), &errors, late, move |late| self.run(late));
            }
            Err(failure) => refusal::refuse(&errors, late, &failure),
        }
    }

    fn run(self: Arc<Self>, late: LateReply) {
        let mut next = self.answer(late);
        while let Some((query, late)) = next {
            next = query.answer(late);
        }
    }

    /// Answers, or returns the reply: another configuration has taken over.
    fn try_answer(&self, late: LateReply) -> Option<LateReply> {
        let client = ClientWatch::of(&late, &self.request.permit, &self.pool);
        if self.request.page.is_none() && !self.query.has_one_row() {
            self.stream(&client, late)
        } else {
            self.answer_whole(&client, late)
        }
    }

    /// Sends rows while they are made.
    fn stream(&self, client: &ClientWatch, late: LateReply) -> Option<LateReply> {
        let (media, bytes_max) = (self.request.kept.shape.media(), self.limits.bytes_max());
        let mut reply = pipe::Reply::new(late, (&self.replies, &self.errors, &self.pool), media, bytes_max);
        let mut rest = Vec::new();
        let ran = self.sessions.with(&self.database, |session| {
            self.check_required(session)?;
            let now = session.now();
            if now.is_superseded() {
                return Ok(None);
            }
            self.flow(&now, client, (&mut reply, &mut rest)).map(Some)
        });
        match ran.transpose() {
            None => reply.give_back(),
            Some(ran) => {
                reply.end(rest, client.permitted(ran));
                None
            }
        }
    }

    fn flow(
        &self,
        now: &Moment<'_>,
        client: &ClientWatch,
        (reply, rest): (&mut pipe::Reply<'_>, &mut Vec<u8>),
    ) -> Result<(), Failure> {
        let DeclaredQuery { query, before, behind, route, habits, .. } = &*self.query;
        let row = self.query.admit(self.request.guard.as_ref(), now).map_err(Ended::failure)?;
        let values: Vec<Value<'_>> = self.request.values.iter().map(OwnedValue::value).collect();
        let values = self.query.filled(&values, &row);
        let (plan, scans) = query.plan_line(&values);
        if self.request.kept.wants_plan {
            reply.header(PLAN_FIELD, &plan);
        }
        let run = |reply: &mut pipe::Reply<'_>, budget: &Budget<'_>| {
            let rows = (now, &values[..], self.request.kept.shape);
            row_stream::stream(query, rows, (before, behind), &mut self.queries.scratch(), budget, (reply, rest))
        };
        let running = habits.begin(Habit::of(&values));
        let ran = self.limits.clone().run_for(client, self.request.now_ms, |budget| reply.run(budget, run));
        drop(running);
        let outcome = ran.map_err(|error| {
            self.queries.count_ended(&error, &plan, scans, route, Some(client.presence()));
            client.failure(refusal::of_query(&error))
        })?;
        self.queries.count(&outcome, &plan, scans, route, Some(client.presence()));
        Ok(())
    }

    /// Answers with one row, or a page.
    fn answer_whole(&self, client: &ClientWatch, mut late: LateReply) -> Option<LateReply> {
        let ran = self.sessions.with(&self.database, |session| {
            self.check_required(session)?;
            let values = (&self.request.values[..], self.request.page.as_ref(), self.request.guard.as_ref());
            let plan_to = (client, self.request.kept.wants_plan.then_some(&mut late));
            let run = |budget: &Budget<'_>| self.query.run_long(session, values, budget, &self.queries, plan_to);
            match self.limits.clone().run_for(client, self.request.now_ms, run) {
                Err(ended) if ended.is_of_reload() => Ok(None),
                ran => ran.map(Some).map_err(|ended| client.failure(ended.failure())),
            }
        });
        match ran.transpose().map(|ran| client.permitted(ran)) {
            None => return Some(late),
            Some(Ok(body)) => large::send_late(&self.replies, &self.errors, late, Status(200), JSON, body),
            Some(Err(failure)) => refusal::refuse(&self.errors, late, &failure),
        }
        None
    }

    /// Routes the request by the newest configuration; `None` if that has answered it.
    #[cold]
    fn route_again(&self, late: LateReply) -> Option<PoolStep> {
        let Some(newest) = self.newest.as_ref().and_then(Weak::upgrade) else {
            refusal::refuse(&self.errors, late, &Failure::new(FailureKind::Busy, "the server ends"));
            return None;
        };
        newest.route_again(&self.request.kept, self.limits.ends(), late)
    }
}

impl PoolQuery for LateQuery {
    fn answer(&self, late: LateReply) -> Option<PoolStep> {
        self.try_answer(late).and_then(|late| self.route_again(late))
    }
}
