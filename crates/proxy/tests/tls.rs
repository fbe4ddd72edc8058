//! TLS towards clients and nodes, with Debian's redis-server and redis-cli.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use proxy::{TlsClient, TlsServer};

use crate::nodes::{Plain, Program, address_of, command, free_port, is_there, start_proxy};

/// A self-signed certificate for 127.0.0.1 and its key, as PEM files.
fn certificate(folder: &Path) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    std::fs::write(folder.join("cert.pem"), &cert).unwrap();
    std::fs::write(folder.join("key.pem"), &key).unwrap();
    (cert, key)
}

/// A Redis that speaks only TLS. None if the installed one cannot.
fn redis(folder: &Path) -> Option<Program> {
    let roots = folder.join("cert.pem").display().to_string();
    redis_with(folder, &["--tls-auth-clients", "no", "--tls-ca-cert-file", &roots])
}

/// The same with these settings for its clients' certificates.
fn redis_with(folder: &Path, clients: &[&str]) -> Option<Program> {
    // A server with TLS misses the key; one without TLS does not know the directive (Redis) or the kind of connection
    // (Valkey).
    let without_key = ["--port", "0", "--tls-port", "1", "--bind", "127.0.0.1", "--tls-cert-file", "/none.pem"];
    let told = command("redis-server").args(without_key).args(["--save", "", "--dir", "/tmp"]).output().ok()?;
    if !String::from_utf8_lossy(&told.stdout).contains("Failed to configure TLS") {
        // Bypasses libtest, which captures what a passing test prints by println!.
        let _ = writeln!(std::io::stdout(), "SKIPPED: this redis-server has no TLS");
        return None;
    }
    let port = free_port();
    let mut server = command("redis-server");
    server.args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port.to_string()]);
    server.args(clients).args(["--save", "", "--appendonly", "no", "--dir", "/tmp"]);
    for (setting, file) in [("--tls-cert-file", "cert.pem"), ("--tls-key-file", "key.pem")] {
        server.arg(setting).arg(folder.join(file));
    }
    Some(Program::start(&mut server, port))
}

fn cli(folder: &Path, port: u16, arguments: &[&str]) -> String {
    cli_with(folder, port, None, arguments)
}

/// The same with the certificate of another folder, or with none.
fn cli_with(folder: &Path, port: u16, own: Option<&Path>, arguments: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["--tls", "-h", "127.0.0.1", "-p", &port.to_string(), "--cacert"]).arg(folder.join("cert.pem"));
    if let Some(own) = own {
        cli.arg("--cert").arg(own.join("cert.pem")).arg("--key").arg(own.join("key.pem"));
    }
    let output = cli.args(arguments).output().unwrap();
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn clients_and_nodes_are_spoken_to_in_tls() {
    if !is_there("redis-server") || !is_there("redis-cli") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let nodes: Vec<Program> = (0..2).map_while(|_| redis(folder.path())).collect();
    let [first, second] = &nodes[..] else { return };
    let proxy = start_proxy(&[first.address, second.address], |config| {
        config.tls = Some(TlsServer::from_pem(cert.as_bytes(), key.as_bytes(), &[]).unwrap());
        config.node_tls = Some(TlsClient::from_pem(cert.as_bytes(), "localhost", &[]).unwrap());
    });
    let port = address_of(&proxy).port();
    let ask = |arguments: &[&str]| cli(folder.path(), port, arguments);
    let keys: Vec<String> = (0..20).flat_map(|number| [format!("key:{number}"), number.to_string()]).collect();
    let all: Vec<&str> = std::iter::once("MSET").chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(ask(&all), "OK\n");
    assert_eq!(ask(&["DBSIZE"]), "20\n");
    assert_eq!(ask(&["MGET", "key:0", "key:7", "key:19"]), "0\n7\n19\n");
    // Both nodes hold keys, so the proxy has reached both.
    for node in &nodes {
        assert_ne!(cli(folder.path(), node.address.port(), &["DBSIZE"]), "0\n");
    }
}

#[test]
fn a_node_whose_certificate_is_not_trusted_is_an_error_of_its_keys() {
    if !is_there("redis-server") || !is_there("redis-cli") {
        return;
    }
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificate(folder.path());
    let (distrusted, _) = certificate(other.path());
    let Some(node) = redis(folder.path()) else { return };
    let proxy = start_proxy(&[node.address], |config| {
        config.node_tls = Some(TlsClient::from_pem(distrusted.as_bytes(), "localhost", &[]).unwrap());
    });
    let port = address_of(&proxy).port().to_string();
    let output = Command::new("redis-cli").args(["-h", "127.0.0.1", "-p", &port, "GET", "a"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(&node.address.to_string()) && told.contains("the TLS handshake failed"), "{told}");
}

#[test]
fn certificates_are_required_of_clients_and_shown_to_nodes() {
    if !is_there("redis-server") || !is_there("redis-cli") {
        return;
    }
    let (ours, of_client, of_proxy) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cert, key) = certificate(ours.path());
    let (client_cert, _) = certificate(of_client.path());
    let (proxy_cert, proxy_key) = certificate(of_proxy.path());
    // The node requires a certificate, and trusts only that of the proxy.
    let roots = of_proxy.path().join("cert.pem");
    let Some(node) =
        redis_with(ours.path(), &["--tls-auth-clients", "yes", "--tls-ca-cert-file", roots.to_str().unwrap()])
    else {
        return;
    };
    let start = |shows: bool| {
        start_proxy(&[node.address], |config| {
            let (cert, key, roots) = (cert.as_bytes(), key.as_bytes(), client_cert.as_bytes());
            config.tls = Some(TlsServer::from_pem_with_client_roots(cert, key, roots, &[]).unwrap());
            let tls = TlsClient::from_pem(cert, "localhost", &[]).unwrap();
            config.node_tls = Some(match shows {
                true => tls.with_certificate(proxy_cert.as_bytes(), proxy_key.as_bytes()).unwrap(),
                false => tls,
            });
        })
    };
    let (showing, hiding) = (start(true), start(false));
    let ask = |proxy: &proxy::RunningProxy, own: Option<&Path>| {
        cli_with(ours.path(), address_of(proxy).port(), own, &["SET", "a", "1"])
    };
    assert_eq!(ask(&showing, Some(of_client.path())), "OK\n");
    for own in [None, Some(ours.path())] {
        let told = ask(&showing, own);
        assert!(!told.contains("OK"), "{told}");
    }
    let told = ask(&hiding, Some(of_client.path()));
    assert!(told.contains(&format!("ERR node {}", node.address)), "{told}");
}

#[test]
fn a_node_on_a_unix_socket_is_spoken_to_in_the_clear() {
    if !is_there("redis-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (cert, _) = certificate(folder.path());
    let (port, socket) = (free_port(), folder.path().join("redis.sock"));
    let mut server = command("redis-server");
    server.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"]);
    server.args(["--port", &port.to_string(), "--unixsocket"]).arg(&socket);
    let node = Program::start(&mut server, port);
    let proxy = start_proxy(&[node.address], |config| {
        config.nodes = vec![proxy::parse_node(&format!("unix:{}", socket.display())).unwrap()];
        config.node_tls = Some(TlsClient::from_pem(cert.as_bytes(), "localhost", &[]).unwrap());
    });
    assert_eq!(Plain::connect(address_of(&proxy)).text(&["SET", "a", "1"]), "+OK\r\n");
}
