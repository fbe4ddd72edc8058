//! Key rules of commands whose keys three numbers cannot describe: for Redis 6, which has no key specifications, and for
//! commands whose specifications are incomplete.

use super::key_rule::{Find, KeyRule, KeySpec, SearchStart};

/// Whether a command's rule here takes precedence over any specification, because those of Redis 7 are incomplete for it.
pub(super) fn is_always_used(name: &str) -> bool {
    matches!(name, "sort" | "georadius" | "georadiusbymember" | "migrate")
}

/// The rule of a command with movable keys.
pub(super) fn rule(name: &str) -> Option<KeyRule> {
    Some(match name {
        "sort" => KeyRule::Sort,
        "georadius" => KeyRule::GeoRadius(6),
        "georadiusbymember" => KeyRule::GeoRadius(5),
        "migrate" => KeyRule::Migrate,
        "sort_ro" | "georadius_ro" | "georadiusbymember_ro" => KeyRule::classic(1, 1, 1),
        "eval" | "eval_ro" | "evalsha" | "evalsha_ro" | "fcall" | "fcall_ro" | "blmpop" | "bzmpop" => {
            specs([counted(2)])
        }
        "zunion" | "zinter" | "zdiff" | "zintercard" | "sintercard" | "lmpop" | "zmpop" => specs([counted(1)]),
        "zunionstore" | "zinterstore" | "zdiffstore" => {
            let destination =
                KeySpec { begin: SearchStart::Index(1), find: Find::Range { last: 0, step: 1, limit: 0 } };
            specs([destination, counted(2)])
        }
        "xread" => specs([streams(1)]),
        "xreadgroup" => specs([streams(4)]),
        "memory" | "object" => KeyRule::classic(2, 2, 1),
        _ => return None,
    })
}

fn specs<const COUNT: usize>(specs: [KeySpec; COUNT]) -> KeyRule {
    KeyRule::Specs(Box::new(specs))
}

/// The number of keys at this argument, and the keys after it.
fn counted(at: usize) -> KeySpec {
    KeySpec { begin: SearchStart::Index(at), find: Find::Number { at: 0, first: 1, step: 1 } }
}

/// Streams after the keyword STREAMS, followed by as many ids.
fn streams(from: i64) -> KeySpec {
    let word = Box::from(b"STREAMS".as_slice());
    KeySpec { begin: SearchStart::Keyword { word, from }, find: Find::Range { last: -1, step: 1, limit: 2 } }
}
