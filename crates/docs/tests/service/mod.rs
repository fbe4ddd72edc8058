//! The database of a service like travels, for the tests: users, locations, and visits that refer to both.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;

use docs::config::{Config, IncludedFields};
use docs::{CollectionId, DocumentDatabase, Op, Precondition, Write, WriteError, Written};
use tempfile::TempDir;

pub(crate) const CONFIG: &str = r#"
[collections.users]
key = { field = "id", type = "u32" }
unique = ["email"]
[collections.users.schema]
type = "object"
additionalProperties = false
required = ["id", "email", "gender", "birth_date"]
[collections.users.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
email = { type = "string", maxLength = 100 }
gender = { enum = ["m", "f"] }
birth_date = { type = "integer" }

[collections.locations]
key = { field = "id", type = "u32" }

[collections.visits]
key = { field = "id", type = "u32" }
indexes = [["user", "visited_at"], ["location"]]
references = { user = "users", location = "locations" }
[collections.visits.schema]
type = "object"
additionalProperties = false
required = ["id", "location", "user", "visited_at", "mark"]
[collections.visits.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
location = { type = "integer", minimum = 0, maximum = 4294967295 }
user = { type = "integer", minimum = 0, maximum = 4294967295 }
visited_at = { type = "integer" }
mark = { type = "integer", minimum = 0, maximum = 5 }
"#;

/// A database in a temporary folder.
pub(crate) struct Service {
    pub(crate) database: DocumentDatabase,
    pub(crate) dir: TempDir,
}

pub(crate) fn config(text: &str) -> Config {
    // Refusals of drops are tested in `losses.rs`.
    Config { may_drop: true, ..Config::parse("test.toml".as_ref(), text).unwrap() }
}

/// The travels configuration; the index carries the fields that the list query reads.
pub(crate) fn travels() -> Config {
    let mut config = config(CONFIG);
    config.included.push(IncludedFields {
        collection: "visits".into(),
        index: vec!["user".into(), "visited_at".into()],
        fields: vec!["mark".into(), "location".into()],
    });
    config
}

pub(crate) fn open(config: &Config, dir: &Path) -> DocumentDatabase {
    DocumentDatabase::open(config, dir, docs::engine::StoreOptions::default()).unwrap().0
}

impl Service {
    pub(crate) fn new(config: &Config) -> Service {
        let dir = tempfile::tempdir().unwrap();
        Service { database: open(config, dir.path()), dir }
    }

    pub(crate) fn id(&self, collection: &str) -> CollectionId {
        self.database.collection(collection).unwrap()
    }

    /// `insert users {…}`, `update users/1 {…}`, `patch …`, `replace …`, `put …`, `delete users/1`.
    pub(crate) fn run(&self, command: &str) -> Result<Written, WriteError> {
        self.run_if(command, Precondition::None)
    }

    pub(crate) fn run_if(&self, command: &str, precondition: Precondition) -> Result<Written, WriteError> {
        let (verb, rest) = command.split_once(' ').unwrap();
        let (target, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let (name, key) = target.split_once('/').unwrap_or((target, ""));
        let collection = self.id(name);
        let kind = self.database.catalog().collection(name).unwrap().key.kind;
        let key = if key.is_empty() { Vec::new() } else { kind.of_text(key).unwrap().as_bytes().to_vec() };
        let body = body.as_bytes().to_vec();
        let op = match verb {
            "insert" => Op::Insert { body },
            "update" => Op::Update { key, patch: body },
            "patch" => Op::Patch { key, patch: body },
            "replace" => Op::Replace { key, body },
            "put" => Op::Put { key, body },
            "delete" => Op::Delete { key },
            other => panic!("{other}"),
        };
        self.database.write_now(&Write { collection, op, precondition })
    }

    pub(crate) fn get(&self, path: &str) -> Option<(u64, String)> {
        let (name, key) = path.split_once('/').unwrap();
        let kind = self.database.catalog().collection(name).unwrap().key.kind;
        let session = self.database.session().unwrap();
        let now = session.now();
        let stored = now.get(self.id(name), &kind.of_text(key)?).unwrap()?;
        Some((stored.change_number().unwrap(), String::from_utf8(stored.text().unwrap().to_vec()).unwrap()))
    }

    /// The error in short: `404`, `412`, `409 what`, `400 pointer why`.
    #[track_caller]
    pub(crate) fn refused(&self, command: &str) -> String {
        short(self.run(command).expect_err(command))
    }
}

pub(crate) fn short(error: WriteError) -> String {
    match error {
        WriteError::NotFound => "404".to_string(),
        WriteError::PreconditionFailed => "412".to_string(),
        WriteError::Conflict { what } => format!("409 {what}"),
        WriteError::Invalid { why, pointer } => format!("400 {pointer} {why}"),
        WriteError::TooLarge { what, .. } => format!("413 {what}"),
        other => format!("{other:?}"),
    }
}

pub(crate) fn user(id: u32, email: &str) -> String {
    format!(r#"{{"id":{id},"email":"{email}","gender":"f","birth_date":-5}}"#)
}

pub(crate) fn visit(id: u32, user: u32, location: u32, at: i64) -> String {
    format!(r#"{{"id":{id},"user":{user},"location":{location},"visited_at":{at},"mark":3}}"#)
}
