//! Rules about senders: which requests the general API answers, tokens, addresses that sent wrong tokens, pages of other origins.
//!
//! It may import `config` and `failure`. `service::permission` applies the rules to a request.

pub(crate) mod cors;
pub(crate) mod sender;
pub mod token;
pub(crate) mod tries;
