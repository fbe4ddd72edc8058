//! Endpoints that serve the files of a folder.

use crate::harness::{Answer, COLLECTIONS, SERVER, TestServer};
use std::time::{Duration, Instant};

const FILES: &str = r#"
[[endpoints]]
route = "GET /assets/{*path}"
files = "public"

[[endpoints]]
route = "GET /site/{*path}"
files = { folder = "public", index = true, immutable = false }

[[endpoints]]
route = "GET /assets/items"
query = "SELECT id FROM items"
"#;

fn serve(settings: &str, more: &str, files: &[(&str, &[u8])]) -> TestServer {
    let text = format!("{COLLECTIONS}\n[server]\n{SERVER}{settings}\n{more}");
    TestServer::of_file_beside(&text, files).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn eventually(server: &TestServer, target: &str, is_right: impl Fn(&Answer) -> bool) {
    let begun = Instant::now();
    loop {
        let answer = server.get(target);
        if is_right(&answer) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_folder_is_served_beside_other_endpoints() {
    let files: [(&str, &[u8]); 4] = [
        ("public/site.3f2a9c1b.css", b"body {}"),
        ("public/index.html", b"<p>"),
        ("public/docs/index.html", b"<h1>"),
        ("secret.txt", b"secret"),
    ];
    let server = serve("cors = { origins = [\"https://app.example\"] }", FILES, &files);
    let file = server.ask("GET", "/assets/site.3f2a9c1b.css", "Origin: https://app.example\r\n", b"");
    assert_eq!((file.status, file.text()), (200, "body {}"));
    assert_eq!(file.field("Content-Type"), Some("text/css; charset=utf-8"));
    assert_eq!(file.field("Cache-Control"), Some("max-age=31536000, immutable"));
    assert_eq!(file.field("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(file.field("Access-Control-Allow-Origin"), Some("https://app.example"));
    let tag = file.field("ETag").unwrap();
    let known = server.ask("GET", "/assets/site.3f2a9c1b.css", &format!("If-None-Match: {tag}\r\n"), b"");
    assert_eq!((known.status, known.text()), (304, ""));
    let head = server.ask("HEAD", "/assets/site.3f2a9c1b.css", "", b"");
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("7")));
    assert_eq!(server.get("/assets/items").text(), "[]");
    assert_eq!(server.get("/site/").text(), "<p>");
    assert_eq!(server.get("/site/docs/").text(), "<h1>");
    assert_eq!(server.get("/site/docs").field("Location"), Some("/site/docs/"));
    assert_eq!(server.get("/site/site.3f2a9c1b.css").field("Cache-Control"), Some("no-cache"));
    for target in
        ["/assets/", "/assets/docs", "/assets/none", "/assets/../secret.txt", "/site/%2e%2e/secret.txt", "/site"]
    {
        let missing = server.get(target);
        assert_eq!(missing.status, 404, "{target}");
        assert_eq!(missing.field("Content-Type"), Some("application/problem+json"));
    }
    assert_eq!(server.ask("POST", "/assets/site.3f2a9c1b.css", "", b"").status, 405);
    let series = "sapsan_http_requests_total{route=\"GET /assets/{*path}\"";
    assert!(server.get("/_/metrics").text().contains(series), "{}", server.get("/_/metrics").text());
}

#[test]
fn a_token_may_be_asked_for() {
    let more =
        format!("{FILES}\n[[endpoints]]\nroute = \"GET /private/{{*path}}\"\nfiles = \"public\"\nallow = \"token\"\n");
    let server = serve("", &more, &[("public/a.txt", b"a")]);
    assert_eq!(server.get("/private/a.txt").status, 401);
    assert_eq!(server.get("/assets/a.txt").status, 200);
}

#[test]
fn a_large_file_goes_to_a_slow_client_at_a_small_memory_setting() {
    let large: Vec<u8> = (0..10_000_000).map(|at| (at % 251) as u8).collect();
    let server = serve("memory = \"64MB\"", FILES, &[("public/large.bin", &large), ("public/a.txt", b"a")]);
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET", "/assets/large.bin", "", b"");
        assert!(client.head().contains("Content-Length: 10000000\r\n"));
    }
    for _ in 0..50 {
        assert_eq!(server.get("/assets/a.txt").text(), "a");
    }
    let held = server.metric("sapsan_memory_used_bytes{part=\"buffers\"}");
    assert!(held < 1e6, "{held} bytes are held of files that wait in the page cache");
    for client in clients {
        let (mut stream, mut body) = client.into_parts();
        let start = body.len();
        body.resize(large.len(), 0);
        std::io::Read::read_exact(&mut stream, &mut body[start..]).unwrap();
        assert!(body == large);
    }
}

#[test]
fn a_folder_that_goes_while_it_is_served_answers_404_and_another_in_its_place_is_served() {
    let server = serve("", FILES, &[("public/a.txt", b"one")]);
    assert_eq!(server.get("/assets/a.txt").text(), "one");
    let public = server.folder().join("public");
    std::fs::remove_dir_all(&public).unwrap();
    eventually(&server, "/assets/a.txt", |answer| answer.status == 404);
    std::fs::create_dir(&public).unwrap();
    std::fs::write(public.join("a.txt"), "two").unwrap();
    eventually(&server, "/assets/a.txt", |answer| answer.text() == "two");
}

#[test]
fn a_reload_serves_another_folder_and_is_refused_where_that_is_missing() {
    let server = serve("", FILES, &[("public/a.txt", b"one"), ("other/a.txt", b"two")]);
    assert_eq!(server.get("/assets/a.txt").text(), "one");
    let text = |folder: &str| format!("{COLLECTIONS}\n[server]\n{SERVER}\n{}", FILES.replace("\"public\"", folder));
    let refused = server.reload(&text("\"missing\""));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("cannot open the folder"), "{}", refused.text());
    assert_eq!(server.get("/assets/a.txt").text(), "one");
    assert_eq!(server.reload(&text("\"other\"")).status, 200);
    assert_eq!(server.get("/assets/a.txt").text(), "two");
}

#[test]
fn the_document_of_all_endpoints_has_files() {
    let server = serve("", FILES, &[("public/a.txt", b"a")]);
    let document = server.get("/_/openapi.json").json();
    let operation = &document["paths"]["/assets/{path}"]["get"];
    assert_eq!(operation["operationId"], "get_assets_path");
    assert_eq!(operation["parameters"][0]["name"], "path");
    for status in ["200", "206", "304", "404", "416"] {
        assert!(operation["responses"][status].is_object(), "{status}: {operation}");
    }
}

#[test]
fn no_route_of_files_serves_the_data_or_a_backup_or_answers_for_the_general_api() {
    let file = |folder: &str, settings: &str| {
        let files = format!("[[endpoints]]\nroute = \"GET /{{*path}}\"\nfiles = \"{folder}\"\n");
        format!("{COLLECTIONS}\n[server]\n{SERVER}{settings}\n{files}")
    };
    let beside: [(&str, &[u8]); 2] = [("public/a.txt", b"a"), ("public/_/b.txt", b"b")];
    let server = TestServer::of_file_beside(&file("public", ""), &beside).unwrap();
    assert_eq!(server.get("/a.txt").text(), "a");
    // Below `/_/` there is only the general API, for every sender and method.
    for (method, target, status) in
        [("GET", "/_/b.txt", 404), ("GET", "/_/nothing", 404), ("OPTIONS", "/_/b.txt", 404), ("GET", "/_/health", 200)]
    {
        assert_eq!(server.ask(method, target, "", b"").status, status, "{method} {target}");
        let foreign = server.ask(method, target, "X-Forwarded-For: 192.0.2.1\r\n", b"").status;
        assert_eq!(foreign, if status == 200 { 200 } else { 403 }, "{method} {target}");
    }
    // A folder with data, one in it, and one that holds it; a folder for backups, which need not exist yet.
    std::fs::create_dir(server.folder().join("data/inside")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(server.folder(), elsewhere.path().join("link")).unwrap();
    let link = elsewhere.path().join("link").display().to_string();
    let backups = "backups = \"public/backups\"";
    for (folder, settings, what) in [
        ("data", "", "`files` would serve the files of a database"),
        ("data/inside", "", "`files` would serve the data folder, "),
        (&format!("{link}/data/inside"), "", "`files` would serve the data folder, "),
    ] {
        let refused = server.reload(&file(folder, settings));
        let detail = refused.json()["detail"].as_str().expect("a detail").to_owned();
        assert_eq!(refused.status, 400, "{folder}: {detail}");
        assert!(detail.contains(what) && detail.contains("service.toml:"), "{folder}: {detail}");
    }
    // Nothing was applied.
    assert_eq!(server.get("/a.txt").text(), "a");
    let refused = TestServer::of_file_beside(&file("public", backups), &beside).err().expect("backups");
    let told = refused.to_string();
    assert!(told.contains("`files` would serve the folder for backups, "), "{told}");
}
