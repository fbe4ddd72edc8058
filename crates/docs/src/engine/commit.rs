//! Commits of changes that may fail by themselves.

use super::binding::{Abort, Store, StoreError, Tx};

/// Commits a change, and waits until it is durable. If the change fails, nothing is committed, and its error is returned.
pub(crate) fn commit<E: From<StoreError> + Send>(
    store: &Store,
    change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), E> + Send),
) -> Result<(), E> {
    let mut failure = None;
    let commit = store.commit(&mut |tx| {
        failure = change(tx).err();
        if failure.is_none() { Ok(()) } else { Err(Abort) }
    });
    match (commit, failure) {
        (Err(StoreError::Aborted), Some(failure)) => Err(failure),
        (commit, _) => Ok(commit.map(drop)?),
    }
}
