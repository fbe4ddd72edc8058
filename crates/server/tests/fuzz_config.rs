//! Mutated configuration files: accepted, or refused with mistakes that have places; no panic and no endless loop.

use crate::fuzz_check::check_config;
use crate::mutation::{apply, edits};
use proptest::prelude::*;

const TRAVELS: &str = include_str!("../../../apps/travels/travels.toml");
const SHOP: &str = include_str!("../../../apps/shop/shop.toml");

const WORDS: [&[u8]; 46] = [
    b"[",
    b"]",
    b"[[",
    b"]]",
    b"{",
    b"}",
    b"=",
    b",",
    b".",
    b"\n",
    b"\"",
    b"'",
    b"\"\"\"",
    b"#",
    b"\\",
    b"\\u0000",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"nan",
    b"1979-05-27",
    b"collections",
    b"params",
    b"endpoints",
    b"[endpoints.params]",
    b"[[endpoints]]\n",
    b"key",
    b"schema",
    b"type",
    b"enum",
    b"\"users\"",
    b"route = \"GET /{id}\"\n",
    b"query = \"SELECT 1\"\n",
    b"[server]\n",
    b"listen = \"x\"\n",
    b"memory = \"1e9 GB\"\n",
    b"[errors]\n",
    b"minimum",
    b"$ref",
    b"\"#/properties\"",
    b"pattern",
    b"\"(\"",
    b"{id}",
    "я".as_bytes(),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_file_is_taken_or_its_mistakes_have_places(is_shop in any::<bool>(), edits in edits(3)) {
        let file = if is_shop { SHOP } else { TRAVELS };
        check_config(&String::from_utf8_lossy(&apply(file.as_bytes(), &edits, &WORDS)));
    }

    #[test]
    fn a_mutated_section_is_taken_or_its_mistakes_have_places(section in any::<prop::sample::Index>(), edits in edits(6)) {
        let sections: Vec<&str> = TRAVELS.split("\n\n").chain(SHOP.split("\n\n")).collect();
        let section = sections[section.index(sections.len())];
        check_config(&String::from_utf8_lossy(&apply(section.as_bytes(), &edits, &WORDS)));
    }

    #[test]
    fn a_soup_of_words_is_taken_or_its_mistakes_have_places(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40)) {
        check_config(&String::from_utf8_lossy(&words.concat()));
        check_config(&String::from_utf8_lossy(&words.join(&b' ')));
    }
}

#[test]
fn the_unmutated_file_is_taken() {
    assert!(check_config(TRAVELS));
}

#[test]
fn deep_nesting_ends_in_mistakes() {
    for (open, close) in [("[", "]"), ("{a=", "}"), ("a.", ""), ("a={b=[", "]}")] {
        for count in [10, 200, 5_000, 50_000] {
            let (opened, closed) = (open.repeat(count), close.repeat(count));
            check_config(&format!("x = {opened}1{closed}"));
            check_config(&format!("{opened}x{closed}"));
            check_config(&format!("{opened}x = 1"));
            check_config(&format!(
                "[collections.c]\nkey = {{ field = \"id\", type = \"u32\" }}\n[collections.c.schema]\n{opened}x = 1"
            ));
            check_config(&format!(
                "[collections.c]\nkey = {{ field = \"id\", type = \"u32\" }}\nschema = {opened}1{closed}"
            ));
        }
    }
}
