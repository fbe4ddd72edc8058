//! A copy of all trees of a view in a new tree file, for backups and compaction.
//!
//! Trees are read in key order and built anew, bottom-up: the copy has full leaves and hardly any free space, and was
//! written sequentially. A copy page by page would read sequentially too, but would keep the file's free space, and
//! reading keys in order verifies more than checksums do.
//!
//! - The checksum of every page read is computed, and its number, kind and level are compared. Keys must rise through the whole
//!   tree, and the number of entries must be the catalog's. So damage is reported with its place in the source, and never copied.
//! - Both meta pages of the copy have the same trees. If one of them were the empty state of a new file, damage to the
//!   other one would turn a full store into an empty one.
//! - The copy is read back completely and verified before it is used.
//!
//! [`measure`] builds the same trees from all visible data, including the log's changes, to determine the size of such a file.
//!
//! While the view is held, the pages that it reaches are not reused, and the source file grows by the pages that
//! checkpoints replace. So the copy runs at the disk's speed, never at a client's.

use std::io;
use std::ops::ControlFlow;

use super::build::chunk_writer::Pace;
use super::bulk::{BulkBuilder, BulkRoot};
use super::file::TreeFile;
use super::format::page::{Damage, PAGE_BYTES};
use super::read::view::{TreeInfo, TreeView};
use super::read::whole::WholeTree;
use crate::base::error::StoreError;
use crate::base::key::{TreeId, Version, Visit};
use crate::disk::Disk;
use crate::log::LogPosition;

/// Entries between two progress reports, at which the copy can be cancelled.
const ENTRIES_PER_REPORT: u64 = 4096;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Entries copied.
    pub entries: u64,
    /// Entries to copy in all.
    pub entries_total: u64,
    /// Everything is copied and is being read back.
    pub is_verifying: bool,
}

/// Result of a copy or a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The last version in it: it contains all versions up to this one, and no later one.
    pub version: Version,
    /// Entries of all trees; changes that are only in the log are not counted.
    pub entries: u64,
    /// Bytes of the tree file; of a restored store, of all files.
    pub bytes: u64,
}

/// Receives the progress of a copy. `Break` cancels it.
pub type Watch<'w> = dyn FnMut(CopyProgress) -> ControlFlow<()> + 'w;

/// Destination and pace of a copy.
pub(crate) struct Target<'d> {
    pub(crate) disk: &'d dyn Disk,
    pub(crate) name: &'d str,
    /// Where replay starts for the copy.
    pub(crate) log_start: LogPosition,
    pub(crate) map_bytes: u64,
    /// Called for each tree.
    pub(crate) pace: &'d dyn Fn() -> Pace,
}

/// Copies a view into a new file, which is durable and verified on return.
pub(crate) fn copy(view: &TreeView, target: &Target<'_>, watch: &mut Watch<'_>) -> Result<Copied, StoreError> {
    let version = view.meta().version;
    TreeFile::create(target.disk, target.name, version, target.log_start)?;
    let file = TreeFile::open(target.disk, target.name, target.map_bytes)?.kept_small().choose(0)?;
    let trees: Vec<TreeInfo> = view.list().collect();
    let entries_total = trees.iter().map(|info| info.entries).sum();
    let mut report = Report { watch, progress: CopyProgress { entries_total, ..CopyProgress::default() } };
    let lost = view.lost();
    let mut roots = Vec::with_capacity(trees.len());
    for info in &trees {
        roots.push(copy_tree(view, info.tree, file.bulk((target.pace)()), &mut report)?);
    }
    view.check_lost(lost)?;
    attach(&file, trees.iter().map(|info| (info.tree, info.name.as_deref())), roots, target, version)?;
    // Writes the second meta page: see the module's text.
    file.begin((target.pace)())?.finish(version, target.log_start)?;
    report.progress.is_verifying = true;
    report.say()?;
    let report = file.view().verify();
    match report.faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(Copied { version, entries: entries_total, bytes: file.space_stat().pages * PAGE_BYTES as u64 }),
    }
}

