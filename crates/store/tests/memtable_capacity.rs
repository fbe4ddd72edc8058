//! The room of a memtable is decided once: steps for which [`MemtableWriter::fits`] is true are inserted completely, and a
//! single insert is refused only if the arena is really too small. Checked at every arena size, since each one ends elsewhere.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::memtable::{Demand, Full, Memtable, MemtableWriter};
use store::{TreeId, Version};

/// Arena sizes differ by whole cache lines.
const LINE: usize = 64;
/// Most arenas end inside the third level of a tree.
const ARENA_BYTES_MAX: usize = 40 << 10;

#[derive(Clone, Debug)]
enum Step {
    Put(u32, Vec<u8>, usize),
    Delete(u32, Vec<u8>),
    DeleteRange(u32, Vec<u8>, Option<Vec<u8>>),
}

impl Step {
    fn demand(&self, writer: &MemtableWriter, demand: &mut Demand) {
        match self {
            Step::Put(tree, key, value_len) => demand.add(writer, TreeId(*tree), key.len(), *value_len),
            Step::Delete(tree, key) => demand.add(writer, TreeId(*tree), key.len(), 0),
            Step::DeleteRange(tree, from, to) => {
                demand.add_range(writer, TreeId(*tree), from.len(), to.as_ref().map(Vec::len));
            }
        }
    }

    fn apply(&self, writer: &mut MemtableWriter, version: u64) -> Result<(), Full> {
        let version = Version(version);
        match self {
            Step::Put(tree, key, value_len) => writer.insert(version, TreeId(*tree), key, Some(&vec![7; *value_len])),
            Step::Delete(tree, key) => writer.insert(version, TreeId(*tree), key, None),
            Step::DeleteRange(tree, from, to) => writer.delete_range(version, TreeId(*tree), from, to.as_deref()),
        }
    }
}

/// The kind of keys and values of one run.
struct Manner {
    trees: u32,
    key_len_min: usize,
    key_len_max: usize,
    value_len_max: usize,
    /// Percentage of keys that come in order.
    in_order: u32,
    ranges: bool,
    steps_max: usize,
}

impl Manner {
    fn any(rng: &mut SmallRng) -> Manner {
        let one_of = |rng: &mut SmallRng, choices: &[usize]| choices[rng.random_range(0..choices.len())];
        Manner {
            trees: one_of(rng, &[1, 1, 2, 5, 300]) as u32,
            key_len_min: one_of(rng, &[0, 3, 8, 8]),
            key_len_max: one_of(rng, &[8, 8, 30, 1024]),
            value_len_max: one_of(rng, &[0, 8, 300]),
            in_order: one_of(rng, &[0, 50, 95, 100]) as u32,
            ranges: rng.random_bool(0.4),
            steps_max: one_of(rng, &[1, 2, 2, 8, 60]),
        }
    }

    fn key(&self, rng: &mut SmallRng, next: &mut u64) -> Vec<u8> {
        *next += 1;
        let number = if rng.random_range(0..100) < self.in_order { *next } else { rng.random_range(0..4000) };
        let key_len = rng.random_range(self.key_len_min..=self.key_len_max);
        // The last bytes of the number for a short key, since the first ones are zero.
        let mut key = number.to_be_bytes()[8_usize.saturating_sub(key_len)..].to_vec();
        key.resize(key_len, b'k');
        key
    }

    /// One transaction's steps: ranges first, which are disjoint in a tree.
    fn steps(&self, rng: &mut SmallRng, next: &mut u64) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.ranges && rng.random_bool(0.3) {
            let tree = rng.random_range(0..self.trees);
            let mut ends: Vec<Vec<u8>> = (0..2 * rng.random_range(1..4)).map(|_| self.key(rng, next)).collect();
            ends.sort_unstable();
            ends.dedup();
            steps.extend(ends.chunks(2).filter_map(|ends| match ends {
                [from, to] => Some(Step::DeleteRange(tree, from.clone(), Some(to.clone()))),
                [from] => Some(Step::DeleteRange(tree, from.clone(), None)),
                _ => None,
            }));
        }
        for _ in 0..rng.random_range(1..=self.steps_max) {
            let (tree, key) = (rng.random_range(0..self.trees), self.key(rng, next));
            steps.push(match rng.random_range(0..4) {
                0 => Step::Delete(tree, key),
                _ => Step::Put(tree, key, rng.random_range(0..=self.value_len_max)),
            });
        }
        steps
    }
}

