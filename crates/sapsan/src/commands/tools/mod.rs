//! Commands beside the service: load tester, lab, completions for shells, manual pages.

pub(crate) mod completions;
pub(crate) mod lab;
pub(crate) mod loadtest;
pub(crate) mod man;
