//! Mistakes in a configuration file: each is reported with its place, what is wrong and what is allowed; all at once.

use docs::catalog::FieldKind;
use docs::config::{Config, MISTAKES_MAX, ParameterDefault, ParameterKind};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let found = Config::parse("s.toml".as_ref(), text).expect_err(text);
    let found: Vec<String> = found.list.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{text}");
}

const KEY: &str = "key = { field = \"id\", type = \"u32\" }\n";

#[test]
fn unknown_names_are_told_with_the_known_ones() {
    check(
        &format!("[collections.visits]\n{KEY}  idexes = []\n"),
        &[
            "s.toml:3:3: unknown key `idexes` in [collections.visits]; allowed: key, schema, unique, indexes, references, expire",
        ],
    );
    check(
        "[colections.x]\n",
        &[
            "s.toml:1:2: unknown key `colections` in the file; allowed: collections, views, params, guards, endpoints, errors, server, tokens",
        ],
    );
    check(
        "[collections.c]\nkey = { field = \"id\", type = \"u64\", kind = 1 }\n",
        &[
            "s.toml:2:30: `collections.c.key.type` is \"u64\"; allowed: \"u32\", \"i64\", \"string\"",
            "s.toml:2:37: unknown key `kind` in [collections.c.key]; allowed: field, type, generate",
        ],
    );
}

#[test]
fn names_kept_for_later_answer_not_yet() {
    check(
        "[auth.v]\n",
        &[
            "s.toml:1:2: `auth` in the file is not supported yet; allowed: collections, views, params, guards, endpoints, errors, server, tokens",
        ],
    );
    check(
        "[collections.c]\nkey = { field = \"id\", type = \"u32\" }\nallow = \"all\"\n",
        &[
            "s.toml:3:1: `allow` in [collections.c] is not supported yet; allowed: key, schema, unique, indexes, references, expire",
        ],
    );
}

#[test]
fn keys_are_made_in_a_way_that_fits_their_type() {
    let key = |kind: &str, generate: &str| {
        format!("[collections.c]\nkey = {{ field = \"id\", type = \"{kind}\", generate = {generate} }}\n")
    };
    for (kind, generate) in [("u32", "counter"), ("i64", "counter"), ("string", "uuid")] {
        let config = Config::parse("s.toml".as_ref(), &key(kind, &format!("\"{generate}\""))).unwrap();
        assert!(config.collections[0].key.generate.is_some());
    }
    let fits = "allowed: \"counter\" with u32 and i64, \"uuid\" with string";
    for (kind, generate, column) in [("u32", "uuid", 48), ("string", "counter", 51)] {
        let told = format!("s.toml:2:{column}: `collections.c.key.generate` makes no keys of type {kind}; {fits}");
        check(&key(kind, &format!("\"{generate}\"")), &[&told]);
    }
    check(
        &key("u32", "true"),
        &["s.toml:2:48: `collections.c.key.generate` is a boolean; allowed: \"counter\", \"uuid\""],
    );
}

#[test]
fn expiry_says_a_field_a_duration_or_both() {
    let text = |expire: &str| format!("[collections.c]\n{KEY}expire = {expire}\n");
    for (expire, field, after) in [
        ("\"t\"", "t", 0),
        ("{ field = \"t\" }", "t", 0),
        ("{ field = \"t\", after_seconds = 60 }", "t", 60),
        ("{ after_seconds = 1 }", docs::expire::LAST_WRITE, 1),
    ] {
        let config = Config::parse("s.toml".as_ref(), &text(expire)).unwrap();
        let found = config.collections[0].expire.clone().unwrap();
        assert_eq!((found.field.as_str(), found.after_seconds), (field, after));
    }
    for (expire, told) in [
        (
            "{}",
            "s.toml:3:10: `collections.c.expire` names neither a field nor a duration; allowed: field = \"FIELD\", after_seconds = N (counted from the last write), or both",
        ),
        (
            "{ after_seconds = 0 }",
            "s.toml:3:28: `collections.c.expire.after_seconds` is 0; allowed: an integer from 1 to 31557600000",
        ),
        (
            "{ after = \"7d\" }",
            "s.toml:3:12: unknown key `after` in [collections.c.expire]; allowed: field, after_seconds",
        ),
        (
            "5",
            "s.toml:3:10: `collections.c.expire` is an integer; allowed: \"FIELD\", { field = \"FIELD\", after_seconds = N }, { after_seconds = N }",
        ),
        ("\"\\u0000mark\"", "s.toml:3:10: `collections.c.expire` is the name of no field: it has NUL in it"),
    ] {
        let mistakes = Config::parse("s.toml".as_ref(), &text(expire)).unwrap_err().to_string();
        assert_eq!(mistakes.lines().next(), Some(told));
    }
}

