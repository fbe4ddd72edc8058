//! Data of the travels service in the form of the contest: users, locations, visits, in JSON files within a zip.
//!
//! Each file has a random generator of its own, seeded from the run's seed, the kind and the file's number, so that a
//! file's bytes depend on nothing else but the numbers of users and locations.

use super::names;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write as _;
use std::io::{Seek, Write};

/// Entities in one file, as in the contest's sets.
const FILE_ENTITIES: u32 = 10_000;
/// Births from 1930 to 1999, visits from 2000 to 2014, in Unix seconds.
const BIRTHS: std::ops::Range<i64> = -1_262_304_000..946_684_800;
const VISITS: std::ops::Range<i64> = 946_684_800..1_420_070_400;
const DAY_SECONDS: i64 = 86_400;

/// How many entities of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) users: u32,
    pub(crate) locations: u32,
    pub(crate) visits: u32,
}

impl Counts {
    /// As large as the contest's train set.
    pub(crate) const TRAIN: Counts = Counts { users: 10_057, locations: 7_628, visits: 100_570 };
}

/// One run's data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Travels {
    pub(crate) counts: Counts,
    /// Visits alone are written; the same ones as with the others.
    pub(crate) only_visits: bool,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Users,
    Locations,
    Visits,
}

impl Travels {
    /// How many are written.
    pub(crate) fn entities(&self) -> u64 {
        self.files().map(|(_, _, count)| u64::from(count)).sum()
    }

    fn files(&self) -> impl Iterator<Item = (Kind, &'static str, u32)> + use<> {
        let Counts { users, locations, visits } = self.counts;
        let all = [
            (Kind::Users, "users", users),
            (Kind::Locations, "locations", locations),
            (Kind::Visits, "visits", visits),
        ];
        all.into_iter().skip(if self.only_visits { 2 } else { 0 })
    }

    /// Writes the zip, telling after each file how many entities are done.
    pub(crate) fn write_zip<W: Write + Seek>(&self, to: W, mut done: impl FnMut(u64)) -> std::io::Result<W> {
        let mut archive = zip::ZipWriter::new(to);
        let options = zip::write::SimpleFileOptions::default();
        let mut total = 0;
        for (kind, name, count) in self.files() {
            for file in 0..count.div_ceil(FILE_ENTITIES) {
                let ids = file * FILE_ENTITIES + 1..=count.min((file + 1) * FILE_ENTITIES);
                total += u64::from(ids.end() - ids.start() + 1);
                archive.start_file(format!("{name}_{}.json", file + 1), options)?;
                archive.write_all(self.file(kind, name, file, ids).as_bytes())?;
                done(total);
            }
        }
        Ok(archive.finish()?)
    }

    fn file(&self, kind: Kind, name: &str, file: u32, ids: std::ops::RangeInclusive<u32>) -> String {
        let stream = u64::from(file) * 3 + kind as u64;
        let random = &mut ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        let mut text = format!("{{\"{name}\": [");
        for id in ids.clone() {
            text.push_str(if id == *ids.start() { "" } else { ", " });
            match kind {
                Kind::Users => user(random, id, &mut text),
                Kind::Locations => location(random, id, &mut text),
                Kind::Visits => self.visit(random, id, &mut text),
            }
        }
        text.push_str("]}");
        text
    }

    fn visit(&self, random: &mut ChaCha8Rng, id: u32, out: &mut String) {
        let user = random.random_range(1..=self.counts.users.max(1));
        let location = random.random_range(1..=self.counts.locations.max(1));
        let (at, mark) = (random.random_range(VISITS), random.random_range(0..=5));
        put(
            out,
            format_args!(
                "{{\"user\": {user}, \"location\": {location}, \"visited_at\": {at}, \"id\": {id}, \"mark\": {mark}}}"
            ),
        );
    }
}

