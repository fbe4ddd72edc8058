//! Building a view over a view by reading the rows of the lower view after that is built.
//!
//! Each transaction reads the next rows, adds their contributions, and stores its progress. Later changes of these rows are
//! applied by the writes that cause them (`chain.rs`). The rows read are validated at the commit, so no outdated row is
//! counted.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use binjson::StoredDocument;

use super::chain::{progress_key, progress_value};
use super::database_core::DatabaseCore;
use super::table;
use super::view::View;
use super::write::{self, ViewBuffers};
use crate::engine::{self, STAMP_BYTES, Within};
use crate::patience::patiently;

/// Rows read in one transaction; fewer if their contributions exceed its limits.
const ROWS_PER_TRANSACTION: usize = 64;

/// Result of a build.
pub(super) enum Built {
    Whole,
    /// Stopped on request.
    Stopped,
    Failed(String),
}

/// Builds a view from all rows of the view below.
pub(super) fn build(core: &DatabaseCore, upper: &View, lower: &View, stop: &AtomicBool) -> Built {
    let build = Build { core, upper, lower, stop, wanted: upper.definition.wanted_of(&lower.definition) };
    upper.begin(1);
    upper.begin_to_follow();
    let (mut behind, mut buffers) = (None, ViewBuffers::default());
    while !stop.load(Ordering::Acquire) {
        match build.step(behind.as_deref(), &mut buffers) {
            Ok(Step { rows, last }) => {
                upper.documents.fetch_add(rows, Ordering::Relaxed);
                if last.is_none() {
                    upper.parts_done.fetch_add(1, Ordering::Relaxed);
                    return Built::Whole;
                }
                behind = last;
            }
            Err(_) if stop.load(Ordering::Acquire) => {}
            Err(why) => return Built::Failed(why),
        }
    }
    Built::Stopped
}

struct Build<'b> {
    core: &'b DatabaseCore,
    upper: &'b View,
    lower: &'b View,
    stop: &'b AtomicBool,
    wanted: Vec<bool>,
}

/// Result of one transaction.
struct Step {
    rows: u64,
    /// The last row's key; none at the end.
    last: Option<Vec<u8>>,
}

impl Build<'_> {
    fn step(&self, behind: Option<&[u8]>, buffers: &mut ViewBuffers) -> Result<Step, String> {
        let mut rows_most = ROWS_PER_TRANSACTION;
        loop {
            let mut done = Ok(Step { rows: 0, last: None });
            let mut add_rows = |tx: &mut engine::Tx<'_>| {
                done = self.prepare(tx, (behind, rows_most), buffers);
                if done.is_ok() { Ok(()) } else { Err(engine::Abort) }
            };
            self.core.right_of_way.give(self.stop);
            let committed = patiently(self.stop, || self.core.store.commit(&mut add_rows));
            return match (committed, done) {
                (Err(engine::StoreError::Aborted), Err(why)) => Err(why),
                (Err(engine::StoreError::Limit { .. }), _) if rows_most > 1 => {
                    rows_most /= 2;
                    continue;
                }
                (Err(error), _) => Err(error.to_string()),
                (Ok(_), done) => done,
            };
        }
    }

    fn prepare(
        &self,
        tx: &mut engine::Tx<'_>,
        (behind, rows_most): (Option<&[u8]>, usize),
        buffers: &mut ViewBuffers,
    ) -> Result<Step, String> {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let read = table::each_document(self.lower, &Within::new(tx), &self.wanted, behind, &mut |key, row| {
            rows.push((key.to_vec(), row.to_vec()));
            if rows.len() == rows_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.map_err(|error| error.to_string())?;
        for (_, row) in &rows {
            let document = row.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok());
            let document = document.ok_or_else(|| format!("a row of the view {} is damaged", self.lower.name))?;
            let mut fold = |tree, key: &[u8], operand: &[u8]| tx.fold(tree, key, operand);
            write::one(self.upper, None, Some(document), &mut fold, buffers).map_err(|why| why.to_string())?;
        }
        let count = rows.len();
        let last = rows.pop().map(|(key, _)| key).filter(|_| count == rows_most);
        tx.put(self.core.catalog_tree, &progress_key(self.upper), &progress_value(last.as_deref()));
        Ok(Step { rows: count as u64, last })
    }
}
