//! The expected content of a database, and the transactions that change it.

use std::collections::{BTreeMap, BTreeSet};

use docs::import::{ImportError, ImportOptions, Input};
use docs::sql::Budget;
use docs::statements::{Modification, ModifyError};
use docs::{DatabaseOpenError, DocumentDatabase, Op, Precondition, ReadError, Write, WriteError};
use rand::RngExt;
use rand::rngs::SmallRng;
use serde_json::{Value as Json, json};

use crate::declared_views::try_rows;
use docs::sql::NoRows;

const ITEMS: u32 = 180;
const OWNERS: u32 = 12;
const KINDS: u32 = 5;
const TIMES: u32 = 12;
/// First id of imported items, and the number of initial ones: more than a build processes in one transaction.
const IMPORTED: u32 = 1000;
const FIRST_ITEMS: u32 = 150;
/// Fields in queries.
const FIELDS: &str = "id, kind, tag, amount, at, code, mark, owner";

/// The reason in [`Told::Nothing`] if too many writes wait, or the database takes no writes.
pub(crate) const BUSY: &str = "busy";

/// All documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    items: BTreeMap<u32, Json>,
    owners: BTreeSet<u32>,
}

/// A transaction.
pub(crate) enum Step {
    /// Items put, or deleted if the body is `None`.
    Items(Vec<(u32, Option<Json>)>),
    Owner(u32),
    OwnerGone(u32),
    /// Statements of several rows.
    Insert(Vec<Json>),
    Raise(u32),
    Remove(u32),
    Import {
        owners: Vec<u32>,
        items: Vec<Json>,
    },
}

/// Why a transaction was not acknowledged.
#[derive(Debug)]
pub(crate) enum Told {
    /// Caused by the disk; nothing was changed.
    Nothing(String),
    /// Caused by the disk; the outcome is unknown.
    Unknown(String),
    /// An error that the disk's fault does not explain.
    Wrong(String),
}

fn item(rng: &mut SmallRng, id: u32, owners: &BTreeSet<u32>) -> Json {
    let amount = match rng.random_range(0..3) {
        0 => json!(f64::from(2 * rng.random_range(0..500) + 1) / 8.0),
        1 => json!(rng.random_range(-20..50)),
        _ => Json::Null,
    };
    let owner = owners.iter().nth(rng.random_range(0..2 * OWNERS as usize));
    json!({ "id": id, "kind": rng.random_range(0..KINDS), "tag": format!("t{}", rng.random_range(0..5)), "amount": amount,
            "at": rng.random_range(0..TIMES), "code": id * 4 + rng.random_range(0..4), "mark": format!("m{id}"), "owner": owner })
}

impl Step {
    /// A random transaction that is valid in the state.
    pub(crate) fn any(rng: &mut SmallRng, state: &State) -> Step {
        let count = rng.random_range(2..6);
        let items = |rng: &mut SmallRng, count: u32| -> Vec<(u32, Option<Json>)> {
            let ids: BTreeSet<u32> = (0..count).map(|_| rng.random_range(0..ITEMS)).collect();
            let put = |id| {
                let is_deleted = state.items.contains_key(&id) && rng.random_range(0..4) == 0;
                (id, (!is_deleted).then(|| item(rng, id, &state.owners)))
            };
            ids.into_iter().map(put).collect()
        };
        match rng.random_range(0..10) {
            0..4 => Step::Items(items(rng, 1)),
            4 => Step::Items(items(rng, count)),
            5 => Step::Owner(rng.random_range(0..OWNERS)),
            6 => {
                let is_free = |owner: &&u32| !state.items.values().any(|item| item["owner"] == json!(owner));
                state.owners.iter().find(is_free).map_or(Step::Owner(0), |owner| Step::OwnerGone(*owner))
            }
            7 => {
                let free: Vec<u32> = (0..2 * ITEMS).filter(|id| !state.items.contains_key(id)).collect();
                let ids = free.into_iter().take(count as usize);
                Step::Insert(ids.map(|id| item(rng, id, &state.owners)).collect())
            }
            8 => Step::Raise(rng.random_range(0..KINDS)),
            _ => Step::Remove(rng.random_range(0..TIMES)),
        }
    }

    /// Fills an empty database.
    pub(crate) fn first(rng: &mut SmallRng) -> Step {
        let owners: BTreeSet<u32> = (0..OWNERS / 2).collect();
        let items = (0..FIRST_ITEMS).map(|id| item(rng, id, &owners)).collect();
        Step::Import { owners: owners.into_iter().collect(), items }
    }

    /// Adds documents to a filled database.
    pub(crate) fn more(rng: &mut SmallRng, state: &State) -> Step {
        let ids = (IMPORTED..).filter(|id| !state.items.contains_key(id)).take(15);
        Step::Import { owners: Vec::new(), items: ids.map(|id| item(rng, id, &state.owners)).collect() }
    }

