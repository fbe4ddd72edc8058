//! The routes of the general API, and the handlers behind them.

use super::{backup, bulk, changes, documents, listing, metrics, query, schema, views};
use crate::access::sender::Granted;
use crate::failure::{Failure, FailureKind};
use crate::replies::media::JSON;

use crate::access::token;
use crate::failure::refusal::fail;
use crate::maintenance::reload_requests;
use crate::requests::params;
use crate::service::{Local, Service};
use docs::Op;
use docs::engine::Stats;
use http::{HttpRequest, Method, Params, Reply, Status};
use std::sync::Arc;

/// The operations of the general API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    GetDocument,
    PutDocument,
    PatchDocument,
    DeleteDocument,
    InsertDocument,
    ListDocuments,
    Bulk,
    Query,
    MakeBackup,
    GetBackup,
    ListViews,
    GetView,
    VerifyView,
    Changes,
    Schema,
    Reload,
    Health,
    Metrics,
    OpenApi,
    NotYet,
}

impl Operation {
    /// The path of queries, which read although they are POSTs.
    pub(crate) const QUERY: &str = "/_/query";

    /// Whether a POST to this path is a bulk.
    pub(crate) fn is_bulk(path: &str) -> bool {
        path.starts_with("/_/collections/") && path.ends_with("/bulk")
    }

    /// Every route of the general API.
    pub(crate) const ALL: [(Method, &str, Operation); 20] = [
        (Method::Get, "/_/collections/{name}/{id}", Operation::GetDocument),
        (Method::Put, "/_/collections/{name}/{id}", Operation::PutDocument),
        (Method::Patch, "/_/collections/{name}/{id}", Operation::PatchDocument),
        (Method::Delete, "/_/collections/{name}/{id}", Operation::DeleteDocument),
        (Method::Post, "/_/collections/{name}", Operation::InsertDocument),
        (Method::Get, "/_/collections/{name}", Operation::ListDocuments),
        (Method::Post, "/_/collections/{name}/bulk", Operation::Bulk),
        (Method::Post, Operation::QUERY, Operation::Query),
        (Method::Post, "/_/backup", Operation::MakeBackup),
        (Method::Get, "/_/backup", Operation::GetBackup),
        (Method::Get, "/_/health", Operation::Health),
        (Method::Get, "/_/metrics", Operation::Metrics),
        (Method::Get, "/_/views", Operation::ListViews),
        (Method::Get, "/_/views/{name}", Operation::GetView),
        (Method::Post, "/_/views/{name}/verify", Operation::VerifyView),
        (Method::Get, "/_/changes", Operation::Changes),
        (Method::Get, "/_/schema", Operation::Schema),
        (Method::Post, "/_/config/reload", Operation::Reload),
        (Method::Get, "/_/openapi.json", Operation::OpenApi),
        (Method::Get, "/_/", Operation::NotYet),
    ];

    /// The scope that a token needs. A writing statement of [`Operation::Query`] needs [`token::WRITE`] too.
    pub(crate) fn scope(self) -> &'static str {
        match self {
            Operation::GetDocument
            | Operation::ListDocuments
            | Operation::Query
            | Operation::ListViews
            | Operation::GetView
            | Operation::Changes
            | Operation::Schema
            | Operation::Health
            | Operation::Metrics
            | Operation::OpenApi
            | Operation::NotYet => token::READ,
            Operation::PutDocument
            | Operation::PatchDocument
            | Operation::DeleteDocument
            | Operation::InsertDocument
            | Operation::Bulk => token::WRITE,
            Operation::MakeBackup | Operation::GetBackup | Operation::VerifyView | Operation::Reload => token::ADMIN,
        }
    }

    /// The parameters of the query that it takes. Any other is refused.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Operation::ListDocuments => &listing::PARAMETERS,
            Operation::Changes => &changes::PARAMETERS,
            Operation::Reload => &reload_requests::PARAMETERS,
            _ => &[],
        }
    }

    /// Answers one request if its sender has access, otherwise with the reason.
    pub(crate) fn answer(
        self,
        service: &Service,
        local: &mut Local,
        request: &HttpRequest<'_>,
        (params, access): (&Params<'_, '_>, Result<Granted, Failure>),
        reply: Reply<'_>,
    ) {
        let access = access.and_then(|granted| Ok((granted.need(self.scope())?, granted)));
        let (permit, granted) = match access {
            Ok(access) => access,
            // Health is answered to every client: load balancers request it from other machines.
            Err(_) if self == Operation::Health => return health(service, false, reply),
            Err(failure) => return fail(&failure, reply),
        };
        // Load balancers add parameters of their own to requests of health, whose answer depends on none.
        if self != Operation::Health
            && let Err(failure) = params::check_names(self.parameters(), request.query())
        {
            return fail(&failure, reply);
        }
        match self {
            Operation::GetDocument => documents::get(service, local, request, params, reply),
            Operation::PutDocument => {
                documents::change(service, local, request, params, reply, |key, body| Op::Put { key, body });
            }
            Operation::PatchDocument => {
                documents::change(service, local, request, params, reply, |key, patch| Op::Patch { key, patch });
            }
            Operation::DeleteDocument => {
                documents::change(service, local, request, params, reply, |key, _| Op::Delete { key });
            }
            Operation::InsertDocument => documents::insert(service, local, request, params, reply),
            Operation::ListDocuments => listing::list(service, local, request, params, (&permit, reply)),
            Operation::Bulk => bulk::load(service, local, request, params, (permit, reply)),
            Operation::Query => query::run(service, request, &granted, reply),
            Operation::MakeBackup => backup::make(service, request, (permit, reply)),
            Operation::GetBackup => backup::send_state(service, reply),
            Operation::ListViews => views::list(service, reply),
            Operation::GetView => views::get(service, params, reply),
            Operation::VerifyView => views::verify(service, request, params, (&permit, reply)),
            Operation::Changes => changes::follow(service, request, (permit, reply)),
            Operation::Schema => schema::send(service, reply),
            Operation::Reload => service.reloads.ask(request, (permit, reply)),
            Operation::Health => health(service, true, reply),
            Operation::Metrics => metrics::send(service, reply),
            Operation::OpenApi => reply.send_shared(Status(200), JSON, Arc::clone(&service.openapi)),
            Operation::NotYet => {
                fail(&Failure::new(FailureKind::NotYet, "this part of the API is not supported yet"), reply)
            }
        }
    }
}

