//! What transactions do, and whether a state of the store is what some of them have done.
//!
//! Each transaction puts a row that says what else it changes: additions to counts (by folds), moves between accounts (by reads and
//! puts), keys that are taken once, long values, deleted ranges. So every state, of a snapshot, a copy or a recovered store, can be
//! checked by itself: all of it must follow from its rows.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use store::{Abort, Direction, Fold, Folded, Further, KeyRange, Store, StoreError, StoreSnapshot, TreeId, Tx};

pub(crate) const COUNTS: u8 = 2;
pub(crate) const ACCOUNTS: u8 = 3;

/// A client and the number of its transaction.
pub(crate) type RowId = (u8, u16);

/// What a transaction does besides its row and its long value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Adds to a count.
    Add { count: u8, by: i64 },
    /// Moves an amount; a lost update changes the sum of all accounts.
    Move { from: u8, to: u8, amount: i64 },
    /// Takes a key, and is refused if the key is taken.
    Take { key: u8 },
    /// Deletes the client's long values.
    Clear,
    /// Adds to a count as one of so many rows of a large transaction, which begin with this number.
    Part { count: u8, by: i64, first: u16, rows: u8 },
}

/// A row: a deed, and the place and length of a long value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) deed: Deed,
    pub(crate) long: Option<(u8, u32)>,
}

/// The trees of the store.
#[derive(Clone, Copy)]
pub(crate) struct Trees {
    pub(crate) rows: TreeId,
    pub(crate) counts: TreeId,
    pub(crate) accounts: TreeId,
    pub(crate) taken: TreeId,
    pub(crate) long: TreeId,
}

impl Trees {
    /// Creates them, or finds them.
    pub(crate) fn of(store: &Store) -> Result<Trees, StoreError> {
        let tree = |name| match store.existing_tree(name)? {
            Some(tree) => Ok(tree),
            None => store.tree(name),
        };
        Ok(Trees {
            rows: tree("rows")?,
            counts: tree("counts")?,
            accounts: tree("accounts")?,
            taken: tree("taken")?,
            long: tree("long")?,
        })
    }
}

/// Adds operands to counts. A count of zero is deleted.
pub(crate) struct Adding;

impl Fold for Adding {
    fn fold(
        &self,
        _: TreeId,
        _: &[u8],
        old: Option<&[u8]>,
        by: &[u8],
        new: &mut Vec<u8>,
        _: &mut Further<'_>,
    ) -> Folded {
        match old.map_or(0, number) + number(by) {
            0 => Folded::Delete,
            sum => {
                new.extend_from_slice(&sum.to_le_bytes());
                Folded::Put
            }
        }
    }
}

pub(crate) fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(i64::MIN, i64::from_le_bytes)
}

pub(crate) fn key_of((client, number): RowId) -> [u8; 3] {
    let [high, low] = number.to_be_bytes();
    [client, high, low]
}

pub(crate) fn id_of(key: &[u8]) -> Option<RowId> {
    let [client, high, low] = key.try_into().ok()?;
    Some((client, u16::from_be_bytes([high, low])))
}

/// The bytes of a transaction's long value.
pub(crate) fn long_value(id: RowId, len: u32) -> Vec<u8> {
    vec![(id.1 as u8).wrapping_mul(31) ^ id.0; len as usize]
}

impl Row {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (kind, a, b, by, first) = match self.deed {
            Deed::Add { count, by } => (0, count, 0, by, 0),
            Deed::Move { from, to, amount } => (1, from, to, amount, 0),
            Deed::Take { key } => (2, key, 0, 0, 0),
            Deed::Clear => (3, 0, 0, 0, 0),
            Deed::Part { count, by, first, rows } => (4, count, rows, by, first),
        };
        let (slot, len) = self.long.unwrap_or((0, 0));
        let mut bytes = vec![kind, a, b, slot];
        bytes.extend_from_slice(&by.to_le_bytes());
        bytes.extend_from_slice(&u16::to_le_bytes(first));
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Row> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (by, rest) = rest.split_first_chunk::<8>()?;
        let (first, len) = rest.split_first_chunk::<2>()?;
        let ([kind, a, b, slot], by, len) = (*head, i64::from_le_bytes(*by), u32::from_le_bytes(len.try_into().ok()?));
        let deed = match kind {
            0 => Deed::Add { count: a, by },
            1 => Deed::Move { from: a, to: b, amount: by },
            2 => Deed::Take { key: a },
            3 => Deed::Clear,
            4 => Deed::Part { count: a, by, first: u16::from_le_bytes(*first), rows: b },
            _ => return None,
        };
        Some(Row { deed, long: (len > 0).then_some((slot, len)) })
    }

    /// Makes the transaction's changes. `taken` is set if its key is taken; a failed read aborts without that.
    pub(crate) fn prepare(&self, trees: &Trees, id: RowId, tx: &mut Tx<'_>, taken: &mut bool) -> Result<(), Abort> {
        *taken = false;
        match self.deed {
            Deed::Add { count, by } | Deed::Part { count, by, .. } => {
                tx.fold(trees.counts, &[count], &by.to_le_bytes())
            }
            Deed::Move { from, to, amount } => {
                for (account, by) in [(from, -amount), (to, amount)] {
                    let before =
                        tx.get(trees.accounts, &[account]).map_err(|_| Abort)?.map_or(0, |bytes| number(&bytes));
                    tx.put(trees.accounts, &[account], &(before + by).to_le_bytes());
                }
            }
            Deed::Take { key } => {
                if tx.get(trees.taken, &[key]).map_err(|_| Abort)?.is_some() {
                    *taken = true;
                    return Err(Abort);
                }
                tx.put(trees.taken, &[key], &key_of(id));
            }
            Deed::Clear => tx.delete_range(
                trees.long,
                KeyRange { from: Bound::Included(&[id.0]), to: Bound::Excluded(&[id.0 + 1]) },
            ),
        }
        if let Some((slot, len)) = self.long {
            tx.put(trees.long, &[id.0, slot], &long_value(id, len));
        }
        tx.put(trees.rows, &key_of(id), &self.bytes());
        Ok(())
    }
}

