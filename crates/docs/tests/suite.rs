//! The tests of `docs`, one subject per file. They are linked as one program, because linking a program for each took most of
//! the time. Tests that observe the whole process are separate programs (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

/// The simulated disk that loses unsynced data, from the store's own tests.
#[allow(dead_code, reason = "this file uses its part")]
#[path = "../../store/tests/simulation"]
mod simulation {
    /// The threads and the clock of the engine: its own tests can replace them.
    pub(crate) mod beside_engine {
        pub(crate) use {std::thread, std::time::Instant};

        pub(crate) fn point() {}
    }
    pub(crate) mod content;
    pub(crate) mod disk;
    pub(crate) mod platter;
    pub(crate) mod sweep;
}
mod declared_views;
mod dying_disk;
mod faulty_lives;
mod fuzz_check;
mod large_statements;
mod lives;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;
mod service;
mod sql_forms;
mod sql_generator;
mod sql_memory;
mod sql_oracle;

mod changes;
mod concurrency;
mod config;
mod counts;
mod differences;
mod disk_faults;
mod expire;
mod expire_power;
mod expire_written;
mod fuzz_sql;
mod generated_keys;
mod import;
mod long_check;
mod losses;
mod model;
mod online;
mod online_crash;
mod online_rules;
mod reopen;
mod reopen_live;
mod rule_states;
mod sql_budget;
mod sql_changes;
mod sql_changes_random;
mod sql_column_types;
mod sql_compiled;
mod sql_correlated;
mod sql_differential;
mod sql_leaves;
mod sql_limits;
mod sql_lists;
mod sql_names;
mod sql_nesting;
mod sql_pages;
mod sql_parts;
mod sql_plans;
mod sql_points;
mod sql_random;
mod sql_refusals;
mod sql_sets;
mod sql_spill;
mod sql_stack;
mod sql_store;
mod sql_travels;
mod statements;
mod steps;
mod truncate;
mod unique_together;
mod views;
mod views_building;
mod views_chains;
mod views_crash;
mod views_power;
mod whole_numbers;
mod writes;
