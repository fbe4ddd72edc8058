//! What attackers send: statements that grow, documents that are long to check, requests that are long to answer.

use crate::service::LARGE_DOCUMENTS;
use std::sync::LazyLock;

pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

pub(crate) fn post(target: &str, body: &str) -> Vec<u8> {
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(crate) fn large(number: u64) -> Vec<u8> {
    get(&format!("/large/{}", number % u64::from(LARGE_DOCUMENTS)))
}

fn query(sql: &str) -> Vec<u8> {
    post("/_/query", &serde_json::json!({ "sql": sql }).to_string())
}

/// Statements that produce much of little, or take long inside one row.
pub(crate) fn expression(number: u64) -> Vec<u8> {
    let nested = (0..45).fold("printf('%9000d', 1)".to_owned(), |inner, _| format!("replace({inner}, ' ', '  ')"));
    let wide: Vec<String> = (0..200).map(|n| format!("printf('%90000d', {n}) AS c{n}")).collect();
    let statements = [
        "SELECT length(printf('%100000000d', 1)) AS n".to_owned(),
        format!("SELECT length({nested}) AS n"),
        format!("SELECT {}", wide.join(", ")),
        "SELECT length(group_concat(printf('%20000d', id))) AS n FROM items".to_owned(),
        "SELECT printf('%200000d', 1) LIKE '% % % % % % % % % % % %x' AS n FROM items".to_owned(),
        "SELECT COUNT(*) AS n FROM items WHERE printf('%50000d', id) GLOB '* * * * * * * *x*'".to_owned(),
        "SELECT length(json_group_array(note)) AS n FROM items a JOIN goods b".to_owned(),
        "SELECT SUM(length(replace(printf('%30000d', a.id), ' ', 'abc'))) AS n FROM items a".to_owned(),
        "SELECT COUNT(*) AS n FROM items a, items b WHERE a.note || b.note LIKE '%x%y%z%'".to_owned(),
        "SELECT DISTINCT printf('%3000d', id) AS d FROM items ORDER BY d DESC".to_owned(),
        "SELECT hex(printf('%9000000d', 1)) AS h".to_owned(),
        "SELECT a.id, b.note FROM items a JOIN items b ON a.id + b.id >= 0".to_owned(),
    ];
    query(&statements[number as usize % statements.len()])
}

/// Declared queries that scan, each with another text.
pub(crate) fn search(number: u64) -> Vec<u8> {
    get(&format!("/search?text=%25x{number}y%25"))
}

pub(crate) fn bomb(number: u64) -> Vec<u8> {
    get(&format!("/bomb?text=%25{}%25", number % 10))
}

/// Statements that write what others write too, each row with a text that is long to make.
pub(crate) fn update(number: u64) -> Vec<u8> {
    match number % 3 {
        0 => post(&format!("/raise/{}", number % 1_900), "{}"),
        1 => query("UPDATE goods SET n = n + 1, note = length(replace(printf('%30000d', n), ' ', 'ab'))"),
        _ => query("UPDATE goods SET n = (SELECT MAX(g.n) FROM goods g WHERE g.note LIKE '%1%2%') WHERE id % 2 = 0"),
    }
}

/// A set of the eight parameters that an endpoint may be given.
pub(crate) fn optional(number: u64) -> Vec<u8> {
    let of = ["a=1", "b=900000", "c=g7", "d=3", "e=990", "f=5", "g=17", "h=3"];
    let given: Vec<&str> = (0..of.len()).filter(|place| number >> place & 1 == 1).map(|place| of[place]).collect();
    get(&format!("/find?{}", given.join("&")))
}

/// Documents that the schema's checker has much to do with.
pub(crate) fn schemed(number: u64) -> Vec<u8> {
    // Made once: to make them takes as long as to check them.
    static BODIES: LazyLock<[String; 2]> = LazyLock::new(|| {
        let leaves: Vec<String> = (0..40_000).map(|leaf| format!("\"k{leaf}\":{{}}")).collect();
        let tags: Vec<String> = (0..50_000).map(|tag| format!("[{tag},\"{tag}\"]")).collect();
        [format!("\"tree\":{{{}}}}}", leaves.join(",")), format!("\"tags\":[{}]}}", tags.join(","))]
    });
    let id = number % 8;
    let body = format!("{{\"id\":{id},{}", BODIES[number as usize % BODIES.len()]);
    let head = format!(
        "PUT /_/collections/schemed/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// A body of a megabyte that does not end.
pub(crate) fn half_body() -> Vec<u8> {
    let head = "POST /_/collections/large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n";
    format!("{head}{{\"id\":1,\"note\":\"{}", "x".repeat(900_000)).into_bytes()
}

pub(crate) fn half_head() -> Vec<u8> {
    format!("GET /items/1 HTTP/1.1\r\nA: {}", "a".repeat(12_000)).into_bytes()
}
