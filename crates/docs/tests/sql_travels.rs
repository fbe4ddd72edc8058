//! The two queries of the travels service, with all combinations of their parameters.

use std::path::{Path, PathBuf};

use crate::sql_memory::{AVERAGE, Memory, VISITS, travels};
use docs::sql::{Budget, PreparedQuery, Scratch, Value};
use rand_like::Random;
use serde_json::{Value as Json, json};

/// A small random generator, so that a failing seed can be repeated.
mod rand_like {
    pub(super) struct Random(pub(super) u64);

    impl Random {
        pub(super) fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }
    }
}

const NOW: i64 = 1_503_966_608;

struct Service {
    memory: Memory,
    visits: PreparedQuery,
    average: PreparedQuery,
    scratch: Scratch,
}

impl Service {
    fn new(memory: Memory) -> Service {
        let visits = PreparedQuery::prepare(VISITS, &memory.catalog).unwrap();
        let average = PreparedQuery::prepare(AVERAGE, &memory.catalog).unwrap();
        Service { memory, visits, average, scratch: Scratch::new() }
    }

    /// The answer's JSON, for parameters by name.
    fn answer(&mut self, visits: bool, parameters: &[(&str, Json)]) -> Json {
        let query = if visits { &self.visits } else { &self.average };
        let mut values = vec![Value::Null; query.parameters().len()];
        for (name, value) in parameters {
            values[query.slot(name).unwrap()] = match value {
                Json::String(text) => Value::text(text),
                Json::Number(number) => Value::Integer(number.as_i64().unwrap()),
                _ => Value::Null,
            };
        }
        let (mut out, budget) = (Vec::new(), Budget::default());
        if visits {
            query.write_array(&self.memory, &values, &mut self.scratch, &budget, &mut out).unwrap();
        } else {
            let outcome = query.write_row(&self.memory, &values, &mut self.scratch, &budget, &mut out).unwrap();
            assert_eq!(outcome.rows, 1);
        }
        serde_json::from_slice(&out).unwrap()
    }
}

fn random_database(random: &mut Random) -> (Memory, rusqlite::Connection) {
    random_database_in(travels(), random)
}

fn random_database_in(mut memory: Memory, random: &mut Random) -> (Memory, rusqlite::Connection) {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite
        .execute_batch(
            "CREATE TABLE users (id, gender, birth_date); CREATE TABLE locations (id, place, country, distance);
             CREATE TABLE visits (id, location, user, visited_at, mark)",
        )
        .unwrap();
    for id in 0..12 {
        let gender = ["m", "f"][random.below(2) as usize];
        // Birth dates around the cut-offs of the ages in queries, to the second.
        let birth = NOW - random.below(4) as i64 * 31_557_600 - random.below(3) as i64 + 1;
        let user = json!({"id": id, "email": format!("{id}@x"), "first_name": "Ж", "last_name": "", "gender": gender, "birth_date": birth});
        memory.insert("users", &user.to_string());
        sqlite.execute("INSERT INTO users VALUES (?, ?, ?)", rusqlite::params![id, gender, birth]).unwrap();
        let country = ["Россия", "Peru", "россия"][random.below(3) as usize];
        let distance = random.below(6) as i64;
        let location = json!({"id": id, "place": format!("место {id} \"q\""), "country": country, "city": "", "distance": distance});
        memory.insert("locations", &location.to_string());
        let row = rusqlite::params![id, format!("место {id} \"q\""), country, distance];
        sqlite.execute("INSERT INTO locations VALUES (?, ?, ?, ?)", row).unwrap();
    }
    for id in 0..400u64 {
        // Few distinct times, so that many visits tie.
        let (user, location, at, mark) = (random.below(12), random.below(12), random.below(9) as i64, random.below(6));
        let visit = json!({"id": id, "location": location, "user": user, "visited_at": at, "mark": mark});
        memory.insert("visits", &visit.to_string());
        let row = rusqlite::params![id as i64, location as i64, user as i64, at, mark as i64];
        sqlite.execute("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", row).unwrap();
    }
    (memory, sqlite)
}

fn theirs(sqlite: &rusqlite::Connection, sql: &str, parameters: &[(&str, Json)]) -> Vec<Json> {
    let mut statement = sqlite.prepare_cached(sql).unwrap();
    for slot in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(slot, rusqlite::types::Null).unwrap();
    }
    for (name, value) in parameters {
        let slot = statement.parameter_index(&format!(":{name}")).unwrap().unwrap();
        match value {
            Json::String(text) => statement.raw_bind_parameter(slot, text).unwrap(),
            other => statement.raw_bind_parameter(slot, other.as_i64().unwrap()).unwrap(),
        }
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    let mut result = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cells = names.iter().enumerate().map(|(column, name)| {
            let value: rusqlite::types::Value = row.get(column).unwrap();
            let value = match value {
                rusqlite::types::Value::Integer(integer) => json!(integer),
                rusqlite::types::Value::Real(real) => json!(real),
                rusqlite::types::Value::Text(text) => json!(text),
                _ => Json::Null,
            };
            (name.clone(), value)
        });
        result.push(Json::Object(cells.collect()));
    }
    result
}

