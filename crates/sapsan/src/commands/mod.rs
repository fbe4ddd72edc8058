//! One file for each command: `run` takes the arguments and ends with [`crate::console::Outcome`].
//!
//! | commands | room |
//! |---|---|
//! | init, import, export, generate, query | `documents` |
//! | backup, restore, compact, verify, stat | `data_folder` |
//! | serve, demo, check-config, token | `service`; the demo imports its documents by `documents` |
//! | proxy, reshard | `redis` |
//! | loadtest, lab, completions, man | `tools` |
//!
//! This is the uppermost room of the program: it imports all others, and only `main` imports it.

pub(crate) mod data_folder;
pub(crate) mod documents;
pub(crate) mod redis;
pub(crate) mod service;
pub(crate) mod tools;
