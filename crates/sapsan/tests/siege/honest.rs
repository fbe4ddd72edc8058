//! Honest clients: they ask for health and for single documents at an even pace, and write through pipelines; each from an address of
//! its own, as attackers do.

use crate::lag::Span;
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
const HEALTH_EVERY: Duration = Duration::from_millis(20);
const GET_EVERY: Duration = Duration::from_millis(4);
pub(crate) const WRITERS: u32 = 2;
/// Requests that a writer sends before it reads.
const PIPELINE: usize = 8;
const DOCUMENTS_OF_A_WRITER: usize = 96;

/// One request's time and status; 0 where there was no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) span: Span,
    pub(crate) status: u16,
}

pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// To the server, from an address of this client's own.
    pub(crate) fn new(to: SocketAddr, from: Ipv4Addr) -> std::io::Result<Connection> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection { reader: BufReader::new(stream) })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// A reply's status and body; its length is given.
    pub(crate) fn answer(&mut self) -> std::io::Result<(u16, Vec<u8>)> {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            } else if let Some(rest) = line.strip_prefix("Content-Length: ") {
                length = rest.parse().unwrap_or(0);
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok((status, body))
    }
}

/// The address of the client that asks for health, of the one that asks for documents, and of the first writer.
const HEALTH_FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 1);
const GETS_FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 2);
const WRITERS_FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 3);

/// What honest readers were told.
pub(crate) struct Honest {
    address: SocketAddr,
    documents: u32,
    pub(crate) health: Vec<Asked>,
    pub(crate) gets: Vec<Asked>,
}

impl Honest {
    pub(crate) fn new(address: SocketAddr, documents: u32) -> Honest {
        Honest { address, documents, health: Vec::new(), gets: Vec::new() }
    }

    pub(crate) fn run(&mut self, over: &AtomicBool) {
        let Honest { address, documents, health, gets } = self;
        let (address, documents) = (*address, *documents);
        std::thread::scope(|scope| {
            // On a connection that is kept, and on a new one each time.
            scope.spawn(move || {
                *health =
                    ask((address, HEALTH_FROM), over, HEALTH_EVERY, |number| (number % 2 == 1, "/_/health".to_owned()));
            });
            scope.spawn(move || {
                let target = |number: u32| format!("/items/{}", number.wrapping_mul(0x9e37_79b9) % documents);
                *gets = ask((address, GETS_FROM), over, GET_EVERY, |number| (false, target(number)));
            });
        });
    }
}

/// Asks at an even pace, late where the answer before was late. `request` says whether it goes on a new connection, and what for.
fn ask(
    (to, client): (SocketAddr, Ipv4Addr),
    over: &AtomicBool,
    every: Duration,
    request: impl Fn(u32) -> (bool, String),
) -> Vec<Asked> {
    let (mut asked, mut kept): (_, Option<Connection>) = (Vec::new(), None);
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let (is_new, target) = request(number);
        number += 1;
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let from = Instant::now();
        let once = |kept: &mut Option<Connection>| {
            let mut connection = match kept.take().filter(|_| !is_new) {
                Some(connection) => connection,
                None => Connection::new(to, client)?,
            };
            connection.send(bytes.as_bytes())?;
            let (status, _) = connection.answer()?;
            *kept = Some(connection).filter(|_| !is_new);
            Ok::<u16, std::io::Error>(status)
        };
        let mut aside = None;
        let status = if is_new { once(&mut aside) } else { once(&mut kept) };
        let span = Span { from, to: Instant::now() };
        asked.push(Asked { span, status: status.unwrap_or(0) });
        std::thread::sleep(every.saturating_sub(span.took()));
    }
    asked
}

/// What a writer knows of one of its documents.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    sent: u64,
}

pub(crate) struct Writer {
    number: u32,
    documents: Vec<Known>,
    /// When acknowledgements came.
    pub(crate) acknowledged: Vec<Instant>,
    pub(crate) refused: u64,
    pub(crate) broken: u64,
}

fn body(id: u32, number: u64) -> String {
    format!("{{\"id\":{id},\"n\":{number},\"text\":\"{}\"}}", "w".repeat((number * 37 % 400) as usize))
}

impl Writer {
    pub(crate) fn new(number: u32) -> Writer {
        let documents = vec![Known::default(); DOCUMENTS_OF_A_WRITER];
        Writer { number, documents, acknowledged: Vec::new(), refused: 0, broken: 0 }
    }

    fn client(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(WRITERS_FROM.to_bits() + self.number)
    }

    fn id(&self, place: usize) -> u32 {
        1 + self.number * DOCUMENTS_OF_A_WRITER as u32 + place as u32
    }

    pub(crate) fn run(&mut self, address: SocketAddr, over: &AtomicBool) {
        let (mut connection, mut next) = (None, 0);
        while !over.load(Ordering::Relaxed) {
            let taken = connection.take().map_or_else(|| Connection::new(address, self.client()), Ok);
            let Ok(mut open) = taken else {
                self.broken += 1;
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let places: Vec<usize> = (0..PIPELINE).map(|step| (next + step) % DOCUMENTS_OF_A_WRITER).collect();
            next += PIPELINE;
            match self.write(&mut open, &places) {
                Ok(()) => connection = Some(open),
                Err(_) => self.broken += 1,
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn write(&mut self, connection: &mut Connection, places: &[usize]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for &place in places {
            self.documents[place].sent += 1;
            let (id, body) = (self.id(place), body(self.id(place), self.documents[place].sent));
            let length = body.len();
            let _ = write!(
                bytes,
                "PUT /_/collections/kept/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
        connection.send(&bytes)?;
        for &place in places {
            match connection.answer()?.0 {
                200 | 201 => {
                    self.documents[place].acknowledged = self.documents[place].sent;
                    self.acknowledged.push(Instant::now());
                }
                _ => self.refused += 1,
            }
        }
        Ok(())
    }

    /// Documents that are not as they were acknowledged.
    pub(crate) fn lost(&mut self, address: SocketAddr) -> Vec<String> {
        let (mut lost, mut connection) =
            (Vec::new(), Connection::new(address, self.client()).expect("the server listens"));
        for (place, known) in self.documents.iter().enumerate() {
            let id = self.id(place);
            let request = format!("GET /_/collections/kept/{id} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            connection.send(request.as_bytes()).expect("the server takes it");
            let (status, found) = connection.answer().expect("the server answers");
            let is_there = || (known.acknowledged..=known.sent).any(|number| found == body(id, number).as_bytes());
            let is_kept = if status == 404 { known.acknowledged == 0 } else { status == 200 && is_there() };
            if !is_kept {
                let (told, sent) = (known.acknowledged, known.sent);
                lost.push(format!(
                    "kept/{id}: {told} acknowledged of {sent}: {status} {}",
                    String::from_utf8_lossy(&found)
                ));
            }
        }
        lost
    }
}
