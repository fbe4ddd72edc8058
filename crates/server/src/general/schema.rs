//! `GET /_/schema`: the collections with their indexes and unique fields, and how far those are that are built while the server
//! serves.

use crate::endpoint::JSON;
use crate::service::Service;
use docs::catalog::CollectionInfo;
use docs::{Readiness, ReadinessState};
use http::{Reply, Status};
use serde_json::{Value as Json, json};

pub(super) fn tell(service: &Service, reply: Reply<'_>) {
    let collections: Vec<Json> = service.database.catalog().collections.iter().map(told).collect();
    reply.send(Status(200), JSON, json!({ "collections": collections }).to_string().as_bytes());
}

fn told(info: &CollectionInfo) -> Json {
    let with = |mut told: Json, readiness: &Readiness| {
        let (state, documents, failure) = match readiness.state() {
            ReadinessState::Ready => ("ready", None, None),
            ReadinessState::Building(documents) => ("building", Some(documents), None),
            ReadinessState::Refused(why) => ("refused", None, Some(why)),
        };
        told["state"] = state.into();
        if let Some(documents) = documents {
            told["documents"] = documents.into();
        }
        if let Some(failure) = failure {
            told["failure"] = failure.into();
        }
        told
    };
    let indexes = info.indexes.iter().map(|index| with(json!({ "fields": index.fields }), &index.readiness));
    let unique = info.unique.iter().map(|unique| with(json!({ "field": unique.field }), &unique.readiness));
    json!({
        "name": info.name,
        "key": { "field": info.key.field, "type": info.key.kind.name() },
        "indexes": indexes.collect::<Vec<Json>>(),
        "unique": unique.collect::<Vec<Json>>(),
    })
}

/// Indexes and unique fields that are being built, and those that were refused.
pub(crate) fn counts(service: &Service) -> (u64, u64) {
    let infos = &service.database.catalog().collections;
    let all = infos.iter().flat_map(|info| {
        let unique = info.unique.iter().map(|unique| &unique.readiness);
        info.indexes.iter().map(|index| &index.readiness).chain(unique)
    });
    all.fold((0, 0), |(building, refused), readiness| {
        (building + u64::from(readiness.is_building()), refused + u64::from(readiness.is_refused()))
    })
}
