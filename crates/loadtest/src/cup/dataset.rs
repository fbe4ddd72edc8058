//! Reads the contest's data: zips of JSON files, each `{"users": […]}`, `{"locations": […]}` or `{"visits": […]}`.
//!
//! Only one entity is in memory at a time, in addition to what a [`World`] keeps.

use super::world::{EntityKind, Fields, World};
use crate::json_cursor::JsonCursor;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// Bytes that are unpacked at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Reads the facts that the generators need from these zips; `seed` decides which entities are sampled.
pub(crate) fn read(zips: &[PathBuf], seed: u64) -> Result<World, String> {
    let mut world = World::default();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for zip in zips {
        read_zip(zip, &mut world, &mut random).map_err(|problem| format!("{}: {problem}", zip.display()))?;
    }
    let empty = EntityKind::ALL.into_iter().find(|kind| world.of(*kind).sampled(&mut random).is_none());
    match empty {
        Some(kind) => Err(format!("the data holds no {}: name all its zips with --data", kind.name())),
        None => Ok(world),
    }
}

fn read_zip(path: &Path, world: &mut World, random: &mut ChaCha8Rng) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut archive = ZipArchive::new(file).map_err(|error| error.to_string())?;
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| error.to_string())?;
        let name = entry.name().map_err(|error| error.to_string())?.into_owned();
        if name.ends_with(".json") {
            read_file(entry, world, random).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

fn read_file(file: impl Read, world: &mut World, random: &mut ChaCha8Rng) -> Result<(), String> {
    let mut cursor = JsonCursor::new(BufReader::with_capacity(BUFFER_BYTES, file));
    let (broken, mut element) = (|error: std::io::Error| error.to_string(), Vec::new());
    cursor.enter_object().map_err(broken)?;
    while let Some(key) = cursor.next_key().map_err(broken)? {
        let kind = EntityKind::named(&key).ok_or_else(|| format!("{key:?} is none of users, locations, visits"))?;
        cursor.enter_array().map_err(broken)?;
        while cursor.next_element(&mut element).map_err(broken)? {
            let fields: Fields = serde_json::from_slice(&element).map_err(|error| error.to_string())?;
            world.of_mut(kind).load(fields, random)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod reading {
    use super::read;
    use crate::cup::world::EntityKind;
    use std::io::Write as _;
    use std::path::PathBuf;

    fn zip(folder: &tempfile::TempDir, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let path = folder.path().join(name);
        let mut archive = zip::ZipWriter::new(std::fs::File::create(&path).expect("a file"));
        for (name, text) in files {
            archive.start_file(*name, zip::write::SimpleFileOptions::default()).expect("an entry");
            archive.write_all(text.as_bytes()).expect("written");
        }
        archive.finish().expect("whole");
        path
    }

    const USERS: (&str, &str) = ("users_1.json", r#"{"users": [{"id": 1}, {"id": 9}]}"#);
    const LOCATIONS: (&str, &str) = ("locations_1.json", r#"{"locations": [{"id": 4}]}"#);

    #[test]
    fn entities_of_several_zips_are_one_world() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = zip(&folder, "a.zip", &[USERS, LOCATIONS, ("options.txt", "1503966608\n0\n")]);
        let second = zip(&folder, "b.zip", &[("visits_1.json", r#"{"visits": [{"id": 3}]}"#)]);
        let world = read(&[first.clone(), second], 1).expect("data");
        let users = world.of(EntityKind::Users);
        assert!(users.contains(1) && users.contains(9) && !users.contains(2) && users.id_max() == 9);
        assert!(world.of(EntityKind::Visits).contains(3));
        assert!(read(&[first], 1).expect_err("no visits").contains("holds no visits"));
    }

    #[test]
    fn a_broken_file_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, part) in [
            (r#"{"users": [{"id": 1}"#, "ends too early"),
            (r#"{"users": [{"id": "x"}]}"#, "without an id"),
            (r#"{"cities": []}"#, "none of users"),
        ] {
            let zip = zip(&folder, "a.zip", &[("users_1.json", text)]);
            let problem = read(&[zip], 1).expect_err(text);
            assert!(problem.contains("a.zip: users_1.json: ") && problem.contains(part), "{problem}");
        }
    }
}
