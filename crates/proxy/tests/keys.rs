//! Positions of keys, compared with Redis's own `COMMAND GETKEYS`.

use proxy::commands::{CommandRequest, CommandTable, Handling};
use resp::codec::{FrameLimits, ReplyView, write_command};

use crate::nodes::{Plain, Program, is_there};

/// Requests for all rules: fixed positions, steps, numbers of keys, keywords, options that look like
/// keywords.
const REQUESTS: &str = "
GET a|SET a b EX 10|MGET a b c|MSET a 1 b 2|DEL a b|BITOP AND d a b|RENAME a b|COPY a b REPLACE|LCS a b LEN
OBJECT ENCODING a|OBJECT FREQ a|MEMORY USAGE a SAMPLES 5|XINFO STREAM s FULL|XGROUP CREATE s g $ MKSTREAM|XGROUP DESTROY s g
EVAL return 2 a b c|EVALSHA abc 1 a x|FCALL f 2 a b c|EVAL_RO return 1 a
ZUNIONSTORE d 2 a b WEIGHTS 1 2|ZINTERSTORE d 1 a|ZDIFFSTORE d 2 a b|ZUNION 2 a b WITHSCORES|ZINTERCARD 2 a b LIMIT 1|SINTERCARD 2 a b
XREAD COUNT 2 STREAMS a b 0 0|XREAD BLOCK 0 STREAMS streams 0|XREADGROUP GROUP g c COUNT 1 STREAMS a b > >
BLPOP a b 0|BRPOPLPUSH a b 0|BLMOVE a b LEFT RIGHT 0|BZPOPMIN a b 1|BLMPOP 0 2 a b LEFT|LMPOP 2 a b LEFT|BZMPOP 0 1 a MIN|ZMPOP 1 a MAX
SORT a|SORT a STORE d|SORT a BY store GET store STORE d|SORT a LIMIT 0 5 GET # STORE x STORE y|SORT a BY nosort ALPHA
GEORADIUS g 1 2 3 km|GEORADIUS g 1 2 3 km STORE d|GEORADIUS g 1 2 3 km WITHDIST STOREDIST e|GEORADIUSBYMEMBER g m 3 km STOREDIST e
GEOSEARCHSTORE d g FROMMEMBER m BYRADIUS 1 km|ZRANGESTORE d s 0 1|SINTERSTORE d a b|PFMERGE d a b|SMOVE a b m|WATCH a b
MIGRATE h 1 k 0 100|HSET h f v|GETRANGE a 0 1|LMOVE a b LEFT LEFT|XADD s * f v|SETEX a 1 b|ZADD z 1 m|PFCOUNT a b|TOUCH a b|RESTORE a 0 x";

/// Requests in which Redis finds no keys, or which it refuses.
const WITHOUT_KEYS: &str = "EVAL return 0|ZUNION x a|ZUNION 3 a b|BLMPOP 0 9 a LEFT|XREAD COUNT 2|XREAD STREAMS a";

fn keys_of<'a>(table: &CommandTable, words: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut bytes = Vec::new();
    write_command(&mut bytes, words);
    let mut spans = Vec::new();
    let request = CommandRequest::of(&bytes, &mut spans);
    let command = table.get(table.find_request(&request)?);
    let keys = command.keys(&request).ok()?;
    Some(keys.iter().map(|at| words[at]).collect()).filter(|keys: &Vec<&str>| !keys.is_empty())
}

fn requests(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.split(['|', '\n']).filter(|line| !line.is_empty()).map(|line| line.split(' ').collect())
}

