//! A server that does what a test says, one script for each connection, in order.

use resp::Settings;
use resp::codec::{Limits, RequestFramer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nothing here waits longer.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) type Script = Box<dyn FnOnce(&mut Peer) + Send>;

pub(crate) struct FakeServer {
    pub(crate) settings: Settings,
    thread: Option<JoinHandle<()>>,
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    /// Received, and not yet asked for.
    input: Vec<u8>,
}

impl FakeServer {
    /// Accepts a connection for each script; then the port is closed.
    pub(crate) fn start(scripts: Vec<Script>) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut settings = Settings::of(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        settings.timeout = LIMIT;
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                script(&mut Peer { stream, input: Vec::new() });
            }
        });
        FakeServer { settings, thread: Some(thread) }
    }

    /// Waits until all scripts have ended, and fails if one of them has.
    pub(crate) fn finish(mut self) {
        self.thread.take().unwrap().join().expect("the scripts");
    }
}

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends what the socket takes at once, and gives the number of bytes.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let sent = self.stream.write(bytes).unwrap_or(0);
        self.stream.set_nonblocking(false).unwrap();
        sent
    }

    /// The next request's bytes; none at the end of the connection.
    pub(crate) fn request(&mut self) -> Option<Vec<u8>> {
        let mut framer = RequestFramer::new(Limits::default());
        let (mut at, mut buffer) = (0, [0; 4096]);
        loop {
            let advance = framer.advance(&self.input[at..]).unwrap();
            at += advance.consumed;
            if advance.is_complete {
                return Some(self.input.drain(..at).collect());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the fake server read {error}"),
            }
        }
    }

    /// Takes a request, which must hold this text.
    pub(crate) fn expect(&mut self, text: &str) {
        let request = self.request().expect("a request");
        let request = String::from_utf8_lossy(&request).into_owned();
        assert!(request.contains(text), "{request:?} has no {text:?}");
    }

    /// Waits until the client closes.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.request(), None, "a request where none was to come");
    }
}

/// A script.
pub(crate) fn script(run: impl FnOnce(&mut Peer) + Send + 'static) -> Script {
    Box::new(run)
}
