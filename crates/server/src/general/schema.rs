//! `GET /_/schema`: the collections with their indexes (and the fields that those include), unique fields and expiry; the
//! progress of those that are being built; and rules by which stored documents are checked before the rules come into force.

use crate::replies::media::JSON;
use crate::service::Service;
use docs::catalog::CollectionInfo;
use docs::expire::LAST_WRITE;
use docs::{Readiness, ReadinessState};
use http::Reply;
use serde_json::{Value as Json, json};

pub(super) fn send(service: &Service, reply: Reply<'_>) {
    let rules = service.database.rules();
    let collections = service.database.catalog().collections.iter().map(|info| {
        let mut told = told(info);
        let of_it = rules.iter().filter(|rule| rule.collection == info.name);
        let of_it: Vec<Json> = of_it
            .map(|rule| with_state(json!({ "rule": rule.kind, "field": rule.field }), rule.state.clone()))
            .collect();
        if !of_it.is_empty() {
            told["rules"] = of_it.into();
        }
        told
    });
    let collections: Vec<Json> = collections.collect();
    super::report(service, reply, JSON, json!({ "collections": collections }).to_string());
}

fn with_state(mut told: Json, state: ReadinessState) -> Json {
    let (state, documents, failure) = match state {
        ReadinessState::Ready => ("ready", None, None),
        ReadinessState::Building(documents) => ("building", Some(documents), None),
        ReadinessState::Refused(why) => ("refused", None, Some(why)),
        ReadinessState::Dropped => ("dropped", None, None),
    };
    told["state"] = state.into();
    if let Some(documents) = documents {
        told["documents"] = documents.into();
    }
    if let Some(failure) = failure {
        told["failure"] = failure.into();
    }
    told
}

fn told(info: &CollectionInfo) -> Json {
    let with = |told: Json, readiness: &Readiness| with_state(told, readiness.state());
    // The index of the times of last writes is not an index on fields.
    let of_fields = info.indexes.iter().filter(|index| index.fields[0] != LAST_WRITE && !index.is_standing);
    let indexes = of_fields.map(|index| {
        let mut told = json!({ "fields": index.fields });
        let included: Vec<&String> = index.included.iter().filter(|field| *field != LAST_WRITE).collect();
        if !included.is_empty() {
            told["include"] = json!(included);
        }
        with(told, &index.readiness)
    });
    let unique = info.unique.iter().map(|unique| {
        let told = unique.only().map_or_else(|| json!({ "fields": unique.fields }), |field| json!({ "field": field }));
        with(told, &unique.readiness)
    });
    let mut told = json!({
        "name": info.name,
        "key": { "field": info.key.field, "type": info.key.kind.name() },
        "indexes": indexes.collect::<Vec<Json>>(),
        "unique": unique.collect::<Vec<Json>>(),
    });
    if let Some(expire) = &info.expire {
        told["expire"] = match expire.since_seconds {
            None => json!({ "field": expire.field, "after_seconds": expire.after_seconds }),
            Some(since) => json!({ "after_seconds": expire.after_seconds, "since": since }),
        };
    }
    told
}

/// Indexes, unique fields and rules that were refused because of stored documents, by collection, each with its description and
/// the reason.
pub(crate) fn refused(service: &Service) -> Vec<Json> {
    let mut all = Vec::new();
    let mut note = |collection: &str, what: Json, state: ReadinessState| {
        if let ReadinessState::Refused(why) = state {
            let mut told = json!({ "collection": collection, "failure": why });
            if let (Some(told), Json::Object(what)) = (told.as_object_mut(), what) {
                told.extend(what);
            }
            all.push(told);
        }
    };
    for info in &service.database.catalog().collections {
        for index in &info.indexes {
            note(&info.name, json!({ "index": index.fields }), index.readiness.state());
        }
        for unique in &info.unique {
            let fields = unique.only().map_or_else(|| json!(unique.fields), |field| json!(field));
            note(&info.name, json!({ "unique": fields }), unique.readiness.state());
        }
    }
    for rule in service.database.rules() {
        note(&rule.collection, json!({ "rule": rule.kind, "field": rule.field }), rule.state);
    }
    all
}

/// The states of everything that was new when the file was read.
fn states(service: &Service) -> Vec<ReadinessState> {
    let infos = &service.database.catalog().collections;
    let all = infos.iter().flat_map(|info| {
        let unique = info.unique.iter().map(|unique| &unique.readiness);
        info.indexes.iter().map(|index| &index.readiness).chain(unique)
    });
    let unsettled = all.filter(|readiness| !readiness.is_ready()).map(Readiness::state);
    unsettled.chain(service.database.rules().into_iter().map(|rule| rule.state)).collect()
}

/// Number of items being built or checked, and of refused ones.
pub(crate) fn counts(service: &Service) -> (u64, u64) {
    states(service).iter().fold((0, 0), |(building, refused), state| match state {
        ReadinessState::Building(_) => (building + 1, refused),
        ReadinessState::Refused(_) => (building, refused + 1),
        ReadinessState::Ready | ReadinessState::Dropped => (building, refused),
    })
}

/// The reason of the first refusal.
pub(super) fn refusal(service: &Service) -> Option<String> {
    states(service).into_iter().find_map(|state| match state {
        ReadinessState::Refused(why) => Some(why),
        _ => None,
    })
}
