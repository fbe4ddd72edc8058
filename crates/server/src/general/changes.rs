//! `GET /_/changes?since=N&collection=NAME`: the changes after a change number, then new ones, without end; as server-sent events
//! by Accept, otherwise one line of JSON each.
//!
//! `Last-Event-ID` takes precedence over `since`: reconnecting clients send it. Without either, the feed begins now.

use super::fail;
use crate::access::token::Permit;
use crate::changes::{Arrival, ConsumerRequest, FeedPosition, Form};
use crate::failure::{Failure, FailureKind};
use crate::requests::params::echo;
use crate::service::Service;
use docs::CollectionId;
use docs::catalog::Catalog;
use docs::error::there_are;
use http::{HttpRequest, Reply, query};

/// The parameters of the query.
pub(super) const PARAMETERS: [&str; 2] = ["since", "collection"];

pub(super) fn follow(service: &Service, request: &HttpRequest<'_>, (permit, reply): (Permit, Reply<'_>)) {
    let wanted = match read(request, service.database.catalog()) {
        Ok(wanted) => wanted,
        Err(failure) => return fail(&failure, reply),
    };
    let mut reply = Some(reply);
    let arrived = service.feed.arrive(|| {
        // Taken here: once the reply is given away, the request cannot be refused any more.
        let late = reply.take().map(Reply::later);
        late.map(|late| Arrival { late, wanted, permit })
    });
    if let (Err(failure), Some(reply)) = (arrived, reply) {
        fail(&failure, reply);
    }
}

fn read(request: &HttpRequest<'_>, catalog: &Catalog) -> Result<ConsumerRequest, Failure> {
    let accept = String::from_utf8_lossy(request.header("accept").unwrap_or_default()).to_ascii_lowercase();
    let form = if accept.contains("text/event-stream") { Form::Events } else { Form::Lines };
    let (mut since, mut collection, mut scratch) = (None, None, Vec::new());
    for (name, value) in query::pairs(request.query()) {
        let value = query::decode(value, &mut scratch)
            .map_err(|error| Failure::new(FailureKind::Invalid, format!("parameter `{}`: {error}", echo(name))))?;
        let is_second = match name {
            "since" => since.replace(position(value, "since")?).is_some(),
            // Any other name has been refused.
            _ => collection.replace(named(catalog, value)?).is_some(),
        };
        if is_second {
            return Err(Failure::new(FailureKind::Invalid, format!("parameter `{name}` is given more than once")));
        }
    }
    if let Some(last) = request.header("last-event-id").filter(|last| !last.is_empty()) {
        since = Some(position(&String::from_utf8_lossy(last), "Last-Event-ID")?);
    }
    Ok(ConsumerRequest { since, collection, form })
}

fn position(text: &str, name: &str) -> Result<FeedPosition, Failure> {
    FeedPosition::read(text).ok_or_else(|| {
        let detail = format!("{name} is `{}`; allowed: a change number N, or N.k as the feed has told it", echo(text));
        Failure::new(FailureKind::Invalid, detail)
    })
}

fn named(catalog: &Catalog, name: &str) -> Result<CollectionId, Failure> {
    catalog.number(name).map(CollectionId).ok_or_else(|| {
        let known: Vec<&str> = catalog.collections.iter().map(|info| info.name.as_str()).collect();
        Failure::new(FailureKind::NotFound, format!("there is no collection `{}`; {}", echo(name), there_are(&known)))
    })
}
