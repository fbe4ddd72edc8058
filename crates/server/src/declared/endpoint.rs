//! Execution of a declared endpoint. The checks run in this order: path key, `require` or target (404), parameters, body.

use super::files;
use super::late_query::LateQuery;
use super::query::DeclaredQuery;
use super::steps::DeclaredSteps;
use crate::access::token::Permit;
use crate::config::{
    AFTER, Action as Declared, DocumentTarget, EndpointConfig, LIMIT, SORT, folder_pattern, rest_parameter,
};
use crate::failure::refusal;
use crate::failure::{Failure, FailureKind};
use crate::reads::cold::{OnLoop, ReadLimits};
use crate::reads::direct::{self, Waiting};
use crate::reads::named::{Named, Unread, missing};
use crate::replies::document;
use crate::replies::large;
use crate::replies::new_key::KeyTold;
use crate::requests::header_params::HeaderParams;
use crate::requests::params;
use crate::requests::preconditions;
use crate::service::cold_read;
use crate::service::kept_request::KeptRequest;
use crate::service::permission;
use crate::service::write::{self, Answer, BoundGuard};
use crate::service::{Local, Service};
use crate::statements::guard::DeclaredGuard;
use crate::statements::guard::Ended;
use docs::catalog::Catalog;
use docs::config::Parameter;
use docs::engine::ErrorKind;
use docs::statements::Guard;
use docs::{CollectionId, Op, Precondition, ReaderSession, Required, Write};
use http::{Files, HttpRequest, LateReply, Method, Params, Reply, Series, Status};
use std::sync::Arc;
use std::time::Instant;

/// One endpoint with resolved names.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) pattern: String,
    /// The series of its requests in the metrics.
    pub(crate) series: Series,
    /// Scope that the token of a request must have; `None`: anyone may call it.
    scope: Option<Box<str>>,
    /// Path parameters whose type the file declares.
    path: Box<[Parameter]>,
    /// Query that must return a row before anything is done.
    guard: Option<Arc<DeclaredGuard>>,
    require: Option<Named>,
    /// It has neither scope, nor declared path parameters, nor guard, nor required document: nothing is checked before the action.
    is_unconditional: bool,
    /// The parameters that a request's query may have, if the rows are returned in pages.
    of_page: Option<Box<[Box<str>]>>,
    /// Parameters that do not come from the query.
    header_params: Option<Box<HeaderParams>>,
    action: Action,
}

enum Action {
    Get(Named),
    Insert {
        collection: CollectionId,
        answer: Answer,
    },
    Update {
        target: Named,
        answer: Answer,
    },
    Replace {
        target: Named,
        answer: Answer,
    },
    Delete {
        target: Named,
        answer: Answer,
    },
    Query(Arc<DeclaredQuery>),
    /// One query for each allowed value of `sort`.
    Sorted(Vec<(String, Arc<DeclaredQuery>)>),
    Steps(Box<DeclaredSteps>),
    /// The files, and the name of the path parameter that names a file.
    Files(Box<Files>, Box<str>),
}