/// All subsets of the optional parameters, with random values.
fn check_all(visits: bool, optional: &[&str], value: impl Fn(&str, &mut Random) -> Json) {
    for seed in 1..4u64 {
        let mut random = Random(seed * 7_919);
        let (memory, sqlite) = random_database(&mut random);
        let mut service = Service::new(memory);
        for subset in 0..1u32 << optional.len() {
            for _ in 0..12 {
                let mut parameters = vec![("id", json!(random.below(13)))];
                if !visits {
                    parameters.push(("now", json!(NOW)));
                }
                let chosen = optional.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
                parameters.extend(chosen.map(|(_, name)| (*name, value(name, &mut random))));
                let expected = theirs(&sqlite, if visits { VISITS } else { AVERAGE }, &parameters);
                let expected = if visits { Json::Array(expected) } else { expected[0].clone() };
                assert_eq!(service.answer(visits, &parameters), expected, "seed {seed}: {parameters:?}");
            }
        }
    }
}

#[test]
fn visits_equal_sqlites_with_every_combination_of_filters() {
    check_all(true, &["fromDate", "toDate", "country", "toDistance"], |name, random| match name {
        "country" => json!(["Россия", "Peru", "россия", ""][random.below(4) as usize]),
        "toDistance" => json!(random.below(7)),
        _ => json!(random.below(11) as i64 - 1),
    });
}

#[test]
fn averages_equal_sqlites_with_every_combination_of_filters() {
    check_all(false, &["fromDate", "toDate", "gender", "fromAge", "toAge"], |name, random| match name {
        "gender" => json!(["m", "f"][random.below(2) as usize]),
        "fromAge" | "toAge" => json!(random.below(5)),
        _ => json!(random.below(11) as i64 - 1),
    });
}

#[test]
fn an_average_that_ties_at_the_sixth_decimal_rounds_as_sqlite_does() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    for ones in 0..=64 {
        let mut memory = travels();
        memory.insert("users", r#"{"id":1,"email":"","first_name":"","last_name":"","gender":"m","birth_date":0}"#);
        for id in 0..64 {
            let mark = if id < ones { 3 } else { 2 };
            let visit = json!({"id": id, "location": 1, "user": 1, "visited_at": 5, "mark": mark});
            memory.insert("visits", &visit.to_string());
        }
        let sql = format!("SELECT ROUND({}.0 / 64, 5)", 128 + ones);
        let expected: f64 = sqlite.query_row(&sql, [], |row| row.get(0)).unwrap();
        let answer = Service::new(memory).answer(false, &[("id", json!(1)), ("now", json!(NOW))]);
        assert_eq!(answer, json!({ "avg": expected }), "{ones} of 64");
    }
}

#[test]
fn explain_shows_ranges_of_the_indexes_and_no_sort() {
    let memory = travels();
    let visits = PreparedQuery::prepare(VISITS, &memory.catalog).unwrap();
    check_explain(
        &visits,
        &["fromDate", "toDate", "country"],
        "SEARCH visits AS v USING COVERING INDEX (user=:id, visited_at>:fromDate, visited_at<:toDate)
         LOOKUP locations AS l BY KEY (id=v.location) FILTER 1
         ORDER BY INDEX",
    );
    check_explain(
        &visits,
        &[],
        "SEARCH visits AS v USING COVERING INDEX (user=:id)
         LOOKUP locations AS l BY KEY (id=v.location)
         ORDER BY INDEX",
    );
    let average = PreparedQuery::prepare(AVERAGE, &memory.catalog).unwrap();
    check_explain(
        &average,
        &["fromDate"],
        "SEARCH visits AS v USING COVERING INDEX (location=:id) FILTER 1
         IMPLIED u BY REFERENCE
         AGGREGATE",
    );
    check_explain(
        &average,
        &["gender", "toAge"],
        "SEARCH visits AS v USING COVERING INDEX (location=:id)
         LOOKUP users AS u BY KEY (id=v.user) FILTER 2
         AGGREGATE",
    );
    assert_eq!(visits.explain_json(&["toDate"])["levels"][0]["covering"], json!(true));
    let scan = PreparedQuery::prepare("SELECT COUNT(*) AS n FROM visits WHERE mark = 3", &memory.catalog).unwrap();
    assert_eq!(scan.scans(&[]), ["visits"]);
}

