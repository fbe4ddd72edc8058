//! Experiments with models of executing requests: one mix of work through each model, beside the optimum that theory allows.
//!
//! | subject | file |
//! |---|---|
//! | the requests of the classic experiment, and mixes of one's own | `request`, `mix`, `workload` |
//! | one run: requests through an executor, and what must come out | `run`, `trace`, `control` |
//! | what a run cost | `usage` (the kernel's counters), `statistics` |
//! | what no schedule can beat | `optimum` |
//! | the numbered experiments | `experiment` |
//! | table, JSON and page | `report` |
//! | cost of a task in each model | `overhead` |
//! | the same work behind the HTTP server | `serve` |
//! | arguments of `sapsan lab` | `cli` |
//!
//! The models themselves are those of the crate `executor`; nothing here knows how they work.
#![deny(clippy::print_stdout, clippy::print_stderr)] // Output goes to the writers that the caller gives.

pub mod cli;
mod control;
mod experiment;
mod mix;
mod optimum;
mod overhead;
mod report;
mod request;
mod run;
mod serve;
mod statistics;
mod trace;
mod usage;
mod workload;

pub use control::{Control, Differs};
pub use experiment::{Experiment, numbered};
pub use mix::{Mix, MixError};
pub use optimum::{Costs, Optimum};
pub use overhead::{Overhead, measure as measure_overhead};
pub use report::{ExperimentReport, Report, page, table};
pub use request::{TEXT, TEXT_BYTES, Wait, fill, result, wait_of};
pub use run::{Plan, Run, RunError, run};
pub use serve::{ServeSettings, Served, serve};
pub use statistics::Latency;
pub use trace::{Timeline, Trace};
pub use workload::{Reply, Workload};
