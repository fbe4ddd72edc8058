//! Fast path for plain heads, the form of nearly every request, read in one pass.
//!
//! ```text
//!  GET /users/7?a=b HTTP/1.1\r\n      GET or POST, origin form, HTTP/1.1, one blank between the words
//!  Host: travels:80\r\n               name, colon, at most one blank, value of ASCII without tabs
//!  \r\n
//! ```
//!
//! A plain head needs neither the strict scan nor httparse: this pass checks all that they check, eight bytes at a time where
//! possible. Everything else (incomplete, unusual, wrong) is `None` and takes the slow path, which also finds the right refusal.
//! So this file may accept less than the slow path, never more: what it accepts, the slow path accepts with the same meaning (the
//! property test below).
//!
//! A loop's clients mostly send the same fields again and again. So the last field lines are cached ([`SeenHead`]), and equal
//! bytes get the cached meaning: one comparison instead of a parse.
//!
//! The fast path is tried once for a head, at its first read, so a head that arrives in pieces is not scanned again at each.

use crate::limits::ClientLimits;
use crate::method::Method;
use crate::parsing::chunked::is_token;
use crate::parsing::head::{Facts, FieldLines, Framing, Head, Meaning, is_host_byte};
use crate::parsing::visible::{Bytes, Target};

/// Limit of cached field lines: enough for those of a browser.
const SEEN_BYTES_MAX: usize = 1024;
/// One of this many heads with other fields replaces the cached lines; otherwise clients that alternate would cost a copy each time.
const MISSES_PER_CHANGE: u32 = 16;
const VERSION: &[u8; 11] = b" HTTP/1.1\r\n";
/// Begins a GET in origin form.
const GET: &[u8; 5] = b"GET /";

/// The field lines of an earlier plain head without a body, on this loop, and their meaning.
#[derive(Debug, Default)]
pub(crate) struct SeenHead {
    /// With the blank line; empty: none yet.
    lines: Vec<u8>,
    persistent: bool,
    facts: Facts,
    misses: u32,
}

impl SeenHead {
    #[cold]
    fn note(&mut self, lines: &[u8], head: &Head<'_>) {
        self.misses = self.misses.wrapping_add(1);
        let bare = head.framing == Framing::Length(0) && !head.expects_continue;
        if bare && lines.len() <= SEEN_BYTES_MAX && self.misses % MISSES_PER_CHANGE == 1 {
            self.lines.clear();
            self.lines.extend_from_slice(lines);
            self.persistent = head.persistent;
            self.facts = head.facts;
        }
    }
}

/// The target of the GET at the input's front, and the input after its head, if that is empty or begins with another GET. The
/// fields are not read: they are taken to be as long as the cached ones. For look-ahead only.
#[inline]
pub(crate) fn likely_target<'i>(input: &'i [u8], seen: &SeenHead) -> Option<(Target<'i>, &'i [u8])> {
    if !input.starts_with(GET) || seen.lines.is_empty() {
        return None;
    }
    let target = Bytes::of(input)?.target(GET.len() - 1)?;
    let rest = input.get(target.end + VERSION.len() + seen.lines.len()..)?;
    (rest.is_empty() || rest.starts_with(GET)).then_some((target, rest))
}

/// Reads the plain head at the input's front, and returns it with its length. `limits` are the same at each call with one `seen`.
#[inline]
pub(crate) fn read<'i>(input: &'i [u8], limits: &ClientLimits, seen: &mut SeenHead) -> Option<(Head<'i>, usize)> {
    let (method, target_at) = match input {
        [b'G', b'E', b'T', b' ', b'/', ..] => (Method::Get, 4),
        [b'P', b'O', b'S', b'T', b' ', b'/', ..] => (Method::Post, 5),
        _ => return None,
    };
    let bytes = Bytes::of(input)?;
    let Target { path, query, end } = bytes.target(target_at)?;
    if input.get(end..)?.first_chunk() != Some(VERSION) {
        return None;
    }
    let fields_at = end + VERSION.len();
    let rest = input.get(fields_at..)?;
    let known = !seen.lines.is_empty() && rest.starts_with(&seen.lines);
    let (fields_end, persistent, framing, expects_continue, facts) = if known {
        (fields_at + seen.lines.len() - 2, seen.persistent, Framing::Length(0), false, seen.facts)
    } else {
        let (meaning, fields_end) = read_fields(bytes, fields_at, limits)?;
        let (framing, expects_continue) = (meaning.framing(false).ok()?, meaning.expects_continue(false).ok()?);
        (fields_end, !meaning.closes(), framing, expects_continue, meaning.facts)
    };
    let head_bytes = fields_end + 2;
    if end - target_at > limits.target_bytes_max || head_bytes > limits.head_bytes_max {
        return None;
    }
    let head = Head {
        method,
        path,
        query,
        authority: "",
        fields: FieldLines::checked(&input[fields_at..fields_end]),
        http10: false,
        persistent,
        framing,
        expects_continue,
        facts,
    };
    if !known {
        seen.note(&input[fields_at..head_bytes], &head);
    }
    Some((head, head_bytes))
}

