//! Applying changes to a view's rows: the store calls this for each operand that a transaction left.
//!
//! An operand contains everything that is needed to apply it, so a changed definition or a restart cannot change its meaning.
//! The effects on views over views are in `chain.rs`.
//!
//! A value's row has its number of occurrences in the group. When the first occurrence is added or the last one removed, the
//! group's distinct count changes by one.

use super::chain::Chains;
use super::operand::{GROUP, VALUE, occurrences};
use crate::encoding::varint;
use crate::engine::{self, FoldView, Folded, Further, RowChange, TreeId};
use crate::views::state;

/// Applies operands to the rows of views.
#[derive(Default)]
pub(crate) struct ViewFold {
    pub(crate) chains: Option<Chains>,
}

impl engine::Fold for ViewFold {
    fn fold(
        &self,
        _tree: TreeId,
        key: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        further: &mut Further<'_>,
    ) -> Folded {
        let folded = match operand.split_first() {
            Some((&GROUP, change)) => state::add(old.unwrap_or_default(), change, new).map(|()| rest(old, new)),
            Some((&VALUE, change)) => fold_value(key, old, change, new, further),
            _ => None,
        };
        folded.unwrap_or(Folded::Refused("a row of a view is damaged"))
    }

    fn derived<'k>(&self, tree: TreeId, key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        self.chains.as_ref()?.derived(tree, key)
    }

    fn derive(&self, view: u32, key: &[u8], now: &dyn FoldView, out: &mut Vec<u8>) -> Result<(), engine::StoreError> {
        self.chains.as_ref().map_or(Ok(()), |chains| chains.derive(view as usize, key, now, out))
    }

    fn follow(
        &self,
        view: u32,
        key: &[u8],
        change: RowChange<'_>,
        now: &dyn FoldView,
        further: &mut Further<'_>,
    ) -> Result<(), engine::StoreError> {
        self.chains.as_ref().map_or(Ok(()), |chains| chains.follow(view as usize, key, change, now, further))
    }
}

fn rest(old: Option<&[u8]>, new: &[u8]) -> Folded {
    match old {
        _ if !new.is_empty() => Folded::Put,
        Some(_) => Folded::Delete,
        None => Folded::Unchanged,
    }
}

fn fold_value(
    key: &[u8],
    old: Option<&[u8]>,
    mut change: &[u8],
    new: &mut Vec<u8>,
    further: &mut Further<'_>,
) -> Option<Folded> {
    let by = varint::take_signed(&mut change)?;
    let before = old.map_or(Some(0), occurrences)?;
    let after = before.wrapping_add(by);
    if after != 0 {
        varint::push_signed(new, after);
    }
    // While a view is being built, a removal may precede the addition. So only a change between present and absent counts.
    let step = i64::from(after > 0) - i64::from(before > 0);
    if step != 0 && !change.is_empty() {
        let (groups, rest) = change.split_first_chunk::<4>()?;
        let mut rest = rest;
        let slot = usize::try_from(varint::take(&mut rest)?).ok()?;
        let group = key.get(..usize::try_from(varint::take(&mut rest)?).ok()?)?;
        // Appended to the value temporarily, which avoids an allocation on the committer's path.
        let end = new.len();
        new.push(GROUP);
        state::distinct_change(slot, step, new);
        further(TreeId(u32::from_le_bytes(*groups)), group, &new[end..]);
        new.truncate(end);
    }
    Some(rest(old, new))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::engine::Fold;
    use proptest::prelude::*;

    use super::*;
    use crate::views::operand::{DistinctOf, value_operand};
    use crate::views::state::DecodedState;

    const GROUPS: TreeId = TreeId(1);
    const VALUES: TreeId = TreeId(2);

    #[derive(Default)]
    struct Trees(BTreeMap<(u32, Vec<u8>), Vec<u8>>);

    impl Trees {
        fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
            let mut waiting = vec![(tree, key.to_vec(), operand.to_vec())];
            while let Some((tree, key, operand)) = waiting.pop() {
                let (mut new, place) = (Vec::new(), (tree.0, key.clone()));
                let old = self.0.get(&place).map(Vec::as_slice);
                let folded =
                    ViewFold::default().fold(tree, &key, old, &operand, &mut new, &mut |tree, key, operand| {
                        waiting.push((tree, key.to_vec(), operand.to_vec()));
                    });
                match folded {
                    Folded::Put => drop(self.0.insert(place, new)),
                    Folded::Delete => drop(self.0.remove(&place)),
                    Folded::Unchanged => {}
                    Folded::Refused(why) => panic!("{why}"),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn distinct_values_are_counted_whatever_order_changes_come_in(
            values in prop::collection::vec(0u8..5, 0..20), order in prop::collection::vec(any::<prop::sample::Index>(), 40)
        ) {
            // Each value is added; those at odd places are removed again, some before their addition.
            let mut changes: Vec<(u8, i64)> = values.iter().map(|value| (*value, 1)).collect();
            changes.extend(values.iter().skip(1).step_by(2).map(|value| (*value, -1)));
            for (place, with) in order.iter().enumerate().take(changes.len()) {
                let with = with.index(changes.len());
                changes.swap(place, with);
            }
            let mut trees = Trees::default();
            let mut operand = Vec::new();
            for (value, by) in changes {
                let distinct = DistinctOf { groups: GROUPS, slot: 7, group_key_bytes: 1 };
                value_operand(by, Some(distinct), &mut operand);
                trees.fold(VALUES, &[b'g', value], &operand);
            }
            let mut left: Vec<u8> = values.iter().step_by(2).copied().collect();
            left.sort_unstable();
            left.dedup();
            let group = trees.0.get(&(GROUPS.0, vec![b'g']));
            let found = group.map_or(0, |group| DecodedState::read(group).unwrap().distinct(7));
            prop_assert_eq!(found, left.len() as i64);
            let rows = trees.0.keys().filter(|(tree, _)| *tree == VALUES.0).count();
            prop_assert_eq!(rows, left.len());
        }

        #[test]
        fn damaged_operands_are_refused_or_laid_on_never_a_panic(
            key in prop::collection::vec(any::<u8>(), 0..4), old in prop::option::of(prop::collection::vec(any::<u8>(), 0..12)),
            operand in prop::collection::vec(any::<u8>(), 0..16), kind in 0u8..2
        ) {
            let operand = [vec![kind], operand].concat();
            ViewFold::default().fold(VALUES, &key, old.as_deref(), &operand, &mut Vec::new(), &mut |_, _, _| {});
        }
    }
}