fn user(random: &mut ChaCha8Rng, id: u32, out: &mut String) {
    let male = random.random_bool(0.5);
    let (first, end, gender) = if male {
        (names::MALE_FIRST, names::SURNAME_END_MALE, "m")
    } else {
        (names::FEMALE_FIRST, names::SURNAME_END_FEMALE, "f")
    };
    let first = pick(random, first);
    let surname = [pick(random, names::SURNAME_STEM), pick(random, names::SURNAME_MIDDLE), pick(random, end)].concat();
    let mail =
        [pick(random, names::MAIL_SYLLABLE), pick(random, names::MAIL_SYLLABLE), pick(random, names::MAIL_SYLLABLE)];
    let (mail, host) = (mail.concat(), pick(random, names::MAIL_HOST));
    let birth = random.random_range(BIRTHS) / DAY_SECONDS * DAY_SECONDS;
    put(
        out,
        format_args!(
            "{{\"first_name\": \"{first}\", \"last_name\": \"{surname}\", \"birth_date\": {birth}, \
             \"gender\": \"{gender}\", \"id\": {id}, \"email\": \"{mail}{id}@{host}\"}}"
        ),
    );
}

fn location(random: &mut ChaCha8Rng, id: u32, out: &mut String) {
    let (place, country) = (pick(random, names::PLACE), pick(random, names::COUNTRY));
    let city = [pick(random, names::CITY_STEM), pick(random, names::CITY_END)].concat();
    let distance = random.random_range(0..100);
    put(
        out,
        format_args!(
            "{{\"distance\": {distance}, \"city\": \"{city}\", \"place\": \"{place}\", \"id\": {id}, \
             \"country\": \"{country}\"}}"
        ),
    );
}

fn pick(random: &mut ChaCha8Rng, words: &'static [&'static str]) -> &'static str {
    words.choose(random).copied().unwrap_or_default()
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a String does not fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod bytes {
    use super::{Counts, Travels};
    use std::io::Cursor;

    fn zip_of(seed: u64) -> Vec<u8> {
        let counts = Counts { users: 20_001, locations: 3, visits: 5 };
        Travels { counts, only_visits: false, seed }
            .write_zip(Cursor::new(Vec::new()), |_| {})
            .expect("written")
            .into_inner()
    }

    #[test]
    fn a_seed_gives_the_same_bytes_again_and_another_seed_others() {
        assert!(zip_of(1) == zip_of(1));
        assert!(zip_of(1) != zip_of(2));
    }

    #[test]
    fn visits_alone_are_those_of_the_whole_set() {
        let counts = Counts { users: 2, locations: 3, visits: 10_001 };
        let files = |only_visits| {
            let zip = Travels { counts, only_visits, seed: 7 }.write_zip(Cursor::new(Vec::new()), |_| {});
            let mut archive = zip::ZipArchive::new(Cursor::new(zip.expect("written").into_inner())).expect("a zip");
            let mut file = |index| {
                let mut entry = archive.by_index(index).expect("entry");
                let text = std::io::read_to_string(&mut entry).expect("text");
                (entry.name().expect("UTF-8").into_owned(), text)
            };
            (0..if only_visits { 2 } else { 4 }).map(&mut file).collect::<std::collections::BTreeMap<_, _>>()
        };
        let mut whole = files(false);
        whole.retain(|name, _| name.starts_with("visits"));
        assert_eq!(whole.len(), 2);
        assert_eq!(files(true), whole);
    }

    #[test]
    fn every_entity_is_there_once_with_its_id() {
        let mut archive = zip::ZipArchive::new(Cursor::new(zip_of(1))).expect("a zip");
        let mut ids = std::collections::BTreeMap::<String, Vec<u64>>::new();
        for index in 0..archive.len() {
            let file: serde_json::Value =
                serde_json::from_reader(archive.by_index(index).expect("entry")).expect("JSON");
            for (name, entities) in file.as_object().expect("an object") {
                let entities = entities.as_array().expect("an array").iter();
                ids.entry(name.clone()).or_default().extend(entities.filter_map(|entity| entity["id"].as_u64()));
            }
        }
        for (name, count) in [("users", 20_001), ("locations", 3), ("visits", 5)] {
            assert_eq!(ids[name], (1..=count).collect::<Vec<u64>>(), "{name}");
        }
    }
}
