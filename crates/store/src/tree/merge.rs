//! Merging sorted changes into a tree: each node that a change falls in is written once, bottom-up, in one pass.
//!
//! The old tree is walked top-down along the changes. A leaf that is touched pours its entries, changed, into the run of
//! level 0; a branch that is touched pours its untouched children into the run of its level, between what the runs below
//! write. Neighbouring touched leaves go on in one run, so that they are packed anew together. A run that would leave a page
//! mostly empty takes in the next sibling, or at the end of its branch the one before: that is how pages merge.
//! Old pages are not written to; they are listed as freed.

use std::iter::Peekable;

use super::assembler::{Assembler, Root};
use super::file::Shared;
use super::node::{OverflowRef, Stored};
use super::output::Output;
use super::page::{Damage, Extent, KEY_BYTES_MAX, PageNo, VALUE_BYTES_MAX, VALUE_INLINE_MAX};
use super::run::{Held, Run};
use crate::Error;

/// A key with its new value, or `None` where it goes.
pub(super) type Edit<'e> = (&'e [u8], Option<&'e [u8]>);

/// One pass over one tree. `'a` is what old pages and edits are borrowed for.
pub(super) struct Merge<'a, 'w, I: Iterator<Item = Edit<'a>>> {
    shared: &'a Shared,
    output: &'w mut Output,
    freed: &'w mut Vec<Extent>,
    edits: Peekable<I>,
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
        Merge { shared, output, freed, edits, last_key: None, assembler: Assembler::default(), entries: 0 }
    }

    /// The tree with the changes made.
    pub(super) fn apply(mut self, root: Root) -> Result<Root, Error> {
        if self.edits.peek().is_none() {
            return Ok(root);
        }
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

    fn is_touched(&mut self, upper: Option<&[u8]>) -> bool {
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
                if let Stored::Overflow(old) = leaf.stored(rank).map_err(damaged)? {
                    self.free_overflow(old)?;
                }
            } else if rank == leaf.count() && upper.is_none() && value.is_some() {
                self.assembler.append = true;
            }
            self.push_edit((key, value))?;
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

    fn free_overflow(&mut self, place: OverflowRef) -> Result<(), Error> {
        // The reference was read from a leaf whose checksum is right; the extent is looked at only to free what exists.
        self.shared.overflow(place, false)?;
        self.freed.push(place.extent());
        Ok(())
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
        if self.is_touched(upper) {
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
fn load_leaf<'a>(run: &mut Run<'a>, leaf: &super::node::Node<'a>, range: std::ops::Range<usize>) -> Result<(), Damage> {
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
fn load_branch<'a>(run: &mut Run<'a>, branch: &super::node::Node<'a>, low: &[u8]) -> Result<(), Damage> {
    run.push(low, &[], Held::Child { page: branch.child(0)?, fresh: false });
    for index in 0..branch.count() {
        run.push_with(Held::Child { page: branch.child(index + 1)?, fresh: false }, |key| {
            key.extend_from_slice(branch.prefix());
            branch.push_suffix(index, key)
        })?;
    }
    Ok(())
}
