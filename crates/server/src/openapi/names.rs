//! Names from which generators make identifiers: of operations and of schemas.
//!
//! A generator of a client leaves out what is no letter or digit and changes the case of letters: `get_search.result` and
//! `getSearchResult` are both `GetSearchResult` in Go. Beside the schemas it makes types of its own for each operation, such as
//! `GetSearchResponse`, and some for the client. So names are compared by their letters and digits alone, and a name that is taken
//! gets a number.

use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Types that generators make for each operation: its name with one of these.
const OF_OPERATION: [&str; 8] =
    ["", "params", "request", "response", "body", "jsonbody", "jsonrequestbody", "textrequestbody"];
/// Types that generators make once.
const OF_CLIENT: [&str; 9] = [
    "client",
    "clientinterface",
    "clientoption",
    "clientwithresponses",
    "clientwithresponsesinterface",
    "httprequestdoer",
    "requesteditorfn",
    "serverinterface",
    "tokenscopes",
];
/// Where a document has its schemas, as references say it.
const SCHEMAS: &str = "#/components/schemas/";

/// Names that are in use, by their letters and digits.
#[derive(Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// The name, with a number if another one gives the same identifier.
    pub(super) fn take(&mut self, name: String) -> String {
        if self.0.insert(letters(&name)) {
            return name;
        }
        let numbered = (2u32..).map(|number| format!("{name}_{number}"));
        let mut free = numbered.filter(|name| !self.0.contains(&letters(name)));
        let name = free.next().unwrap_or(name);
        self.0.insert(letters(&name));
        name
    }
}

fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Gives each schema that a reference finds inside another one a name of its own, and leaves a reference in its place: generators take
/// references to named schemas alone.
pub(super) fn lift(document: &mut Json) {
    let mut inside = BTreeSet::new();
    deep_references(document, &mut inside);
    let mut changed = HashMap::new();
    // The innermost come first: what is lifted later has references to them.
    let mut inside: Vec<String> = inside.into_iter().collect();
    inside.sort_by_key(|target| std::cmp::Reverse(target.matches('/').count()));
    for target in inside {
        let pointer = target.trim_start_matches('#').to_owned();
        let (Some(name), Some(last)) = (target[SCHEMAS.len()..].split('/').next(), target.rsplit('/').next()) else {
            continue;
        };
        let wanted = format!("{name}.{}", last.replace("~1", "_").replace("~0", "_"));
        let Some(schemas) = document.pointer("/components/schemas").and_then(Json::as_object) else { return };
        let mut free = (1u32..).map(|number| if number == 1 { wanted.clone() } else { format!("{wanted}_{number}") });
        let Some(own) = free.find(|own| !schemas.contains_key(own)) else { return };
        let Some(place) = document.pointer_mut(&pointer) else { continue };
        let schema = std::mem::replace(place, json!({ "$ref": format!("{SCHEMAS}{own}") }));
        document["components"]["schemas"][&own] = schema;
        changed.insert(target, format!("{SCHEMAS}{own}"));
    }
    references(document, &mut |target| {
        if let Some(own) = changed.get(target) {
            target.clone_from(own);
        }
    });
}

fn deep_references(document: &mut Json, inside: &mut BTreeSet<String>) {
    references(document, &mut |target| {
        if target.strip_prefix(SCHEMAS).is_some_and(|path| path.contains('/')) {
            inside.insert(target.clone());
        }
    });
}

/// Calls a function with each reference.
fn references(value: &mut Json, each: &mut dyn FnMut(&mut String)) {
    match value {
        Json::Object(fields) => {
            if let Some(Json::String(target)) = fields.get_mut("$ref") {
                each(target);
            }
            fields.values_mut().for_each(|value| references(value, each));
        }
        Json::Array(items) => items.iter_mut().for_each(|value| references(value, each)),
        _ => {}
    }
}

/// Renames the schemas of a document so that none is one identifier with another, nor with a type that generators make.
pub(super) fn separate(document: &mut Json, operations: &[String]) {
    let own = operations.iter().flat_map(|id| OF_OPERATION.map(|suffix| letters(id) + suffix));
    let mut names = Names(own.chain(OF_CLIENT.map(str::to_owned)).collect());
    let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Json::as_object_mut) else { return };
    let (mut renamed, mut changed) = (Map::new(), HashMap::new());
    for (name, schema) in std::mem::take(schemas) {
        let unique = names.take(name.clone());
        renamed.insert(unique.clone(), schema);
        if unique != name {
            changed.insert(name, unique);
        }
    }
    *schemas = renamed;
    references(document, &mut |target| {
        if let Some(unique) = target.strip_prefix(SCHEMAS).and_then(|name| changed.get(name)) {
            *target = format!("{SCHEMAS}{unique}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Names, lift, separate};
    use serde_json::json;

    #[test]
    fn names_of_one_identifier_are_numbered() {
        let mut names = Names::default();
        let taken = ["get_a", "getA", "get_a_2", "get.a", "other"].map(|name| names.take(name.to_owned()));
        assert_eq!(taken, ["get_a", "getA_2", "get_a_2_2", "get.a_3", "other"]);
    }

    #[test]
    fn schemas_give_way_to_what_generators_make_and_references_follow() {
        let mut document = json!({
            "paths": { "/": { "$ref": "#/components/schemas/get_search.response" } },
            "components": { "schemas": {
                "get_search.response": { "items": { "$ref": "#/components/schemas/client" } },
                "client": { "$ref": "#/components/schemas/goods" },
                "goods": {},
            } },
        });
        separate(&mut document, &["get_search".to_owned()]);
        let expected = json!({
            "paths": { "/": { "$ref": "#/components/schemas/get_search.response_2" } },
            "components": { "schemas": {
                "get_search.response_2": { "items": { "$ref": "#/components/schemas/client_2" } },
                "client_2": { "$ref": "#/components/schemas/goods" },
                "goods": {},
            } },
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn what_a_reference_finds_inside_a_schema_gets_a_name() {
        let of = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let mut document = json!({
            "paths": { "/": of("a/properties/x") },
            "components": { "schemas": {
                "a": { "properties": { "x": { "items": of("a/$defs/y") } }, "$defs": { "y": { "of": of("a/$defs/y") } } },
                "a.y": {},
            } },
        });
        lift(&mut document);
        let expected = json!({
            "paths": { "/": of("a.x") },
            "components": { "schemas": {
                "a": { "properties": { "x": of("a.x") }, "$defs": { "y": of("a.y_2") } },
                "a.x": { "items": of("a.y_2") },
                "a.y": {},
                "a.y_2": { "of": of("a.y_2") },
            } },
        });
        assert_eq!(document, expected);
    }
}
