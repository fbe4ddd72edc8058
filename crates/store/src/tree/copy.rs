//! A copy of all trees of one view, in a new tree file: what backups and compaction are made of.
//!
//! Trees are read in key order and built anew, bottom-up: the copy has full leaves, no free space to speak of, and was
//! written from its start to its end. Copying the pages as they lie would read as they lie, too, but the file would keep
//! its holes; and keys in order prove what a checksum does not.
//!
//! - Every page that is read has its checksum computed, and its number, kind and level compared; keys must rise through
//!   the whole tree, and the entries must be as many as the catalog says. So damage is an error with its place in the
//!   source, and never a copy of damage.
//! - Both meta pages of the copy name the same trees. A new file's first meta page names none: with it beside the real one,
//!   a single bad page would make an empty store of a full one.
//! - The copy is read back as a whole and verified before it is handed out.
//!
//! [`measure`] builds the same trees of what is visible, the log's changes included, to learn the size of such a file.
//!
//! While the view is held the pages that it reaches are not used again: the source's file grows by what checkpoints
//! replace meanwhile. So the copy goes at the disk's pace, never at a client's.

use std::io;
use std::ops::ControlFlow;

use super::bulk::{BulkBuilder, BulkRoot};
use super::chunk_writer::Pace;
use super::file::TreeFile;
use super::node::{Node, Stored};
use super::page::{Damage, PAGE_BYTES, PageNo};
use super::root::Root;
use super::shared::Shared;
use super::view::{TreeInfo, TreeView};
use crate::disk::Disk;
use crate::key::Visit;
use crate::log::LogPosition;
use crate::{Error, TreeId, Version};

/// Entries between two reports of how far a copy is, and chances to end it.
const ENTRIES_PER_REPORT: u64 = 4096;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Entries copied.
    pub entries: u64,
    /// Entries there are.
    pub entries_total: u64,
    /// All is copied, and is being read back.
    pub is_verifying: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The last commit in it; all before it are there too, and none after it.
    pub version: Version,
    /// Entries of all trees.
    pub entries: u64,
    /// Bytes of the tree file.
    pub bytes: u64,
}

/// Told how far a copy is, and asked whether it shall go on.
pub type Watch<'w> = dyn FnMut(Progress) -> ControlFlow<()> + 'w;

/// Where a copy goes, and how fast.
pub(crate) struct Target<'d> {
    pub(crate) disk: &'d dyn Disk,
    pub(crate) name: &'d str,
    /// Where replay starts from the copy.
    pub(crate) log_start: LogPosition,
    pub(crate) map_bytes: u64,
    /// Made for each tree.
    pub(crate) pace: &'d dyn Fn() -> Pace,
}

/// Copies a view into a new file, durable and verified when this returns.
pub(crate) fn copy(view: &TreeView, target: &Target<'_>, watch: &mut Watch<'_>) -> Result<Copied, Error> {
    let version = view.meta().version;
    TreeFile::create(target.disk, target.name, version, target.log_start)?;
    let file = TreeFile::open(target.disk, target.name, target.map_bytes)?.kept_small().choose(0)?;
    let trees: Vec<TreeInfo> = view.list().collect();
    let entries_total = trees.iter().map(|info| info.entries).sum();
    let mut tell = Tell { watch, progress: Progress { entries_total, ..Progress::default() } };
    let lost = view.lost();
    let mut roots = Vec::with_capacity(trees.len());
    for info in &trees {
        roots.push(copy_tree(view, info.tree, file.bulk((target.pace)()), &mut tell)?);
    }
    view.check_lost(lost)?;
    attach(&file, trees.iter().map(|info| (info.tree, info.name.as_deref())), roots, target, version)?;
    // For the second meta page: see the module's text.
    file.begin((target.pace)())?.finish(version, target.log_start)?;
    tell.progress.is_verifying = true;
    tell.say()?;
    let report = file.view().verify();
    match report.faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(Copied { version, entries: entries_total, bytes: file.space_stat().pages * PAGE_BYTES as u64 }),
    }
}

/// Visits the entries of one tree in key order.
pub(crate) type ScanTree<'s> = dyn FnMut(TreeId, &mut Visit<'_>) -> Result<(), Error> + 's;

