//! The general API under `/_/`: collections, bulk writes, queries, views, changes, backups, health and metrics.
//!
//! `access` and `service::permission` decide which requests it answers. Errors are problem documents (RFC 9457) with the standard
//! statuses, whatever `[errors]` sets for declared endpoints. It may import every room that stands before it in `lib.rs`, but not
//! `declared`: neither kind of endpoint knows the other.

mod backup;
mod bulk;
mod changes;
pub(crate) mod documents;
mod listing;
mod metrics;
pub(crate) mod modify;
pub(crate) mod operation;
mod pages;
mod query;
pub(crate) mod schema;
mod views;

use crate::failure::refusal::fail;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::replies::large;
use crate::requests::params::echo;
use crate::service::Service;
use docs::CollectionId;
use docs::catalog::CollectionInfo;
use docs::error::there_are;
use http::{Params, Reply, Status};

/// Answers with a state of the server, which may be large: it is sent in pieces then, and counted until the client has it.
fn report(service: &Service, reply: Reply<'_>, media: &str, body: impl Into<Vec<u8>>) {
    large::send(&service.replies, &ErrorRules::default(), reply, Status(200), media, &mut body.into());
}

/// The collection named by the path.
fn collection<'s>(
    service: &'s Service,
    params: &Params<'_, '_>,
    text: &mut Vec<u8>,
) -> Result<(CollectionId, &'s CollectionInfo), Failure> {
    let catalog = service.database.catalog();
    let name = params.get("name", text).and_then(Result::ok).unwrap_or_default();
    let place = catalog.number(name).ok_or_else(|| {
        let known: Vec<&str> = catalog.collections.iter().map(|info| info.name.as_str()).collect();
        Failure::new(FailureKind::NotFound, format!("there is no collection `{}`; {}", echo(name), there_are(&known)))
    })?;
    Ok((CollectionId(place), &catalog.collections[place]))
}
