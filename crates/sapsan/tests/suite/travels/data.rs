//! Where the tests' data comes from: a small seeded set with many ties, or the train set where it lies.

use super::model::{KINDS, Kind, Model};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Moments shared by many visits, so that order among equals and bounds exactly met are common.
const MOMENTS: [i64; 5] = [1_000_000_000, 1_000_000_001, 1_234_567_890, 1_400_000_000, -5];
const COUNTRIES: [&str; 6] = ["Россия", "Russia", "Côte d’Ivoire", "a+b", "Тринидад и Тобаго", "100%"];
const DISTANCES: [u32; 4] = [0, 1, 50, u32::MAX];

/// The folder of the train data, where it is there.
pub(crate) fn train_folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/travels/train");
    folder.join("data.zip").is_file().then_some(folder)
}

/// "Now" as an options file gives it.
pub(crate) fn now_of(folder: &Path) -> i64 {
    let options = std::fs::read_to_string(folder.join("options.txt")).expect("options.txt is readable");
    options.lines().next().and_then(|line| line.trim().parse().ok()).expect("its first line is a number")
}

/// Reads a travels zip into the reference.
pub(crate) fn model_of(zip: &Path, now: i64) -> Model {
    let mut model = Model { now, ..Model::default() };
    let mut archive = zip::ZipArchive::new(std::fs::File::open(zip).expect("the zip is there")).expect("it is a zip");
    for index in 0..archive.len() {
        let mut text = String::new();
        archive.by_index(index).expect("an entry").read_to_string(&mut text).expect("an entry's text");
        let Ok(Value::Object(file)) = serde_json::from_str(&text) else { continue };
        for kind in KINDS {
            for entity in file.get(kind.name()).and_then(Value::as_array).into_iter().flatten() {
                let entity = entity.as_object().expect("an entity is an object").clone();
                let id = entity["id"].as_u64().expect("an id") as u32;
                model.table_mut(kind).insert(id, entity);
            }
        }
    }
    model
}

/// Writes the reference's data as a travels zip.
pub(crate) fn write_zip(model: &Model, path: &Path) {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).expect("a new file"));
    for kind in KINDS {
        let rows: Vec<&Map<String, Value>> = model.table(kind).values().collect();
        for (number, part) in rows.chunks(200).enumerate() {
            let name = format!("{}_{}.json", kind.name(), number + 1);
            archive.start_file(name, zip::write::SimpleFileOptions::default()).expect("a new entry");
            let mut file = Map::new();
            file.insert(kind.name().to_owned(), json!(part));
            archive.write_all(Value::Object(file).to_string().as_bytes()).expect("the entry is written");
        }
    }
    archive.finish().expect("the zip is complete");
}

/// A small world in which everything interesting is frequent.
pub(crate) fn small_world(random: &mut impl Rng, now: i64) -> Model {
    let mut model = Model { now, ..Model::default() };
    for id in 0..40 {
        model.users.insert(id, entity(user(random, id, now)));
        model.locations.insert(id, entity(location(random, id)));
    }
    for id in 0..600 {
        let visit = visit(random, id, &model);
        model.visits.insert(id, entity(visit));
    }
    model
}

fn entity(value: Value) -> Map<String, Value> {
    value.as_object().expect("made as an object").clone()
}

pub(crate) fn country(random: &mut impl Rng) -> &'static str {
    COUNTRIES.choose(random).expect("not empty")
}

pub(crate) fn moment(random: &mut impl Rng) -> i64 {
    *MOMENTS.choose(random).expect("not empty")
}

pub(crate) fn distance(random: &mut impl Rng) -> u32 {
    *DISTANCES.choose(random).expect("not empty")
}

/// Births cluster on the days that age filters cut at.
pub(crate) fn birth(random: &mut impl Rng, now: i64) -> i64 {
    let years = random.random_range(0..90);
    super::model::years_before(now, years) + random.random_range(-1..=1)
}

pub(crate) fn user(random: &mut impl Rng, id: u32, now: i64) -> Value {
    json!({
        "id": id, "email": format!("user{id}@list.me"), "first_name": "Инна", "last_name": "Данатоная",
        "gender": if random.random_bool(0.5) { "m" } else { "f" }, "birth_date": birth(random, now),
    })
}

pub(crate) fn location(random: &mut impl Rng, id: u32) -> Value {
    json!({
        "id": id, "place": format!("Набережная \"{id}\""), "country": country(random), "city": "Кронск",
        "distance": distance(random),
    })
}

pub(crate) fn visit(random: &mut impl Rng, id: u32, model: &Model) -> Value {
    json!({
        "id": id, "user": any_id(random, model, Kind::Users), "location": any_id(random, model, Kind::Locations),
        "visited_at": moment(random), "mark": random.random_range(0..=5),
    })
}

/// An id in use, of the first few more often, so that lists grow long.
pub(crate) fn any_id(random: &mut impl Rng, model: &Model, kind: Kind) -> u32 {
    let count = model.table(kind).len().max(1);
    let place =
        if random.random_bool(0.5) { random.random_range(0..count.min(4)) } else { random.random_range(0..count) };
    *model.table(kind).keys().nth(place).unwrap_or(&0)
}