/// Builds a new tree file with these trees, to learn its size; the file is left to the caller to remove. It holds nothing that may be trusted: what is
/// read for it is not checked as [`copy`] checks it.
pub(crate) fn measure(
    (trees, scan): (&[(TreeId, Option<String>)], &mut ScanTree<'_>),
    version: Version,
    target: &Target<'_>,
    watch: &mut Watch<'_>,
) -> Result<Copied, Error> {
    TreeFile::create(target.disk, target.name, version, target.log_start)?;
    let file = TreeFile::open(target.disk, target.name, target.map_bytes)?.kept_small().choose(0)?;
    let mut tell = Tell { watch, progress: Progress::default() };
    let mut roots = Vec::with_capacity(trees.len());
    for (tree, _) in trees {
        let (mut builder, mut failure) = (file.bulk((target.pace)()), None);
        scan(*tree, &mut |key, value| {
            tell.progress.entries += 1;
            let is_time_to_tell = tell.progress.entries.is_multiple_of(ENTRIES_PER_REPORT);
            let told = || is_time_to_tell.then(|| tell.say().err()).flatten();
            failure = builder.push(key, value).err().or_else(told);
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
    Ok(Copied { version, entries: tell.progress.entries, bytes: file.space_stat().pages * PAGE_BYTES as u64 })
}

fn attach<'n>(
    file: &TreeFile,
    trees: impl Iterator<Item = (TreeId, Option<&'n str>)>,
    roots: Vec<BulkRoot>,
    target: &Target<'_>,
    version: Version,
) -> Result<(), Error> {
    let mut writer = file.begin((target.pace)())?;
    for ((tree, name), root) in trees.zip(roots) {
        if let Some(name) = name {
            writer.set_name(tree, name)?;
        }
        writer.attach(tree, root)?;
    }
    writer.finish(version, target.log_start).map(drop)
}

/// How far, and to whom it is told.
struct Tell<'w, 'f> {
    watch: &'w mut Watch<'f>,
    progress: Progress,
}

impl Tell<'_, '_> {
    fn say(&mut self) -> Result<(), Error> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }
}

/// What a copy that was told to end ends with.
pub(crate) fn given_up() -> Error {
    let source = io::Error::new(io::ErrorKind::Interrupted, "given up before its end");
    Error::Io { context: "copy the store".to_string(), source }
}

fn copy_tree(view: &TreeView, tree: TreeId, builder: BulkBuilder, tell: &mut Tell<'_, '_>) -> Result<BulkRoot, Error> {
    let Root { page, level, entries } = view.root(tree);
    let shared = view.shared();
    let mut walk = Walk { shared, builder, key: Vec::new(), last_key: Vec::new(), tell };
    if page != PageNo::NONE {
        walk.node(page, level)?;
    }
    if walk.builder.entries() != entries {
        return Err(shared.damage(page, Damage("tree holds another number of entries than the catalog says")));
    }
    walk.builder.finish()
}

/// A walk over one tree, in key order, that pushes what it finds.
struct Walk<'v, 't, 'w, 'f> {
    shared: &'v Shared,
    builder: BulkBuilder,
    key: Vec<u8>,
    last_key: Vec<u8>,
    tell: &'t mut Tell<'w, 'f>,
}

impl Walk<'_, '_, '_, '_> {
    /// The recursion goes down one level each time; and each leaf has an entry, so that one which is met twice ends it.
    fn node(&mut self, place: PageNo, level: u8) -> Result<(), Error> {
        let shared = self.shared;
        let node = shared.checked_node(place, level)?;
        if level == 0 {
            return self.leaf(place, &node);
        }
        let child = |index| node.child(index).map_err(|damage| shared.damage(place, damage));
        if level == 1 {
            shared.read_ahead((0..=node.count()).filter_map(|index| node.child(index).ok()));
        }
        for index in 0..=node.count() {
            self.node(child(index)?, level - 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, place: PageNo, leaf: &Node<'_>) -> Result<(), Error> {
        let shared = self.shared;
        let damage = |damage| shared.damage(place, damage);
        for index in 0..leaf.count() {
            leaf.key_into(index, &mut self.key).map_err(damage)?;
            if self.builder.entries() > 0 && self.key <= self.last_key {
                return Err(damage(Damage("keys out of order")));
            }
            let value = match leaf.stored(index).map_err(damage)? {
                Stored::Inline(value) => value,
                Stored::Overflow(value) => shared.overflow(value, true)?,
            };
            self.builder.push(&self.key, value)?;
            std::mem::swap(&mut self.key, &mut self.last_key);
            self.tell.progress.entries += 1;
            if self.tell.progress.entries.is_multiple_of(ENTRIES_PER_REPORT) {
                self.tell.say()?;
            }
        }
        Ok(())
    }
}