impl Endpoint {
    /// Resolves an endpoint, one of `all`; `queries` are its prepared statements by their orders, `steps` those of one
    /// transaction, `guard` its guard, `files` the files that it serves.
    pub(crate) fn new(
        config: &EndpointConfig,
        all: &[EndpointConfig],
        catalog: &Catalog,
        (queries, steps): (Vec<(String, DeclaredQuery)>, Option<DeclaredSteps>),
        guard: Option<DeclaredGuard>,
        files: Option<Files>,
    ) -> Option<Endpoint> {
        let answer = |status: u16| Answer {
            status: Status(if config.reply.is_some() { 200 } else { status }),
            body: config.reply.as_deref().unwrap_or("{}").as_bytes().into(),
            key: None,
            is_declared: config.reply.is_some(),
            has_tag: !matches!(config.action, Declared::Delete(_)),
        };
        let named = |target: &DocumentTarget| Named::new(target, &config.pattern, catalog);
        let action = match &config.action {
            Declared::Get(target) => Action::Get(named(target)?),
            Declared::Insert(name) => {
                let key = KeyTold::new(catalog.collection(name)?, all).map(Arc::new);
                let collection = CollectionId(catalog.number(name)?);
                Action::Insert { collection, answer: Answer { key, ..answer(201) } }
            }
            Declared::Update(target) => Action::Update { target: named(target)?, answer: answer(200) },
            Declared::Replace(target) => Action::Replace { target: named(target)?, answer: answer(200) },
            Declared::Delete(target) => Action::Delete { target: named(target)?, answer: answer(200) },
            Declared::Query { sort, .. } => {
                let mut queries: Vec<_> = queries.into_iter().map(|(name, query)| (name, Arc::new(query))).collect();
                if sort.is_empty() { Action::Query(queries.pop()?.1) } else { Action::Sorted(queries) }
            }
            Declared::Steps { .. } => Action::Steps(Box::new(steps?)),
            Declared::Files(_) => Action::Files(Box::new(files?), rest_parameter(&config.pattern)?.into()),
        };
        let require = match &config.require {
            Some(target) => Some(named(target)?),
            None => None,
        };
        let is_unconditional =
            config.scope.is_none() && config.path_params.is_empty() && guard.is_none() && require.is_none();
        Some(Endpoint {
            method: config.method,
            pattern: config.pattern.clone(),
            series: Series::OTHER,
            scope: config.scope.as_deref().map(Box::from),
            path: config.path_params.clone().into(),
            is_unconditional,
            guard: guard.map(Arc::new),
            require,
            of_page: names_of_page(config),
            header_params: HeaderParams::of(&config.params),
            action,
        })
    }

    /// Whether it runs several statements.
    pub(crate) fn has_steps(&self) -> bool {
        matches!(self.action, Action::Steps(_))
    }

    /// The pattern of the folder itself, if its files have an index.
    pub(crate) fn folder_pattern(&self) -> Option<&str> {
        match &self.action {
            Action::Files(files, _) if files.has_index() => folder_pattern(&self.pattern),
            _ => None,
        }
    }

    /// The collection whose documents it patches.
    pub(crate) fn updates(&self) -> Option<CollectionId> {
        match &self.action {
            Action::Update { target, .. } => Some(target.collection),
            _ => None,
        }
    }

