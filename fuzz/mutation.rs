//! Mutations of good bytes: what a fuzzer without coverage lives on. Most of an input stays good, so that the code behind
//! the first check is reached.

use proptest::prelude::*;

/// One change. Its numbers are taken modulo what there is, so that every edit fits every text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    kind: u8,
    at: u32,
    other: u32,
    len: u16,
}

/// Up to `edits_max` changes; most often few.
pub(crate) fn edits(edits_max: usize) -> impl Strategy<Value = Vec<Edit>> {
    let edit = (0u8..7, any::<u32>(), any::<u32>(), 1u16..24);
    prop::collection::vec(edit.prop_map(|(kind, at, other, len)| Edit { kind, at, other, len }), 1..=edits_max)
}

/// The text with all edits made one after the other; `words` are what its language is made of.
pub(crate) fn apply(text: &[u8], edits: &[Edit], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for edit in edits {
        make(&mut bytes, *edit, words);
    }
    bytes
}

fn make(bytes: &mut Vec<u8>, edit: Edit, words: &[&[u8]]) {
    let at = edit.at as usize % (bytes.len() + 1);
    let end = (at + usize::from(edit.len)).min(bytes.len());
    let other = edit.other as usize;
    match edit.kind {
        0 if at < bytes.len() => bytes[at] = other as u8,
        1 => drop(bytes.drain(at..end)),
        // A piece doubled, and a piece copied elsewhere.
        2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        3 => {
            let to = other % (bytes.len() + 1);
            drop(bytes.splice(to..to, bytes[at..end].to_vec()));
        }
        4 if other.is_multiple_of(8) => bytes.truncate(at),
        5 => {
            let word = words[other % words.len()];
            drop(bytes.splice(at..end, word.iter().copied()));
        }
        _ => {
            let word = words[other % words.len()];
            drop(bytes.splice(at..at, word.iter().copied()));
        }
    }
}
