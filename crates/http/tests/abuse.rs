//! Odd and hostile bytes on real sockets. Each case is a sentence, the bytes, the statuses of the replies, and the end of the
//! connection.

use std::sync::OnceLock;
use std::thread;

use crate::harness::TestServer;
use http::{ClientLimits, HttpSettings};

/// Expected state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server closes it.
    Closes,
    /// It stays open: another request on it is answered.
    Stays,
    /// The client ends its half after the bytes; the server closes.
    AfterHalfClose,
}
use End::{AfterHalfClose, Closes, Stays};

fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let limits = ClientLimits {
            head_bytes_max: 2000,
            target_bytes_max: 500,
            fields_max: 20,
            body_bytes_max: 1000,
            ..ClientLimits::default()
        };
        TestServer::start(HttpSettings { limits, ..HttpSettings::default() })
    })
}

#[track_caller]
fn check(name: &str, bytes: &[u8], statuses: &[u16], end: End) {
    let mut client = server().connect();
    client.send(bytes);
    let mut expected = statuses.to_vec();
    match end {
        Stays => {
            client.send(b"GET /probe HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            expected.push(200);
        }
        AfterHalfClose => client.end(),
        Closes => {}
    }
    let mut seen = Vec::new();
    let mut last_body = String::new();
    while let Some(answer) = client.answer_to(name.starts_with("HEAD") && seen.is_empty()) {
        if answer.status >= 400 {
            assert!(answer.head.contains("Connection: close"), "{name}: {}", answer.head);
            assert!(answer.body.contains("\"detail\""), "{name}: {}", answer.body);
        }
        seen.push(answer.status);
        last_body = answer.body;
    }
    assert_eq!(seen, expected, "{name}");
    assert_eq!(client.rest(), "", "{name}: bytes after the last reply");
    if end == Stays {
        assert_eq!(last_body, "GET /probe []", "{name}");
    }
}

/// Checks a table, all cases at once: one connection must not affect another.
#[track_caller]
fn check_all(cases: &[(&str, String, &[u16], End)]) {
    thread::scope(|scope| {
        for (name, bytes, statuses, end) in cases {
            scope.spawn(move || check(name, bytes.as_bytes(), statuses, *end));
        }
    });
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /p HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn with_field(line: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n")
}

#[test]
fn request_lines() {
    check_all(&[
        ("a plain GET is answered", get("/"), &[200], Stays),
        ("a query is part of the target", get("/a?b=c&d=%20"), &[200], Stays),
        ("the absolute form is taken", "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[200], Stays),
        ("OPTIONS takes an asterisk", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[204], Stays),
        ("GET takes no asterisk", "GET * HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("HEAD has a length and no body", "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[200], Stays),
        ("a lower-case method is another method", "get / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[501], Closes),
        ("an unknown method is not implemented", "BREW / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[501], Closes),
        ("CONNECT is not implemented", "CONNECT / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[501], Closes),
        ("a method of strange bytes", "G@T / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("two blanks before the target", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("two blanks after the target", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a blank inside the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a blank after the version", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a blank before the method", " GET / HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a tab between the words", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("no version, as in HTTP/0.9", "GET /\r\n\r\n".into(), &[400], Closes),
        ("version 1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n".into(), &[505], Closes),
        ("version 2.0", "GET / HTTP/2.0\r\nHost: h\r\n\r\n".into(), &[505], Closes),
        ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &[505], Closes),
        ("a version in lower case", "GET / http/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a target that is no path", "GET a HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a target of another scheme", "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a target with a fragment", get("/a#b"), &[400], Closes),
        ("a target with letters beyond ASCII", get("/\u{43f}\u{443}\u{442}\u{44c}"), &[400], Closes),
        ("a target with a control byte", get("/a\u{1}b"), &[400], Closes),
        ("a target over the limit", get(&format!("/{}", "a".repeat(500))), &[414], Closes),
        ("a target far over the limit, unfinished", format!("GET /{}", "a".repeat(1500)), &[414], Closes),
        ("a TLS greeting", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}".into(), &[400], Closes),
        ("plain noise", "hello there\r\n\r\n".into(), &[400], Closes),
    ]);
}

#[test]
fn line_ends_and_bytes() {
    check_all(&[
        ("a bare LF ends the request line", "GET / HTTP/1.1\nHost: h\r\n\r\n".into(), &[400], Closes),
        ("a bare LF ends a field line", "GET / HTTP/1.1\r\nHost: h\n\r\n".into(), &[400], Closes),
        ("a bare LF for the blank line", "GET / HTTP/1.1\r\nHost: h\r\n\n".into(), &[400], Closes),
        ("a bare CR in a value", with_field("A: b\rC: d"), &[400], Closes),
        ("CR CR LF", with_field("A: b\r"), &[400], Closes),
        ("a NUL in a value", with_field("A: b\0c"), &[400], Closes),
        ("a NUL in the target", get("/a\0b"), &[400], Closes),
        ("a control byte in a value", with_field("A: b\u{7}c"), &[400], Closes),
        ("letters beyond ASCII in a value are let through", with_field("A: \u{44f}"), &[200], Stays),
        ("one empty line before the request", format!("\r\n{}", get("/")), &[200], Stays),
        ("eight empty lines before the request", format!("{}{}", "\r\n".repeat(8), get("/")), &[200], Stays),
        ("nine empty lines before the request", "\r\n".repeat(9), &[400], Closes),
        ("an empty line of a bare LF", format!("\n{}", get("/")), &[400], Closes),
    ]);
}

#[test]
fn fields() {
    let many = |n: usize| with_field(&vec!["A: b"; n].join("\r\n"));
    check_all(&[
        ("a space before the colon", with_field("A : b"), &[400], Closes),
        ("a tab before the colon", with_field("A\t: b"), &[400], Closes),
        ("a folded value", with_field("A: b\r\n c"), &[400], Closes),
        ("a first field line that begins with a blank", "GET / HTTP/1.1\r\n Host: h\r\n\r\n".into(), &[400], Closes),
        ("a field without a colon", with_field("A"), &[400], Closes),
        ("a field without a name", with_field(": b"), &[400], Closes),
        ("a field name with a blank inside", with_field("A B: c"), &[400], Closes),
        ("a field without a value is let through", with_field("A:"), &[200], Stays),
        ("no Host in HTTP/1.1", "GET / HTTP/1.1\r\n\r\n".into(), &[400], Closes),
        ("two Hosts", with_field("Host: h"), &[400], Closes),
        ("two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n".into(), &[400], Closes),
        ("a Host with a blank", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), &[400], Closes),
        ("a Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), &[400], Closes),
        ("as many fields as are allowed", many(19), &[200], Stays),
        ("one field too many", many(20), &[431], Closes),
        ("a head over the limit", with_field(&format!("A: {}", "b".repeat(2000))), &[431], Closes),
        ("a head over the limit, unfinished", format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(3000)), &[431], Closes),
        ("an expectation that nobody knows", with_field("Expect: tea"), &[417], Closes),
    ]);
}

#[test]
fn lengths() {
    let body = |length: &str| post(&format!("Content-Length: {length}\r\n"), "hello");
    check_all(&[
        ("a body by its length", body("5"), &[200], Stays),
        ("a length with leading zeros", body("005"), &[200], Stays),
        ("a body of length zero", post("Content-Length: 0\r\n", ""), &[200], Stays),
        ("a length of two equal numbers", body("5, 5"), &[400], Closes),
        ("two equal lengths", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), &[400], Closes),
        ("two differing lengths", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), &[400], Closes),
        ("a length with a plus", body("+5"), &[400], Closes),
        ("a negative length", body("-5"), &[400], Closes),
        ("a hexadecimal length", body("0x5"), &[400], Closes),
        ("an empty length", body(""), &[400], Closes),
        ("a length that is a word", body("five"), &[400], Closes),
        ("a length with a blank inside", body("5 5"), &[400], Closes),
        ("a length over 64 bits", body("18446744073709551621"), &[400], Closes),
        ("a length over the limit", body("1001"), &[413], Closes),
        ("a length at the limit", post("Content-Length: 1000\r\n", &"x".repeat(1000)), &[200], Stays),
        ("a body that ends half-way", body("6"), &[400], AfterHalfClose),
        ("a head that ends half-way", "GET / HTTP/1.1\r\nHos".into(), &[400], AfterHalfClose),
        ("nothing at all", String::new(), &[], AfterHalfClose),
    ]);
}

#[test]
fn codings() {
    let coding = |coding: &str| post(&format!("Transfer-Encoding: {coding}\r\n"), "0\r\n\r\n");
    check_all(&[
        ("a chunked body", chunked("5\r\nhello\r\n0\r\n\r\n"), &[200], Stays),
        ("the coding's name in capitals", coding("CHUNKED"), &[200], Stays),
        ("both framings", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), &[400], Closes),
        (
            "both framings, the other way round",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            &[400],
            Closes,
        ),
        (
            "a space hides the coding",
            post("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            &[400],
            Closes,
        ),
        ("an unknown coding", coding("gzip"), &[501], Closes),
        ("a coding that looks like chunked", coding("xchunked"), &[501], Closes),
        ("identity, which is gone", coding("identity"), &[501], Closes),
        ("two codings", coding("gzip, chunked"), &[400], Closes),
        ("chunked twice", coding("chunked, chunked"), &[400], Closes),
        ("chunked before another", coding("chunked, gzip"), &[400], Closes),
        ("chunked with a parameter", coding("chunked;q=1"), &[400], Closes),
        ("an empty coding", coding(""), &[400], Closes),
        ("two coding fields", coding("chunked\r\nTransfer-Encoding: chunked"), &[400], Closes),
        (
            "a coding in HTTP/1.0",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            &[400],
            Closes,
        ),
    ]);
}

#[test]
fn chunks() {
    check_all(&[
        ("a chunk extension is skipped", chunked("5;a=b\r\nhello\r\n0\r\n\r\n"), &[200], Stays),
        ("a trailer is skipped", chunked("5\r\nhello\r\n0\r\nA: b\r\n\r\n"), &[200], Stays),
        ("a size that is no number", chunked("x\r\n"), &[400], Closes),
        ("a size with a prefix", chunked("0x5\r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a negative size", chunked("-5\r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("no size", chunked("\r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a size over 64 bits", chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a size of zeros without end", chunked(&"0".repeat(100)), &[400], Closes),
        ("a size with a blank behind", chunked("5 \r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a bare LF after the size", chunked("5\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a bare LF in an extension", chunked("5;a\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("a bare CR in an extension", chunked("5;a\rb\r\nhello\r\n0\r\n\r\n"), &[400], Closes),
        ("an extension without end", chunked(&format!("5;{}", "a".repeat(5000))), &[400], Closes),
        ("a chunk longer than its size", chunked("5\r\nhello!\r\n0\r\n\r\n"), &[400], Closes),
        ("a bare LF after a chunk", chunked("5\r\nhello\n0\r\n\r\n"), &[400], Closes),
        ("a chunk over the limit", chunked("3e9\r\n"), &[413], Closes),
        ("a chunk size near 64 bits", chunked("ffffffffffffffff\r\n"), &[413], Closes),
        (
            "chunks over the limit together",
            chunked(&format!("200\r\n{0}\r\n200\r\n{0}\r\n", "x".repeat(512))),
            &[413],
            Closes,
        ),
        ("a trailer with a space before its colon", chunked("0\r\nA : b\r\n\r\n"), &[400], Closes),
        ("a folded trailer", chunked("0\r\nA: b\r\n c\r\n\r\n"), &[400], Closes),
        ("a trailer without end", chunked(&format!("0\r\nA: {}", "b".repeat(9000))), &[400], Closes),
        ("a chunked body that ends half-way", chunked("5\r\nhel"), &[400], AfterHalfClose),
    ]);
}

#[test]
fn persistence() {
    let old = |fields: &str| format!("GET / HTTP/1.0\r\n{fields}\r\n");
    let close = "Connection: close\r\n";
    check_all(&[
        ("HTTP/1.0 closes", old(""), &[200], Closes),
        ("HTTP/1.0 stays where it is asked to", old("Connection: keep-alive\r\n"), &[200], Stays),
        ("close among other options", with_field("Connection: foo, Close"), &[200], Closes),
        ("close wins over keep-alive", with_field("Connection: keep-alive, close"), &[200], Closes),
        (
            "a stray line end after the last POST",
            post(&format!("{close}Content-Length: 2\r\n"), "{}\r\n"),
            &[200],
            Closes,
        ),
        ("a stray line end after a POST that stays", post("Content-Length: 2\r\n", "{}\r\n"), &[200], Stays),
        ("noise after the last request", format!("{}noise", post(close, "")), &[200], Closes),
        ("much noise after the last request", post(close, &"x".repeat(100_000)), &[200], Closes),
        ("a request after the last one is not answered", format!("{}{}", post(close, ""), get("/")), &[200], Closes),
        ("two requests in one packet", format!("{}{}", get("/a"), get("/b")), &[200, 200], Stays),
        ("a good request before a bad one", format!("{}GET  / HTTP/1.1\r\n\r\n", get("/a")), &[200, 400], Closes),
        (
            "a request hidden in a body is a body",
            post(&format!("Content-Length: {}\r\n", get("/evil").len()), &get("/evil")),
            &[200],
            Stays,
        ),
        ("requests before the client's end are all answered", get("/a").repeat(300), &[200; 300], AfterHalfClose),
    ]);
}

#[test]
fn every_head_cut_anywhere_is_the_same_head() {
    let bytes = post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n") + &get("/a");
    thread::scope(|scope| {
        for cut in 1..bytes.len() {
            let bytes = bytes.as_bytes();
            scope.spawn(move || {
                let mut client = server().connect();
                client.send(&bytes[..cut]);
                thread::yield_now();
                client.send(&bytes[cut..]);
                let mut answer = client.answer();
                if answer.status == 100 {
                    answer = client.answer();
                }
                assert_eq!((answer.status, answer.body.as_str()), (200, "POST /p [hello]"), "cut at {cut}");
                client.expect(200, "GET /a []");
            });
        }
    });
}

#[test]
fn a_head_request_that_is_refused_gets_no_content() {
    for bytes in ["HEAD * HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n"] {
        let mut client = server().connect();
        client.send(bytes.as_bytes());
        let answer = client.answer_to(true).expect("a reply");
        assert_eq!(answer.status, 400, "{bytes:?}");
        assert_eq!(client.rest(), "", "{bytes:?}");
    }
}
