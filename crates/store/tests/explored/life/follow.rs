//! A reader of changes: with them, the content of one snapshot becomes that of each later one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use store::{Change, Changeset, Direction, Durability, KeyRange, Store, StoreError, StoreSnapshot};

use super::Life;
use crate::explored::state::{Trees, id_of};
use crate::simulation::platter::Note;

/// How long it waits for changes.
const WAIT: Duration = Duration::from_millis(2);

/// All entries, by tree and key.
type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// Follows the changes for so many later snapshots, and compares the content with each.
pub(super) fn follow(life: &Life, store: &Store, snapshots: u32) {
    match try_follow(life, store, snapshots) {
        // It keeps nothing for readers who are late.
        Ok(()) | Err(StoreError::Gone { .. }) => {}
        Err(error) => life.note_error("following the changes", &error),
    }
}

fn try_follow(life: &Life, store: &Store, snapshots: u32) -> Result<(), StoreError> {
    let is_durable = life.options.durability == Durability::Commit;
    let reader = store.reader()?;
    let first = reader.snapshot();
    let mut content = content_of(&first, &life.trees)?;
    let mut changes = store.changes_since(first.version())?;
    drop(first);
    for _ in 0..snapshots {
        let is_behind = is_durable && changes.version().0 < store.stats().version;
        if !changes.wait(WAIT)? && is_behind {
            life.wrong("a reader of changes waits for what is there".to_string());
        }
        let snapshot = reader.snapshot();
        let mut is_whole = true;
        while !is_whole || changes.version() < snapshot.version() {
            // A snapshot may show a large transaction a moment before others do.
            let is_shown = is_durable && snapshot.version().0 <= store.stats().version;
            let Some(changeset) = changes.next()? else {
                if is_shown {
                    life.wrong(format!("the changes end before {:?}, which a snapshot shows", snapshot.version()));
                    return Ok(());
                }
                changes.wait(WAIT)?;
                continue;
            };
            is_whole = changeset.is_last();
            apply(life, &mut content, &changeset, is_durable);
        }
        let found = content_of(&snapshot, &life.trees)?;
        if content != found {
            let differs = |key: &&(u32, Vec<u8>)| content.get(*key) != found.get(*key);
            let keys: Vec<_> = content.keys().chain(found.keys()).filter(differs).collect();
            life.wrong(format!(
                "changes up to {:?} do not give the state of its snapshot: {keys:?}",
                changes.version()
            ));
        }
    }
    Ok(())
}

fn apply(life: &Life, content: &mut Content, changeset: &Changeset<'_>, is_durable: bool) {
    for change in changeset.changes() {
        match change {
            Change::Put { tree, key, value } => {
                // What a reader has been shown survives every power failure.
                if let Some(id) = id_of(key).filter(|_| is_durable && tree == life.trees.rows) {
                    life.disk.note(Note::Acknowledged(id.0, u64::from(id.1), changeset.version().0));
                }
                content.insert((tree.0, key.to_vec()), value.to_vec());
            }
            Change::Delete { tree, key } => drop(content.remove(&(tree.0, key.to_vec()))),
            Change::DeleteRange { tree, from, to } => content.retain(|(of, key), _| {
                let is_in = *of == tree.0 && key.as_slice() >= from && to.is_none_or(|to| key.as_slice() < to);
                !is_in
            }),
            other => life.wrong(format!("no transaction makes this change: {other:?}")),
        }
    }
}

fn content_of(snapshot: &StoreSnapshot<'_>, trees: &Trees) -> Result<Content, StoreError> {
    let mut content = Content::new();
    for tree in [trees.rows, trees.counts, trees.accounts, trees.taken, trees.long] {
        snapshot.scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            content.insert((tree.0, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    Ok(content)
}