/// What a full disk refuses, and what it takes.
const FULL: &str = "the disk is full: new documents are refused until there is room; reads, deletions, and small changes that \
                    find room in the pages of the data file are taken";

/// Why the store takes no writes. Places in the data are named only to local clients.
fn refusal(stats: &Stats, is_near: bool) -> Option<Failure> {
    let why = stop(stats, is_near).map(|why| Failure::new(FailureKind::Unavailable, why));
    why.or_else(|| stats.is_full.then(|| Failure::new(FailureKind::DiskFull, FULL)))
}

/// Why the store takes no writes, whatever room the disk has.
fn stop(stats: &Stats, is_near: bool) -> Option<String> {
    if stats.is_poisoned {
        return Some(
            "the store takes no writes after a failed sync or a panic, which the log names: restart it".to_owned(),
        );
    }
    if let Some(files) = &stats.files_deleted {
        let named = if is_near { format!(" ({files})") } else { String::new() };
        return Some(format!(
            "files of the data folder were deleted or cut short under the server{named}: the store takes no writes, and reads go on; make a \
             backup now, for the running server still has the data, and restore it"
        ));
    }
    if stats.is_stopped_by_damage {
        let damage = damage(stats, is_near).unwrap_or_else(|| "a page of the data file is damaged".to_owned());
        return Some(format!("{damage}; a checkpoint needs such a page, so no writes are taken: restore a backup"));
    }
    let why = stats.log_refusal.as_ref()?;
    Some(format!("the store takes no writes: {}", if is_near { why.as_str() } else { "the log cannot grow" }))
}

/// The pages of the data file that cannot be read.
fn damage(stats: &Stats, is_near: bool) -> Option<String> {
    let (damaged, lost) = (stats.damaged_pages, stats.lost_pages);
    let first = stats.damage.as_ref().map(|first| {
        let count = format!("pages of the data file that were found damaged: {damaged}; reads that need them fail");
        if is_near { format!("{count}; the first: {first}") } else { count }
    });
    let lost = (lost > 0)
        .then(|| format!("pages of the data file that the disk did not give: {lost}; reads that need them fail"));
    match (first, lost) {
        (Some(first), Some(lost)) => Some(format!("{first}; {lost}")),
        (first, lost) => first.or(lost),
    }
}

/// Health: whether writes are accepted. A service that only reads is not healthy. A refused change of the schema, or a view
/// that could not be built, does not make it unhealthy. The status is `damaged` instead of `ok` if there is a damaged page
/// that no checkpoint has met, and `impaired` if a thread of the server has panicked and has not completed its work since.
fn health(service: &Service, is_near: bool, reply: Reply<'_>) {
    let stats = service.database.store().stats();
    if let Some(refusal) = refusal(&stats, is_near) {
        return fail(&refusal, reply);
    }
    let mut state = serde_json::json!({ "status": "ok" });
    if let Some(damage) = damage(&stats, is_near) {
        state = serde_json::json!({ "status": "damaged", "damage": damage });
    }
    if let Some(text) = service.panics.message() {
        // Its text may contain anything.
        state["panics"] = if is_near { text } else { "a thread panicked".to_owned() }.into();
        if state["status"] == "ok" {
            state["status"] = "impaired".into();
        }
    }
    if let Some(why) = schema::refusal(service) {
        // Only clients that may read keys see them.
        state["schema"] = if is_near { format!("refused: {why}") } else { "refused".to_owned() }.into();
    }
    if let Some(why) = views::failure(service) {
        state["views"] = if is_near { format!("failed: {why}") } else { "failed".to_owned() }.into();
    }
    reply.send(Status(200), JSON, state.to_string().as_bytes());
}
