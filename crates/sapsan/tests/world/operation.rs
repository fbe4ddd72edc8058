//! The operations of clients: what they are as requests, and how they are answered.

use crate::client::GROUPS;
use crate::http::Reply;
use crate::model::{Changes, Document, Key, Name};
use crate::settings::{Rule, View, sorted};
use serde_json::{Value, json};

/// Keys of items from which on they are stored in masses: by imports, bulk requests and copies. Those below are changed one by one.
pub(crate) const MASS: i64 = 1_000;
/// Keys of items from which on they are copies of others. Upserts make keys below zero.
pub(crate) const COPIES: i64 = 10_000;

/// What a client does. Its number stands in the field `op` of each document that it writes.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put(Name, Key, Document),
    /// A document that must be new: a request of its own, or a line of a bulk request.
    Insert(Name, Key, Document),
    Patch(Name, Key, Document),
    Delete(Name, Key),
    AddToGroup {
        group: i64,
        by: i64,
    },
    SetCode {
        key: Key,
        code: String,
    },
    UpsertByCode(Document),
    UpsertBySlug(Document),
    Replace(Document),
    Ignore(Document),
    /// UPDATE … FROM.
    CopyFromOwners {
        group: i64,
    },
    DeleteGroup {
        group: i64,
        below: i64,
    },
    /// Steps that change two owners and count the items.
    Move {
        from: i64,
        to: i64,
    },
    /// An owner gets the numbers of items and carts.
    CountInto {
        owner: i64,
    },
    /// A new document gets the sum of all items.
    LogSum,
    AddToRange {
        from: i64,
        count: i64,
    },
    AddToAll,
    CountIntoAll,
    /// All items get the number of documents of another collection.
    CountOthersIntoAll,
    CodeAll,
    DeleteMass {
        divisor: i64,
        rest: i64,
    },
    DeleteCopies,
    CopyItems,
    DeleteUnreferenced(Name),
    DeleteFrom(Name, i64),
    CopyTargets {
        from: Name,
        to: Name,
    },
    /// New items with the codes that other clients use, where those are free: it reads their unique values, and no other item.
    ItemsOfTargets(Name),
    /// A statement that its time ends.
    Endless,
    /// DELETE without WHERE.
    Empty(Name),
    ReadGroup {
        group: i64,
    },
    ReadCode {
        code: String,
    },
    ReadSlug {
        tenant: i64,
        slug: String,
    },
    ReadJoin {
        target: Name,
        group: i64,
    },
    CountJoin {
        target: Name,
    },
    ReadSum,
    ReadCounts,
    ReadFirst,
    ReadTotal {
        group: i64,
    },
    ReadView(View),
    ReadDocument(Name, Key),
}

/// What an operation does at one place of the order, and how it is answered then.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done {
        changes: Changes,
        answer: Answer,
    },
    /// A collection is emptied as a whole.
    Emptied {
        name: Name,
        count: usize,
    },
    /// A rule, a key in use, or a statement that cannot be: 400 or 409.
    Refused,
    /// 404.
    Missing,
}

/// The answer of what was done.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16),
    /// Of a statement: the number of documents, and RETURNING's rows.
    Changed(usize, Option<Vec<Value>>),
    /// Exactly this.
    Body(Value),
    /// Rows in any order.
    Rows(Vec<Value>),
}

impl Outcome {
    /// Whether a reply says this.
    pub(crate) fn fits(&self, reply: &Reply) -> bool {
        match self {
            Outcome::Refused => matches!(reply.status, 400 | 409),
            Outcome::Missing => reply.status == 404,
            Outcome::Emptied { count, .. } => reply.status == 200 && reply.json()["changed"] == json!(count),
            Outcome::Done { answer: Answer::Status(status), .. } => reply.status == *status,
            Outcome::Done { answer, .. } => reply.status == 200 && answer.fits(&reply.json()),
        }
    }

    /// Whether it leaves a transaction in the feed.
    pub(crate) fn has_effect(&self) -> bool {
        match self {
            Outcome::Done { changes, .. } => !changes.is_empty(),
            Outcome::Emptied { count, .. } => *count > 0,
            Outcome::Refused | Outcome::Missing => false,
        }
    }
}

