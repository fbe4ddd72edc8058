//! Which requests the general API answers: remote clients, pages of other sites, and requests forwarded by a proxy are refused
//! with the reason.

use crate::harness::{Answer, Client, TestServer, mistakes};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A declared endpoint, whose path may look like one of the general API.
const DECLARED: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n\
                        [[endpoints]]\nroute = \"GET /{a}/{id}\"\nget = \"items/{id}\"\n";

/// Sends one request of raw bytes.
#[track_caller]
fn raw(address: SocketAddr, request: &str) -> Answer {
    let mut client = Client::new(address);
    client.stream.write_all(request.as_bytes()).unwrap();
    client.answer(request.starts_with("HEAD"))
}

/// A request with these lines of header fields, Host among them.
#[track_caller]
fn with_fields(server: &TestServer, request: &str, fields: &[&str]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    raw(server.address(), &format!("{request} HTTP/1.1\r\n{fields}Content-Length: 0\r\n\r\n"))
}

/// Checks that it is refused as not local, with the reason.
#[track_caller]
fn assert_refused(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 403, "{}", answer.head);
    assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
    assert!(answer.json()["detail"].as_str().unwrap().contains(why), "{}", answer.text());
}

/// An address of this machine that is not loopback; `None` without a network.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only chooses the address that it would send from.
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn a_host_that_is_no_name_of_this_machine_is_refused() {
    let server = TestServer::start("hosts = [\"box.lan\"]", DECLARED);
    for host in ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8080", "[::1]:8080", "box.lan", "Box.Lan.:80"] {
        let answer = with_fields(&server, "GET /_/collections/items", &[&format!("Host: {host}")]);
        assert_eq!(answer.status, 200, "{host}: {}", answer.text());
    }
    for host in ["evil.example", "localhost.evil.example", "evil.example:8080", "127.0.0.1.evil.example", "lan", ""] {
        let answer = with_fields(&server, "GET /_/collections/items", &[&format!("Host: {host}")]);
        assert_refused(&answer, "`[server] hosts`");
        // The requested host does not matter to public endpoints.
        assert_eq!(with_fields(&server, "GET /items/1", &[&format!("Host: {host}")]).status, 404);
    }
    // Two Host fields make a request invalid.
    assert_eq!(with_fields(&server, "GET /_/schema", &["Host: localhost", "Host: evil.example"]).status, 400);
    assert_eq!(with_fields(&server, "GET /_/schema", &[]).status, 400);
}

#[test]
fn the_authority_of_a_target_counts_as_much_as_host() {
    let server = TestServer::start("", "");
    let ask = |target: &str, host: &str| with_fields(&server, &format!("GET {target}"), &[&format!("Host: {host}")]);
    assert_eq!(ask("http://localhost/_/schema", "localhost").status, 200);
    assert_refused(&ask("http://evil.example/_/schema", "localhost"), "evil.example");
    assert_refused(&ask("HTTPS://evil.example:8080/_/schema", "localhost"), "evil.example:8080");
    assert_refused(&ask("http://localhost/_/schema", "evil.example"), "evil.example");
}

#[test]
fn a_page_of_another_origin_is_refused_and_one_of_its_own_goes_on() {
    let server = TestServer::start("", "");
    let insert = "POST /_/collections/items";
    let ask = |request: &str, fields: &[&str]| {
        let mut all = vec!["Host: localhost:8080"];
        all.extend(fields);
        with_fields(&server, request, &all)
    };
    for fields in [
        &["Origin: http://localhost:8080"][..],
        &["Origin: http://localhost:8080", "Sec-Fetch-Site: same-origin"],
        &["Sec-Fetch-Site: none"],
        &["Sec-Fetch-Site: same-origin"],
    ] {
        assert_eq!(ask("GET /_/schema", fields).status, 200, "{fields:?}");
        // The request reaches the check of its body, which is missing.
        assert_eq!(ask(insert, fields).status, 400, "{fields:?}");
    }
    for fields in [
        &["Origin: http://evil.example"][..],
        &["Origin: null"],
        &["origin:https://localhost:8080"],
        &["Origin: http://localhost:3000"],
        &["Origin: http://localhost:8080", "Origin: http://evil.example"],
    ] {
        for request in [insert, "POST /_/query", "POST /_/config/reload", "POST /_/backup", "GET /_/changes", "GET /_/"]
        {
            assert_refused(&ask(request, fields), "`Origin`");
        }
    }
    for site in ["cross-site", "same-site", "", "anything"] {
        assert_refused(&ask(insert, &[&format!("Sec-Fetch-Site: {site}")]), "`Sec-Fetch-Site`");
    }
    // A preflight is not allowed, and the reply does not reveal whether the route exists.
    let preflight = ask("OPTIONS /_/query", &["Origin: http://evil.example", "Access-Control-Request-Method: POST"]);
    assert_refused(&preflight, "`Origin`");
    assert_eq!(preflight.field("Allow"), None);
}

