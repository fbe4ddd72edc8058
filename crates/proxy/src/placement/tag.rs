//! Key tags: the part of a key that determines its node, so that keys with the same tag are on the same node.

use memchr::{memchr, memrchr};

/// The tag at the end of a key, as in RedisSharding: in `name{tag}` the part between the last `{` and the final `}`. For a key
/// without a tag, or with an empty one, the whole key.
pub fn at_end(key: &[u8]) -> &[u8] {
    let Some(open) = key.strip_suffix(b"}") else { return key };
    match memrchr(b'{', open) {
        Some(at) if at + 1 < open.len() => &open[at + 1..],
        _ => key,
    }
}

/// The part between the first `open` of a key and the next `close`, as in twemproxy and Redis Cluster. If one of them is missing,
/// or the part is empty, the whole key.
pub fn between(key: &[u8], open: u8, close: u8) -> &[u8] {
    let Some(start) = memchr(open, key) else { return key };
    let behind = &key[start + 1..];
    match memchr(close, behind) {
        None | Some(0) => key,
        Some(end) => &behind[..end],
    }
}

#[cfg(test)]
mod tags {
    use super::{at_end, between};

    #[test]
    fn a_tag_at_the_end_stands_behind_the_last_opening_brace() {
        for (key, tag) in [
            ("name{tag}", "tag"),
            ("{a}name{tag}", "tag"),
            ("a{b{c}", "c"),
            ("{a}name", "{a}name"),
            ("name{}", "name{}"),
            ("name}", "name}"),
            ("}", "}"),
            ("", ""),
            ("{x}", "x"),
            ("a{b}c}", "b}c"),
        ] {
            assert_eq!(at_end(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }

    #[test]
    fn a_tag_anywhere_stands_between_the_first_marks() {
        for (key, tag) in
            [("a{b}c{d}", "b"), ("a{}b{c}", "a{}b{c}"), ("a}b{c", "a}b{c"), ("a{{b}}", "{b"), ("{x}", "x"), ("", "")]
        {
            assert_eq!(between(key.as_bytes(), b'{', b'}'), tag.as_bytes(), "{key}");
        }
        assert_eq!(between(b"a$b$c", b'$', b'$'), b"b");
    }
}
