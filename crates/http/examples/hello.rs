//! An immediate reply, a late one from a thread, and a stream: `cargo run -p http --example hello`, then `curl localhost:8080/`,
//! `curl localhost:8080/late` and `curl localhost:8080/stream`.

use std::{sync::Arc, thread, time::Duration};

use http::{BodySource, HttpRequest, HttpServer, HttpSettings, More, Reply, Service, Status};

struct Hello;

impl Service for Hello {
    type Local = ();

    fn local(&self, _: &reactor::Loop) {}

    fn call(&self, _: &mut (), request: &HttpRequest<'_>, reply: Reply<'_>) {
        match request.path() {
            "/" => reply.send(Status(200), "text/plain", b"hello\n"),
            "/late" => {
                let late = reply.later();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(100));
                    late.send(Status(200), "text/plain", b"late, but in its place\n".to_vec());
                });
            }
            "/stream" => reply.stream(Status(200), "text/plain", None, Box::new(Countdown(10))),
            _ => reply.send(Status(404), "text/plain", b"no such page\n"),
        }
    }
}

struct Countdown(u32);

impl BodySource for Countdown {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        out.extend_from_slice(format!("{}\n", self.0).as_bytes());
        self.0 -= 1;
        if self.0 == 0 { More::No } else { More::Yes }
    }
}

fn main() -> std::io::Result<()> {
    let mut reactor = reactor::Reactor::new(reactor::ReactorSettings::default())?;
    let address = "127.0.0.1:8080".parse().map_err(std::io::Error::other)?;
    println!("http://{}", reactor.listen(address, Arc::new(HttpServer::new(Hello, HttpSettings::default())))?);
    reactor.start()?.join()
}
