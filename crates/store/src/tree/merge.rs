//! Merging sorted changes into a tree: each node that a change falls in is written once, bottom-up, in one pass.
//!
//! The old tree is walked top-down along the changes. A leaf that is touched pours its entries, changed, into the run of
//! level 0; a branch that is touched pours its untouched children into the run of its level, between what the runs below
//! write. Neighbouring touched leaves go on in one run, so that they are packed anew together. A run that would leave a page
//! mostly empty takes in the next sibling, or at the end of its branch the one before: that is how pages merge.
//! Old pages are not written to; they are listed as freed.

use std::iter::Peekable;
use std::ops::Range;

use super::assembler::{Assembler, Root};
use super::file::Shared;
use super::node::{Node, Stored};
use super::output::Output;
use super::page::{Damage, Extent, KEY_BYTES_MAX, PageNo, VALUE_BYTES_MAX, VALUE_INLINE_MAX};
use super::run::{Held, Run};
use crate::Error;

/// A key with its new value, or `None` where it goes.
pub(super) type Edit<'e> = (&'e [u8], Option<&'e [u8]>);

/// The keys from `from` on and below `to` (or to the end).
#[derive(Clone, Copy)]
pub(super) struct Cut<'k> {
    pub(super) from: &'k [u8],
    pub(super) to: Option<&'k [u8]>,
}

impl Cut<'_> {
    /// Whether all keys between two fences lie within.
    fn holds(&self, low: &[u8], upper: Option<&[u8]>) -> bool {
        self.from <= low && self.to.is_none_or(|to| upper.is_some_and(|upper| upper <= to))
    }

    /// Whether a key between two fences may lie within.
    fn meets(&self, low: &[u8], upper: Option<&[u8]>) -> bool {
        upper.is_none_or(|upper| self.from < upper) && self.to.is_none_or(|to| low < to)
    }
}

/// One pass over one tree. `'a` is what old pages and edits are borrowed for.
pub(super) struct Merge<'a, 'w, I: Iterator<Item = Edit<'a>>> {
    shared: &'a Shared,
    output: &'w mut Output,
    freed: &'w mut Vec<Extent>,
    edits: Peekable<I>,
    /// Keys that all go.
    cut: Option<Cut<'a>>,
    last_key: Option<&'a [u8]>,
    assembler: Assembler<'a>,
    entries: u64,
}

