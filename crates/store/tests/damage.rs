//! Damaged files of a whole store: correct data, or an error with its place. `simulation/damage.rs` defines what must hold. This
//! runs a part of all damages, from a random start; `cargo xtask campaign damage` runs them all. STORE_DAMAGE_FIRST repeats a run.

use crate::simulation::damage::{Outcome, Share, try_all};
use crate::simulation::specimen::{Kind, Specimen};

/// One of this many bytes is flipped.
const STEP: usize = 997;
const THREADS: usize = 2;

/// Damages a store of this kind; some damages must be refused, some reported, some lose the end of the log.
#[track_caller]
fn check(kind: Kind, loses_tails: bool) {
    let setting = std::env::var("STORE_DAMAGE_FIRST");
    let first = setting.map_or_else(|_| rand::random_range(0..STEP), |first| first.parse().unwrap());
    let specimen = Specimen::new(1, kind);
    let damages = specimen.damages(first as u64, Share { step: STEP, first });
    let tried = try_all(&specimen, &damages, THREADS, 1, &mut |_, _| {});
    if let Some((damage, wrong)) = tried.failures.first() {
        panic!("{damage:?}, STORE_DAMAGE_FIRST={first}: {wrong}");
    }
    let has = |wanted: Outcome| tried.counts.keys().any(|(_, outcome)| *outcome == wanted);
    for outcome in [Outcome::Right, Outcome::Told, Outcome::RefusedByTree] {
        assert!(has(outcome), "{outcome:?} came of nothing: {:?}", tried.counts);
    }
    assert_eq!(has(Outcome::TailLost), loses_tails, "{:?}", tried.counts);
}

#[test]
fn a_closed_store_that_is_damaged_in_any_way_gives_right_data_or_an_error_with_a_place() {
    check(Kind::Closed, true);
}

#[test]
fn a_killed_store_that_is_damaged_in_any_way_gives_right_data_or_an_error_with_a_place() {
    check(Kind::Killed, true);
}

#[test]
fn a_backup_that_is_damaged_in_any_way_gives_right_data_or_an_error_with_a_place() {
    check(Kind::Backup, false);
}
