//! A client of idle TLS connections: `cargo run -p reactor --example idle_tls -- 127.0.0.1:8443 10000 /users/1 cert.pem`.
//!
//! Opens that many connections, one after the other, and sends a GET and reads its reply on each, so that both sides have used
//! their buffers. Then it prints `ready` and holds them until its standard input ends. The certificate is the server's, and the
//! only trusted one.
#![allow(clippy::unwrap_used, unsafe_code)] // Of the tests' module, which calls setrlimit.

#[path = "../tests/process_limits/mod.rs"]
#[allow(dead_code)]
mod process_limits;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Bytes of a reply read at once; the reply is small.
const REPLY_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, count, target, certificate] = &arguments[..] else {
        return Err("usage: idle_tls ADDRESS COUNT TARGET CERTIFICATE".into());
    };
    let (address, count): (SocketAddr, usize) = (address.parse()?, count.parse()?);
    process_limits::descriptors_max();
    let config = trusting(&std::fs::read(certificate)?)?;
    let streams: Vec<Stream> = (0..count).map(|_| used(address, target, &config)).collect::<Result<_, _>>()?;
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    drop(streams);
    Ok(())
}

fn trusting(certificate: &[u8]) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// A connection that has carried a request and its reply.
fn used(address: SocketAddr, target: &str, config: &Arc<ClientConfig>) -> Result<Stream, Box<dyn Error>> {
    let session = ClientConnection::new(Arc::clone(config), ServerName::from(address.ip()))?;
    let mut stream = StreamOwned::new(session, TcpStream::connect(address)?);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    match stream.read(&mut [0; REPLY_BYTES])? {
        0 => Err("the server closed a connection".into()),
        _ => Ok(stream),
    }
}
