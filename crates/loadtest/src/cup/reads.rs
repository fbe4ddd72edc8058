//! Generated GETs: all five kinds of requests, with filters and faults distributed as in the contest's ammo of phase 1.
//!
//! The shares below were counted in the 3,000 requests of the contest's train set. Phase 3 has the same mix, but half of its
//! entities were created or changed in phase 2. The exact body is expected for a fully known entity; for lists and averages only
//! the status is.

use super::phase_source::{Shot, Shots};
use super::world::{EntityKind, World};
use super::{Shared, encode, expected};
use crate::ammo::{Defaults, Draft, form_encoded};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Kinds of requests, with their shares of 3,000.
const SHARES: [(What, u32); 5] = [
    (What::Entity(EntityKind::Users), 738),
    (What::Entity(EntityKind::Locations), 631),
    (What::Entity(EntityKind::Visits), 590),
    (What::Visits, 588),
    (What::Average, 453),
];
/// Requests with an id that is not a number, per 1,000 GETs of a user; they answer 404.
const BROKEN_ID_PERMILLE: u32 = 179;
/// Requests with a missing id, per 1,000; they answer 404.
const MISSING_PERMILLE: u32 = 45;
/// Requests with an invalid filter value, per 1,000 for lists and averages; they answer 400.
const BROKEN_FILTER_PERMILLE: u32 = 58;
/// Number of requests with 0, 1, 2, … filters.
const VISITS_FILTERS: [u32; 4] = [148, 193, 197, 50];
const AVERAGE_FILTERS: [u32; 5] = [91, 128, 125, 89, 20];
/// Values of filters: dates in Unix seconds, distances, ages in years.
const DATES: RangeInclusive<i64> = 790_560_000..=1_576_713_600;
const DISTANCES: RangeInclusive<i64> = 1..=100;
const FROM_AGES: RangeInclusive<i64> = 1..=30;
const TO_AGES: RangeInclusive<i64> = 31..=70;

/// The resource of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Entity(EntityKind),
    /// Visits of a user.
    Visits,
    /// The average mark of a location.
    Average,
}

/// Generates GETs.
pub(crate) struct Reads {
    world: Shared,
    random: ChaCha8Rng,
    defaults: Defaults,
    /// Whether half of the entities are ones that POSTs created or changed.
    of_touched: bool,
}

impl Reads {
    pub(crate) fn new(world: Shared, seed: u64, defaults: Defaults, of_touched: bool) -> Reads {
        Reads { world, random: ChaCha8Rng::seed_from_u64(seed), defaults, of_touched }
    }

    fn is_one_of(&mut self, permille: u32) -> bool {
        self.random.random_range(0..1000) < permille
    }

    /// An existing id: of a changed entity, of the sample (whose bodies are known), or of any.
    fn existing(&mut self, world: &World, kind: EntityKind) -> u32 {
        let entities = world.of(kind);
        let touched = (self.of_touched && self.random.random_bool(0.5)).then(|| entities.touched(&mut self.random));
        let sampled = self.random.random_bool(0.5);
        let found = touched.flatten().or_else(|| match sampled {
            true => entities.sampled(&mut self.random),
            false => entities.any(&mut self.random),
        });
        found.unwrap_or_default()
    }

    /// Path and expected answer for a GET of an entity.
    fn entity(&mut self, world: &World, kind: EntityKind) -> (String, u16, Option<Vec<u8>>) {
        if kind == EntityKind::Users && self.is_one_of(BROKEN_ID_PERMILLE) {
            return ("/users/broken".to_owned(), 404, None);
        }
        if self.is_one_of(MISSING_PERMILLE) {
            return (format!("/{}/{}", kind.name(), world.of(kind).missing(&mut self.random)), 404, None);
        }
        let id = self.existing(world, kind);
        let body = world.of(kind).known(id).and_then(|fields| serde_json::to_vec(fields).ok());
        (format!("/{}/{id}", kind.name()), 200, body)
    }

    /// Path and expected answer for a GET of visits or an average.
    fn filtered(&mut self, world: &World, what: What) -> (String, u16, Option<Vec<u8>>) {
        let (kind, last, names, counts): (_, _, &[&str], &[u32]) = match what {
            What::Average => {
                (EntityKind::Locations, "avg", &["fromDate", "toDate", "fromAge", "toAge", "gender"], &AVERAGE_FILTERS)
            }
            _ => (EntityKind::Users, "visits", &["fromDate", "toDate", "country", "toDistance"], &VISITS_FILTERS),
        };
        let is_missing = self.is_one_of(MISSING_PERMILLE);
        let id = match is_missing {
            true => world.of(kind).missing(&mut self.random),
            false => self.existing(world, kind),
        };
        let mut filters = self.filters(world, names, counts);
        let broken = self.is_one_of(BROKEN_FILTER_PERMILLE);
        if broken {
            filters.retain(|(name, _)| *name != "fromDate");
            filters.push(("fromDate", "fdcabeedfbca".to_owned()));
        }
        let query: Vec<String> =
            filters.iter().map(|(name, value)| format!("{name}={}", form_encoded(value))).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        // The server checks the entity before the filters.
        let status = if is_missing {
            404
        } else if broken {
            400
        } else {
            200
        };
        (format!("/{}/{id}/{last}{mark}{}", kind.name(), query.join("&")), status, None)
    }

