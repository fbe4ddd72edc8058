//! Web applications on the façade, through real sockets. One subject in each file of `tests/web`.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod web {
    mod blocking;
    mod client;
    mod database;
    mod durability;
    mod errors;
    mod extraction;
    mod files;
    mod forms;
    mod layers;
    mod protection;
    mod replies;
    mod sessions;
    mod starting;
}