#[test]
fn keys_are_those_of_command_getkeys() {
    if !is_there("redis-server") {
        return;
    }
    let redis = Program::redis();
    let mut plain = Plain::connect(redis.address);
    let mut learned = CommandTable::new();
    let reply = plain.reply(&["COMMAND"]);
    learned.learn(&ReplyView::parse(&reply, FrameLimits::default()).unwrap().unwrap().0);
    for words in requests(REQUESTS) {
        let asked: Vec<&str> = ["COMMAND", "GETKEYS"].iter().chain(&words).copied().collect();
        plain.send([&*asked.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()]);
        let expected = plain.texts();
        for (table, name) in [(&CommandTable::new(), "the built-in table"), (&learned, "the table of COMMAND")] {
            let mut keys = keys_of(table, &words).unwrap_or_else(|| panic!("{name} finds no keys in {words:?}"));
            let mut expected: Vec<_> = expected.iter().map(|key| std::str::from_utf8(key).unwrap()).collect();
            // Redis lists the destination of a Z*STORE last.
            keys.sort_unstable();
            expected.sort_unstable();
            // For GEORADIUS, Redis lists a key that is given twice only once.
            expected.dedup();
            assert_eq!(keys, expected, "{name}: {words:?}");
        }
    }
    for words in requests(WITHOUT_KEYS) {
        let asked: Vec<&str> = ["COMMAND", "GETKEYS"].iter().chain(&words).copied().collect();
        let reply = plain.reply(&asked);
        assert!(reply[0] == b'-' || reply == b"*0\r\n", "{words:?}");
        assert_eq!(keys_of(&learned, &words), None, "{words:?}");
    }
}

#[test]
fn migrate_has_its_keys_behind_a_keyword_where_the_third_argument_is_empty() {
    // COMMAND GETKEYS of Redis 7.0 knows only the first of the two forms.
    let words = ["MIGRATE", "h", "1", "", "0", "100", "AUTH", "keys", "COPY", "KEYS", "a", "b"];
    assert_eq!(keys_of(&CommandTable::new(), &words), Some(vec!["a", "b"]));
    assert_eq!(keys_of(&CommandTable::new(), &words[..9]), None);
}

#[test]
fn a_node_may_add_commands_and_change_none_of_the_numbers() {
    let mut table = CommandTable::new();
    let (get, count) = (table.find(b"GET").unwrap(), table.commands().len());
    let reply = b"*1\r\n*6\r\n$8\r\nJSON.GET\r\n:-2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n";
    table.learn(&ReplyView::parse(reply, FrameLimits::default()).unwrap().unwrap().0);
    assert_eq!((table.find(b"get"), table.commands().len()), (Some(get), count + 1));
    let added = table.get(table.find(b"json.get").unwrap());
    assert_eq!((added.handling, added.only_key), (Handling::Keyed, Some(1)));
    assert!(added.takes(2) && added.takes(9) && !added.takes(1));
}

#[test]
fn a_node_may_add_commands_with_subcommands() {
    let mut table = CommandTable::new();
    // MOD is a container without keys; MOD|GET has one at its second argument.
    let reply = b"*1\r\n*10\r\n$3\r\nmod\r\n:-2\r\n*0\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*1\r\n*6\r\n$7\r\nmod|get\r\n:3\r\n*0\r\n:2\r\n:2\r\n:1\r\n";
    table.learn(&ReplyView::parse(reply, FrameLimits::default()).unwrap().unwrap().0);
    assert_eq!(keys_of(&table, &["MOD", "GET", "k"]), Some(vec!["k"]));
}

#[test]
fn subcommands_are_found_by_their_second_word() {
    let table = CommandTable::new();
    for (words, name) in [
        (&["script", "Load", "x"][..], "script|load"),
        (&["OBJECT", "encoding", "k"], "object|encoding"),
        (&["SCRIPT", "nothing"], "script"),
        (&["SCRIPT"], "script"),
    ] {
        let mut bytes = Vec::new();
        write_command(&mut bytes, words);
        let mut spans = Vec::new();
        let found = table.find_request(&CommandRequest::of(&bytes, &mut spans)).unwrap();
        assert_eq!(&*table.get(found).name, name);
    }
    assert!(table.find(&[b'x'; 1000]).is_none());
}

#[test]
fn a_command_that_waits_is_known_to_where_the_node_does_not_tell() {
    // As Redis 6.2 reports it: `blocking` came with 7.0.
    let told = b"*1\r\n*7\r\n$5\r\nblpop\r\n:-3\r\n*2\r\n+write\r\n+noscript\r\n:1\r\n:-2\r\n:1\r\n*2\r\n+@write\r\n+@blocking\r\n";
    let (view, _) = ReplyView::parse(told, FrameLimits::default()).unwrap().unwrap();
    let mut table = CommandTable::new();
    table.learn(&view);
    let command = table.get(table.find(b"BLPOP").unwrap());
    assert_eq!(command.handling, Handling::Blocking);
    assert!(!command.only_reads && command.arity == -3);
}
