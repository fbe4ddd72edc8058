//! Random requests on a small world, answered by the server and by the reference.

use super::client::Client;
use super::data;
use super::model::{Kind, Model};
use super::process::{Server, import};
use super::replay::same;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Requests of one run. Each seed takes about two seconds.
const REQUESTS: usize = 6_000;

/// 29 February 2024, noon: the day on which counting calendar years goes wrong first.
pub(crate) const LEAP_NOON: i64 = 1_709_208_000;

#[test]
fn random_requests_are_answered_as_the_reference_answers_them() {
    for (seed, now) in [(1, LEAP_NOON), (2, 1_503_966_608)] {
        check_random_requests(seed, now);
    }
}

fn check_random_requests(seed: u64, now: i64) {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut model = data::small_world(random, now);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zip = folder.path().join("data.zip");
    data::write_zip(&model, &zip);
    let store = folder.path().join("store");
    import(&store, &zip);
    let server = Server::start(&store, now);
    let mut client = Client::new(server.address);
    for number in 0..REQUESTS {
        let (method, target, body) = request(random, &model);
        let (status, expected) = model.answer(method, &target, body.as_deref());
        let answer = client.request(method, &target, body.as_deref());
        let shown = body.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let context = format!("seed {seed}, request {number}: {method} {target} {shown}");
        assert_eq!(answer.status, status, "{context}: {}", String::from_utf8_lossy(&answer.body));
        if let Some(expected) = expected {
            let got: Value = serde_json::from_slice(&answer.body).expect("a JSON body");
            assert!(same(&got, &expected), "{context}: expected {expected}, got {got}");
        }
        if method == "POST" && status == 200 {
            assert_eq!(answer.body, b"{}", "{context}");
        }
    }
}

fn request(random: &mut ChaCha8Rng, model: &Model) -> (&'static str, String, Option<Vec<u8>>) {
    let kind = *[Kind::Users, Kind::Locations, Kind::Visits].choose(random).expect("not empty");
    match random.random_range(0..10) {
        0 => ("GET", format!("/{}/{}{}", kind.name(), key(random, model, kind), query(random, &[])), None),
        1..4 => {
            let id = key(random, model, Kind::Users);
            (
                "GET",
                format!("/users/{id}/visits{}", query(random, &["fromDate", "toDate", "country", "toDistance"])),
                None,
            )
        }
        4..7 => {
            let id = key(random, model, Kind::Locations);
            let names = ["fromDate", "toDate", "gender", "fromAge", "toAge"];
            ("GET", format!("/locations/{id}/avg{}", query(random, &names)), None)
        }
        7 => ("POST", format!("/{}/new{}", kind.name(), query(random, &[])), Some(create_body(random, model, kind))),
        _ => {
            let target = format!("/{}/{}{}", kind.name(), key(random, model, kind), query(random, &[]));
            ("POST", target, Some(update_body(random, model, kind)))
        }
    }
}

/// Mostly a key in use; now and then one that is none.
fn key(random: &mut ChaCha8Rng, model: &Model, kind: Kind) -> String {
    const STRANGE: [&str; 12] =
        ["-1", "00", "01", "4294967295", "4294967296", "18446744073709551616", "x", "1x", "%31x", "1.0", "+1", ""];
    if random.random_bool(0.95) {
        data::any_id(random, model, kind).to_string()
    } else {
        (*STRANGE.choose(random).expect("not empty")).to_owned()
    }
}

