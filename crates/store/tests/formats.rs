//! Stores of older formats can be opened for ever: `fixtures/format-N` holds one as the last build of that format left it.
//!
//! A fixture's files omit their blocks of zeros: the number of blocks (u32), then each nonzero block, its number (u32)
//! before its 4,096 bytes.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use store::{Direction, KeyRange, Reader, Store, StoreError, StoreOptions, TreeId};

const BLOCK: usize = 4096;
/// Offset of the format in a meta page.
const FORMAT_AT: usize = 32;

fn tree_formats(directory: &Path) -> [u32; 2] {
    let bytes = std::fs::read(directory.join("tree")).unwrap();
    [0, BLOCK].map(|page| u32::from_le_bytes(*bytes[page + FORMAT_AT..].first_chunk().unwrap()))
}

fn unpack(format: &str, into: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format);
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let packed = std::fs::read(file.path()).unwrap();
        let (count, blocks) = packed.split_first_chunk().unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(*count) as usize * BLOCK];
        for block in blocks.chunks(4 + BLOCK) {
            let (number, block) = block.split_first_chunk().unwrap();
            let at = u32::from_le_bytes(*number) as usize * BLOCK;
            bytes[at..at + BLOCK].copy_from_slice(block);
        }
        let name = file.file_name().into_string().unwrap();
        std::fs::write(into.join(name.strip_suffix(".blocks").unwrap()), bytes).unwrap();
    }
}

fn open(path: &Path) -> Store {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 64 * 1024;
    options.map_bytes = 1 << 30;
    Store::open(path, options).unwrap().0
}

fn content(reader: &Reader, tree: TreeId) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        found.push((String::from_utf8(key.to_vec()).unwrap(), value.to_vec()));
        ControlFlow::Continue(())
    };
    reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, visit).unwrap();
    found
}

/// The fixture's content: part of it is in the tree file, the deletions and `b` only in the log.
fn documents() -> Vec<(String, Vec<u8>)> {
    let numbers = (0..100).filter(|number| number % 3 != 0);
    let documents = numbers.map(|number| (format!("key {number:05}"), format!("value {number}").into_bytes()));
    documents.chain([("large".to_string(), vec![7; 9000])]).collect()
}

#[test]
fn a_store_of_the_first_format_is_read_whole_and_takes_what_later_formats_know() {
    let directory = tempfile::tempdir().unwrap();
    unpack("format-1", directory.path());
    let segment = |number: u32| std::fs::read(directory.path().join(format!("{number:010}.log"))).unwrap();
    let first = segment(1);
    assert_eq!(tree_formats(directory.path()), [1, 1]);
    {
        let store = open(directory.path());
        let tree = store.existing_tree("documents").unwrap().unwrap();
        let reader = store.reader().unwrap();
        assert_eq!(content(&reader, tree), documents());
        let index = store.existing_tree("index").unwrap().unwrap();
        let index = content(&reader, index);
        assert_eq!(index[0], ("a".to_string(), b"1".to_vec()));
        assert_eq!((index[1].0.as_str(), &index[1].1[8..]), ("b", &b"stamped"[..]));
        assert_eq!(u64::from_le_bytes(*index[1].1.first_chunk().unwrap()), store.stats().version);
        assert!(store.verify().is_clean());
        let range = KeyRange { from: Bound::Included(b"key 00050"), to: Bound::Unbounded };
        store
            .commit(&mut |tx| {
                tx.delete_range(tree, range);
                Ok(())
            })
            .unwrap();
    }
    // A meta page that is only rewritten stays the same.
    assert_eq!(tree_formats(directory.path()), [1, 1]);
    // The older build's segment got no content that it does not know.
    assert!(segment(1) == first);
    let format = |number: u32| u32::from_le_bytes(*segment(number)[8..].first_chunk().unwrap());
    assert_eq!((format(1), format(2)), (1, 2));
    let store = open(directory.path());
    let tree = store.existing_tree("documents").unwrap().unwrap();
    let left = documents().into_iter().filter(|(key, _)| key.as_str() < "key 00050").collect::<Vec<_>>();
    assert_eq!(content(&store.reader().unwrap(), tree), left);
    // Two checkpoints write both meta pages.
    for formats in [[1, 2], [2, 2]] {
        store
            .commit(&mut |tx| {
                tx.put(tree, b"key 00001", b"value 1");
                Ok(())
            })
            .unwrap();
        store.checkpoint().unwrap();
        let mut found = tree_formats(directory.path());
        found.sort_unstable();
        assert_eq!(found, formats);
    }
    drop(store);
    let store = open(directory.path());
    assert_eq!(content(&store.reader().unwrap(), tree), left);
    assert!(store.verify().is_clean());
}

#[test]
fn a_meta_page_of_a_later_format_is_refused_also_beside_one_that_is_known() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let path = directory.path().join("tree");
    let mut bytes = std::fs::read(&path).unwrap();
    let page = &mut bytes[BLOCK..2 * BLOCK];
    page[FORMAT_AT..FORMAT_AT + 4].copy_from_slice(&3u32.to_le_bytes());
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let refused = Store::open(directory.path(), StoreOptions::default()).err();
    assert!(matches!(refused, Some(StoreError::Format { found: 3, supported: 2 })), "{refused:?}");
}
