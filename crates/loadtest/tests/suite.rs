//! The tests of `loadtest`, one subject per file, in one program: linking one for each took most of the
//! time.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod fuzz_check;
mod fuzz_check_ammo;
mod harness;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

mod ammo_files;
mod ammo_mutations;
mod answers_in_a_run;
mod by_tag_and_log;
mod closed_model;
mod command;
mod failures;
mod open_model;
mod replies;
mod scenarios;
