//! The bank: a login page under attack. Users whose passwords are guessed are locked, and addresses that guess are
//! banned.
//!
//! | module | subject |
//! |---|---|
//! | [`bank`](mod@bank) | customers, ledger and rules together |
//! | [`attempt`] | login attempts, rules and verdicts |
//! | [`ledger`] | the record of attempts: in the embedded database, or in Redis |
//! | [`user`] | the bank's customers and their passwords |
//! | [`web`], [`page`] | the pages and their handlers |
//! | [`table`] | the files that an import reads, `users.tsv` and `log.tsv` |
//! | [`import`] | files into a data folder, and into Redis |
//! | [`generate`] | generated files of any size |
//! | [`export`] | the counters as SQL |
//! | [`clock`] | local time as in the pages and files |
//! | [`cli`] | the command line |

pub mod attempt;
pub mod bank;
pub mod cli;
pub mod clock;
pub mod export;
pub mod generate;
pub mod import;
pub mod ledger;
pub mod page;
pub mod table;
pub mod user;
pub mod web;