#[track_caller]
fn check_explain(query: &PreparedQuery, present: &[&str], expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(query.explain(present).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn indexes_are_told_which_fields_to_carry() {
    let mut memory = travels();
    for index in &mut std::sync::Arc::make_mut(&mut memory.catalog.collections[2]).indexes {
        index.included.clear();
    }
    let wanted = |sql: &str| PreparedQuery::prepare(sql, &memory.catalog).unwrap().wanted_included();
    let [visits] = &wanted(VISITS)[..] else { panic!() };
    let shown = |w: &docs::sql::WantedIncluded| format!("{} ({})", w.collection, w.index.join(","));
    assert_eq!((shown(visits), visits.fields.join(",")), ("visits (user,visited_at)".into(), "location,mark".into()));
    let [average] = &wanted(AVERAGE)[..] else { panic!() };
    assert_eq!(shown(average), "visits (location)");
    let mut fields = average.fields.clone();
    fields.sort();
    assert_eq!(fields, ["mark", "user", "visited_at"]);
}

#[test]
fn without_included_fields_the_documents_are_fetched_and_the_answer_is_the_same() {
    let mut random = Random(77);
    let mut memory = travels();
    for index in &mut std::sync::Arc::make_mut(&mut memory.catalog.collections[2]).indexes {
        index.included.clear();
    }
    let (memory, sqlite) = random_database_in(memory, &mut random);
    let mut service = Service::new(memory);
    for id in 0..12 {
        let parameters = [("id", json!(id)), ("fromDate", json!(3)), ("country", json!("Peru"))];
        assert_eq!(service.answer(true, &parameters), Json::Array(theirs(&sqlite, VISITS, &parameters)));
    }
}

// ---- the train data --------------------------------------------------------------------------------------------------

fn train() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let places = root.ancestors().skip(1).map(|place| place.join("shared/travels/train"));
    places.into_iter().find(|place| place.join("data.zip").exists())
}

fn load_train(folder: &Path) -> Memory {
    let mut memory = travels();
    let mut archive = zip::ZipArchive::new(std::fs::File::open(folder.join("data.zip")).unwrap()).unwrap();
    for number in 0..archive.len() {
        let file = archive.by_index(number).unwrap();
        if !file.name().unwrap().ends_with(".json") {
            continue;
        }
        let content: Json = serde_json::from_reader(file).unwrap();
        for (collection, documents) in content.as_object().unwrap() {
            for document in documents.as_array().unwrap() {
                memory.insert(collection, &document.to_string());
            }
        }
    }
    memory
}

/// Percent and plus decoding of a query string's value.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || (rest.next().unwrap() as char).to_digit(16).unwrap() as u8;
                digit() * 16 + digit()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn all_answers_of_the_train_data_are_right() {
    let Some(folder) = train() else {
        // Bypasses libtest, which captures the output of passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: no travels data beside the workspace (../shared/travels/train)\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let mut service = Service::new(load_train(&folder));
    let options = std::fs::read_to_string(folder.join("options.txt")).unwrap();
    let now: i64 = options.lines().next().unwrap().trim().parse().unwrap();
    let answers = std::fs::read_to_string(folder.join("answers/phase_1_get.answ")).unwrap();
    let mut checked = 0;
    for line in answers.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let (path, query) = parts[1].split_once('?').unwrap_or((parts[1], ""));
        let segments: Vec<&str> = path.split('/').collect();
        let visits = segments.last() == Some(&"visits") && segments.len() == 4;
        let average = segments.last() == Some(&"avg");
        if parts[2] != "200" || !(visits || average) {
            continue;
        }
        let slots = if visits { &service.visits } else { &service.average };
        let mut parameters = vec![("id", json!(segments[2].parse::<i64>().unwrap()))];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap();
            if slots.slot(name).is_none() {
                continue;
            }
            let value = decode(value);
            let text = matches!(name, "country" | "gender");
            parameters.push((name, if text { json!(value) } else { json!(value.parse::<i64>().unwrap()) }));
        }
        if average {
            parameters.push(("now", json!(now)));
        }
        let expected: Json = serde_json::from_str(parts[3]).unwrap();
        let expected = if visits { expected["visits"].clone() } else { expected };
        let answer = service.answer(visits, &parameters);
        let equal = match (answer["avg"].as_f64(), expected["avg"].as_f64()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => answer == expected,
        };
        assert!(equal, "{}\n ours: {answer}\n want: {expected}", parts[1]);
        checked += 1;
    }
    assert!(checked > 500, "{checked} answers checked");
}
