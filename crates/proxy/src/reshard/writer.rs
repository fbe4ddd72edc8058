//! Writes keys to one node on a separate thread, so that reading the source continues while the node works.

use std::sync::mpsc::{Receiver, SyncSender};

use resp::{Client, ClientSettings, CommandError, Pipeline};

use super::servers::{self, SourceIdentity};
use super::source::{Change, Content};
use super::{ReshardError, by_type};

/// The channels to the writers.
pub(super) struct Writers(Vec<SyncSender<Vec<Change>>>);

impl Writers {
    pub(super) fn new(senders: Vec<SyncSender<Vec<Change>>>) -> Writers {
        Writers(senders)
    }

    /// Passes each change to its node's writer; waits while a writer is two chunks behind.
    pub(super) fn hand_over(&self, changes: Vec<Change>, node: impl Fn(&[u8]) -> usize) -> Result<(), ReshardError> {
        let mut chunks: Vec<Vec<Change>> = self.0.iter().map(|_| Vec::new()).collect();
        for change in changes {
            chunks[node(&change.key)].push(change);
        }
        for (sender, chunk) in self.0.iter().zip(chunks).filter(|(_, chunk)| !chunk.is_empty()) {
            // The writer has ended; its own error is reported instead of this one.
            sender.send(chunk).map_err(|_| ReshardError::Stopped)?;
        }
        Ok(())
    }
}

/// Writes the received chunks to a node, until the last sender is dropped.
pub(super) fn write(
    node: &ClientSettings,
    (source, identity): (&ClientSettings, &SourceIdentity),
    chunks: Receiver<Vec<Change>>,
) -> Result<(), ReshardError> {
    let (mut target, mut reader) = (servers::client(node), servers::client(source));
    for chunk in chunks {
        let again = write_chunk(&mut target, &chunk).map_err(|error| ReshardError::of_node(node, error))?;
        for key in again {
            by_type::copy((&mut reader, identity), (&mut target, node), key)?;
        }
    }
    Ok(())
}

/// Writes a chunk in one pipeline; returns the keys that must be copied by type.
fn write_chunk<'c>(target: &mut Client, chunk: &'c [Change]) -> Result<Vec<&'c [u8]>, CommandError> {
    let (mut pipeline, mut sent, mut again) = (Pipeline::new(), Vec::new(), Vec::new());
    for Change { key, content } in chunk {
        match content {
            Content::Dumped { dump, expiry } => {
                let expiry = expiry.map_or(0, |expiry| expiry.milliseconds());
                pipeline.add(("RESTORE", key, expiry, dump, "REPLACE"));
            }
            Content::Gone => {
                pipeline.add(("DEL", key));
            }
            Content::ByType => {
                again.push(key.as_slice());
                continue;
            }
        }
        sent.push(key.as_slice());
    }
    for (key, result) in sent.into_iter().zip(target.pipeline::<()>(&pipeline)?) {
        match result {
            Ok(()) => {}
            // Whatever the reason for the refusal of a dump, copying by type is tried: its errors are
            // clearer.
            Err(CommandError::Server(_)) => again.push(key),
            Err(error) => return Err(error),
        }
    }
    Ok(again)
}