/// Reads field lines up to the blank line, and returns its position.
#[inline(never)]
fn read_fields<'i>(bytes: Bytes<'i>, mut at: usize, limits: &ClientLimits) -> Option<(Meaning<'i>, usize)> {
    let mut meaning = Meaning::default();
    for _ in 0..=limits.fields_max {
        let line = bytes.all().get(at..)?;
        if line.starts_with(b"\r\n") {
            meaning.check_host(false).ok()?;
            return Some((meaning, at));
        }
        at += match line {
            [b'H', b'o', b's', b't', b':', b' ', value @ ..] => {
                let value = &value[..value.iter().position(|&byte| !is_host_byte(byte))?];
                meaning.add_checked_host(value).ok()?;
                6 + value.len()
            }
            _ => read_field(bytes, at, line, &mut meaning)?,
        };
        if !bytes.all().get(at..)?.starts_with(b"\r\n") {
            return None;
        }
        at += 2;
    }
    None
}

/// Reads the field line at `at`, and returns its length without its line end.
#[inline]
fn read_field<'i>(bytes: Bytes<'i>, at: usize, line: &'i [u8], meaning: &mut Meaning<'i>) -> Option<usize> {
    let name_bytes = line.iter().position(|&byte| !is_token(byte))?;
    let value_at = match line.get(name_bytes..)? {
        [b':', b' ', ..] => name_bytes + 2,
        [b':', ..] => name_bytes + 1,
        _ => return None,
    };
    let end = bytes.value_end(at + value_at) - at;
    let value = line.get(value_at..end)?;
    if name_bytes == 0 || value.first() == Some(&b' ') || value.last() == Some(&b' ') {
        return None;
    }
    meaning.add(&line[..name_bytes], value).ok()?;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsing::head;
    use crate::parsing::scan::HeadScan;
    use proptest::prelude::*;

    fn describe(head: &Head<'_>, head_bytes: usize) -> String {
        let fields: Vec<_> = head.fields.iter().collect();
        format!("{head_bytes} {:?} {:?}", Head { fields: FieldLines::checked(b""), ..*head }, fields)
    }

    fn short(input: &[u8], limits: &ClientLimits) -> Option<String> {
        let mut seen = SeenHead::default();
        let first = read(input, limits, &mut seen).map(|(head, head_bytes)| describe(&head, head_bytes));
        // The second time its fields may be cached.
        let second = read(input, limits, &mut seen).map(|(head, head_bytes)| describe(&head, head_bytes));
        assert_eq!(first, second);
        first
    }

    fn long(input: &[u8], limits: &ClientLimits) -> Option<String> {
        let head_bytes = HeadScan::default().scan(input).ok()??;
        let head = head::parse(&input[..head_bytes], limits).ok()?;
        (head_bytes <= limits.head_bytes_max).then(|| describe(&head, head_bytes))
    }

    #[track_caller]
    fn check(head: &str, plain: bool) {
        let (limits, whole) = (ClientLimits::default(), format!("{head}\r\n\r\n"));
        let got = short(whole.as_bytes(), &limits);
        assert_eq!(got.is_some(), plain, "{head}");
        if plain {
            assert_eq!(got, long(whole.as_bytes(), &limits));
            for end in 0..whole.len() {
                assert_eq!(short(&whole.as_bytes()[..end], &limits), None, "cut at {end}");
            }
        }
    }

    #[test]
    fn usual_heads_are_plain() {
        check("GET /users/7 HTTP/1.1\r\nHost: 127.0.0.1:80", true);
        check("GET / HTTP/1.1\r\nHost:", true);
        check("GET /a?b=%20+c HTTP/1.1\r\nHost: h\r\nUser-Agent: x (y; z)\r\nAccept: */*\r\nConnection: close", true);
        check("POST /a?b?c HTTP/1.1\r\nhost: h\r\nContent-Length: 3\r\nExpect: 100-continue", true);
        check("POST / HTTP/1.1\r\nhost:h\r\nConnection:close\r\nContent-Length:3", true);
    }

    #[test]
    fn media_other_than_json_are_told() {
        for (field, names_media) in [
            ("X: y", false),
            ("Accept: */*", false),
            ("accept: application/json", false),
            ("Accept: text/csv", true),
            ("Accept: application/json, */*", true),
        ] {
            let (limits, mut seen) = (ClientLimits::default(), SeenHead::default());
            let whole = format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n");
            for _ in 0..2 {
                let (head, _) = read(whole.as_bytes(), &limits, &mut seen).expect("a plain head");
                assert_eq!(head.facts.names_media, names_media, "{field}");
            }
        }
    }

    #[test]
    fn unusual_heads_go_the_long_way() {
        for line in
            ["PUT / HTTP/1.1", "GET * HTTP/1.1", "GET http://h/ HTTP/1.1", "GET / HTTP/1.0", "GET /\u{44f} HTTP/1.1"]
        {
            check(&format!("{line}\r\nHost: h"), false);
        }
        for field in ["A: b ", "A:  b", "A:\tb", "A: b\tc", "A: \u{44f}", "A : b", " A: b", "A", ": b", "A: b\r\n c"] {
            check(&format!("GET / HTTP/1.1\r\nHost: h\r\n{field}"), false);
        }
        check("GET / HTTP/1.1", false);
        check("GET / HTTP/1.1\r\nHost: h\r\nHost: h", false);
        check("GET / HTTP/1.1\r\nHost: a/b", false);
        check("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", false);
    }

    #[test]
    fn remembered_fields_are_those_of_equal_bytes_alone() {
        let (limits, mut seen) = (ClientLimits::default(), SeenHead::default());
        let mut persistent = |fields: &str| {
            let whole = format!("GET /a HTTP/1.1\r\n{fields}\r\n\r\n");
            read(whole.as_bytes(), &limits, &mut seen).map(|(head, _)| (head.persistent, head.fields.iter().count()))
        };
        assert_eq!(persistent("Host: h\r\nConnection: close"), Some((false, 2)));
        for _ in 0..2 * MISSES_PER_CHANGE {
            assert_eq!(persistent("Host: h\r\nConnection: close"), Some((false, 2)));
            assert_eq!(persistent("Host: h"), Some((true, 1)));
            assert_eq!(persistent("Host: h\r\nConnection: closer"), Some((true, 2)));
            assert_eq!(persistent("Host: h\r\nConnection: close\r\nA: b"), Some((false, 3)));
            assert_eq!(persistent("A: b"), None);
        }
    }

    #[test]
    fn fields_are_remembered_at_their_first_head_and_then_once_in_a_while() {
        let mut seen = SeenHead::default();
        let mut remembered_after = |fields: &str, heads: u32| {
            let whole = format!("GET /a HTTP/1.1\r\n{fields}\r\n\r\n");
            for _ in 0..heads {
                assert!(read(whole.as_bytes(), &ClientLimits::default(), &mut seen).is_some());
            }
            String::from_utf8(seen.lines.clone()).unwrap()
        };
        let (one, other) = ("Host: one\r\n\r\n", "Host: other\r\n\r\n");
        assert_eq!(remembered_after("Host: one", 1), one);
        assert_eq!(remembered_after("Host: other", MISSES_PER_CHANGE - 1), one);
        assert_eq!(remembered_after("Host: one", MISSES_PER_CHANGE), one);
        assert_eq!(remembered_after("Host: other", 1), other);
        let long = format!("Host: h\r\nA: {}", "a".repeat(SEEN_BYTES_MAX));
        assert_eq!(remembered_after(&long, 2 * MISSES_PER_CHANGE), other);
    }

    #[test]
    fn what_has_a_body_or_waits_for_a_word_is_not_remembered() {
        let mut seen = SeenHead::default();
        let whole = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";
        for _ in 0..2 * MISSES_PER_CHANGE {
            let (head, _) = read(whole, &ClientLimits::default(), &mut seen).unwrap();
            assert_eq!(head.framing, Framing::Length(3));
        }
        assert!(seen.lines.is_empty());
    }

    #[test]
    fn targets_of_requests_with_the_remembered_fields_are_foreseen() {
        let (limits, mut seen) = (ClientLimits::default(), SeenHead::default());
        let (one, other) = ("GET /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /bc HTTP/1.1\r\nHost: h\r\n\r\n");
        let foreseen = |input: &str, seen: &SeenHead| {
            let (mut rest, mut targets) = (input.as_bytes(), Vec::new());
            while let Some((Target { path, query, .. }, after)) = likely_target(rest, seen) {
                targets.push(format!("{path}?{query}"));
                rest = after;
            }
            targets
        };
        assert!(foreseen(one, &seen).is_empty(), "no fields are remembered");
        assert!(read(one.as_bytes(), &limits, &mut seen).is_some());
        assert_eq!(foreseen(&format!("{one}{other}{one}"), &seen), ["/a?b=1", "/bc?", "/a?b=1"]);
        assert_eq!(foreseen(&format!("{one}POST / HTTP/1.1\r\n"), &seen), [""; 0], "another method follows");
        assert_eq!(foreseen(&other[..other.len() - 1], &seen), [""; 0], "incomplete");
        assert_eq!(foreseen("GET /bc HTTP/1.1\r\nHost: other\r\n\r\n", &seen), [""; 0], "other fields");
    }

    #[test]
    fn limits_are_left_to_the_long_way() {
        let whole = b"GET /abc HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
        let exact =
            ClientLimits { head_bytes_max: whole.len(), target_bytes_max: 4, fields_max: 2, ..ClientLimits::default() };
        assert!(short(whole, &exact).is_some() && long(whole, &exact).is_some());
        assert_eq!(short(whole, &ClientLimits { head_bytes_max: whole.len() - 1, ..exact.clone() }), None);
        assert_eq!(short(whole, &ClientLimits { target_bytes_max: 3, ..exact.clone() }), None);
        assert_eq!(short(whole, &ClientLimits { fields_max: 1, ..exact }), None);
    }

    /// Parts of heads, right and wrong, in any order.
    fn heads() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            Just("GET "),
            Just("POST "),
            Just("/"),
            Just("?"),
            Just("#"),
            Just(" HTTP/1.1"),
            Just(" HTTP/1.0"),
            Just("\r\n"),
            Just("\r\n\r\n"),
            Just("Host: h"),
            Just("host:h"),
            Just("Content-Length: 5"),
            Just(" "),
            Just("Transfer-Encoding: chunked"),
            Just("Connection: close"),
            Just("Expect: 100-continue"),
            Just("\t"),
            Just("abcdefgh"),
            Just(":"),
            Just("\0"),
            Just("\r"),
            Just("\n"),
            Just("\u{7f}"),
            Just("\u{44f}"),
            Just("%2F"),
        ];
        proptest::collection::vec(line, 0..12).prop_map(|parts| parts.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn what_is_plain_means_the_same_the_long_way(
            path in "/[!-~]{0,20}", fields in heads(), rest in "[ -~]{0,9}",
            at in 0usize..200, byte in proptest::option::of(any::<u8>()),
        ) {
            let mut bytes = format!("GET {path} HTTP/1.1\r\nHost: h:80\r\nX-Y: z z\r\n").into_bytes();
            bytes.extend_from_slice(&fields);
            bytes.extend_from_slice(b"\r\n\r\n");
            bytes.extend_from_slice(rest.as_bytes());
            if let Some(byte) = byte {
                let at = at % bytes.len();
                bytes.insert(at, byte);
            }
            if let Some(short) = short(&bytes, &ClientLimits::default()) {
                prop_assert_eq!(Some(short), long(&bytes, &ClientLimits::default()));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in heads()) {
            if let Some(short) = short(&bytes, &ClientLimits::default()) {
                prop_assert_eq!(Some(short), long(&bytes, &ClientLimits::default()));
            }
        }
    }
}
