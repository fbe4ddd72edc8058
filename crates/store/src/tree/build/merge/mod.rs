//! Merges sorted changes into a tree: each node with a change is rewritten once, bottom-up, in one pass.
//!
//! The old tree is traversed top-down along the changes. A changed leaf adds its entries, with the changes, to the run
//! of level 0. A changed branch adds its unchanged children to the run of its level, between the pages that the runs
//! below write. Adjacent changed leaves share one run, so that they are packed together. A run that would leave a page
//! mostly empty takes in the next sibling, or at the end of its branch the previous one; this is how pages merge. Old
//! pages are not written to; they are listed as freed.
//!
//! Deleted ranges of keys ([`Cut`]) are applied in the same pass, before the changes inside them. A subtree inside one
//! range is not added to any run.

use std::iter::Peekable;
use std::ops::Range;

use super::assembler::Assembler;
use super::output::Output;
use super::run::{Held, Run};
use crate::base::error::StoreError;
use crate::base::limits::check_limits;
use crate::tree::format::node::{Node, Stored};
use crate::tree::format::page::{Damage, Extent, HEADER_BYTES, PageNo, VALUE_INLINE_MAX};
use crate::tree::format::root::Root;
use crate::tree::state::shared::Shared;

/// A key with its new value, or `None` for a deletion.
pub(in crate::tree) type Edit<'e> = (&'e [u8], Option<&'e [u8]>);

/// The keys from `from` on and below `to` (or to the end).
#[derive(Clone, Copy)]
pub(crate) struct Cut<'k> {
    pub(crate) from: &'k [u8],
    pub(crate) to: Option<&'k [u8]>,
}

impl Cut<'_> {
    /// Whether all keys between two fences are inside.
    fn holds(&self, low: &[u8], upper: Option<&[u8]>) -> bool {
        self.from <= low && self.to.is_none_or(|to| upper.is_some_and(|upper| upper <= to))
    }

    /// Whether a key between two fences may be inside.
    fn meets(&self, low: &[u8], upper: Option<&[u8]>) -> bool {
        upper.is_none_or(|upper| self.from < upper) && self.to.is_none_or(|to| low < to)
    }
}

/// One pass over one tree. `'a` is the lifetime of old pages and edits.
pub(in crate::tree) struct Merge<'a, 'w, I: Iterator<Item = Edit<'a>>> {
    shared: &'a Shared,
    output: &'w mut Output,
    freed: &'w mut Vec<Extent>,
    edits: Peekable<I>,
    /// Deleted ranges, ascending and disjoint. Ranges behind the merge position are dropped from the front.
    cuts: &'a [Cut<'a>],
    last_key: Option<&'a [u8]>,
    assembler: Assembler<'a>,
    entries: u64,
}

