//! The feed of changes as a list of transactions.

use crate::http;
use crate::model::{Changes, Key, Name, number};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

/// A transaction as the feed shows it.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) number: u64,
    /// What it leaves of each document.
    pub(crate) changes: Changes,
    /// Collections that were emptied, or filled by an import.
    pub(crate) resets: BTreeSet<Name>,
    /// The numbers of operations in its documents.
    pub(crate) operations: BTreeSet<u64>,
}

/// All transactions after change `since`, up to the one of an operation that has been acknowledged.
pub(crate) fn read(address: SocketAddr, since: u64, last: u64) -> Result<Vec<Transaction>, String> {
    let mut transactions: Vec<Transaction> = Vec::new();
    let (mut position, mut open) = (since.to_string(), None);
    loop {
        let target = format!("/_/changes?since={position}");
        let (status, lines) = http::lines(address, &target).map_err(|error| format!("{target}: {error}"))?;
        if status != 200 {
            return Err(format!("{target} is answered {status}, though the log is kept"));
        }
        let mut has_moved = false;
        for line in lines {
            let line = line.map_err(|error| format!("{target}: {error}"))?;
            let line: Value = serde_json::from_str(&line).map_err(|error| format!("{target}: {error}: {line}"))?;
            if line["end"].is_string() {
                position = position_of(&line["since"], &line["part"]);
                break;
            }
            // Where the feed is, every ten seconds.
            if line["op"].is_null() {
                continue;
            }
            add(&mut open, &mut transactions, &line)?;
            position = position_of(&line["change"], &line["part"]);
            has_moved = true;
            if transactions.last().is_some_and(|transaction| transaction.operations.contains(&last)) {
                return check_order(transactions);
            }
        }
        if !has_moved {
            return Err(format!("{target} ended without a change, before operation {last}"));
        }
    }
}

/// Where the changes of a restored backup begin: its own number is too old, because the original may have given the next ones.
pub(crate) fn beginning_of_restored(address: SocketAddr, version: u64) -> Result<u64, String> {
    let target = format!("/_/changes?since={version}");
    let reply = http::Client::new(address).ask("GET", &target, b"").map_err(|error| format!("{target}: {error}"))?;
    match (reply.status, reply.json()["oldest"].as_u64()) {
        (410, Some(oldest)) if oldest > version => Ok(oldest),
        (status, _) => Err(format!("{target} of a restored backup is answered {status}: {}", reply.text())),
    }
}

fn position_of(change: &Value, part: &Value) -> String {
    part.as_u64().map_or_else(|| change.to_string(), |part| format!("{change}.{part}"))
}

fn check_order(transactions: Vec<Transaction>) -> Result<Vec<Transaction>, String> {
    let wrong = transactions.windows(2).find(|pair| pair[0].number >= pair[1].number);
    wrong.map_or(Ok(()), |pair| Err(format!("the feed sends {} after {}", pair[1].number, pair[0].number)))?;
    Ok(transactions)
}

/// Adds a line to the open transaction, which ends with a line without `part`.
fn add(open: &mut Option<Transaction>, done: &mut Vec<Transaction>, line: &Value) -> Result<(), String> {
    let number_of = line["change"].as_u64().ok_or_else(|| format!("a line without its change: {line}"))?;
    let transaction = open.get_or_insert_with(|| Transaction { number: number_of, ..Transaction::default() });
    if transaction.number != number_of {
        return Err(format!("change {} ends in part before {number_of}", transaction.number));
    }
    let name = line["collection"].as_str().and_then(Name::of).ok_or_else(|| format!("no collection: {line}"))?;
    let key = || Key::of(&line["key"]).ok_or_else(|| format!("no key: {line}"));
    match line["op"].as_str() {
        Some("put") => {
            let document = line["document"].as_object().ok_or_else(|| format!("no document: {line}"))?;
            transaction.operations.extend(number(document, "op").and_then(|op| u64::try_from(op).ok()));
            transaction.changes.extend([((name, key()?), Some(Arc::new(document.clone())))]);
        }
        Some("delete") => transaction.changes.extend([((name, key()?), None)]),
        Some("reset") => transaction.resets.extend([name]),
        _ => return Err(format!("an unknown change: {line}")),
    }
    if line["part"].is_null() {
        done.extend(open.take());
    }
    Ok(())
}
