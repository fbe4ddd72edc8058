//! Serves a folder, and replies by each way in which bytes are sent: `cargo run --release -p http --example files -- FOLDER
//! [ADDRESS]`, then `curl localhost:8080/index.html`. For measurements side by side:
//!
//! | path | a reply of N bytes |
//! |---|---|
//! | `/_/copied/N` | copied into the write queue |
//! | `/_/shared/N` | from shared memory, by writev |
//! | `/_/file/N` | from a file, by sendfile |
//! | `/_/parts/N` | three parts: N bytes of static memory between two short ones |
//! | `/_/joined/N` | the same, joined beforehand and copied |
//!
//! N is at most 64 MB. To evict a file from the page cache: `vmtouch -e FILE`.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use http::{
    BodyPart, FileCache, FileMiss, FileRange, Files, HttpRequest, HttpServer, HttpSettings, Piece, Reply, Service,
    Status,
};

const BYTES_MAX: usize = 64 << 20;
const CACHE_BYTES: usize = 32 << 20;

struct Folder {
    files: Files,
    memory: &'static [u8],
    file: Arc<File>,
}

/// The files, and the last requested body: made once for many requests.
struct Local {
    cache: FileCache,
    shared: Arc<[u8]>,
}

impl Service for Folder {
    type Local = Local;

    fn local(&self, lp: &reactor::Loop) -> Local {
        Local { cache: FileCache::new(lp, CACHE_BYTES), shared: Arc::from([]) }
    }

    fn call(&self, local: &mut Local, request: &HttpRequest<'_>, reply: Reply<'_>) {
        let path = request.path().trim_start_matches('/');
        if let Some((way, bytes)) = path.strip_prefix("_/").and_then(|rest| rest.split_once('/')) {
            let bytes = bytes.parse::<usize>().unwrap_or(0).min(BYTES_MAX);
            return self.send(local, way, bytes, reply);
        }
        match self.files.find(&mut local.cache, request, path) {
            Ok(file) => file.send(reply),
            Err(FileMiss::Busy) => reply.send(Status(503), "text/plain", b"too many files are being sent\n"),
            Err(FileMiss::NotFound) => reply.send(Status(404), "text/plain", b"no such file\n"),
            Err(FileMiss::Unavailable(error)) => reply.send(Status(500), "text/plain", error.to_string().as_bytes()),
        }
    }
}

impl Folder {
    fn send(&self, local: &mut Local, way: &str, bytes: usize, reply: Reply<'_>) {
        let (status, media) = (Status(200), "text/html; charset=utf-8");
        let body = &self.memory[..bytes];
        match way {
            "copied" => reply.send(status, media, body),
            "shared" => {
                if local.shared.len() != bytes {
                    local.shared = body.into();
                }
                reply.send_shared(status, media, Arc::clone(&local.shared));
            }
            "file" => reply.send_piece(status, media, Piece::File(FileRange::new(Arc::clone(&self.file), 0, bytes))),
            "parts" => {
                reply.send_parts(
                    status,
                    media,
                    [BodyPart::Copied(b"before "), BodyPart::Static(body), BodyPart::Copied(b" after")],
                );
            }
            "joined" => {
                let joined = bytes + b"before ".len() + b" after".len();
                reply.send(status, media, &self.memory[..joined]);
            }
            _ => reply.send(Status(404), "text/plain", b"copied, shared, file, parts or joined\n"),
        }
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let memory: &'static [u8] = Vec::leak(vec![b'x'; BYTES_MAX + 64]);
    let path = std::env::temp_dir().join(format!("sapsan-example-files-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    file.write_all(memory)?;
    let service = Folder { files: Files::folder(folder)?.index(true), memory, file: Arc::new(file) };
    let mut reactor =
        reactor::Reactor::new(reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() })?;
    let address = address.parse().map_err(std::io::Error::other)?;
    println!("http://{}", reactor.listen(address, Arc::new(HttpServer::new(service, HttpSettings::default())))?);
    reactor.start()?.join()
}