#[test]
fn what_a_proxy_forwarded_is_refused() {
    let server = TestServer::start("", "");
    for field in [
        "Forwarded: for=10.1.2.3",
        "Via: 1.1 proxy",
        "X-Forwarded-For: 10.1.2.3",
        "x-forwarded-proto: https",
        "X-FORWARDED-HOST:localhost",
        "X-Forwarded-Anything:",
        "X-Real-IP: 10.1.2.3",
    ] {
        let answer = with_fields(&server, "GET /_/schema", &["Host: localhost", field]);
        assert_refused(&answer, "a proxy forwarded this request");
        assert!(answer.text().contains(field.split(':').next().unwrap()), "{}", answer.text());
    }
    assert_eq!(with_fields(&server, "GET /_/schema", &["Host: localhost", "X-Forwarded: x"]).status, 200);
    // As nginx before 1.29.7 sends requests to its upstream if its file has only `proxy_pass`.
    let nginx = "GET /_/schema HTTP/1.0\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n";
    assert_refused(&raw(server.address(), nginx), "HTTP/1.0");
    assert_refused(&raw(server.address(), "GET /_/schema HTTP/1.0\r\n\r\n"), "HTTP/1.0");
}

#[test]
fn every_way_to_write_the_request_is_refused_alike() {
    let server = TestServer::start("backups = \"backups\"", DECLARED);
    server.put_items(0..3);
    let routes = [
        ("GET", "/_/collections/items/1"),
        ("HEAD", "/_/collections/items/1"),
        ("PUT", "/_/collections/items/1"),
        ("PATCH", "/_/collections/items/1"),
        ("DELETE", "/_/collections/items/1"),
        ("POST", "/_/collections/items"),
        ("GET", "/_/collections/items"),
        ("POST", "/_/collections/items/bulk"),
        ("POST", "/_/query"),
        ("POST", "/_/backup"),
        ("GET", "/_/backup"),
        ("GET", "/_/metrics"),
        ("GET", "/_/views"),
        ("GET", "/_/views/none"),
        ("POST", "/_/views/none/verify"),
        ("GET", "/_/changes?since=0"),
        ("GET", "/_/schema"),
        ("POST", "/_/config/reload"),
        ("GET", "/_/openapi.json"),
        ("GET", "/_/"),
        // No routes: the reply does not reveal which exist.
        ("DELETE", "/_/query"),
        ("OPTIONS", "/_/query"),
        ("GET", "/_/a/b/c"),
        ("GET", "/_/%5f/schema"),
    ];
    for (method, target) in routes {
        let answer = with_fields(&server, &format!("{method} {target}"), &["Host: evil.example"]);
        assert_eq!((answer.status, answer.field("Allow")), (403, None), "{method} {target}");
    }
    // These paths do not belong to the general API, however a proxy before the server interprets them.
    for target in [
        "/%5f/schema",
        "/%5F/schema",
        "//_/schema",
        "/./_/schema",
        "/x/../_/schema",
        "/_%2fschema",
        "/_",
        "/_//schema/x",
    ] {
        let local = with_fields(&server, &format!("GET {target}"), &["Host: localhost"]);
        assert_eq!(local.status, 404, "{target}");
        let stranger = with_fields(&server, &format!("GET {target}"), &["Host: evil.example"]);
        assert!(matches!(stranger.status, 403 | 404), "{target}");
    }
    assert_eq!(server.get("/_/collections/items/1").json()["price"], 10, "nothing was changed");
}

