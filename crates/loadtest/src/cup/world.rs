//! The load generator's knowledge of the service's data: the ids, a sample of entities, and the changes of POSTs.
//!
//! It is not a second server. It holds one bit for each id and a random sample of the entities (reservoir sampling: each entity
//! is in it with the same probability), so that data of any size needs bounded memory. Writes that the server must accept are
//! applied to the known entities. For an entity that is not fully known, only the status is expected.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Largest sample of each kind when the data is read.
pub(crate) const SAMPLE_MAX: usize = 20_000;
/// The largest id of the data; one bit for each smaller id takes 16 MB.
pub(crate) const ID_MAX: u32 = 1 << 27;
/// Largest number of entities changed by POSTs, which phase 3 requests.
const TOUCHED_MAX: usize = 1 << 20;

/// A kind of entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EntityKind {
    Users,
    Locations,
    Visits,
}

impl EntityKind {
    pub(crate) const ALL: [EntityKind; 3] = [EntityKind::Users, EntityKind::Locations, EntityKind::Visits];

    /// The name in paths and in the data's files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EntityKind::Users => "users",
            EntityKind::Locations => "locations",
            EntityKind::Visits => "visits",
        }
    }

    pub(crate) fn named(name: &str) -> Option<EntityKind> {
        EntityKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Fields of an entity.
pub(crate) type Fields = Map<String, Value>;

/// The entities of one kind.
#[derive(Debug, Default)]
pub(crate) struct Entities {
    /// One bit for each id.
    bits: Vec<u64>,
    count: u64,
    id_max: u32,
    /// Ids of the sample.
    sample: Vec<u32>,
    /// Fields of fully known entities: the sample, and those that POSTs created.
    known: HashMap<u32, Fields>,
    /// Ids that POSTs have created or changed.
    touched: Vec<u32>,
}

impl Entities {
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.bits.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// The largest id.
    pub(crate) fn id_max(&self) -> u32 {
        self.id_max
    }

    /// Fields of a fully known entity.
    pub(crate) fn known(&self, id: u32) -> Option<&Fields> {
        self.known.get(&id)
    }

    /// Any existing id. The data's ids are dense, so few draws miss; after too many misses an id of the sample is taken.
    pub(crate) fn any(&self, random: &mut ChaCha8Rng) -> Option<u32> {
        const DRAWS_MAX: usize = 64;
        let mut draws = (0..DRAWS_MAX).map(|_| random.random_range(0..=self.id_max));
        let found = draws.find(|id| self.contains(*id));
        drop(draws);
        found.or_else(|| self.sampled(random))
    }

    /// The id of an entity of the sample.
    pub(crate) fn sampled(&self, random: &mut ChaCha8Rng) -> Option<u32> {
        pick(&self.sample, random)
    }

    /// Ids of the sample in rotation.
    pub(crate) fn in_turn(&self, number: usize) -> Option<u32> {
        self.sample.get(number.checked_rem(self.sample.len())?).copied()
    }

    /// The id of an entity that a POST has created or changed.
    pub(crate) fn touched(&self, random: &mut ChaCha8Rng) -> Option<u32> {
        pick(&self.touched, random)
    }

    /// An id that does not exist.
    pub(crate) fn missing(&self, random: &mut ChaCha8Rng) -> u32 {
        // New entities take the ids right after the largest; these stay far from them.
        self.id_max.saturating_add(1_000_000 + random.random_range(0..1_000_000))
    }

    /// Adds an entity of the data. The error says what it lacks.
    pub(crate) fn load(&mut self, fields: Fields, random: &mut ChaCha8Rng) -> Result<(), String> {
        let id = id_of(&fields).ok_or_else(|| format!("an entity without an id up to {ID_MAX}"))?;
        self.insert(id);
        if self.sample.len() < SAMPLE_MAX {
            self.sample.push(id);
            self.known.insert(id, fields);
            return Ok(());
        }
        let place = random.random_range(0..self.count) as usize;
        if let Some(place) = self.sample.get_mut(place) {
            self.known.remove(place);
            *place = id;
            self.known.insert(id, fields);
        }
        Ok(())
    }

    fn insert(&mut self, id: u32) {
        let word = id as usize / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.count += u64::from(!self.contains(id));
        self.bits[word] |= 1 << (id % 64);
        self.id_max = self.id_max.max(id);
    }

    fn touch(&mut self, id: u32) {
        if self.touched.len() < TOUCHED_MAX {
            self.touched.push(id);
        }
    }
}

/// All entities.
#[derive(Debug, Default)]
pub(crate) struct World {
    kinds: [Entities; 3],
}

impl World {
    pub(crate) fn of(&self, kind: EntityKind) -> &Entities {
        &self.kinds[kind as usize]
    }

    pub(crate) fn of_mut(&mut self, kind: EntityKind) -> &mut Entities {
        &mut self.kinds[kind as usize]
    }

    /// Applies a POST that the server must accept: `/users/new` or `/users/1`; a query after it is ignored.
    pub(crate) fn apply(&mut self, target: &str, body: &[u8]) {
        let Some((kind, last)) = split(target) else { return };
        let Ok(changes) = serde_json::from_slice::<Fields>(body) else { return };
        let entities = self.of_mut(kind);
        let id = if last == "new" { id_of(&changes) } else { last.parse().ok() };
        let Some(id) = id else { return };
        if last == "new" {
            entities.insert(id);
            entities.known.insert(id, changes);
        } else if let Some(fields) = entities.known.get_mut(&id) {
            fields.extend(changes);
        }
        entities.touch(id);
    }
}

/// Kind and last part of the path of a POST.
fn split(target: &str) -> Option<(EntityKind, &str)> {
    let path = target.split('?').next()?.strip_prefix('/')?;
    let (kind, last) = path.split_once('/')?;
    Some((EntityKind::named(kind)?, last))
}

fn id_of(fields: &Fields) -> Option<u32> {
    let id = fields.get("id")?.as_u64()?;
    u32::try_from(id).ok().filter(|id| *id <= ID_MAX)
}

pub(crate) fn pick<T: Copy>(all: &[T], random: &mut ChaCha8Rng) -> Option<T> {
    (!all.is_empty()).then(|| all[random.random_range(0..all.len())])
}

#[cfg(test)]
mod knowledge {
    use super::{Entities, EntityKind, Fields, SAMPLE_MAX, World};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    fn fields(value: serde_json::Value) -> Fields {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn the_sample_is_bounded_and_spread_over_all_the_data() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut entities = Entities::default();
        let count = 4 * SAMPLE_MAX as u32;
        for id in 1..=count {
            entities.load(fields(json!({"id": id})), &mut random).expect("an id");
        }
        assert_eq!(
            (entities.sample.len(), entities.known.len(), entities.count),
            (SAMPLE_MAX, SAMPLE_MAX, u64::from(count))
        );
        assert!(entities.sample.iter().all(|id| entities.known(*id).is_some()));
        let late = entities.sample.iter().filter(|id| **id > count / 2).count();
        assert!((SAMPLE_MAX * 9 / 20..SAMPLE_MAX * 11 / 20).contains(&late), "{late} of the second half");
        let id = entities.any(&mut random).expect("some");
        assert!(entities.contains(id) && !entities.contains(0) && !entities.contains(entities.missing(&mut random)));
    }

    #[test]
    fn an_entity_without_a_usable_id_is_refused() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for value in [json!({}), json!({"id": "1"}), json!({"id": -1}), json!({"id": u32::MAX})] {
            assert!(Entities::default().load(fields(value), &mut random).is_err());
        }
    }

    #[test]
    fn posts_change_what_is_known() {
        let mut world = World::default();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        world
            .of_mut(EntityKind::Visits)
            .load(fields(json!({"id": 1, "mark": 2, "user": 3})), &mut random)
            .expect("an id");
        world.apply("/visits/1?query_id=5", br#"{"mark": 4}"#);
        world.apply("/visits/new?query_id=6", br#"{"id": 2, "mark": 5}"#);
        world.apply("/visits/77", br#"{"mark": 1}"#);
        let visits = world.of(EntityKind::Visits);
        assert_eq!(visits.known(1), Some(&fields(json!({"id": 1, "mark": 4, "user": 3}))));
        assert_eq!(visits.known(2), Some(&fields(json!({"id": 2, "mark": 5}))));
        assert!(visits.known(77).is_none() && visits.contains(2));
        assert_eq!(visits.touched, [1, 2, 77]);
    }
}
