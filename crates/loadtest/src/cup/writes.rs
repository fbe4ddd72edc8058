//! Generated POSTs: changed and new entities, and a few percent of invalid ones, distributed as in the contest's ammo of phase 2.
//!
//! The shares were counted in the 3,000 requests of the contest's train set. Requests are independent: none refers to an entity
//! that another POST creates, and no entity is changed again before all of the sample have been, so that replies do not depend on
//! the order in which requests in flight arrive.

use super::phase_source::{Shot, Shots};
use super::reads::weighted;
use super::world::{EntityKind, Fields, World};
use super::{Shared, encode, expected, lock};
use crate::ammo::{Defaults, Draft};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::ops::Range;

/// Kinds of requests, with their shares of 3,000.
const SHARES: [(EntityKind, Act, u32); 6] = [
    (EntityKind::Locations, Act::Update, 609),
    (EntityKind::Locations, Act::New, 262),
    (EntityKind::Users, Act::Update, 616),
    (EntityKind::Users, Act::New, 283),
    (EntityKind::Visits, Act::Update, 763),
    (EntityKind::Visits, Act::New, 467),
];
/// Per 1,000 updates: those with an invalid field (400), and those of a missing entity (404).
const UPDATE_WRONG_PERMILLE: u32 = 22;
const UPDATE_MISSING_PERMILLE: u32 = 23;
/// Per 1,000 new entities: those with an invalid or missing field, or with a used id (400).
const NEW_WRONG_PERMILLE: u32 = 49;
/// Times of visits, Unix seconds: 2000 to 2014, as in the data.
const VISITED_AT: Range<i64> = 946_684_800..1_420_070_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Update,
    New,
}

/// Generates POSTs.
pub(crate) struct Writes {
    world: Shared,
    random: ChaCha8Rng,
    defaults: Defaults,
    /// Requests made so far: the contest's `query_id`.
    number: u64,
    /// Largest ids of the data, and new entities so far, by kind.
    new_ids: [u32; 3],
    /// Updates so far, by kind.
    updates: [usize; 3],
}

/// A POST before its encoding.
struct Post {
    target: String,
    body: Vec<u8>,
    status: u16,
}

impl Writes {
    pub(crate) fn new(world: Shared, seed: u64, mut defaults: Defaults) -> Writes {
        let new_ids = EntityKind::ALL.map(|kind| lock(&world).of(kind).id_max());
        // Each of the contest's POSTs had its own connection.
        defaults.headers.push(("Connection".to_owned(), "close".to_owned()));
        Writes { world, random: ChaCha8Rng::seed_from_u64(seed), defaults, number: 0, new_ids, updates: [0; 3] }
    }

    fn is_one_of(&mut self, permille: u32) -> bool {
        self.random.random_range(0..1000) < permille
    }

    fn update(&mut self, world: &World, kind: EntityKind) -> Post {
        let mut fields = self.fields(world, kind);
        let all: Vec<String> = fields.keys().cloned().collect();
        let kept = all[self.random.random_range(0..all.len())].clone();
        fields.retain(|name, _| *name == kept || self.random.random_bool(0.4));
        if self.is_one_of(UPDATE_MISSING_PERMILLE) {
            let id = world.of(kind).missing(&mut self.random);
            return post(kind, &id.to_string(), &fields, 404);
        }
        let id = world.of(kind).in_turn(self.updates[kind as usize]).unwrap_or_default().to_string();
        if self.is_one_of(UPDATE_WRONG_PERMILLE) {
            fields.insert(kept, Value::Null);
            return post(kind, &id, &fields, 400);
        }
        self.updates[kind as usize] += 1;
        post(kind, &id, &fields, 200)
    }

    fn new_entity(&mut self, world: &World, kind: EntityKind) -> Post {
        let mut fields = self.fields(world, kind);
        if self.is_one_of(NEW_WRONG_PERMILLE) {
            self.spoil(world, kind, &mut fields);
            return post(kind, "new", &fields, 400);
        }
        let id = &mut self.new_ids[kind as usize];
        *id += 1;
        fields.insert("id".to_owned(), json!(*id));
        post(kind, "new", &fields, 200)
    }

    /// Makes a new entity invalid.
    fn spoil(&mut self, world: &World, kind: EntityKind, fields: &mut Fields) {
        let names: Vec<String> = fields.keys().cloned().collect();
        let name = names[self.random.random_range(0..names.len())].clone();
        fields.insert("id".to_owned(), json!(self.new_ids[kind as usize] + 500_000));
        match self.random.random_range(0..4) {
            0 => fields.insert(name, Value::Null),
            1 => fields.remove(&name),
            2 => fields.insert("id".to_owned(), json!("broken")),
            _ => fields.insert("id".to_owned(), json!(world.of(kind).sampled(&mut self.random))),
        };
    }