impl<'a, 'w, I: Iterator<Item = Edit<'a>>> Merge<'a, 'w, I> {
    pub(super) fn new(
        shared: &'a Shared,
        output: &'w mut Output,
        freed: &'w mut Vec<Extent>,
        edits: impl IntoIterator<IntoIter = I>,
    ) -> Self {
        let edits = edits.into_iter().peekable();
        Merge { shared, output, freed, edits, cut: None, last_key: None, assembler: Assembler::default(), entries: 0 }
    }

    /// The tree without a range of keys; no edits.
    pub(super) fn cut(mut self, root: Root, cut: Cut<'a>) -> Result<Root, Error> {
        debug_assert!(self.edits.peek().is_none(), "a cut is a pass of its own");
        if root.page == PageNo::NONE {
            return Ok(root);
        }
        self.cut = Some(cut);
        self.pass(root)
    }

    /// The tree with the changes made.
    pub(super) fn apply(mut self, root: Root) -> Result<Root, Error> {
        if self.edits.peek().is_none() { Ok(root) } else { self.pass(root) }
    }

    fn pass(mut self, root: Root) -> Result<Root, Error> {
        self.entries = root.entries;
        if root.page == PageNo::NONE {
            self.assembler.open(0, &[]);
            while let Some(edit) = self.next_edit(None)? {
                self.push_edit(edit)?;
            }
            self.assembler.append = true;
        } else {
            self.rewrite(root.page, root.level, &[], None)?;
            for level in 0..root.level {
                self.join_previous(level)?;
                if level < root.level {
                    self.close_unless_last(level, root.level)?;
                }
            }
        }
        let entries = self.entries;
        let root = self.assembler.finish(self.output)?;
        Ok(Root { entries: if root.page == PageNo::NONE { 0 } else { entries }, ..root })
    }

    /// Closes a level below the root's; the top is left to [`Assembler::finish`], which may lower the tree.
    fn close_unless_last(&mut self, level: u8, root_level: u8) -> Result<(), Error> {
        let is_top = (level + 1..=root_level + 1).all(|above| self.assembler.run(above).is_empty());
        if is_top { Ok(()) } else { self.assembler.close(level, self.output) }
    }

    /// The next change below the fence `upper`, checked.
    fn next_edit(&mut self, upper: Option<&[u8]>) -> Result<Option<Edit<'a>>, Error> {
        let Some(edit) = self.edits.next_if(|(key, _)| upper.is_none_or(|upper| *key < upper)) else { return Ok(None) };
        let (key, value) = edit;
        assert!(self.last_key.is_none_or(|last| last < key), "changes come in rising order of keys");
        self.last_key = Some(key);
        check_limits(key, value.unwrap_or_default())?;
        Ok(Some(edit))
    }

    /// Whether a node between these fences changes.
    fn is_touched(&mut self, low: &[u8], upper: Option<&[u8]>) -> bool {
        if let Some(cut) = &self.cut {
            return cut.meets(low, upper);
        }
        self.edits.peek().is_some_and(|(key, _)| upper.is_none_or(|upper| *key < upper))
    }

    fn rewrite(&mut self, place: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), Error> {
        self.assembler.open(level, low);
        if level == 0 { self.rewrite_leaf(place, upper) } else { self.rewrite_branch(place, level, low, upper) }
    }

    fn rewrite_leaf(&mut self, place: PageNo, upper: Option<&[u8]>) -> Result<(), Error> {
        let leaf = self.shared.checked_node(place, 0)?;
        self.freed.push(Extent::one(place));
        let damaged = |damage| self.shared.damage(place, damage);
        let mut copied = 0;
        while let Some((key, value)) = self.next_edit(upper)? {
            let (rank, found) = leaf.rank(key).map_err(damaged)?;
            load_leaf(self.assembler.run(0), &leaf, copied..rank).map_err(damaged)?;
            copied = rank;
            if found {
                copied += 1;
                // A damaged count is not worth a panic: verify tells it.
                self.entries = self.entries.saturating_sub(1);
                free_values(self.shared, place, &leaf, rank..copied, self.freed)?;
            } else if rank == leaf.count() && upper.is_none() && value.is_some() {
                self.assembler.append = true;
            }
            self.push_edit((key, value))?;
        }
        if let Some(cut) = self.cut {
            let (from, _) = leaf.rank(cut.from).map_err(damaged)?;
            let to = cut.to.map_or(Ok(leaf.count()), |to| leaf.rank(to).map(|(rank, _)| rank)).map_err(damaged)?;
            load_leaf(self.assembler.run(0), &leaf, 0..from).map_err(damaged)?;
            copied = from.max(to);
            self.entries = self.entries.saturating_sub((copied - from) as u64);
            free_values(self.shared, place, &leaf, from..copied, self.freed)?;
        }
        load_leaf(self.assembler.run(0), &leaf, copied..leaf.count()).map_err(damaged)?;
        self.assembler.relieve(0, self.output)
    }

    fn push_edit(&mut self, (key, value): Edit<'a>) -> Result<(), Error> {
        let Some(value) = value else { return Ok(()) };
        self.entries += 1;
        let held = if value.len() > VALUE_INLINE_MAX {
            Held::Overflow(self.output.write_overflow(value)?)
        } else {
            Held::Borrowed(value)
        };
        self.assembler.run(0).push(key, &[], held);
        self.assembler.relieve(0, self.output)
    }

    fn rewrite_branch(&mut self, place: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), Error> {
        let branch = self.shared.checked_node(place, level)?;
        self.freed.push(Extent::one(place));
        let damaged = |damage| self.shared.damage(place, damage);
        let mut child_low = low.to_vec();
        let mut separator = Vec::new();
        for index in 0..=branch.count() {
            let child = branch.child(index).map_err(damaged)?;
            let child_upper = if index < branch.count() {
                branch.key_into(index, &mut separator).map_err(damaged)?;
                Some(separator.as_slice())
            } else {
                upper
            };
            self.visit_child(child, level - 1, &child_low, child_upper)?;
            std::mem::swap(&mut child_low, &mut separator);
        }
        Ok(())
    }

    /// A child of a branch that is rewritten: rewritten too, or taken over as it is.
    fn visit_child(&mut self, child: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), Error> {
        if self.cut.is_some_and(|cut| cut.holds(low, upper)) {
            let gone = free_subtree(self.shared, child, level, self.freed)?;
            self.entries = self.entries.saturating_sub(gone);
            return Ok(());
        }
        if self.is_touched(low, upper) {
            return self.rewrite(child, level, low, upper);
        }
        for below in 0..level {
            self.join_previous(below)?;
            self.assembler.close(below, self.output)?;
        }
        if self.assembler.run(level).is_underfull(level) {
            return self.rewrite(child, level, low, upper);
        }
        self.assembler.close(level, self.output)?;
        let above = self.assembler.run(level + 1);
        above.push(low, &[], Held::Child { page: child, fresh: false });
        self.assembler.relieve(level + 1, self.output)
    }

    /// A run that ends with its branch and is too small takes in the sibling before, where that is an old page.
    fn join_previous(&mut self, level: u8) -> Result<(), Error> {
        if !self.assembler.run(level).is_underfull(level) {
            return Ok(());
        }
        let Some((low, place)) = self.assembler.run(level + 1).pop_old_child() else { return Ok(()) };
        let node = self.shared.checked_node(place, level)?;
        self.freed.push(Extent::one(place));
        let mut joined = Run::default();
        let loaded = if level == 0 {
            load_leaf(&mut joined, &node, 0..node.count())
        } else {
            load_branch(&mut joined, &node, &low)
        };
        loaded.map_err(|damage| self.shared.damage(place, damage))?;
        let run = self.assembler.run(level);
        joined.append(run);
        joined.low = Some(low);
        *run = joined;
        Ok(())
    }
}

