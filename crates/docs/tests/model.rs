//! Random writes compared with a slow, simple model: the same answers, the same documents, and no leftover entries.

use std::collections::BTreeMap;

use crate::service::{Service, short, travels};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

type Documents = BTreeMap<u32, Map<String, Json>>;

#[derive(Default)]
struct Model {
    users: Documents,
    locations: Documents,
    visits: Documents,
}

impl Model {
    fn collection(&mut self, name: &str) -> &mut Documents {
        match name {
            "users" => &mut self.users,
            "locations" => &mut self.locations,
            _ => &mut self.visits,
        }
    }

    /// The expected status: the order of checks.
    fn check(&self, name: &str, id: u32, new: &Map<String, Json>) -> Option<u16> {
        let fields: &[&str] = match name {
            "users" => &["id", "email", "gender", "birth_date"],
            "visits" => &["id", "location", "user", "visited_at", "mark"],
            _ => &["id"],
        };
        let complete = fields.iter().all(|field| new.contains_key(*field));
        let closed = name == "locations" || new.keys().all(|field| fields.contains(&field.as_str()));
        let mark = new.get("mark").is_none_or(|mark| mark.as_i64().is_some_and(|mark| (0..=5).contains(&mark)));
        let texts = new.get("email").is_none_or(Json::is_string);
        if !complete || !closed || !mark || !texts || new["id"] != json!(id) {
            return Some(400);
        }
        if name == "visits" {
            let there = |field: &str, target: &Documents| {
                new[field].as_u64().is_some_and(|key| target.contains_key(&(key as u32)))
            };
            if !there("user", &self.users) || !there("location", &self.locations) {
                return Some(400);
            }
        }
        None
    }

    fn email_in_use(&self, name: &str, id: u32, new: &Map<String, Json>) -> bool {
        name == "users" && self.users.iter().any(|(other, user)| *other != id && user["email"] == new["email"])
    }

    fn run(&mut self, step: &Step) -> Result<(), u16> {
        let Step { verb, name, id, body } = step;
        let old = self.collection(name).get(id).cloned();
        let new = match verb {
            Verb::Insert => body.clone(),
            Verb::Update | Verb::Replace | Verb::Delete if old.is_none() => return Err(404),
            Verb::Delete => {
                let refers = |field: &str| self.visits.values().any(|visit| visit[field] == json!(id));
                if (*name == "users" && refers("user")) || (*name == "locations" && refers("location")) {
                    return Err(409);
                }
                self.collection(name).remove(id);
                return Ok(());
            }
            Verb::Replace => body.clone(),
            Verb::Update => {
                if body.contains_key("id") {
                    return Err(400);
                }
                let mut new = old.clone().unwrap_or_default();
                for (field, value) in body {
                    if value.is_null() {
                        new.remove(field)
                    } else {
                        new.insert(field.clone(), value.clone())
                    };
                }
                new
            }
        };
        let id = if *verb == Verb::Insert { new.get("id").and_then(Json::as_u64).ok_or(400u16)? as u32 } else { *id };
        if let Some(status) = self.check(name, id, &new) {
            return Err(status);
        }
        if (*verb == Verb::Insert && self.collection(name).contains_key(&id)) || self.email_in_use(name, id, &new) {
            return Err(409);
        }
        self.collection(name).insert(id, new);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Insert,
    Update,
    Replace,
    Delete,
}

#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    name: &'static str,
    id: u32,
    body: Map<String, Json>,
}

impl Step {
    fn command(&self) -> String {
        let body = Json::Object(self.body.clone());
        match self.verb {
            Verb::Insert => format!("insert {} {body}", self.name),
            Verb::Update => format!("update {}/{} {body}", self.name, self.id),
            Verb::Replace => format!("replace {}/{} {body}", self.name, self.id),
            Verb::Delete => format!("delete {}/{}", self.name, self.id),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let verb = prop_oneof![4 => Just(Verb::Insert), 4 => Just(Verb::Update), 1 => Just(Verb::Replace), 2 => Just(Verb::Delete)];
    let name = prop_oneof![Just("users"), Just("locations"), Just("visits"), Just("visits")];
    let values = (0u32..5, 0u32..5, 0u32..5, -3i64..3, 0i64..7, 0u32..4);
    (verb, name, 0u32..5, values, any::<u16>()).prop_map(
        |(verb, name, id, (own, user, location, at, mark, mail), spoil)| {
            let full = match name {
                "users" => json!({"id": own, "email": format!("{mail}@x"), "gender": "m", "birth_date": at}),
                "locations" => json!({"id": own, "place": at}),
                _ => json!({"id": own, "user": user, "location": location, "visited_at": at, "mark": mark}),
            };
            let mut body = full.as_object().cloned().unwrap_or_default();
            let names: Vec<String> = body.keys().cloned().collect();
            if verb == Verb::Replace && spoil % 8 != 0 {
                body.insert("id".into(), json!(id));
            }
            if verb == Verb::Update {
                // Some of the fields, rarely the key.
                body.retain(
                    |name, _| if name == "id" { spoil % 16 == 0 } else { spoil & (1 << (name.len() % 11)) != 0 },
                );
            }
            match spoil >> 11 {
                0 => drop(body.remove(&names[spoil as usize % names.len()])),
                1 => drop(body.insert(names[spoil as usize % names.len()].clone(), Json::Null)),
                2 => drop(body.insert("more".into(), json!(1))),
                _ => {}
            }
            Step { verb, name, id, body }
        },
    )
}

/// A refusal by the schema that the model does not check: null in a required field.
fn has_null(step: &Step) -> bool {
    matches!(step.verb, Verb::Insert | Verb::Replace)
        && step.name != "locations"
        && step.body.values().any(Json::is_null)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn random_writes_do_what_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let service = Service::new(&travels());
        let mut model = Model::default();
        for step in &steps {
            let expected = if has_null(step) && (step.verb == Verb::Insert || model.collection(step.name).contains_key(&step.id)) {
                Err(400)
            } else {
                model.run(step)
            };
            let found = service.run(&step.command()).map(drop).map_err(|error| short(error)[..3].parse::<u16>().unwrap());
            prop_assert_eq!(found, expected, "{}", step.command());
        }
        for (name, documents) in [("users", &model.users), ("locations", &model.locations), ("visits", &model.visits)] {
            for id in 0..5 {
                let found = service.get(&format!("{name}/{id}")).map(|(_, text)| serde_json::from_str::<Json>(&text).unwrap());
                prop_assert_eq!(found, documents.get(&id).cloned().map(Json::Object), "{}/{}", name, id);
            }
        }
        let report = docs::verify::database(&service.database).unwrap();
        prop_assert!(report.is_clean(), "{:?}", report.faults);
    }
}