    /// Values for all fields but the id: texts of another entity of the sample, and a unique email.
    fn fields(&mut self, world: &World, kind: EntityKind) -> Fields {
        let random = &mut self.random;
        let like = |random: &mut ChaCha8Rng| {
            let entities = world.of(kind);
            entities.sampled(random).and_then(|id| entities.known(id)).cloned().unwrap_or_default()
        };
        let mut fields = match kind {
            EntityKind::Visits => Fields::new(),
            _ => like(random),
        };
        fields.remove("id");
        match kind {
            EntityKind::Users => {
                fields.insert("email".to_owned(), json!(format!("cup{}@example.com", self.number)));
            }
            EntityKind::Locations => {
                fields.insert("distance".to_owned(), json!(random.random_range(1..100)));
            }
            EntityKind::Visits => {
                fields.insert("user".to_owned(), json!(world.of(EntityKind::Users).sampled(random)));
                fields.insert("location".to_owned(), json!(world.of(EntityKind::Locations).sampled(random)));
                fields.insert("visited_at".to_owned(), json!(random.random_range(VISITED_AT)));
                fields.insert("mark".to_owned(), json!(random.random_range(0..=5)));
            }
        }
        fields
    }
}

fn post(kind: EntityKind, last: &str, fields: &Fields, status: u16) -> Post {
    Post {
        target: format!("/{}/{last}", kind.name()),
        body: Value::Object(fields.clone()).to_string().into_bytes(),
        status,
    }
}

impl Shots for Writes {
    fn next(&mut self, shot: &mut Shot) -> Result<(), String> {
        let world = self.world.clone();
        let mut world = lock(&world);
        let (kind, act, _) = SHARES[weighted(&SHARES.map(|(_, _, share)| share), &mut self.random)];
        let post = match act {
            Act::Update => self.update(&world, kind),
            Act::New => self.new_entity(&world, kind),
        };
        let mut draft = Draft::of_url("POST", &format!("{}?query_id={}", post.target, self.number));
        self.number += 1;
        (draft.body, draft.body_type) = (post.body, Some("application/json"));
        encode(&draft, &self.defaults, shot)?;
        shot.expected = expected(&draft, post.status, (post.status == 200).then(|| b"{}".to_vec()));
        if post.status == 200 {
            world.apply(&draft.target, &draft.body);
        }
        Ok(())
    }
}

#[cfg(test)]
mod mix {
    use super::Writes;
    use crate::ammo::Defaults;
    use crate::cup::phase_source::{Shot, Shots as _};
    use crate::cup::world::EntityKind;
    use crate::cup::{lock, sample_world};
    use std::collections::{BTreeMap, BTreeSet};

    fn shots(count: usize) -> (crate::cup::Shared, Vec<Shot>) {
        let world = sample_world();
        let mut writes = Writes::new(world.clone(), 1, Defaults::default());
        let mut shot = Shot::default();
        let shots = (0..count).map(|_| {
            writes.next(&mut shot).expect("a request");
            shot.clone()
        });
        let shots = shots.collect();
        (world, shots)
    }

    #[test]
    fn kinds_and_statuses_are_spread_as_in_the_contest() {
        let mut counts = BTreeMap::<(String, u16), usize>::new();
        for shot in shots(30_000).1 {
            *counts.entry((shot.request.tag, shot.expected.status)).or_default() += 1;
        }
        // Per 3,000 requests: the number counted in the contest's ammo, with a tolerance of a tenth plus 15.
        for (tag, status, counted) in [
            ("POST /locations/{int}", 200, 591),
            ("POST /locations/{int}", 400, 10),
            ("POST /locations/{int}", 404, 8),
            ("POST /locations/new", 200, 254),
            ("POST /users/{int}", 200, 577),
            ("POST /users/new", 200, 270),
            ("POST /visits/{int}", 200, 731),
            ("POST /visits/{int}", 404, 17),
            ("POST /visits/new", 200, 438),
            ("POST /visits/new", 400, 29),
        ] {
            let here = counts.get(&(tag.to_owned(), status)).copied().unwrap_or_default() / 10;
            assert!(here.abs_diff(counted) <= counted / 10 + 15, "{tag} {status}: {here}, the contest has {counted}");
        }
    }

    #[test]
    fn new_entities_have_new_ids_and_emails_and_refer_to_what_the_data_holds() {
        let (world, shots) = shots(2000);
        let world = lock(&world);
        let mut seen = BTreeSet::new();
        for shot in shots.iter().filter(|shot| shot.expected.status == 200) {
            let (_, body) = shot
                .request
                .bytes
                .split_at(memchr::memmem::find(&shot.request.bytes, b"\r\n\r\n").expect("a head") + 4);
            let body: serde_json::Value = serde_json::from_slice(body).expect("JSON");
            if let Some(email) = body.get("email") {
                assert!(seen.insert(email.to_string()), "{email} twice");
            }
            if let Some(user) = body.get("user").and_then(serde_json::Value::as_u64) {
                assert!((1..=100).contains(&user), "{user} is of the data");
            }
            if shot.expected.target.starts_with("/users/new") {
                let id = body["id"].as_u64().expect("an id");
                assert!(id > 100 && seen.insert(id.to_string()));
                let known = world.of(EntityKind::Users).known(id as u32).expect("known whole");
                assert_eq!(known.len(), 6);
            }
            assert!(shot.request.closes);
        }
    }
}