/// Applies transactions until one does not fit; each one that fits is inserted completely.
#[track_caller]
fn check_transactions(arena_bytes: usize, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let manner = Manner::any(&mut rng);
    let (_, mut writer) = Memtable::new(arena_bytes).unwrap();
    let mut next = 0;
    for version in 1.. {
        let steps = manner.steps(&mut rng, &mut next);
        let mut demand = Demand::default();
        steps.iter().for_each(|step| step.demand(&writer, &mut demand));
        if !writer.fits(&demand) {
            return;
        }
        for (number, step) in steps.iter().enumerate() {
            let applied = step.apply(&mut writer, version);
            assert_eq!(applied, Ok(()), "{arena_bytes} bytes, seed {seed}, transaction {version}, step {number}");
        }
    }
}

#[test]
fn a_transaction_that_fits_goes_in_whole_at_every_arena_size() {
    let first = rand::random::<u64>() >> 16;
    for (arena_bytes, seed) in (LINE..=ARENA_BYTES_MAX).step_by(LINE).zip(first..) {
        check_transactions(arena_bytes, seed);
    }
}

/// The case by which this was found: the first of two keys splits the root.
#[test]
fn two_new_keys_beside_forty_go_in_whole_where_the_first_splits_the_root() {
    for arena_bytes in (LINE..8 << 10).step_by(LINE) {
        let (_, mut writer) = Memtable::new(arena_bytes).unwrap();
        let tree = TreeId(1);
        if (0..40u64).any(|key| writer.insert(Version(1), tree, &key.to_be_bytes(), Some(&[7; 8])).is_err()) {
            continue;
        }
        let mut demand = Demand::default();
        (0..2).for_each(|_| demand.add(&writer, tree, 8, 8));
        if writer.fits(&demand) {
            for key in 40..42u64 {
                let inserted = writer.insert(Version(2), tree, &key.to_be_bytes(), Some(&[7; 8]));
                assert_eq!(inserted, Ok(()), "{arena_bytes} bytes, key {key}");
            }
        }
    }
}

/// Single steps, and the bytes used after each with more than enough room. The bytes of a step do not depend on the
/// arena's size, so a smaller arena must accept exactly the steps that end within it.
#[track_caller]
fn check_exact(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let manner = Manner { steps_max: 1, ..Manner::any(&mut rng) };
    let (_, mut writer) = Memtable::new(8 * ARENA_BYTES_MAX).unwrap();
    let mut next = 0;
    let mut taken = Vec::new();
    while writer.table().used_bytes() <= ARENA_BYTES_MAX {
        for step in manner.steps(&mut rng, &mut next) {
            step.apply(&mut writer, 1).unwrap();
            taken.push((step, writer.table().used_bytes()));
        }
    }
    for arena_bytes in (LINE..ARENA_BYTES_MAX).step_by(16 * LINE) {
        let arena_bytes = arena_bytes + LINE * rng.random_range(0..16);
        let (_, mut writer) = Memtable::new(arena_bytes).unwrap();
        for (number, (step, used)) in taken.iter().enumerate() {
            let applied = step.apply(&mut writer, 1);
            assert_eq!(applied.is_ok(), *used <= arena_bytes, "{arena_bytes} bytes, seed {seed}, step {number}");
            if applied.is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_step_is_refused_only_where_the_arena_is_too_small_for_it() {
    let first = rand::random::<u64>() >> 16;
    (first..first + 12).for_each(check_exact);
}