#[test]
fn each_of_pipelined_requests_is_judged_alone() {
    let server = TestServer::start("", DECLARED);
    server.put_items(0..3);
    let mut client = server.connect();
    let get = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let local = get("/_/collections/items/1", "localhost");
    let requests =
        [&local, &get("/_/collections/items/1", "evil.example"), &local, &get("/items/1", "evil.example"), &local];
    client.stream.write_all(requests.map(String::as_str).concat().as_bytes()).unwrap();
    let statuses = requests.map(|_| client.answer(false).status);
    assert_eq!(statuses, [200, 403, 200, 200, 200]);
}

#[test]
fn health_answers_everybody_and_tells_strangers_no_more_than_how_it_is() {
    let server = TestServer::start("", "");
    for fields in [
        &["Host: balancer.example"][..],
        &["Host: localhost", "Via: 1.1 proxy"],
        &["Host: localhost", "Origin: http://evil.example"],
    ] {
        let answer = with_fields(&server, "GET /_/health", fields);
        assert_eq!((answer.status, answer.text()), (200, r#"{"status":"ok"}"#));
    }
    let old = raw(server.address(), "GET /_/health HTTP/1.0\r\n\r\n");
    assert_eq!((old.status, old.text()), (200, r#"{"status":"ok"}"#));
    // Refused changes and their keys are shown only to clients that may read documents.
    let schema = "required = [\"id\", \"group\", \"price\", \"note\"]";
    server.put_items(1..2);
    let file = crate::harness::COLLECTIONS.replace("required = [\"id\", \"group\", \"price\"]", schema);
    let reloaded = server.reload(&format!("{file}\n[server]\n{}", crate::harness::SERVER));
    assert!(matches!(reloaded.status, 200 | 409), "{}", reloaded.text());
    let began = std::time::Instant::now();
    let told = loop {
        let told = server.get("/_/health").json();
        if told.get("schema").is_some() {
            break told;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{told}");
        std::thread::yield_now();
    };
    assert!(told["schema"].as_str().unwrap().contains("items"), "{told}");
    let stranger = with_fields(&server, "GET /_/health", &["Host: evil.example"]);
    assert_eq!((stranger.status, stranger.json()["schema"].as_str()), (200, Some("refused")));
}

#[test]
fn another_machine_is_refused_whatever_it_says() {
    let Some(outer) = outer_address() else {
        // Not captured by libtest, which hides the output of passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: this machine has no address but loopback\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let server = TestServer::of_file(&format!(
        "{}\n[server]\nhttp = \"0.0.0.0:0\"\nhosts = [\"{outer}\"]\nthreads = 1\n{DECLARED}",
        crate::harness::COLLECTIONS
    ));
    let server = server.unwrap();
    let (near, far) = (
        SocketAddr::new("127.0.0.1".parse().unwrap(), server.address().port()),
        SocketAddr::new(outer, server.address().port()),
    );
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(raw(near, &request("/_/schema")).status, 200);
    assert_refused(&raw(far, &request("/_/schema")), &format!("this one came from {outer}"));
    assert_eq!(raw(far, &request("/_/health")).status, 200);
    assert_eq!(raw(far, &request("/items/1")).status, 404);
}

#[test]
fn loopback_is_loopback_in_ipv6_too() {
    let Ok(server) =
        TestServer::of_file(&format!("{}\n[server]\nhttp = \"[::]:0\"\nthreads = 1\n", crate::harness::COLLECTIONS))
    else {
        // Not captured by libtest, which hides the output of passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: this machine has no IPv6\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let port = server.address().port();
    let request = "GET /_/schema HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // If an IPv6 socket accepts IPv4 too, the peer is ::ffff:127.0.0.1.
    for peer in ["127.0.0.1", "::1"] {
        if std::net::TcpStream::connect((peer, port)).is_ok() {
            assert_eq!(raw(SocketAddr::new(peer.parse().unwrap(), port), request).status, 200, "{peer}");
        }
    }
}

#[test]
fn a_listener_of_its_own_has_the_general_api_alone() {
    let server = TestServer::start("admin = \"127.0.0.1:0\"", DECLARED);
    let admin = server.admin_address().unwrap();
    let ask =
        |address: SocketAddr, request: &str| raw(address, &format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let body = r#"{"id":1,"group":"g","price":10}"#;
    let put = format!(
        "PUT /_/collections/items/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(raw(admin, &put).status, 201);
    assert_refused(&raw(server.address(), &put), "`[server] admin`");
    assert_eq!(ask(admin, "GET /_/collections/items/1").json()["price"], 10);
    assert_refused(&ask(server.address(), "GET /_/collections/items/1"), "`[server] admin`");
    // Declared endpoints stay where they were, and health is on both listeners.
    assert_eq!(ask(server.address(), "GET /items/1").status, 200);
    for target in ["/items/1", "/x/1", "/none", "/"] {
        assert_eq!(ask(admin, &format!("GET {target}")).status, 404, "{target}");
    }
    assert_eq!(ask(admin, "OPTIONS /items/1").status, 404);
    for address in [server.address(), admin] {
        assert_eq!(ask(address, "GET /_/health").text(), r#"{"status":"ok"}"#);
    }
    // The same access rules hold there.
    assert_refused(&raw(admin, "GET /_/schema HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "evil.example");
    // Requests of both listeners are counted.
    let metrics = ask(admin, "GET /_/metrics");
    let refused = metrics.text().lines().filter(|line| line.contains("code=\"4"));
    let counts = refused.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 8, "{}", metrics.text());
}

#[test]
fn a_unix_socket_has_the_general_api_for_this_machine_and_goes_with_its_server() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let setting = format!("admin = \"unix:{}\"", path.display());
    // The file that a dead server left.
    drop(UnixListener::bind(&path).unwrap());
    let server = TestServer::start(&format!("{setting}\nthreads = 2"), DECLARED);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let get = |target: &str, fields: &str| {
        ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"))
    };
    // A large request and large replies, one after the other.
    let lines: String = (0..20_000).map(|id| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}\n")).collect();
    let head = "POST /_/collections/items/bulk HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let told = ask(&format!("{head}Content-Length: {}\r\n\r\n{lines}", lines.len()));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    for _ in 0..8 {
        let page = get("/_/collections/items?limit=1000", "");
        assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("\"id\":999,"), "{page}");
    }
    assert!(get("/items/1", "").starts_with("HTTP/1.1 404 "));
    assert!(get("/_/schema", "Origin: http://evil.example\r\n").starts_with("HTTP/1.1 403 "));
    assert_refused(&server.get("/_/schema"), "`[server] admin`");
    // A second server leaves it alone.
    let refused = TestServer::try_start(&setting, "").err().unwrap().to_string();
    assert!(refused.contains("unix:") && refused.contains("another program has this socket"), "{refused}");
    assert!(std::fs::metadata(&path).unwrap().ino() > 0 && get("/_/health", "").starts_with("HTTP/1.1 200 "));
    drop(server);
    assert!(!path.exists(), "it goes with its server");
    std::fs::write(&path, "text").unwrap();
    let refused = TestServer::try_start(&setting, "").err().unwrap().to_string();
    assert!(refused.contains("no socket") && path.exists(), "{refused}");
}

#[test]
fn a_general_api_that_is_off_leaves_health() {
    let server = TestServer::start("admin = \"off\"", DECLARED);
    assert_eq!(server.admin_address(), None);
    assert_refused(&server.get("/_/schema"), "switched off");
    assert_eq!(server.get("/_/health").status, 200);
    assert_eq!(server.get("/items/1").status, 404);
}

#[test]
fn mistakes_of_hosts_and_of_the_listener_are_told() {
    for (settings, told) in [
        ("admin = \"localhost\"", "127.0.0.1:9080"),
        ("admin = true", "`server.admin` is a boolean"),
        ("http = \"127.0.0.1:8080\"\nadmin = \"127.0.0.1:8080\"", "one address"),
        ("hosts = [\"box.lan:80\"]", "without a port"),
        ("hosts = [\"*\"]", "without a port"),
        ("hosts = [\"\"]", "without a port"),
        ("hosts = \"box.lan\"", "a list in brackets"),
    ] {
        let mistakes = mistakes(&format!("[server]\n{settings}\n"));
        assert!(mistakes.contains(told), "{settings}: {mistakes}");
    }
    assert_eq!(mistakes("[server]\nhosts = [\"box.lan\", \"10.0.0.1\", \"::1\"]\nadmin = \"127.0.0.1:0\"\n"), "");
}
