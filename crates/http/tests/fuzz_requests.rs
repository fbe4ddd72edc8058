//! Mutated requests, bodies, queries, cookies and routes, compared with plain parsers of the same bytes.

use crate::fuzz_check::{
    BOUNDARY, check_chunks, check_cookies, check_multipart, check_query, check_routes, check_stream,
};
use crate::mutation::{apply, edits};
use http::Method;
use proptest::prelude::*;

const REQUESTS: [&[u8]; 6] = [
    b"GET /users/1?a=b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Y: z\r\n\r\nhello",
    b"PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n",
    b"POST /d HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET http://h:80/e HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
];

const WORDS: [&[u8]; 27] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"0",
    b"00",
    b"5",
    b"f",
    b"+1",
    b";",
    b",",
    b"\x80",
    b"Content-Length: 5\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b" folded\r\n",
    b"HTTP/1.0",
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
];

const CHUNKED: &[u8] = b"5\r\nhello\r\nA;x=\"1\"\r\n0123456789\r\n000\r\n\r\n";

const MULTIPART: &[u8] = b"--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--X\r\n\
    --XX \r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=b; filename=\"../c\\\"d\"\r\n\r\n\r\n\r\n--XX\r\n\
    Content-Disposition: form-data; name=c\r\n\r\n--XX--\r\n";

const PARTS: [&[u8]; 18] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"-",
    b"--",
    b"--XX",
    b"\r\n--XX",
    b"\r\n--XX--",
    b"\r\n\r\n",
    b"\r\n--X",
    b" ",
    b"\"",
    b"; name=d",
    b"; filename*=utf-8''x",
    b"Content-Disposition: form-data; name=d\r\n",
    b"Content-Transfer-Encoding: base64\r\n",
    b"\x80",
    b"/",
];

const ESCAPES: [&[u8]; 12] =
    [b"%", b"+", b"&", b"=", b"%D1", b"%8f", b"%2", b"%zz", b"%2B", b"%00", "я".as_bytes(), b"%ff"];

const COOKIE_WORDS: [&[u8]; 14] = [
    b";",
    b"; ",
    b"=",
    b"\"",
    b"\"\"",
    b" ",
    b"\t",
    b",",
    b"\\",
    b"\x01",
    b"\xff",
    b"\x7f",
    b"a=\"1\"",
    "я".as_bytes(),
];

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(Method::ALL.to_vec())
}

#[test]
fn a_question_mark_at_the_end_of_a_target_belongs_to_the_query_that_began_before_it() {
    for target in ["/b?a=b?", "/b??", "/b?", "http://h?", "http://h/??"] {
        check_stream(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(), &[7]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_and_a_plain_reading_find_the_same_requests(
        requests in prop::collection::vec(prop::sample::select(&REQUESTS[..]), 1..4),
        edits in edits(4),
        reads in prop::collection::vec(1usize..40, 1..5),
    ) {
        check_stream(&apply(&requests.concat(), &edits, &WORDS), &reads);
    }

    #[test]
    fn a_soup_of_field_lines_is_read_as_plainly(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..8), cut in 1usize..30) {
        let stream = [b"POST /b HTTP/1.1\r\nHost: h\r\n", &words.concat()[..], b"\r\nhello", REQUESTS[0]].concat();
        check_stream(&stream, &[cut]);
    }

    #[test]
    fn any_pieces_and_a_plain_reading_find_the_same_body(edits in edits(4), piece in 1usize..20) {
        check_chunks(&apply(CHUNKED, &edits, &WORDS), piece);
    }

    #[test]
    fn any_pieces_and_a_plain_split_find_the_same_parts(edits in edits(5), piece in 1usize..30) {
        check_multipart(&apply(MULTIPART, &edits, &PARTS), piece);
    }

    #[test]
    fn any_parts_come_back(
        data in prop::collection::vec(prop::collection::vec(prop::sample::select(&PARTS[..]), 0..5), 0..5), piece in 1usize..30,
    ) {
        let part = |data: &Vec<&[u8]>| {
            let head = format!("\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=n; filename=f\r\n\r\n");
            [head.as_bytes(), &data.concat()].concat()
        };
        let body: Vec<u8> = data.iter().flat_map(part).chain(*b"\r\n--XX--").collect();
        check_multipart(&body, piece);
    }

    #[test]
    fn queries_are_split_and_decoded_as_plainly_as_can_be(edits in edits(6)) {
        let query = apply("country=%D0%A0%D0%be+x&a=1&&b".as_bytes(), &edits, &ESCAPES);
        check_query(&String::from_utf8_lossy(&query));
    }

    #[test]
    fn cookies_are_split_as_plainly_as_can_be(edits in edits(6)) {
        check_cookies(&apply(b"session=AQID-_; theme=\"dark\"; a=1; a=2", &edits, &COOKIE_WORDS));
    }

    #[test]
    fn the_router_finds_what_a_look_at_every_route_finds(
        routes in prop::collection::vec((method(), "(/(a|b|users|new|\\{id\\}|\\{x\\})){1,4}(/\\{\\*rest\\})?"), 0..8),
        method in method(),
        path in "(/(a|b|users|new|%2F|я|)){1,5}",
    ) {
        check_routes(&routes, method, &path);
    }

    #[test]
    fn no_pattern_makes_the_router_panic(patterns in prop::collection::vec("/?[/{}*a.é-]{0,12}", 0..6), path in "[/{}*a.é-]{0,12}") {
        let mut router = http::Router::new();
        for pattern in &patterns {
            let _ = router.route(Method::Get, pattern, ());
        }
        let _ = format!("{:?}", router.find(Method::Get, &path));
    }
}