    pub(crate) fn run(&self, database: &DocumentDatabase) -> Result<(), Told> {
        let statement = |sql: String| -> Result<(), Told> {
            let prepared = Modification::prepare(&sql, database.catalog()).map_err(wrong)?;
            let done = database.modify(&prepared, &[], &Budget::default(), &mut NoRows);
            done.map(drop).map_err(|error| match error {
                ModifyError::Write(error) => of_write(error),
                other => wrong(other),
            })
        };
        match self {
            Step::Items(items) => {
                let writes: Vec<Write> = items.iter().map(|(id, item)| write(database, "items", *id, item)).collect();
                match &writes[..] {
                    [write] => database.write_now(write).map(drop).map_err(of_write),
                    several => database.write_all(several).map_err(of_write),
                }
            }
            Step::Owner(id) | Step::OwnerGone(id) => {
                let owner = matches!(self, Step::Owner(_)).then(|| json!({ "id": id }));
                database.write_now(&write(database, "owners", *id, &owner)).map(drop).map_err(of_write)
            }
            Step::Insert(items) => {
                let row = |item: &Json| {
                    let value = |field: &str| item[field].to_string().replace('"', "'");
                    format!("({})", FIELDS.split(", ").map(value).collect::<Vec<_>>().join(", "))
                };
                let rows: Vec<String> = items.iter().map(row).collect();
                statement(format!("INSERT INTO items ({FIELDS}) VALUES {}", rows.join(", ")))
            }
            Step::Raise(kind) => statement(format!("UPDATE items SET amount = amount + 1 WHERE kind = {kind}")),
            Step::Remove(at) => statement(format!("DELETE FROM items WHERE at = {at}")),
            Step::Import { owners, items } => import(database, owners, items),
        }
    }
}

impl State {
    /// The state after a transaction.
    pub(crate) fn after(&self, step: &Step) -> State {
        let mut next = self.clone();
        let mut put =
            |item: &Json| drop(next.items.insert(item["id"].as_u64().unwrap_or_default() as u32, item.clone()));
        match step {
            Step::Items(items) => {
                for (id, item) in items {
                    match item {
                        Some(item) => drop(next.items.insert(*id, item.clone())),
                        None => drop(next.items.remove(id)),
                    }
                }
            }
            Step::Owner(id) => drop(next.owners.insert(*id)),
            Step::OwnerGone(id) => drop(next.owners.remove(id)),
            Step::Insert(items) => items.iter().for_each(put),
            Step::Import { owners, items } => {
                items.iter().for_each(&mut put);
                next.owners.extend(owners);
            }
            Step::Raise(kind) => {
                for item in next.items.values_mut().filter(|item| item["kind"] == json!(kind)) {
                    if let Some(amount) = item["amount"].as_i64() {
                        item["amount"] = json!(amount + 1);
                    } else if let Some(amount) = item["amount"].as_f64() {
                        item["amount"] = json!(amount + 1.0);
                    }
                }
            }
            Step::Remove(at) => next.items.retain(|_, item| item["at"] != json!(at)),
        }
        next
    }

    /// Reads the content of a database.
    pub(crate) fn of(database: &DocumentDatabase) -> Result<State, String> {
        let id = |row: &Json| row["id"].as_u64().unwrap_or_default() as u32;
        let items = try_rows(database, &format!("SELECT {FIELDS} FROM items"))?;
        let owners = try_rows(database, "SELECT id FROM owners")?;
        let items = items.into_iter().map(|item| (id(&item), item)).collect();
        Ok(State { items, owners: owners.iter().map(id).collect() })
    }

    /// A short description of the difference.
    pub(crate) fn difference(&self, found: &State) -> String {
        let ids: BTreeSet<&u32> = self.items.keys().chain(found.items.keys()).collect();
        let mut different = ids.into_iter().filter(|id| self.items.get(id) != found.items.get(id));
        let first = different.next().map(|id| (id, self.items.get(id), found.items.get(id)));
        format!("first {first:?}, {} more items; owners {:?}, {:?}", different.count(), self.owners, found.owners)
    }
}

fn write(database: &DocumentDatabase, name: &str, id: u32, body: &Option<Json>) -> Write {
    let key = id.to_be_bytes().to_vec();
    let op = match body {
        Some(body) => Op::Put { key, body: body.to_string().into_bytes() },
        None => Op::Delete { key },
    };
    let collection = database.collection(name).unwrap();
    Write { collection, op, precondition: Precondition::None }
}

fn import(database: &DocumentDatabase, owners: &[u32], items: &[Json]) -> Result<(), Told> {
    let owners: Vec<Json> = owners.iter().map(|id| json!({ "id": id })).collect();
    let text = json!({ "owners": owners, "items": items }).to_string();
    let read = Box::new(std::io::Cursor::new(text));
    let input = Input::Stream { name: "lines".to_string(), read };
    let options = ImportOptions { threads: 1, ..ImportOptions::default() };
    let done = database.import(vec![input], &options, &|_| {});
    done.map(drop).map_err(|error| match error {
        ImportError::Store(error) => of_store(&error),
        ImportError::Write(error) => of_write(error),
        other => wrong(other),
    })
}

fn wrong(error: impl std::fmt::Display) -> Told {
    Told::Wrong(error.to_string())
}

fn of_write(error: WriteError) -> Told {
    match error {
        WriteError::Unavailable { why } if !why.contains("damaged") => Told::Nothing(why),
        WriteError::Busy => Told::Nothing(BUSY.to_string()),
        WriteError::Unknown { why } => Told::Unknown(why),
        other => wrong(other),
    }
}

pub(crate) fn of_store(error: &docs::engine::StoreError) -> Told {
    match error {
        docs::engine::StoreError::Io { .. } | docs::engine::StoreError::Full | docs::engine::StoreError::Poisoned => {
            Told::Nothing(error.to_string())
        }
        docs::engine::StoreError::Unknown(_) => Told::Unknown(error.to_string()),
        other => wrong(other),
    }
}

pub(crate) fn of_open(error: &DatabaseOpenError) -> Told {
    match error {
        DatabaseOpenError::Store(error) | DatabaseOpenError::Read(ReadError::Store(error)) => of_store(error),
        other => wrong(other),
    }
}