impl Answer {
    fn fits(&self, body: &Value) -> bool {
        let same = |rows: &Vec<Value>, body: &Value| {
            body.as_array().is_some_and(|found| sorted(found.clone()) == sorted(rows.clone()))
        };
        match self {
            Answer::Status(_) => true,
            Answer::Changed(count, rows) => {
                body["changed"] == json!(count) && rows.as_ref().is_none_or(|rows| same(rows, &body["rows"]))
            }
            Answer::Body(expected) => body == expected,
            Answer::Rows(rows) => same(rows, body),
        }
    }
}

/// A statement and its parameters as a request.
fn sql(text: &str, params: Value) -> (&'static str, String, Vec<u8>) {
    ("POST", "/_/query".to_owned(), json!({ "sql": text, "params": params }).to_string().into_bytes())
}

fn path(name: Name, key: &Key) -> String {
    format!("/_/collections/{}/{key}", name.text())
}

fn body(document: &Document) -> Vec<u8> {
    Value::Object((**document).clone()).to_string().into_bytes()
}

impl Operation {
    /// Whether it writes nothing, whatever happens.
    pub(crate) fn is_read(&self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::ReadGroup { .. }
                | O::ReadCode { .. }
                | O::ReadSlug { .. }
                | O::ReadJoin { .. }
                | O::CountJoin { .. }
                | O::ReadSum
                | O::ReadCounts
                | O::ReadFirst
                | O::ReadTotal { .. }
                | O::ReadView(_)
                | O::ReadDocument(..)
        )
    }

    /// Whether its transaction only deletes, so that the feed does not show its number.
    pub(crate) fn only_deletes(&self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::Delete(..)
                | O::DeleteGroup { .. }
                | O::DeleteMass { .. }
                | O::DeleteCopies
                | O::DeleteUnreferenced(_)
                | O::DeleteFrom(..)
        )
    }

    /// The view that it reads.
    pub(crate) fn view(&self) -> Option<View> {
        match self {
            Operation::ReadTotal { .. } => Some(View::Totals),
            Operation::ReadView(view) => Some(*view),
            _ => None,
        }
    }

    /// The rules that can decide what it does.
    pub(crate) fn rules(&self) -> &'static [Rule] {
        use Operation as O;
        const ITEM: &[Rule] = &[Rule::ItemCodes, Rule::Slugs, Rule::ToOwners, Rule::ToOthers];
        const SESSION: &[Rule] = &[Rule::Expiry, Rule::ToSessions];
        match self {
            O::Put(name, ..)
            | O::Insert(name, ..)
            | O::Patch(name, ..)
            | O::Delete(name, _)
            | O::ReadDocument(name, _) => match name {
                Name::Items => ITEM,
                Name::Owners => &[Rule::OwnerCodes, Rule::ToOwners],
                Name::Others => &[Rule::ToOthers],
                Name::Sessions | Name::Carts => SESSION,
                Name::Logs => &[],
            },
            O::SetCode { .. } | O::Replace(_) | O::Ignore(_) | O::UpsertByCode(_) | O::CodeAll => ITEM,
            O::CopyItems | O::ItemsOfTargets(_) => ITEM,
            O::UpsertBySlug(_) => &[Rule::Slugs],
            O::DeleteUnreferenced(_) | O::DeleteFrom(..) => &[Rule::ToOwners, Rule::ToOthers],
            _ => &[],
        }
    }

    /// Whether it could delete a document of this key.
    pub(crate) fn could_delete(&self, name: Name, key: &Key) -> bool {
        use Operation as O;
        match self {
            O::Delete(of, which) => (*of, which) == (name, key),
            O::DeleteGroup { .. } => name == Name::Items,
            O::DeleteMass { .. } => name == Name::Items && key.number() >= MASS,
            O::DeleteCopies => name == Name::Items && !(0..COPIES).contains(&key.number()),
            O::DeleteUnreferenced(of) | O::Empty(of) => name == *of,
            O::DeleteFrom(of, from) => name == *of && key.number() >= *from,
            _ => false,
        }
    }

    /// Method, target and body. `op` is its number.
    pub(crate) fn request(&self, op: u64) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        match self {
            O::Put(name, key, document) => ("PUT", path(*name, key), body(document)),
            O::Insert(name, _, document) => ("POST", format!("/_/collections/{}", name.text()), body(document)),
            O::Patch(name, key, patch) => ("PATCH", path(*name, key), body(patch)),
            O::Delete(name, key) => ("DELETE", path(*name, key), Vec::new()),
            O::ReadDocument(name, key) => ("GET", path(*name, key), Vec::new()),
            O::Move { from, to } => {
                ("POST", "/move".to_owned(), json!({ "op": op, "a": from, "b": to }).to_string().into_bytes())
            }
            _ => self.statement(op),
        }
    }

    fn statement(&self, op: u64) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        let of = |document: &Document| {
            let mut params = (**document).clone();
            params.insert("op".to_owned(), op.into());
            Value::Object(params)
        };
        match self {
            O::AddToGroup { group, by } => sql(
                "UPDATE items SET n = n + :by, op = :op WHERE grp = :grp RETURNING id, n",
                json!({ "by": by, "grp": group, "op": op }),
            ),
            O::SetCode { key, code } => sql(
                "UPDATE items SET code = :code, op = :op WHERE id = :id",
                json!({ "code": code, "id": key.json(), "op": op }),
            ),
            O::UpsertByCode(document) => sql(
                "INSERT INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op) \
                 ON CONFLICT (code) DO UPDATE SET n = n + 1, op = excluded.op RETURNING id, n",
                of(document),
            ),
            O::UpsertBySlug(document) => sql(
                "INSERT INTO items (id, tenant, slug, grp, n, op) VALUES (:id, :tenant, :slug, :grp, :n, :op) \
                 ON CONFLICT (tenant, slug) DO UPDATE SET n = n + 1, op = excluded.op RETURNING id, n",
                of(document),
            ),
            O::Replace(document) => sql(
                "INSERT OR REPLACE INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op)",
                of(document),
            ),
            O::Ignore(document) => sql(
                "INSERT OR IGNORE INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op)",
                of(document),
            ),
            O::CopyFromOwners { group } => sql(
                "UPDATE items SET n = owners.n, op = :op FROM owners WHERE owners.id = items.owner AND items.grp = :grp",
                json!({ "grp": group, "op": op }),
            ),
            O::DeleteGroup { group, below } => sql(
                "DELETE FROM items WHERE grp = :grp AND n < :below RETURNING id",
                json!({ "grp": group, "below": below }),
            ),
            O::CountInto { owner } => sql(
                "UPDATE owners SET n = (SELECT COUNT(*) FROM items) + (SELECT COUNT(*) FROM carts), op = :op WHERE id = :id",
                json!({ "id": owner, "op": op }),
            ),
            O::LogSum => sql("INSERT INTO logs (op, n) SELECT :op, SUM(n) FROM items", json!({ "op": op })),
            O::AddToRange { from, count } => sql(
                "UPDATE items SET n = n + 1, op = :op WHERE id >= :from AND id < :to",
                json!({ "from": from, "to": from + count, "op": op }),
            ),
            O::AddToAll => sql("UPDATE items SET n = n + 1, op = :op", json!({ "op": op })),
            O::CountIntoAll => sql("UPDATE items SET n = (SELECT COUNT(*) FROM items), op = :op", json!({ "op": op })),
            O::CountOthersIntoAll => {
                sql("UPDATE items SET n = (SELECT COUNT(*) FROM others), op = :op", json!({ "op": op }))
            }
            O::CodeAll => sql("UPDATE items SET code = 'x' || :op || '-' || id, op = :op", json!({ "op": op })),
            O::DeleteMass { divisor, rest } => sql(
                "DELETE FROM items WHERE id >= :mass AND id % :divisor = :rest",
                json!({ "mass": MASS, "divisor": divisor, "rest": rest }),
            ),
            O::DeleteCopies => sql("DELETE FROM items WHERE id >= :copies OR id < 0", json!({ "copies": COPIES })),
            O::CopyItems => sql(
                "INSERT INTO items (id, owner, code, grp, n, Kind, pad, op) \
                 SELECT id + :offset, owner, code || :suffix, grp, n, Kind, pad, :op FROM items WHERE id >= :mass AND id < :copies",
                json!({ "offset": copied_by(op), "suffix": suffix(op), "mass": MASS, "copies": COPIES, "op": op }),
            ),
            O::DeleteUnreferenced(name) => {
                let name = name.text();
                sql(
                    &format!("DELETE FROM {name} WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.owner = {name}.id)"),
                    json!({}),
                )
            }
            O::DeleteFrom(name, from) => {
                sql(&format!("DELETE FROM {} WHERE id >= :from", name.text()), json!({ "from": from }))
            }
            O::CopyTargets { from, to } => {
                let (from, to) = (from.text(), to.text());
                sql(
                    &format!(
                        "INSERT INTO {to} (id, n, op) SELECT id, n, :op FROM {from} \
                         WHERE NOT EXISTS (SELECT 1 FROM {to} WHERE {to}.id = {from}.id)"
                    ),
                    json!({ "op": op }),
                )
            }
            O::ItemsOfTargets(from) => sql(
                &format!(
                    "INSERT OR IGNORE INTO items (id, code, grp, n, pad, op) SELECT id + :offset, 'c' || (id - :mass), \
                     id % :groups, n, printf('%0600d', id), :op FROM {}",
                    from.text()
                ),
                json!({ "offset": copied_by(op), "mass": MASS, "groups": GROUPS, "op": op }),
            ),
            O::Endless => sql(
                "UPDATE owners SET n = (SELECT COUNT(*) FROM items a JOIN items b ON a.n + b.n > :least \
                 JOIN items c ON b.n + c.n > :least JOIN items d ON c.n + d.n > :least), op = :op WHERE id = :mass",
                json!({ "least": i32::MIN, "mass": MASS, "op": op }),
            ),
            O::Empty(name) => sql(&format!("DELETE FROM {}", name.text()), json!({})),
            _ => self.query(),
        }
    }

    fn query(&self) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        match self {
            O::ReadGroup { group } => {
                sql("SELECT COUNT(*) AS c, SUM(n) AS s FROM items WHERE grp = :grp", json!({ "grp": group }))
            }
            O::ReadCode { code } => {
                sql("SELECT id, n FROM items WHERE code = :code ORDER BY id", json!({ "code": code }))
            }
            O::ReadSlug { tenant, slug } => sql(
                "SELECT id, n FROM items WHERE tenant = :tenant AND slug = :slug ORDER BY id",
                json!({ "tenant": tenant, "slug": slug }),
            ),
            O::ReadJoin { target, group } => {
                let target = target.text();
                sql(
                    &format!(
                        "SELECT items.id AS id FROM items JOIN {target} ON {target}.id = items.owner \
                         WHERE items.grp = :grp ORDER BY items.id"
                    ),
                    json!({ "grp": group }),
                )
            }
            O::CountJoin { target } => {
                let target = target.text();
                sql(&format!("SELECT COUNT(*) AS c FROM items JOIN {target} ON {target}.id = items.owner"), json!({}))
            }
            O::ReadSum => sql("SELECT COUNT(*) AS c, SUM(n) AS s FROM items", json!({})),
            O::ReadCounts => {
                sql("SELECT (SELECT COUNT(*) FROM items) AS a, (SELECT COUNT(*) FROM owners) AS b", json!({}))
            }
            O::ReadFirst => sql("SELECT id, grp FROM items ORDER BY grp, id LIMIT 10", json!({})),
            O::ReadTotal { group } => {
                sql("SELECT grp, c, s, lo, hi FROM totals WHERE grp = :grp", json!({ "grp": group }))
            }
            O::ReadView(view) => sql(&format!("SELECT {} FROM {}", view.columns().join(", "), view.name()), json!({})),
            _ => unreachable!("a write"),
        }
    }
}

/// The distance of an operation's copies from what they are copies of.
pub(crate) fn copied_by(op: u64) -> i64 {
    i64::try_from(op).expect("a small number") * COPIES
}

/// What the codes of its copies end with.
pub(crate) fn suffix(op: u64) -> String {
    format!("-{op}")
}
