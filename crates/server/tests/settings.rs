//! Requirements of `[server]` against the memory, and mistakes that are reported together.

use crate::harness::{COLLECTIONS, TestServer, mistakes};

/// Checks that a file's mistakes contain each of these pieces.
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
    // If the number is not set, as many as fit.
    check("[server]\nmemory = \"64MiB\"", &[]);
    check("[server]\nmemory = \"31MiB\"", &["from 32 MiB to 1024 GiB"]);
}

#[test]
fn a_file_that_fits_a_memory_fits_a_larger_one() {
    let endpoint = |n| format!("[[endpoints]]\nroute = \"GET /q{n}/{{id}}\"\nget = \"items/{{id}}\"\n");
    let endpoints: String = (0..253).map(endpoint).collect();
    let mut has_fitted = false;
    for memory in 34..80 {
        let told = mistakes(&format!("{COLLECTIONS}[server]\nmemory = \"{memory}MB\"\n{endpoints}"));
        assert!(told.is_empty() || !has_fitted, "{memory} MB: {told}");
        has_fitted = told.is_empty();
    }
    assert!(has_fitted);
}

#[test]
fn one_body_of_the_permitted_size_is_taken() {
    let server = TestServer::start("body_bytes_max = \"32MB\"\nmemory = \"300MB\"", "");
    // Blank lines before the one document: the store accepts no single document of this size.
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
fn the_time_of_a_slow_request_is_checked() {
    for good in ["0.001", "0.25", "1", "1.5e1", "86_400"] {
        check(&format!("[server]\nslow_log_seconds = {good}"), &[]);
    }
    let allowed = "allowed: seconds from 0.001 to 86400, as in 0.5";
    for bad in ["0", "0.0009", "-1", "86401", "nan", "inf"] {
        check(
            &format!("[server]\nslow_log_seconds = {bad}"),
            &[&format!("`server.slow_log_seconds` is {bad}"), allowed],
        );
    }
    check("[server]\nslow_log_seconds = \"1s\"", &["service.toml:2:20", allowed]);
}

#[test]
fn limits_of_queries_are_checked() {
    check("[server]\nquery_threads = 4\nquery_seconds = 5\nquery_log_rows = 100000", &[]);
    check("[server]\nquery_threads = 0", &["`server.query_threads` is 0"]);
    check("[server]\nquery_spill = \"2 GB\"", &[]);
    check("[server]\nquery_spill = \"some\"", &["`server.query_spill` is \"some\""]);
    check("[server]\nquery_seconds = 0", &["`server.query_seconds` is 0"]);
}

/// A file without reported mistakes is served: a folder is made for it, and the server listens. Returns contradictions.
fn disagreement(config: &str) -> Option<String> {
    let told = mistakes(config);
    if !told.is_empty() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("service.toml");
    std::fs::write(&path, config).expect("a file");
    let read = server::config::ServiceConfig::load(&path, &[]).expect("a file without mistakes");
    if server::rehearse(&read).is_err() {
        return None;
    }
    let error = TestServer::of_file(config).err()?;
    Some(format!("{error} in {:.200}", config.trim_start_matches(|c| c != 'm')))
}

#[test]
fn what_check_config_accepts_serve_accepts() {
    let server = "[server]\nhttp = \"127.0.0.1:0\"\nthreads = 1\nmemory = \"100MB\"\n";
    let mut found = Vec::new();
    for setting in [
        "head_bytes_max = 1024\nbody_bytes_max = 1024",
        "head_bytes_max = \"1MiB\"\nbody_bytes_max = \"8MiB\"",
        "head_seconds = 86400\nbody_seconds = 86400\nidle_seconds = 86400\nquery_seconds = 86400",
        "scan_rows_max = 1\nquery_log_rows = 1\nquery_spill = 0\nquery_threads = 64",
        "scan_rows_max = 9223372036854775807\nquery_log_rows = 9223372036854775807\nquery_spill = \"1024GiB\"",
        "connections_max = 1\nconnections_per_address_max = 1\ndate = false\naccess_log = true",
        "durability = { interval_seconds = 3600 }\nchanges_kept_bytes = \"64GiB\"\nchanges_kept_seconds = 1",
        "durability = \"none\"\nchanges_kept_bytes = \"16MiB\"\nbackups = \"nowhere/at/all\"",
        "cold_model = \"io-aware\"\nquery_model = \"work-stealing\"",
        "trusted_proxies = [\"10.0.0.0/8\", \"::1\", \"unix\"]",
        "cold_model = \"work-stealing\"\nquery_model = \"io-aware\"",
    ] {
        check(&format!("{server}{setting}\n"), &[]);
        found.extend(disagreement(&format!("{server}{setting}\n")));
    }
    for memory in ["32MiB", "1024GiB"] {
        found.extend(disagreement(&server.replace("100MB", memory)));
    }
    let key = "key = { field = \"id\", type = \"u32\" }\n";
    let collection = format!("{server}[collections.c]\n{key}");
    let long = "f".repeat(600);
    let many = |from: usize, to: usize| (from..to).map(|n| format!("\"f{n}\",")).collect::<String>();
    let column = |n: usize| format!("\"f{n}\"");
    for rest in [
        format!("indexes = [[\"{long}\"]]"),
        format!("unique = [\"{long}\"]"),
        format!("references = {{ {long} = \"c\" }}"),
        format!("expire = \"{long}\""),
        format!("indexes = [[{}]]", (0..16).map(|n| format!("\"{n}{}\",", &long[..40])).collect::<String>()),
        format!("indexes = [{}]", (0..18).map(|n| format!("[{}],", many(n * 16, n * 16 + 16))).collect::<String>()),
        format!(
            "schema.properties = {{ {} }}\nindexes = [[\"other\"]]",
            (0..254).map(|n| format!("f{n} = {{}}, ")).collect::<String>()
        ),
        format!("schema.title = \"{}\"", "t".repeat(700_000)),
        format!("[views.v]\nquery = \"SELECT {0}, COUNT(*) AS n FROM c GROUP BY {0}\"", column(1)),
        format!(
            "[views.v]\nquery = '''SELECT id, {} FROM c GROUP BY id'''",
            (0..260).map(|n| format!("SUM({})  AS s{n},", column(n))).collect::<String>() + "1"
        ),
        format!("[views.{}]\nquery = \"SELECT COUNT(*) AS n FROM c\"", "v".repeat(64)),
        format!(
            "indexes = [[\"a\"]]\n[[endpoints]]\nroute = \"GET /a/{{a}}\"\nquery = '''SELECT {} 1 AS one FROM c WHERE a = :a'''",
            (0..260).map(|n| format!("{},", column(n))).collect::<String>()
        ),
    ] {
        found.extend(disagreement(&format!("{collection}{rest}\n")));
    }
    // A transaction of the catalog does not fit if memory is short.
    let small = server.replace("100MB", "40MB");
    found.extend(disagreement(&format!("{small}[collections.c]\n{key}schema.title = \"{}\"\n", "t".repeat(700_000))));
    let many: String = (0..300).map(|n| format!("[collections.c{n}]\n{key}")).collect();
    found.extend(disagreement(&(server.to_owned() + &many)));
    assert!(found.is_empty(), "check-config says nothing, serve says:\n{}", found.join("\n"));
}

#[test]
fn a_file_of_many_endpoints_is_read_in_linear_time() {
    let endpoints = |count: usize, route: &dyn Fn(usize) -> String| -> String {
        let one = |n: usize| format!("[[endpoints]]\nroute = \"GET {}\"\nget = \"nobody/{{id}}\"\n", route(n));
        (0..count).map(one).collect()
    };
    for text in [
        endpoints(20_000, &|n| format!("/{n}/{{id}}")),
        endpoints(4_000, &|n| format!("/{}/{{id}}", n / 2)),
        format!("{COLLECTIONS}[[endpoints]]\nroute = \"GET /a\"\nquery = \"SELECT id FROM items\"\n")
            + &(0..30_000).map(|n| format!("key{n} = 1\n")).collect::<String>(),
    ] {
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(mistakes(&text)));
        let told = told.recv_timeout(std::time::Duration::from_secs(20)).expect("it is read within 20 s");
        assert!(told.contains("more"), "{told}");
    }
}

#[test]
fn the_file_itself_is_a_regular_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for (path, kind) in [(pipe.as_path(), "pipe"), ("/dev/zero".as_ref(), "device"), (folder.path(), "folder")] {
        let (path, (done, told)) = (path.to_owned(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let read = server::config::ServiceConfig::load(&path, &[]);
            done.send(read.map_or_else(|error| error.to_string(), |_| String::new()))
        });
        let told = told.recv_timeout(std::time::Duration::from_secs(20)).expect("nobody waits for a pipe");
        assert!(told.contains(&format!("it is a {kind}, not a regular file")), "{told}");
    }
}