#[test]
fn paths_are_no_fields() {
    let told = |place: &str, name: &str| {
        format!(
            "s.toml:{place}: `{name}` looks like a path, and paths are not allowed here; allowed: a field of the document itself, or one whose very name the schema declares"
        )
    };
    for (line, place, name) in [
        ("indexes = [[\"age\", \"addr.city\"]]", "3:20", "addr.city"),
        ("indexes = [[\"tags[0]\"]]", "3:13", "tags[0]"),
        ("unique = [\"$.email\"]", "3:11", "$.email"),
        ("references = { \"of.c\" = \"c\" }", "3:25", "of.c"),
        ("expire = \"life.end\"", "3:10", "life.end"),
    ] {
        check(&format!("[collections.c]\n{KEY}{line}\n"), &[&told(place, name)]);
        let schema = |properties: &str| format!("schema = {{ type = \"object\", properties = {properties} }}\n");
        let other = schema("{ addr = { type = \"object\" } }");
        check(&format!("[collections.c]\n{KEY}{line}\n{other}"), &[&told(place, name)]);
        let own = schema(&format!("{{ \"{name}\" = {{ type = \"integer\" }} }}"));
        let config = Config::parse("s.toml".as_ref(), &format!("[collections.c]\n{KEY}{line}\n{own}"));
        assert!(config.is_ok(), "{line}: {config:?}");
    }
}

#[test]
fn wrong_types_and_missing_keys_are_told() {
    check("[collections.c]\n", &["s.toml:1:14: [collections.c] needs `key`"]);
    check("[collections]\nc = 5\n", &["s.toml:2:5: `collections.c` is an integer; allowed: a table"]);
    check(
        &format!("[collections.c]\n{KEY}unique = \"email\"\n"),
        &["s.toml:3:10: `collections.c.unique` is a string; allowed: a list in brackets"],
    );
    check(
        &format!("[collections.c]\n{KEY}indexes = [[], [\"a\", 1]]\n"),
        &[
            "s.toml:3:12: `collections.c.indexes[0]` has 0 fields; allowed: a list of 1 to 16 fields, as [\"user\", \"visited_at\"]",
            "s.toml:3:22: `collections.c.indexes[1][1]` is an integer; allowed: text in quotes",
        ],
    );
    check(
        "[collections.'a b']\nkey = { field = \"id\", type = \"u32\" }\n",
        &["s.toml:1:14: a collection cannot be named \"a b\"; allowed: 1 to 64 of a-z, A-Z, 0-9, _ and -"],
    );
}

#[test]
fn fields_and_targets_must_exist() {
    let schema = "schema = { properties = { id = { type = \"integer\" } }, additionalProperties = false }\n";
    check(
        &format!("[collections.c]\n{KEY}{schema}unique = [\"mail\"]\nreferences = {{ id = \"d\" }}\n"),
        &[
            "s.toml:4:11: the schema has no field `mail`; allowed: id",
            "s.toml:5:21: `collections.c.references.id` is \"d\"; allowed: \"c\"",
        ],
    );
    let found = Config::parse("s.toml".as_ref(), &format!("[collections.c]\n{KEY}schema = {{ type = \"strin\" }}\n"))
        .unwrap_err();
    assert!(found.list[0].what.starts_with("`collections.c.schema` is no JSON Schema: "), "{found}");
    let schema = "schema = { properties = { mail = { type = \"string\", format = \"emial\" } } }";
    let found = Config::parse("s.toml".as_ref(), &format!("[collections.c]\n{KEY}{schema}\n")).unwrap_err();
    let told = "`collections.c.schema` is no JSON Schema: /properties/mail/format is \"emial\"; allowed: date-time, ";
    assert!(found.list[0].what.starts_with(told) && found.list[0].line == 3, "{found}");
    let found =
        Config::parse("s.toml".as_ref(), &format!("[collections.c]\n{KEY}schema = \"nowhere.json\"\n")).unwrap_err();
    assert!(found.list[0].what.starts_with("cannot read the schema nowhere.json: "), "{found}");
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let found = Config::parse("s.toml".as_ref(), "a = \n[x\n").unwrap_err();
    assert_eq!((found.list[0].line, found.list[0].file.as_str()), (1, "s.toml"));
    assert!(found.list[0].what.starts_with("not TOML: "));
}

#[test]
fn mistakes_beyond_the_bound_are_counted() {
    let text: String = (0..MISTAKES_MAX + 5).map(|number| format!("x{number} = 1\n")).collect();
    let found = Config::parse("s.toml".as_ref(), &text).unwrap_err();
    assert_eq!((found.list.len(), found.more), (MISTAKES_MAX, 5));
    assert!(found.to_string().ends_with("\nand 5 more"));
}

