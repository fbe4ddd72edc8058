//! What `[server]` asks against the memory, and mistakes that are told together.

use crate::harness::{COLLECTIONS, TestServer, mistakes};

/// A file whose mistakes are told with each of these pieces.
#[track_caller]
fn check(config: &str, pieces: &[&str]) {
    let told = mistakes(config);
    assert_eq!(told.is_empty(), pieces.is_empty(), "{told}");
    for piece in pieces {
        assert!(told.contains(piece), "`{piece}` is not in: {told}");
    }
}

#[test]
fn connections_that_the_memory_does_not_hold_are_a_mistake_with_its_place() {
    check("[server]\nconnections_max = 10000\nmemory = \"4GB\"", &[]);
    check(
        "[server]\nthreads = 2\nmemory = \"256MB\"\nconnections_max = 10000",
        &["service.toml:4:19", "10000 connections do not fit into memory = \"256 MB\"", "allowed: up to ", "MB\""],
    );
}

#[test]
fn a_body_of_the_permitted_size_fits_or_is_a_mistake() {
    check("[server]\nthreads = 2\nbody_bytes_max = \"32MB\"", &[]);
    check("[server]\nthreads = 32\nbody_bytes_max = \"32MB\"", &["bodies of 32 MB do not fit", "fewer threads"]);
    check(
        "[server]\nthreads = 64\nmemory = \"64MiB\"",
        &["service.toml:3:10", "memory = \"64 MiB\" is not enough for 64 threads", "or more, or fewer threads"],
    );
    // Where the number is left open, as many as fit.
    check("[server]\nmemory = \"64MiB\"", &[]);
    check("[server]\nmemory = \"31MiB\"", &["from 32 MiB to 1024 GiB"]);
}

#[test]
fn one_body_of_the_permitted_size_is_taken() {
    let server = TestServer::start("body_bytes_max = \"32MB\"\nmemory = \"300MB\"", "");
    // Blank lines before the one document: the store takes no single document of this size.
    let body = "\n".repeat(31_999_900) + "{\"id\":1,\"group\":\"g\",\"price\":1}";
    let answer = server.ask("POST", "/_/collections/items/bulk", "", body.as_bytes());
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(server.get("/_/collections/items/1").status, 200);
}

#[test]
fn mistakes_of_sql_are_told_with_the_others() {
    let endpoint = "[[endpoints]]\nroute = \"GET /a\"\nquery = \"SELECT nobody FROM items\"\n";
    check(&format!("{COLLECTIONS}\n[server]\nthreads = 0\n{endpoint}"), &["`server.threads` is 0", "nobody"]);
    check(&format!("{COLLECTIONS}\n[errors]\nbad = 1\n{endpoint}"), &["unknown key `bad`", "no field \"nobody\""]);
}

#[test]
fn a_value_set_on_the_command_line_is_no_mistake_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("service.toml");
    std::fs::write(&path, "[params.now]\ntype = \"integer\"\n").expect("a file");
    let error = server::config::ServiceConfig::load(&path, &["nobody=1".to_owned()]).expect_err("no such parameter");
    assert_eq!(error.to_string(), "--set nobody=1: [params] has no `nobody`; it has: now");
}

#[test]
fn a_port_in_use_is_told_before_a_data_folder_is_made() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("service.toml");
    let address = taken.local_addr().expect("an address");
    std::fs::write(&path, format!("{COLLECTIONS}\n[server]\nhttp = \"{address}\"\n")).expect("a file");
    let config = server::config::ServiceConfig::load(&path, &[]).expect("a configuration");
    let data = folder.path().join("data");
    let error = server::start(&config, &data).err().expect("the port is taken");
    assert!(error.to_string().contains("another program has this port"), "{error}");
    assert!(!data.exists());
}

#[test]
fn limits_of_queries_are_checked() {
    check("[server]\nquery_threads = 4\nquery_seconds = 5\nquery_log_rows = 100000", &[]);
    check("[server]\nquery_threads = 0", &["`server.query_threads` is 0"]);
    check("[server]\nquery_spill = \"2 GB\"", &[]);
    check("[server]\nquery_spill = \"some\"", &["`server.query_spill` is \"some\""]);
    check("[server]\nquery_seconds = 0", &["`server.query_seconds` is 0"]);
}