/// Lists a node and all below it as freed, and counts its entries. The level bounds the recursion.
pub(super) fn free_subtree(shared: &Shared, place: PageNo, level: u8, freed: &mut Vec<Extent>) -> Result<u64, Error> {
    let node = shared.checked_node(place, level)?;
    freed.push(Extent::one(place));
    if level == 0 {
        free_values(shared, place, &node, 0..node.count(), freed)?;
        return Ok(node.count() as u64);
    }
    let mut entries = 0u64;
    for index in 0..=node.count() {
        let child = node.child(index).map_err(|damage| shared.damage(place, damage))?;
        entries = entries.saturating_add(free_subtree(shared, child, level - 1, freed)?);
    }
    Ok(entries)
}

/// Lists the overflow extents of some entries of a leaf as freed.
fn free_values(
    shared: &Shared,
    place: PageNo,
    leaf: &Node<'_>,
    range: Range<usize>,
    freed: &mut Vec<Extent>,
) -> Result<(), Error> {
    for index in range {
        if let Stored::Overflow(value) = leaf.stored(index).map_err(|damage| shared.damage(place, damage))? {
            // The leaf's checksum is right; the extent is looked at only so that nothing is freed that is not there.
            shared.overflow(value, false)?;
            freed.push(value.extent());
        }
    }
    Ok(())
}

/// The bounds of what a tree takes.
pub(super) fn check_limits(key: &[u8], value: &[u8]) -> Result<(), Error> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::Limit { what: "key", limit: KEY_BYTES_MAX as u64 });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::Limit { what: "value", limit: VALUE_BYTES_MAX as u64 });
    }
    Ok(())
}

/// Copies entries of an old leaf into a run.
fn load_leaf<'a>(run: &mut Run<'a>, leaf: &Node<'a>, range: Range<usize>) -> Result<(), Damage> {
    for index in range {
        let held = match leaf.stored(index)? {
            Stored::Inline(value) => Held::Borrowed(value),
            Stored::Overflow(place) => Held::Overflow(place),
        };
        run.push_with(held, |key| {
            key.extend_from_slice(leaf.prefix());
            leaf.push_suffix(index, key)
        })?;
    }
    Ok(())
}

/// Copies the children of an old branch into a run; the first one's separator is the branch's own.
fn load_branch<'a>(run: &mut Run<'a>, branch: &Node<'a>, low: &[u8]) -> Result<(), Damage> {
    run.push(low, &[], Held::Child { page: branch.child(0)?, fresh: false });
    for index in 0..branch.count() {
        run.push_with(Held::Child { page: branch.child(index + 1)?, fresh: false }, |key| {
            key.extend_from_slice(branch.prefix());
            branch.push_suffix(index, key)
        })?;
    }
    Ok(())
}
