//! Running a plan over a view: nested loops, the compiled pipeline, subqueries, groups and results, parts for several
//! threads, and what spills to disk when.
//!
//! It imports `planning`, `expressions`, `rows` and the rooms below them. It does not know the text of a query or the catalog.

mod cut;
pub(super) mod execute;
mod gathered;
mod groups;
pub(super) mod inner;
mod leaves;
mod lists;
mod morsels;
mod nest;
mod ordered;
mod part;
mod pipeline;
mod point_keys;
mod results;
mod run;
mod seek;
mod spilling;
mod workers;

pub use run::Scratch;
pub use workers::Workers;