impl<'a, 'w, I: Iterator<Item = Edit<'a>>> Merge<'a, 'w, I> {
    pub(in crate::tree) fn new(
        shared: &'a Shared,
        output: &'w mut Output,
        freed: &'w mut Vec<Extent>,
        cuts: &'a [Cut<'a>],
        edits: impl IntoIterator<IntoIter = I>,
    ) -> Self {
        let is_ordered = cuts.is_sorted_by(|left, right| left.to.is_some_and(|to| to < right.from));
        assert!(is_ordered, "cuts come in rising order and do not meet");
        let edits = edits.into_iter().peekable();
        Merge { shared, output, freed, edits, cuts, last_key: None, assembler: Assembler::default(), entries: 0 }
    }

    /// The tree without the cuts and with the changes.
    pub(in crate::tree) fn apply(mut self, root: Root) -> Result<Root, StoreError> {
        let is_cut = root.page != PageNo::NONE && !self.cuts.is_empty();
        if self.edits.peek().is_some() || is_cut { self.pass(root) } else { Ok(root) }
    }

    fn pass(mut self, root: Root) -> Result<Root, StoreError> {
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

    /// Closes a level below the root's; the top level is left to [`Assembler::finish`], which may reduce the tree's height.
    fn close_unless_last(&mut self, level: u8, root_level: u8) -> Result<(), StoreError> {
        let is_top = (level + 1..=root_level + 1).all(|above| self.assembler.run(above).is_empty());
        if is_top { Ok(()) } else { self.assembler.close(level, self.output) }
    }

    /// The next change below the fence `upper`, checked.
    fn next_edit(&mut self, upper: Option<&[u8]>) -> Result<Option<Edit<'a>>, StoreError> {
        let Some(edit) = self.edits.next_if(|(key, _)| upper.is_none_or(|upper| *key < upper)) else { return Ok(None) };
        let (key, value) = edit;
        assert!(self.last_key.is_none_or(|last| last < key), "changes come in rising order of keys");
        self.last_key = Some(key);
        check_limits(key, value.unwrap_or_default())?;
        Ok(Some(edit))
    }

    /// Whether a node between these fences changes. The pass never goes back below `low`.
    fn is_touched(&mut self, low: &[u8], upper: Option<&[u8]>) -> bool {
        self.has_edits(upper) || self.cuts_from(low).first().is_some_and(|cut| cut.meets(low, upper))
    }

    fn has_edits(&mut self, upper: Option<&[u8]>) -> bool {
        self.edits.peek().is_some_and(|(key, _)| upper.is_none_or(|upper| *key < upper))
    }

    /// The cuts that do not end at or below `low`.
    fn cuts_from(&mut self, low: &[u8]) -> &'a [Cut<'a>] {
        while let Some((Cut { to: Some(to), .. }, rest)) = self.cuts.split_first()
            && *to <= low
        {
            self.cuts = rest;
        }
        self.cuts
    }

    fn rewrite(&mut self, place: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), StoreError> {
        self.assembler.open(level, low);
        if level == 0 { self.rewrite_leaf(place, low, upper) } else { self.rewrite_branch(place, level, low, upper) }
    }

    /// Drops a node that is inside a cut; the changes between its fences replace it.
    fn replace(&mut self, place: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), StoreError> {
        let gone = free_subtree(self.shared, place, level, self.freed)?;
        self.entries = self.entries.saturating_sub(gone);
        if !self.has_edits(upper) {
            return Ok(());
        }
        (0..=level).for_each(|level| self.assembler.open(level, low));
        self.assembler.append |= upper.is_none();
        while let Some(edit) = self.next_edit(upper)? {
            self.push_edit(edit)?;
        }
        Ok(())
    }

    fn rewrite_leaf(&mut self, place: PageNo, low: &[u8], upper: Option<&[u8]>) -> Result<(), StoreError> {
        let leaf = self.shared.checked_node(place, 0)?;
        self.freed.push(Extent::one(place));
        let damaged = |damage| self.shared.damage(place, damage);
        let cuts = self.cut_ranks(&leaf, low, upper).map_err(damaged)?;
        let mut copied = 0;
        while let Some((key, value)) = self.next_edit(upper)? {
            let (rank, found) = leaf.rank(key).map_err(damaged)?;
            self.keep(place, &leaf, copied..rank, &cuts)?;
            copied = rank;
            if found {
                copied += 1;
                // A wrong count is not worth a panic: verify reports it.
                self.entries = self.entries.saturating_sub(1);
                free_values(self.shared, place, &leaf, rank..copied, self.freed)?;
            } else if rank == leaf.count() && upper.is_none() && value.is_some() {
                self.assembler.append = true;
            }
            self.push_edit((key, value))?;
        }
        self.keep(place, &leaf, copied..leaf.count(), &cuts)?;
        self.assembler.relieve(0, self.output)
    }

    /// The entries of a leaf that are cut out.
    fn cut_ranks(&mut self, leaf: &Node<'a>, low: &[u8], upper: Option<&[u8]>) -> Result<Vec<Range<usize>>, Damage> {
        let cuts = self.cuts_from(low).iter().take_while(|cut| cut.meets(low, upper));
        cuts.map(|cut| {
            let from = leaf.rank(cut.from)?.0;
            let to = cut.to.map_or(Ok(leaf.count()), |to| leaf.rank(to).map(|(rank, _)| rank))?;
            Ok(from..to.max(from))
        })
        .collect()
    }

    /// Keeps some entries of an old leaf, without those that are cut out.
    fn keep(
        &mut self,
        place: PageNo,
        leaf: &Node<'a>,
        range: Range<usize>,
        cuts: &[Range<usize>],
    ) -> Result<(), StoreError> {
        let mut at = range.start;
        for cut in cuts {
            let gone = cut.start.clamp(at, range.end.max(at))..cut.end.clamp(at, range.end.max(at));
            if gone.is_empty() {
                continue;
            }
            self.load(place, leaf, at..gone.start)?;
            self.entries = self.entries.saturating_sub(gone.len() as u64);
            free_values(self.shared, place, leaf, gone.clone(), self.freed)?;
            at = gone.end;
        }
        self.load(place, leaf, at..range.end)
    }

    fn load(&mut self, place: PageNo, leaf: &Node<'a>, range: Range<usize>) -> Result<(), StoreError> {
        load_leaf(self.assembler.run(0), leaf, range).map_err(|damage| self.shared.damage(place, damage))
    }

    fn push_edit(&mut self, (key, value): Edit<'a>) -> Result<(), StoreError> {
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

    fn rewrite_branch(&mut self, place: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), StoreError> {
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

    /// Handles a child of a rewritten branch: rewrites it, or keeps it as it is.
    fn visit_child(&mut self, child: PageNo, level: u8, low: &[u8], upper: Option<&[u8]>) -> Result<(), StoreError> {
        if self.cuts_from(low).first().is_some_and(|cut| cut.holds(low, upper)) {
            return self.replace(child, level, low, upper);
        }
        if self.is_touched(low, upper) {
            return self.rewrite(child, level, low, upper);
        }
        for below in 0..level {
            self.join_previous(below)?;
            self.assembler.close(below, self.output)?;
        }
        if self.assembler.run(level).is_underfull(level) || self.takes_in(child, level)? {
            return self.rewrite(child, level, low, upper);
        }
        self.assembler.close(level, self.output)?;
        let above = self.assembler.run(level + 1);
        above.push(low, &[], Held::Child { page: child, fresh: false });
        self.assembler.relieve(level + 1, self.output)
    }

    /// Whether an unchanged leaf after a run is added to it. Branches are too few to be worth it.
    fn takes_in(&mut self, child: PageNo, level: u8) -> Result<bool, StoreError> {
        if level > 0 || !self.assembler.run(0).should_take(0, None) {
            return Ok(false);
        }
        let sibling = self.shared.checked_node(child, 0)?.used_bytes().saturating_sub(HEADER_BYTES);
        Ok(self.assembler.run(0).should_take(0, Some(sibling)))
    }

    /// An underfull run at the end of its branch takes in the previous sibling, if that is an old page.
    fn join_previous(&mut self, level: u8) -> Result<(), StoreError> {
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

/// Lists a node and its subtree as freed, and returns the number of its entries. The level bounds the recursion.
fn free_subtree(shared: &Shared, place: PageNo, level: u8, freed: &mut Vec<Extent>) -> Result<u64, StoreError> {
    let node = shared.checked_node(place, level)?;
    // Pages of one build are adjacent: a large tree that is freed as a whole is few extents.
    match freed.last_mut() {
        Some(last) if last.start.0.checked_add(last.count) == Some(place.0) => last.count += 1,
        _ => freed.push(Extent::one(place)),
    }
    if level == 0 {
        free_values(shared, place, &node, 0..node.count(), freed)?;
        return Ok(node.count() as u64);
    }
    let child_of = |index| node.child(index).map_err(|damage| shared.damage(place, damage));
    let children = (0..=node.count()).map(child_of).collect::<Result<Vec<_>, StoreError>>()?;
    shared.read_ahead(children.iter().copied());
    let mut entries = 0u64;
    for child in children {
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
) -> Result<(), StoreError> {
    for index in range {
        if let Stored::Overflow(value) = leaf.stored(index).map_err(|damage| shared.damage(place, damage))? {
            // The leaf is sound, and that suffices: a value with damaged overflow pages can be replaced and deleted.
            shared.check_inside(place, value.extent())?;
            freed.push(value.extent());
        }
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

#[cfg(test)]
mod tests;
