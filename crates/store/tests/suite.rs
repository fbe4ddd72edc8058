//! The tests of `store`, one subject a file, in one program: to link one for each took most of the time.
//! What looks at the whole process stands alone (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod faulty_disk;
mod folding;
mod fuzz_check;
mod hooked_disk;
mod simulation;
mod tree_file;

mod attach_beside_commits;
mod backup;
mod backup_crash;
mod beginnings;
mod bulk;
mod bulk_faults;
mod changes;
mod changes_crash;
mod commits;
mod crash;
mod damage;
mod delete_range;
mod derived_rows;
mod direct_reads;
mod examine;
mod faults;
mod faults_everywhere;
mod folds;
mod formats;
mod full_disk;
mod fuzz_files;
mod insert_space;
mod large_values;
mod leaves;
mod memtable_model;
mod memtable_ranges;
mod memtable_readers;
mod memtables_max;
mod model;
mod pacing;
mod pieces;
mod pinned;
mod places;
mod portions;
mod published;
mod ranges;
mod recovery;
mod segment_syncs;
mod small_trees;
mod stress;
mod throttle;
mod tree_crash;
mod tree_model;
mod tree_packing;
mod tree_space;
