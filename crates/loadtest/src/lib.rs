//! A load tester of the open model: requests have planned moments, whatever the server does, and latency counts from them.
//!
//! [`Recording`] connects the parts: the engine fills it; the table, the JSON output, the report page and the comparison of
//! two runs read it. A [`source::RequestSource`] supplies requests: [`ammo`], whose expected answers [`answers`] compares, or a [`scenario`].
//! [`rating`] is the contest's score of a run, and [`cup`] runs the contest.

pub mod ammo;
pub mod answers;
pub mod cli;
pub mod cup;
pub mod duration;
pub mod engine;
pub mod fail_if;
mod figures;
mod grid;
pub mod hdr;
pub mod json;
mod json_cursor;
pub mod live;
pub mod metrics;
pub mod output;
pub mod page;
mod printable;
pub mod profile;
pub mod quantity;
pub mod rating;
mod recording;
pub mod reply;
pub mod request;
#[cfg(test)]
mod sample_run;
pub mod scenario;
mod significance;
pub mod source;
pub mod statuses;
pub mod table;
pub mod target;
pub mod versus;

pub use recording::{
    Failures, INTERVALS_MAX, Interval, LONGEST_NS, Latencies, PassCounts, Percentiles, Phase, Recording, RequestCounts,
    ServerSample, TagResult, Validity,
};