    /// The first document that a request reads, if its path names one.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Named> {
        match (&self.require, &self.action) {
            (Some(require), _) => Some(require),
            (None, Action::Get(named)) => Some(named),
            _ => None,
        }
    }

    /// Whether a request's first reads are known from its path and query.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.first().is_some() || matches!(self.action, Action::Query(_))
    }

    /// Records a request's first reads for prefetching: a document, or a query's range.
    #[inline]
    pub(crate) fn foresee(&self, local: &mut Local, params: &Params<'_, '_>, query: &str) {
        if let Some(first) = self.first()
            && let Some(key) = first.key(params, &mut local.text)
        {
            local.session.foresee(first.collection, &key);
        }
        if let Action::Query(declared) = &self.action {
            declared.foresee(local, params, query);
        }
    }

    /// Answers one request.
    #[inline]
    pub(crate) fn answer(
        &self,
        service: &Service,
        local: &mut Local,
        request: &HttpRequest<'_>,
        params: &Params<'_, '_>,
        reply: Reply<'_>,
    ) {
        let is_read = matches!(self.action, Action::Get(_) | Action::Query(_) | Action::Sorted(_));
        let is_asking = is_read && local.cold.is_asking();
        let _on_loop = is_read.then(|| OnLoop::new(&local.session, is_asking));
        let Some(header_params) = &self.header_params else {
            return self.run(service, local, request, params, reply);
        };
        match header_params.query(request) {
            Ok(query) => self.run(service, local, &request.with_query(&query), params, reply),
            Err(failure) => service.fail(&failure, reply),
        }
    }

    fn run(
        &self,
        service: &Service,
        local: &mut Local,
        request: &HttpRequest<'_>,
        params: &Params<'_, '_>,
        reply: Reply<'_>,
    ) {
        if self.is_unconditional
            && let Action::Get(named) = &self.action
        {
            return named.get(service, local, (request, params), (&mut None, &mut None), reply);
        }
        let mut permit = Permit::default();
        if let Some(scope) = &self.scope {
            match permission::check_scope(service, request, scope) {
                Ok(found) => permit = found,
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        for parameter in &self.path {
            if let Err(failure) = params::of_path(parameter, params, &mut local.text) {
                return service.fail(&failure, reply);
            }
        }
        // Here and in `get`, values that most requests lack are written in place and passed by reference. A move of a large enum right
        // after it was written stalls: the load of its tag waits for the store buffer. Five such moves took 40 ns of a GET.
        let mut guard = None;
        if let Some(declared) = self.guard_before() {
            match declared.of(request) {
                Ok(asked) => guard = Some((Arc::clone(declared), asked)),
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        // Steps check parameters and the body first.
        if (self.require.is_some() || self.has_steps())
            && let Some((declared, guard)) = &guard
            && let Err(failure) = admitted_before(declared, guard, &local.session)
        {
            return service.fail(&failure, reply);
        }
        let mut unread = None;
        if let Some(require) = &self.require {
            match require.check(&local.session, params, &mut local.text) {
                Ok(found) => unread = found,
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        let required = |text: &mut Vec<u8>| self.require.as_ref().and_then(|require| require.required(params, text));
        match &self.action {
            Action::Get(named) => named.get(service, local, (request, params), (&mut unread, &mut guard), reply),
            Action::Query(_) | Action::Sorted(_) => match self.query(request.query(), &mut local.text) {
                Ok(query) => query.answer(service, local, request, params, (&mut unread, &permit), reply),
                Err(failure) => service.fail(&failure, reply),
            },
            Action::Insert { collection, answer } => {
                let op = Op::Insert { body: request.body().to_vec() };
                let write = Write { collection: *collection, op, precondition: Precondition::None };
                let required = required(&mut local.text);
                write::submit(service, local, (write, required, guard), answer, reply);
            }
            Action::Update { target, answer } => {
                let op = |key| Op::Update { key, patch: request.body().to_vec() };
                let required = required(&mut local.text);
                target.write(service, local, (request, params), (op, required, guard), answer, reply);
            }
            Action::Replace { target, answer } => {
                let op = |key| Op::Replace { key, body: request.body().to_vec() };
                let required = required(&mut local.text);
                target.write(service, local, (request, params), (op, required, guard), answer, reply);
            }
            Action::Files(files, name) => {
                let path = params.get_raw(name).unwrap_or_default();
                files::answer(service, local, files, (request, path), reply);
            }
            Action::Steps(steps) => {
                steps.answer(service, local, request, params, (self.require.as_ref(), permit), reply);
            }
            Action::Delete { target, answer } => {
                let required = required(&mut local.text);
                let what = (|key| Op::Delete { key }, required, guard);
                target.write(service, local, (request, params), what, answer, reply);
            }
        }
    }
}

impl Endpoint {
    /// The query that answers a request: of several the one whose order the request names.
    #[inline]
    fn query<'s>(&'s self, query: &str, text: &mut Vec<u8>) -> Result<&'s Arc<DeclaredQuery>, Failure> {
        if let Some(known) = &self.of_page {
            params::check_names(known, query)?;
        }
        match &self.action {
            Action::Query(query) => Ok(query),
            Action::Sorted(queries) => chosen(queries, query, text),
            _ => Err(Failure::new(FailureKind::Busy, "the configuration of this path has just changed: try again")),
        }
    }

    /// The guard that is asked before the action. A query runs its guard itself, since it uses values of the guard's row.
    fn guard_before(&self) -> Option<&Arc<DeclaredGuard>> {
        let is_query = matches!(self.action, Action::Query(_) | Action::Sorted(_));
        self.guard.as_ref().filter(|_| !is_query || self.require.is_some())
    }

    /// Runs the query of a request that began with another configuration; `None` if it has been answered.
    #[cold]
    pub(crate) fn ask_again(
        &self,
        service: &Service,
        (request, params): (&KeptRequest, &Params<'_, '_>),
        ends: Instant,
        late: LateReply,
    ) -> Option<(Arc<LateQuery>, LateReply)> {
        let mut permit = Permit::default();
        if let Some(scope) = &self.scope {
            match service.tokens.permit_again(request.token.as_ref(), scope) {
                Ok(found) => permit = found,
                Err(failure) => {
                    refusal::refuse(&service.errors, late, &failure);
                    return None;
                }
            }
        }
        if self.header_params.is_some() || self.guard.is_some() {
            // The kept request has no header fields, and its query could contain parameters that only they may set.
            let failure = Failure::new(FailureKind::Busy, "the configuration has just changed: try again");
            refusal::refuse(&service.errors, late, &failure);
            return None;
        }
        let mut text = Vec::new();
        let checked =
            self.path.iter().try_for_each(|parameter| params::of_path(parameter, params, &mut text).map(drop));
        let required = checked.and_then(|()| self.required_anew(service, params));
        if let (Ok(()), Action::Get(named)) = (&required, &self.action)
            && let Some(key) = named.key(params, &mut text)
        {
            read_elsewhere(service, (None, None), (named.unread(&key), Precondition::None), late);
            return None;
        }
        let query = required.and_then(|()| self.query(&request.query, &mut text));
        match query.and_then(|query| query.asked_again(service, (request, params), permit, ends)) {
            Ok(query) => Some((Arc::new(query), late)),
            Err(failure) => {
                refusal::refuse(&service.errors, late, &failure);
                None
            }
        }
    }

    /// 404 unless the document that is required exists.
    fn required_anew(&self, service: &Service, params: &Params<'_, '_>) -> Result<(), Failure> {
        let Some(require) = &self.require else { return Ok(()) };
        let mut text = Vec::new();
        let required = require.unread(&require.key(params, &mut text).ok_or_else(missing)?);
        service.pool_sessions.with(&service.database, |session| required.check(session))
    }
}

/// Whether a guard returns a row now: a refused sender must not learn whether a required document exists. If this check would
/// have to wait for the disk, it is made with the rest.
fn admitted_before(declared: &DeclaredGuard, guard: &Guard, session: &ReaderSession) -> Result<(), Failure> {
    match declared.admit(guard, &session.now()) {
        Err(Ended::Refused(failure)) => Err(failure),
        Ok(_) | Err(Ended::Query(_) | Ended::NoRow) => Ok(()),
    }
}

/// The names of the parameters of a request for a page.
fn names_of_page(config: &EndpointConfig) -> Option<Box<[Box<str>]>> {
    let Declared::Query { page: Some(_), sort, .. } = &config.action else { return None };
    let declared = config.params.iter().map(|parameter| parameter.name.as_str());
    let own = [LIMIT, AFTER].into_iter().chain((!sort.is_empty()).then_some(SORT));
    Some(declared.chain(own).map(Box::from).collect())
}

/// The statement of the order that a request names; by default the first.
fn chosen<'q>(
    queries: &'q [(String, Arc<DeclaredQuery>)],
    query: &str,
    text: &mut Vec<u8>,
) -> Result<&'q Arc<DeclaredQuery>, Failure> {
    let wanted = http::query::pairs(query).find(|(name, _)| *name == SORT);
    let wanted = wanted.map(|(_, value)| http::query::decode(value, text).unwrap_or_default());
    let found = match wanted {
        None => queries.first(),
        Some(wanted) => queries.iter().find(|(name, _)| name == wanted),
    };
    found.map(|(_, query)| query).ok_or_else(|| {
        let known: Vec<&str> = queries.iter().map(|(name, _)| name.as_str()).collect();
        Failure::new(FailureKind::Invalid, format!("parameter `sort` is none of {}", known.join(", ")))
    })
}

/// Reads a document on a thread that may wait, if its guard returns a row and a required document exists, and answers.
#[cold]
pub(crate) fn read_elsewhere(
    service: &Service,
    (required, guard): (Option<Unread>, Option<BoundGuard>),
    (document, precondition): (Unread, Precondition),
    late: LateReply,
) {
    let (errors, replies) = (Arc::clone(&service.errors), service.replies.clone());
    let read = move |session: &ReaderSession, limits: ReadLimits| {
        let now = session.now();
        if let Some((declared, guard)) = &guard {
            declared.admit(guard, &now).map_err(Ended::failure)?;
        }
        required.iter().try_for_each(|required| required.check(session))?;
        document.read_at(&now, limits.bytes_max)
    };
    cold_read::read_late(service, &service.errors, late, read, move |late, found| {
        document::answer_late(&replies, &errors, late, &precondition, found);
    });
}

/// Actions of a declared endpoint on its document.
impl Named {
    #[inline(never)]
    fn get(
        &self,
        service: &Service,
        local: &mut Local,
        (request, params): (&HttpRequest<'_>, &Params<'_, '_>),
        (unread, guard): (&mut Option<Unread>, &mut Option<BoundGuard>),
        reply: Reply<'_>,
    ) {
        let Local { session, text: scratch, cold, direct, .. } = local;
        let key = self.key(params, scratch);
        let Some(key) = &key else { return service.fail(&missing(), reply) };
        let mut precondition = Precondition::None;
        if request.is_conditional() {
            match preconditions::of(request) {
                Ok(found) => precondition = found,
                Err(failure) => return service.fail(&failure, reply),
            }
        }
        if unread.is_some() {
            cold_read::count_cold(service, cold);
            let checks = (unread.take(), guard.take());
            return read_elsewhere(service, checks, (self.unread(key), precondition), reply.later_watched());
        }
        let now = session.now();
        match guard.as_ref().map(|(declared, guard)| declared.admit(guard, &now)).transpose() {
            Ok(_) => {}
            Err(ended) if ended.would_wait() => {
                cold_read::count_cold(service, cold);
                let document = (self.unread(key), precondition);
                return read_elsewhere(service, (None, guard.take()), document, reply.later_watched());
            }
            Err(ended) => return service.fail(&ended.failure(), reply),
        }
        // A read past the page cache would see a later state than the guard.
        let mut direct = direct.as_mut().filter(|_| guard.is_none());
        let mut slot = None;
        let found = direct::get(direct.as_deref_mut(), &now, (self.collection, key), &mut slot);
        // By reference: a move of the result right after it was written would stall, as above.
        let stored = match &found {
            Ok(Some(stored)) => stored,
            Ok(None) => return service.fail(&missing(), reply),
            Err(error) if error.engine() == Some(ErrorKind::WouldWait) => {
                cold_read::count_cold(service, cold);
                let (document, late) = (self.unread(key), reply.later());
                return match (slot, direct) {
                    (Some(slot), Some(direct)) => {
                        direct
                            .wait(slot, Waiting { late, document, kind: direct::DirectAnswer::Declared(precondition) });
                    }
                    _ => read_elsewhere(service, (None, guard.take()), (document, precondition), late),
                };
            }
            Err(error) => return service.fail(&refusal::of_read(error), reply),
        };
        let number = match stored.change_number() {
            Ok(number) => number,
            Err(error) => return service.fail(&refusal::of_read(&error), reply),
        };
        let text = match stored.text() {
            Ok(text) => text,
            Err(error) => return service.fail(&refusal::of_read(&error), reply),
        };
        let send_large = |reply: Reply<'_>| {
            large::send_document(session, self.collection, self.kind, key, (number, text.len()), reply);
        };
        let refuse = |failure: &Failure, reply: Reply<'_>| service.fail(failure, reply);
        document::answer(&now, (number, text), &precondition, reply, send_large, refuse);
    }

    fn write(
        &self,
        service: &Service,
        local: &mut Local,
        (request, params): (&HttpRequest<'_>, &Params<'_, '_>),
        (op, required, guard): (impl FnOnce(Vec<u8>) -> Op, Option<Required>, Option<BoundGuard>),
        answer: &Answer,
        reply: Reply<'_>,
    ) {
        let Some(key) = self.key(params, &mut local.text).map(|key| key.as_bytes().to_vec()) else {
            return service.fail(&missing(), reply);
        };
        let precondition = match preconditions::of(request) {
            Ok(precondition) => precondition,
            Err(failure) => return service.fail(&failure, reply),
        };
        let write = Write { collection: self.collection, op: op(key), precondition };
        write::submit(service, local, (write, required, guard), answer, reply);
    }
}
