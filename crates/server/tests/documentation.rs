//! The documents for users: the reference of the configuration has every key that the reader accepts, links have targets, the
//! front page is short, and the book has every page.

use crate::harness::mistakes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages of the book, and the front page.
fn pages() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = folder.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([root().join("README.md")]).collect()
}

/// A heading of the reference, and a file whose section of that heading has the one key `zz`.
const TABLES: [(&str, &str); 16] = [
    ("## `[collections.NAME]`", "[collections.c]\nzz = 1\n"),
    ("### `key`", "[collections.c]\nkey = { zz = 1 }\n"),
    ("### `expire`", "[collections.c]\nkey = { field = \"id\", type = \"u32\" }\nexpire = { zz = 1 }\n"),
    ("## `[views.NAME]`", "[views.v]\nzz = 1\n"),
    ("## `[[endpoints]]`", "[[endpoints]]\nzz = 1\n"),
    ("### `page` of an endpoint", "[[endpoints]]\nroute = \"GET /x\"\nquery = \"SELECT 1 AS x\"\npage = { zz = 1 }\n"),
    ("### `steps` of an endpoint", "[[endpoints]]\nroute = \"POST /x\"\nsteps = [{ zz = 1 }]\n"),
    ("### `files` of an endpoint", "[[endpoints]]\nroute = \"GET /x/{*path}\"\nfiles = { zz = 1 }\n"),
    ("### `params` of an endpoint", "[params.p]\nzz = 1\n"),
    ("## `[guards.NAME]`", "[guards.g]\nzz = 1\n"),
    ("## `[errors]`", "[errors]\nzz = 1\n"),
    ("## `[server]`", "[server]\nzz = 1\n"),
    ("### `cors`", "[server]\ncors = { zz = 1 }\n"),
    ("### `tls`", "[server]\ntls = { zz = 1 }\n"),
    ("### `durability`", "[server]\ndurability = { zz = 1 }\n"),
    ("## `[tokens.NAME]`", "[tokens.t]\nzz = 1\n"),
];

#[test]
fn the_reference_of_the_configuration_has_the_keys_that_the_reader_knows() {
    let reference = read(&root().join("docs/configuration.md"));
    let mut told = BTreeSet::new();
    for (heading, file) in TABLES {
        let all = mistakes(file);
        let line =
            all.lines().find(|line| line.contains("unknown key `zz`")).unwrap_or_else(|| panic!("{heading}: {all}"));
        let known: BTreeSet<&str> = line.split_once("; allowed: ").expect("what is allowed").1.split(", ").collect();
        let section = reference.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
        let section = section.split("\n#").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let listed: BTreeSet<&str> = rows.map(|(key, _)| key).collect();
        assert_eq!(listed, known, "{heading}");
        told.insert(heading);
    }
    let tables = reference.matches("\n| key | type | default | meaning, with an example |\n").count();
    assert_eq!(told.len(), tables, "each table of the reference is compared");
}

/// The defaults of `[server]` that do not depend on the machine.
#[test]
fn the_reference_has_the_defaults_of_the_server() {
    let reference = read(&root().join("docs/configuration.md"));
    let server = server::config::ServerConfig::default();
    for (key, default) in [
        ("http", format!("`\"{}\"`", server.http)),
        ("trusted_proxies", format!("`{}`", if server.trusted_proxies.is_empty() { "[]" } else { "" })),
        ("connections_per_address_max", thousands(server.connections_per_address_max as u64)),
        ("head_bytes_max", format!("{} KiB", server.head_bytes_max >> 10)),
        ("body_bytes_max", format!("{} MiB", server.body_bytes_max >> 20)),
        ("body_rate_min", format!("{} KiB", server.body_rate_min >> 10)),
        ("send_rate_min", format!("{} KiB", server.send_rate_min >> 10)),
        ("head_seconds", server.head.as_secs().to_string()),
        ("body_seconds", server.body.as_secs().to_string()),
        ("send_seconds", server.send.as_secs().to_string()),
        ("idle_seconds", server.idle.as_secs().to_string()),
        ("drain_seconds", server.drain.as_secs().to_string()),
        ("query_seconds", server.query.as_secs().to_string()),
        ("date", server.date.to_string()),
        ("access_log", server.access_log.to_string()),
        ("scan_rows_max", thousands(server.scan_rows_max)),
        ("query_log_rows", thousands(server.query_log_rows)),
        ("memory", format!("`\"{}GB\"`", server.memory_bytes / 1_000_000_000)),
        ("query_spill", format!("`\"{}GB\"`", server.query_spill_bytes / 1_000_000_000)),
        ("changes_kept_bytes", server.changes_kept_bytes.to_string()),
    ] {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("no {key}"));
        assert_eq!(row.split('|').nth(3).map(str::trim), Some(&*default), "{row}");
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
    parts.join(",")
}

#[test]
fn links_lead_somewhere_and_the_book_has_every_page() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    for page in pages() {
        let text = read(&page);
        let folder = page.parent().unwrap();
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            folder == root() || name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in the book"
        );
        for (_, behind) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let target = behind.split(')').next().unwrap_or_default();
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { page.clone() } else { folder.join(file) };
            assert!(to.exists(), "{}: {target}", page.display());
            assert!(anchor.is_empty() || anchors(&read(&to)).contains(anchor), "{}: {target}", page.display());
        }
    }
}

/// The anchors of a page's headings, as made by GitHub and mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    headings.map(anchor).collect()
}

#[test]
fn the_front_page_is_short() {
    let words = read(&root().join("README.md")).split_whitespace().count();
    assert!(words <= 900, "{words} words");
}
