//! Mutated ammo and answers of every format: requests or an error, never a panic.

use crate::fuzz_check_ammo::{check_ammo, check_answers, check_bodies};
use crate::mutation::{apply, edits};
use proptest::prelude::*;

const AMMO: [&[u8]; 6] = [
    include_bytes!("ammo/phantom.ammo"),
    include_bytes!("ammo/urls.txt"),
    include_bytes!("ammo/templates.txt"),
    include_bytes!("ammo/requests.ndjson"),
    include_bytes!("ammo/browser.har"),
    include_bytes!("ammo/access.log"),
];

const ANSWERS: [&[u8]; 2] = [
    b"GET\t/a\t200\t{\"a\": [1, 2.0]}\nGET\t/b\t404\n",
    b"{\"path\":\"/a\",\"status\":200,\"body\":[1]}\n{\"path\":\"/b\",\"status\":204}\n",
];

const BODIES: [&[u8]; 2] =
    [b"{\"a\": [1, 2.5, \"x\"], \"b\": {\"c\": null}}", b"[1e3, 1000, -0.0, 18446744073709551615]"];

const WORDS: [&[u8]; 20] = [
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"0",
    b"-1",
    b"\xff",
    b"{int:1..3}",
    b"{seq}",
    b"{choice:a|b}",
    b"Content-Length: 3\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
];

proptest! {
    #[test]
    fn mutated_ammo_is_requests_or_an_error(which in 0..AMMO.len(), edits in edits(5)) {
        check_ammo(AMMO[which]);
        check_ammo(&apply(AMMO[which], &edits, &WORDS));
    }

    #[test]
    fn mutated_answers_are_answers_or_an_error(which in 0..ANSWERS.len(), edits in edits(5)) {
        check_answers(&apply(ANSWERS[which], &edits, &WORDS));
    }

    #[test]
    fn mutated_bodies_are_compared_alike_from_both_sides(which in 0..BODIES.len(), one in edits(3), other in edits(2)) {
        check_bodies(&apply(BODIES[which], &one, &WORDS), BODIES[which]);
        check_bodies(&apply(BODIES[which], &one, &WORDS), &apply(BODIES[which], &other, &WORDS));
    }
}
