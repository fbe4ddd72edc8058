//! The bank: a login page under attack. Users who guess passwords are locked out, addresses that guess are banned.
//!
//! | module | subject |
//! |---|---|
//! | [`bank`](mod@bank) | customers, ledger and rules in one |
//! | [`attempt`] | what an attempt is, the rules, and what became of it |
//! | [`ledger`] | who attempted what: in the embedded database, or in Redis |
//! | [`user`] | the bank's customers and their passwords |
//! | [`web`], [`page`] | the pages and their handlers |
//! | [`table`] | the files that an import reads, `users.tsv` and `log.tsv` |
//! | [`import`] | files into a data folder, and into Redis |
//! | [`generate`] | made-up files of any size |
//! | [`export`] | the counters as SQL |
//! | [`clock`] | local time as the pages and files write it |
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