/// Some of the declared names with good, bad, exact, repeated and unknown values around them.
fn query(random: &mut ChaCha8Rng, names: &[&str]) -> String {
    let mut pairs: Vec<String> = Vec::new();
    for name in names {
        if random.random_bool(0.35) {
            pairs.push(format!("{name}={}", value(random, name)));
        }
        if random.random_bool(0.02) {
            pairs.push(format!("{name}={}", value(random, name)));
        }
    }
    if random.random_bool(0.2) {
        pairs.push(format!("query_id={}", random.random_range(0..1000)));
    }
    if random.random_bool(0.03) {
        pairs.push((*["unknown=%zz", "=", "a", "", "unknown=%ff"].choose(random).expect("not empty")).to_owned());
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn value(random: &mut ChaCha8Rng, name: &str) -> String {
    const BAD: [&str; 16] = [
        "",
        "abc",
        "1.5",
        "1e3",
        "-",
        "--1",
        "+1",
        "%",
        "%4",
        "%zz",
        "%ff",
        "9223372036854775808",
        "-9223372036854775809",
        "1%00",
        "0x10",
        "%20",
    ];
    if random.random_bool(0.03) {
        return (*BAD.choose(random).expect("not empty")).to_owned();
    }
    match name {
        "fromDate" | "toDate" => (data::moment(random) + random.random_range(-1..=1)).to_string(),
        "toDistance" => (i64::from(data::distance(random)) + random.random_range(-1..=1)).to_string(),
        "country" => {
            let country = data::country(random);
            escaped(random, country)
        }
        "gender" => (*["m", "f", "m", "f", "%6d", "M", "mf"].choose(random).expect("not empty")).to_owned(),
        _ => (*["0", "1", "17", "18", "30", "45", "89", "90", "100", "1000", "1001", "-1", "007"]
            .choose(random)
            .expect("not empty"))
        .to_owned(),
    }
}

/// The ways in which clients escape a text: all bytes or only those that must be; `+` or `%20`; either case.
fn escaped(random: &mut ChaCha8Rng, text: &str) -> String {
    let all = random.random_bool(0.2);
    let lower = random.random_bool(0.5);
    let plus = random.random_bool(0.5);
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' if plus => out.push('+'),
            letter if letter.is_ascii_alphanumeric() && !all => out.push(char::from(letter)),
            other if lower => out.push_str(&format!("%{other:02x}")),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn create_body(random: &mut ChaCha8Rng, model: &Model, kind: Kind) -> Vec<u8> {
    let new_id = model.table(kind).keys().last().map_or(0, |id| id + 1);
    let id = if random.random_bool(0.9) { new_id } else { data::any_id(random, model, kind) };
    let entity = match kind {
        Kind::Users => data::user(random, id, model.now),
        Kind::Locations => data::location(random, id),
        Kind::Visits => data::visit(random, id, model),
    };
    spoiled(random, entity, kind)
}

fn update_body(random: &mut ChaCha8Rng, model: &Model, kind: Kind) -> Vec<u8> {
    let mut patch = serde_json::Map::new();
    let mut some = |name: &str, value: Value, random: &mut ChaCha8Rng| {
        if random.random_bool(0.4) {
            patch.insert(name.to_owned(), value);
        }
    };
    match kind {
        Kind::Users => {
            let other = data::any_id(random, model, Kind::Users);
            let email =
                if random.random_bool(0.5) { format!("user{other}@list.me") } else { format!("new{other}@list.me") };
            some("email", json!(email), random);
            some("gender", json!(if random.random_bool(0.5) { "m" } else { "f" }), random);
            let birth = data::birth(random, model.now);
            some("birth_date", json!(birth), random);
        }
        Kind::Locations => {
            let (country, distance) = (data::country(random), data::distance(random));
            some("country", json!(country), random);
            some("distance", json!(distance), random);
            some("place", json!("Фонтан \u{1F600} \\ \"\n"), random);
        }
        Kind::Visits => {
            let visit = data::visit(random, 0, model);
            for name in ["user", "location", "visited_at", "mark"] {
                some(name, visit[name].clone(), random);
            }
        }
    }
    spoiled(random, Value::Object(patch), kind)
}

/// Mostly the body as it is, in either spelling of non-ASCII; now and then with something wrong in it.
fn spoiled(random: &mut ChaCha8Rng, mut body: Value, kind: Kind) -> Vec<u8> {
    if random.random_bool(0.15) {
        let field = match kind {
            Kind::Users => {
                *["email", "first_name", "gender", "birth_date", "id", "nobody"].choose(random).expect("some")
            }
            Kind::Locations => *["place", "country", "city", "distance", "id", "nobody"].choose(random).expect("some"),
            Kind::Visits => *["location", "user", "visited_at", "mark", "id", "nobody"].choose(random).expect("some"),
        };
        let bad = [
            Value::Null,
            json!(true),
            json!([1]),
            json!({"a": 1}),
            json!("x"),
            json!(""),
            json!(-1),
            json!(6),
            json!(1.5),
            json!(4_294_967_296_u64),
            json!("ж".repeat(51)),
            json!("ж".repeat(50)),
            json!("ж".repeat(101)),
            json!(999_999),
        ];
        body[field] = bad.choose(random).expect("not empty").clone();
    }
    let text = if random.random_bool(0.5) { ascii_json(&body) } else { body.to_string() };
    match random.random_range(0..40) {
        0 => Vec::new(),
        1 => text.as_bytes()[..text.len() - 1].to_vec(),
        2 => format!("{text}x").into_bytes(),
        3 => format!("[{text}]").into_bytes(),
        4 => b"null".to_vec(),
        5 => b"{}".to_vec(),
        6 => text.replacen('{', "{\"mark\":1,\"mark\":1,", 1).into_bytes(),
        7 => format!(" \r\n\t{} ", text.replace(':', " : ")).into_bytes(),
        _ => text.into_bytes(),
    }
}

/// JSON with every character outside ASCII as `\uXXXX`, as the contest's bodies are.
fn ascii_json(value: &Value) -> String {
    let mut out = String::new();
    for unit in value.to_string().encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out
}