/// Visits the entries of one tree in key order.
pub(crate) type ScanTree<'s> = dyn FnMut(TreeId, &mut Visit<'_>) -> Result<(), StoreError> + 's;

/// Builds a new tree file with these trees to determine its size; the caller removes the file. Its content must not be
/// trusted: what is read for it is not verified as in [`copy`].
pub(crate) fn measure(
    (trees, scan): (&[(TreeId, Option<String>)], &mut ScanTree<'_>),
    version: Version,
    target: &Target<'_>,
    watch: &mut Watch<'_>,
) -> Result<Copied, StoreError> {
    TreeFile::create(target.disk, target.name, version, target.log_start)?;
    let file = TreeFile::open(target.disk, target.name, target.map_bytes)?.kept_small().choose(0)?;
    let mut report = Report { watch, progress: CopyProgress::default() };
    let mut roots = Vec::with_capacity(trees.len());
    for (tree, _) in trees {
        let (mut builder, mut failure) = (file.bulk((target.pace)()), None);
        scan(*tree, &mut |key, value| {
            report.progress.entries += 1;
            let is_time_to_report = report.progress.entries.is_multiple_of(ENTRIES_PER_REPORT);
            let reported = || is_time_to_report.then(|| report.say().err()).flatten();
            failure = builder.push(key, value).err().or_else(reported);
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match failure {
            Some(failure) => return Err(failure),
            None => roots.push(builder.finish()?),
        }
    }
    let names = trees.iter().map(|(tree, name)| (*tree, name.as_deref()));
    attach(&file, names, roots, target, version)?;
    file.begin((target.pace)())?.finish(version, target.log_start)?;
    Ok(Copied { version, entries: report.progress.entries, bytes: file.space_stat().pages * PAGE_BYTES as u64 })
}

fn attach<'n>(
    file: &TreeFile,
    trees: impl Iterator<Item = (TreeId, Option<&'n str>)>,
    roots: Vec<BulkRoot>,
    target: &Target<'_>,
    version: Version,
) -> Result<(), StoreError> {
    let mut writer = file.begin((target.pace)())?;
    for ((tree, name), root) in trees.zip(roots) {
        if let Some(name) = name {
            writer.set_name(tree, name)?;
        }
        writer.attach(tree, root)?;
    }
    writer.finish(version, target.log_start).map(drop)
}

/// The progress, and its receiver.
struct Report<'w, 'f> {
    watch: &'w mut Watch<'f>,
    progress: CopyProgress,
}

impl Report<'_, '_> {
    fn say(&mut self) -> Result<(), StoreError> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }
}

/// The error of a cancelled copy.
pub(crate) fn given_up() -> StoreError {
    let source = io::Error::new(io::ErrorKind::Interrupted, "cancelled");
    StoreError::Io { context: "copy the store".to_string(), source: source.into() }
}

fn copy_tree(
    view: &TreeView,
    tree: TreeId,
    mut builder: BulkBuilder,
    report: &mut Report<'_, '_>,
) -> Result<BulkRoot, StoreError> {
    let (shared, root) = (view.shared(), view.root(tree));
    let mut entries = WholeTree::new(shared, root);
    let mut last_key = Vec::new();
    // Each leaf has an entry, so a page reached twice ends it with an error.
    while entries.advance()? {
        if builder.entries() > 0 && entries.key() <= last_key.as_slice() {
            return Err(shared.damage(entries.place(), Damage("keys out of order")));
        }
        builder.push(entries.key(), entries.value()?)?;
        last_key.clear();
        last_key.extend_from_slice(entries.key());
        report.progress.entries += 1;
        if report.progress.entries.is_multiple_of(ENTRIES_PER_REPORT) {
            report.say()?;
        }
    }
    if builder.entries() != root.entries {
        return Err(shared.damage(root.page, Damage("tree holds another number of entries than the catalog says")));
    }
    builder.finish()
}