#[test]
fn parameters_have_types_bounds_and_defaults() {
    let text = "[params.now]\ntype = \"integer\"\ndefault = \"clock\"\n[params]\nlimit = { type = \"integer\", min = 1, max = 5, default = 2 }\nname = \"string\"\n";
    let config = Config::parse("s.toml".as_ref(), text).unwrap();
    let [limit, name, now] = &config.params[..] else { panic!("{:?}", config.params) };
    let by = |name: &str| config.params.iter().find(|p| p.name == name).unwrap();
    assert_eq!((by("now").kind, &by("now").default), (ParameterKind::Integer, &ParameterDefault::Clock));
    assert_eq!((by("limit").min, by("limit").max), (Some(1.0), Some(5.0)));
    assert_eq!(by("name").kind, ParameterKind::Text);
    assert!([limit, name, now].iter().all(|parameter| !parameter.required));
    check(
        "[params]\nx = { type = \"string\", min = 1 }\n",
        &["s.toml:2:30: `min` bounds numbers only; allowed: type = \"integer\" or \"number\""],
    );
    check(
        "[params]\nx = { type = \"integer\", default = \"now\" }\n",
        &["s.toml:2:35: `params.x.default` is a string; allowed: an integer"],
    );
    check(
        "[params]\nx = 5\n",
        &[
            "s.toml:2:5: `params.x` is an integer; allowed: a type (\"integer\", \"number\", \"string\", \"boolean\"), or a table with `type`",
        ],
    );
}

#[test]
fn a_schema_beside_the_file_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let schema =
        r#"{"type":"object","required":["z"],"properties":{"z":{"type":"string"},"id":{"type":"integer"},"a":{}}}"#;
    std::fs::write(dir.path().join("c.json"), schema).unwrap();
    let text = format!("[collections.c]\n{KEY}schema = \"c.json\"\n");
    let config = Config::parse(&dir.path().join("s.toml"), &text).unwrap();
    let catalog = docs::outline(&config).unwrap();
    let fields: Vec<_> = catalog.collections[0].fields.iter().map(|f| (f.name.as_str(), f.kind, f.required)).collect();
    assert_eq!(fields, [("z", FieldKind::Text, true), ("id", FieldKind::Integer, false), ("a", FieldKind::Any, false)]);
}

/// Runs the work on another thread, so that a hang is a failed test.
#[track_caller]
fn within<T: Send + 'static>(seconds: u64, what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    let told = told.recv_timeout(std::time::Duration::from_secs(seconds));
    told.unwrap_or_else(|_| panic!("{what} takes over {seconds} s"))
}

#[test]
fn a_schema_is_read_from_a_regular_file_and_from_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("zeros")).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("large"), " ".repeat((1 << 20) + 1)).unwrap();
    std::fs::write(folder.path().join("latin"), b"{\"title\":\"\xe9\"}").unwrap();
    for (name, why) in [
        ("pipe", "it is a pipe, not a regular file"),
        ("zeros", "it is a device, not a regular file"),
        ("folder", "it is a folder, not a regular file"),
        ("large", "it has 1048577 bytes, allowed are 1048576"),
        ("latin", "it is not UTF-8"),
        ("nothing", "No such file"),
    ] {
        let path = folder.path().join("s.toml");
        let text = format!("[collections.c]\n{KEY}schema = \"{name}\"\n");
        let read = within(20, name, move || Config::parse(&path, &text).map(|_| ()));
        let told = read.expect_err(name).to_string();
        assert!(told.contains(":3:10: cannot read the schema") && told.contains(why), "{told}");
    }
}

#[test]
fn the_time_to_read_a_file_grows_with_its_length_and_no_faster() {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let collection = format!("[collections.c]\n{KEY}");
    let long = "k".repeat(1 << 20);
    let files = [
        ("unknown keys", collection.clone() + &lines(40_000, &|n| format!("key{n} = 1\n"))),
        ("unknown sections", lines(40_000, &|n| format!("[section{n}]\n"))),
        ("collections", lines(20_000, &|n| format!("[collections.c{n}]\n"))),
        ("views", lines(20_000, &|n| format!("[views.v{n}]\nquery = 1\n"))),
        ("parameters", lines(20_000, &|n| format!("[params.p{n}]\ntype = 1\n"))),
        ("unique fields", format!("{collection}unique = [{}]\n", lines(60_000, &|n| format!("\"f{n}\",")))),
        ("indexes", format!("{collection}indexes = [{}]\n", lines(40_000, &|n| format!("[\"f{n}\"],")))),
        (
            "references",
            collection.clone() + "[collections.c.references]\n" + &lines(40_000, &|n| format!("f{n} = \"c\"\n")),
        ),
        ("keys under a long name", format!("[collections.{long}]\n") + &lines(20_000, &|n| format!("key{n} = 1\n"))),
        ("values in a list under a long name", format!("[params.{long}]\nenum = [{}]\n", "1,".repeat(20_000))),
        ("a deep schema", format!("{collection}schema.{} = 1\n", vec!["a"; 20_000].join("."))),
        ("deep lists", format!("x = {}", "[".repeat(100_000))),
    ];
    for (what, text) in files {
        let told = within(20, what, move || Config::parse("s.toml".as_ref(), &text).map(|_| ()));
        assert!(told.is_err(), "{what}");
    }
}
