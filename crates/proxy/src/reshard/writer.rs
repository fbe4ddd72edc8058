//! Writes keys to one node on a separate thread, so that reading the source continues while the node works.

use std::sync::mpsc::{Receiver, SyncSender};

use resp::Pipeline;

use super::reader::{Change, Content, Reader};
use super::servers::{Origin, Server};
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

/// Writes the received chunks to a node, until the last sender is dropped. The node's clock is ahead of the source's by `clock_offset`.
pub(super) fn write(
    target: &mut Server,
    clock_offset: i64,
    source: &mut Reader,
    origin: &Origin,
    chunks: Receiver<Vec<Change>>,
) -> Result<(), ReshardError> {
    for chunk in chunks {
        for key in write_chunk(target, clock_offset, &chunk)? {
            by_type::copy(source, origin, target, clock_offset, key)?;
        }
    }
    Ok(())
}

/// Writes a chunk in one pipeline; returns the keys that must be copied by type.
fn write_chunk<'c>(target: &mut Server, clock_offset: i64, chunk: &'c [Change]) -> Result<Vec<&'c [u8]>, ReshardError> {
    let (mut pipeline, mut sent, mut again) = (Pipeline::new(), Vec::new(), Vec::new());
    for Change { key, content } in chunk {
        match content {
            // The node itself drops a key whose time is over.
            Content::Dumped { dump, expiry } => match expiry.at(clock_offset) {
                Some(at) => pipeline.add(("RESTORE", key, at, dump, "REPLACE", "ABSTTL")),
                None => pipeline.add(("RESTORE", key, 0, dump, "REPLACE")),
            },
            Content::Gone => pipeline.add(("DEL", key)),
            Content::ByType => {
                again.push(key.as_slice());
                continue;
            }
        };
        sent.push(key.as_slice());
    }
    // Whatever the reason for the refusal of a dump, copying by type is tried: its errors are clearer.
    let refused = sent.into_iter().zip(target.pipeline::<()>(&pipeline)?).filter(|(_, result)| result.is_err());
    again.extend(refused.map(|(key, _)| key));
    Ok(again)
}
