//! Experiments with execution models: the same mix of requests through each model, compared with the theoretical optimum.
//!
//! | subject | file |
//! |---|---|
//! | the requests of the classic experiment, and custom mixes | `request`, `mix`, `unit`, `workload` |
//! | one run: requests through an executor, and their expected results | `run`, `trace`, `control` |
//! | cost of a run | `usage` (the kernel's counters), `statistics` |
//! | lower bounds of the time | `optimum` |
//! | the numbered experiments | `experiment` |
//! | table, JSON and page | `report` |
//! | cost of a task in each model | `overhead` |
//! | the same requests behind the HTTP server | `serve` |
//! | arguments of `sapsan lab` | `cli` |
//!
//! The models themselves are in the crate `executor`; the lab does not depend on how they work.
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
mod unit;
mod usage;
mod workload;

pub use control::{Control, Differs};
pub use experiment::{Experiment, numbered};
pub use mix::{Mix, MixError};
pub use optimum::Optimum;
pub use overhead::{Overhead, measure as measure_overhead};
pub use report::{ExperimentReport, SeriesReport, page, table};
pub use request::{TEXT, TEXT_BYTES, Wait, fill, result, wait_of};
pub use run::{RunError, RunPlan, RunResults, run};
pub use serve::{ServeSettings, Served, serve};
pub use statistics::LatencyPercentiles;
pub use trace::{Timeline, Trace};
pub use workload::{Costs, SimulatedReply, Workload};