    fn filters(&mut self, world: &World, names: &[&'static str], counts: &[u32]) -> Vec<(&'static str, String)> {
        let mut names = names.to_vec();
        let count = weighted(counts, &mut self.random);
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count {
            let name = names.swap_remove(self.random.random_range(0..names.len()));
            drawn.push((name, self.value(world, name)));
        }
        drawn
    }

    fn value(&mut self, world: &World, filter: &str) -> String {
        let random = &mut self.random;
        let number = match filter {
            "toDistance" => random.random_range(DISTANCES),
            "fromAge" => random.random_range(FROM_AGES),
            "toAge" => random.random_range(TO_AGES),
            "gender" => return if random.random_bool(0.5) { "m" } else { "f" }.to_owned(),
            "country" => return country(world, random),
            _ => random.random_range(DATES) / 86_400 * 86_400,
        };
        number.to_string()
    }
}

/// The country of a location of the sample.
fn country(world: &World, random: &mut ChaCha8Rng) -> String {
    let locations = world.of(EntityKind::Locations);
    let fields = locations.sampled(random).and_then(|id| locations.known(id));
    let country = fields.and_then(|fields| fields.get("country")).and_then(Value::as_str);
    country.unwrap_or("Россия").to_owned()
}

/// A random index, in proportion to the weights.
pub(crate) fn weighted(weights: &[u32], random: &mut ChaCha8Rng) -> usize {
    let mut drawn = random.random_range(0..weights.iter().sum());
    let index = weights.iter().position(|weight| {
        let hit = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        hit
    });
    index.unwrap_or_default()
}

impl Shots for Reads {
    fn next(&mut self, shot: &mut Shot) -> Result<(), String> {
        let world = self.world.clone();
        let world = super::lock(&world);
        let what = SHARES[weighted(&SHARES.map(|(_, share)| share), &mut self.random)].0;
        let (target, status, body) = match what {
            What::Entity(kind) => self.entity(&world, kind),
            what => self.filtered(&world, what),
        };
        let draft = Draft::of_url("GET", &target);
        encode(&draft, &self.defaults, shot)?;
        shot.expected = expected(&draft, status, body);
        Ok(())
    }
}

#[cfg(test)]
mod mix {
    use super::{Reads, weighted};
    use crate::ammo::Defaults;
    use crate::cup::phase_source::{Shot, Shots as _};
    use crate::cup::sample_world;
    use rand::SeedableRng;
    use std::collections::BTreeMap;

    fn shots(of_touched: bool, count: usize) -> Vec<Shot> {
        let mut reads = Reads::new(sample_world(), 1, Defaults::default(), of_touched);
        let mut shot = Shot::default();
        (0..count)
            .map(|_| {
                reads.next(&mut shot).expect("a request");
                shot.clone()
            })
            .collect()
    }

    #[test]
    fn kinds_and_statuses_are_spread_as_in_the_contest() {
        let mut counts = BTreeMap::<(String, u16), usize>::new();
        for shot in shots(false, 30_000) {
            *counts.entry((shot.request.tag.replace("broken", "{int}"), shot.expected.status)).or_default() += 1;
        }
        // Per 3,000 requests: the number counted in the contest's ammo, with a tolerance of a tenth plus 15.
        for (tag, status, counted) in [
            ("GET /users/{int}", 200, 577),
            ("GET /users/{int}", 404, 161),
            ("GET /locations/{int}", 200, 595),
            ("GET /visits/{int}", 200, 564),
            ("GET /users/{int}/visits", 200, 525),
            ("GET /users/{int}/visits", 400, 32),
            ("GET /users/{int}/visits", 404, 31),
            ("GET /locations/{int}/avg", 200, 408),
            ("GET /locations/{int}/avg", 400, 28),
            ("GET /locations/{int}/avg", 404, 17),
        ] {
            let here = counts.get(&(tag.to_owned(), status)).copied().unwrap_or_default() / 10;
            assert!(here.abs_diff(counted) <= counted / 10 + 15, "{tag} {status}: {here}, the contest has {counted}");
        }
    }

    #[test]
    fn an_entity_that_is_known_has_its_body_expected() {
        let shots = shots(false, 500);
        let shot = shots.iter().find(|shot| shot.expected.target == "/visits/1").expect("a visit");
        let body: serde_json::Value =
            serde_json::from_slice(shot.expected.body.as_deref().expect("a body")).expect("JSON");
        assert_eq!(body["id"], 1);
        assert!(shots.iter().all(|shot| shot.expected.status == 200 || shot.expected.body.is_none()));
    }

    #[test]
    fn half_of_the_entities_of_phase_3_are_ones_that_posts_made_or_changed() {
        let world = sample_world();
        crate::cup::lock(&world).apply("/visits/new", br#"{"id": 500, "mark": 1}"#);
        let mut reads = Reads::new(world, 1, Defaults::default(), true);
        let mut shot = Shot::default();
        let (mut all, mut made) = (0, 0);
        for _ in 0..5000 {
            reads.next(&mut shot).expect("a request");
            all += u32::from(shot.expected.target.starts_with("/visits/") && shot.expected.status == 200);
            made += u32::from(shot.expected.target == "/visits/500");
        }
        assert!(made * 10 > all * 4, "{made} of {all}");
    }

    #[test]
    fn weights_decide() {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0; 3];
        (0..1000).for_each(|_| counts[weighted(&[1, 0, 3], &mut random)] += 1);
        assert!(counts[1] == 0 && (200..300).contains(&counts[0]), "{counts:?}");
    }
}