/// The rows of a state, all of whose other content follows from them.
pub(crate) struct State {
    pub(crate) rows: BTreeMap<RowId, Row>,
}

impl State {
    pub(crate) fn has_taken(&self, key: u8) -> bool {
        self.rows.values().any(|row| row.deed == Deed::Take { key })
    }
}

/// All entries of a tree.
fn entries(snapshot: &StoreSnapshot<'_>, tree: TreeId) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    snapshot.scan(tree, KeyRange::ALL, Direction::Forward, visit).map_err(|error| error.to_string())?;
    Ok(found)
}

fn numbers(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<u8, i64> {
    entries.iter().map(|(key, value)| (key[0], number(value))).filter(|(_, number)| *number != 0).collect()
}

/// Reads a whole state, and checks that it follows from its rows.
pub(crate) fn check(snapshot: &StoreSnapshot<'_>, trees: &Trees) -> Result<State, String> {
    let mut rows = BTreeMap::new();
    for (key, value) in entries(snapshot, trees.rows)? {
        let (id, row) = (id_of(&key).ok_or("a row's key")?, Row::of(&value).ok_or("a row's value")?);
        rows.insert(id, row);
    }
    let (mut counts, mut accounts) = (BTreeMap::new(), BTreeMap::new());
    let (mut taken, mut long) = (BTreeMap::new(), BTreeMap::new());
    for (id, row) in &rows {
        match row.deed {
            Deed::Add { count, by } => *counts.entry(count).or_insert(0) += by,
            Deed::Part { count, by, first, rows: of } => {
                *counts.entry(count).or_insert(0) += by;
                let missing = (first..first + u16::from(of)).find(|number| !rows.contains_key(&(id.0, *number)));
                if let Some(number) = missing {
                    return Err(format!("{id:?} is there without row {number} of its large transaction"));
                }
            }
            Deed::Move { from, to, amount } => {
                *accounts.entry(from).or_insert(0) -= amount;
                *accounts.entry(to).or_insert(0) += amount;
            }
            Deed::Take { key } => {
                if let Some(other) = taken.insert(vec![key], key_of(*id).to_vec()) {
                    return Err(format!("key {key} was taken by {id:?} and by {:?}", id_of(&other)));
                }
            }
            Deed::Clear => long.retain(|key: &Vec<u8>, _| key[0] != id.0),
        }
        if let Some((slot, len)) = row.long {
            long.insert(vec![id.0, slot], (*id, len));
        }
    }
    counts.retain(|_, sum: &mut i64| *sum != 0);
    accounts.retain(|_, sum: &mut i64| *sum != 0);
    let found = numbers(&entries(snapshot, trees.counts)?);
    if found != counts {
        return Err(format!("counts {found:?}, by the rows {counts:?}"));
    }
    let found = numbers(&entries(snapshot, trees.accounts)?);
    if found != accounts {
        return Err(format!("accounts {found:?}, by the rows {accounts:?}"));
    }
    let found = entries(snapshot, trees.taken)?;
    if found != taken {
        return Err(format!("taken keys {found:?}, by the rows {taken:?}"));
    }
    check_long(&entries(snapshot, trees.long)?, &long)?;
    Ok(State { rows })
}

fn check_long(found: &BTreeMap<Vec<u8>, Vec<u8>>, long: &BTreeMap<Vec<u8>, (RowId, u32)>) -> Result<(), String> {
    if !found.keys().eq(long.keys()) {
        let (found, wanted): (Vec<_>, Vec<_>) = (found.keys().collect(), long.keys().collect());
        return Err(format!("long values {found:?}, by the rows {wanted:?}"));
    }
    match found.iter().zip(long.values()).find(|((_, value), (id, len))| **value != long_value(*id, *len)) {
        Some(((key, value), (id, len))) => {
            let head = &value[..value.len().min(8)];
            Err(format!("long value {key:?} has {} bytes {head:?}, not the {len} of {id:?}", value.len()))
        }
        None => Ok(()),
    }
}
