//! Static files, from a folder or from the program itself.
//!
//! [`Files`] is a set of files with options. [`Files::find`] answers one request with a [`FileReply`], which has status, header
//! fields and body; [`FileCache`] is a loop's cache. Which file holds what:
//!
//! | subject | file |
//! |---|---|
//! | a path as sent to the name of a file | `location` |
//! | a name to an open file, inside the folder | `folder` |
//! | the cache: contents, validity, bounds | `cache` |
//! | files that are part of the program | `embedded` |
//! | one file as it is sent: header fields and body | `representation`, `media`, `reply` |
//! | conditions, ranges and codings of the request | `conditions`, `encoding` |
//!
//! What holds everywhere:
//!
//! - Nothing outside the folder is opened, whatever the path is and whatever links the folder holds.
//! - A file in memory has at most 64 KB. A loop's files in memory have a bound, and so has the number of open files.
//! - A file that was requested in the last second costs no system call but the write. After a second it is looked up again, so a
//!   changed, replaced or removed file is noticed within a second.
//! - One range is answered with 206. A request for several ranges is answered with the whole file, as RFC 9110, section 14.2,
//!   allows: no client needs several, and they multiply the work.

mod cache;
mod conditions;
mod embedded;
mod encoding;
mod folder;
mod location;
mod media;
mod reply;
mod representation;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::request::HttpRequest;

use cache::Lookup;
pub use cache::{FILE_BYTES_IN_MEMORY_MAX, FileCache, OPEN_FILES_MAX};
use conditions::Fields;
use embedded::Embedded;
use folder::Folder;
use location::Location;
pub use reply::FileReply;

/// The file that answers a folder if [`Files::index`] is on.
const INDEX: &str = "index.html";

/// A set of files that are served, and the options for sending them.
#[derive(Debug)]
pub struct Files {
    source: Source,
    options: Options,
}

/// Options of [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    index: bool,
    hidden: bool,
    immutable: bool,
}

#[derive(Debug)]
enum Source {
    Folder(Arc<Folder>),
    Embedded(Embedded),
}

/// Why a request is not answered with a file.
#[derive(Debug)]
pub enum FileMiss {
    /// There is no such file, or it is not served: 404.
    NotFound,
    /// Too many evicted files are still being sent: 503, try again later.
    Busy,
    /// The system could not open or read it: 500. The text is for the log.
    Unavailable(io::Error),
}

impl Files {
    /// The files of a folder. Fails if it cannot be opened, or is no folder.
    ///
    /// Symbolic links inside it are followed if they lead to something inside it; a link with an absolute target is not followed.
    /// The folder itself may be a link, which may be changed to another target while it is served.
    pub fn folder(path: impl AsRef<Path>) -> io::Result<Files> {
        Ok(Files::of(Source::Folder(Arc::new(Folder::open(path.as_ref())?))))
    }

    /// Files that are part of the program: names such as `css/site.css`, and contents. [`crate::embed!`] makes such a list.
    pub fn embedded(list: &'static [(&'static str, &'static [u8])]) -> Files {
        Files::of(Source::Embedded(Embedded::new(list, Options::DEFAULT)))
    }

    fn of(source: Source) -> Files {
        Files { source, options: Options::DEFAULT }
    }

    /// Answers a path with a final slash with the folder's `index.html`; without the slash the client is redirected. Off by
    /// default.
    #[must_use]
    pub fn index(mut self, on: bool) -> Files {
        self.options.index = on;
        self
    }

    /// Whether a folder is answered with its `index.html`.
    pub fn has_index(&self) -> bool {
        self.options.index
    }

    /// Serves files and folders whose name begins with a dot. Off by default.
    #[must_use]
    pub fn hidden(mut self, on: bool) -> Files {
        self.options.hidden = on;
        self
    }

    /// Lets clients keep a file for a year if its name holds a fingerprint: at least eight hexadecimal digits just before the
    /// extension, as in `site.3f2a9c1b.css`. Any other file is revalidated at each use (`no-cache`). On by default; turn it off
    /// for names with a date, say.
    #[must_use]
    pub fn immutable(mut self, on: bool) -> Files {
        self.options.immutable = on;
        if let Source::Embedded(embedded) = &mut self.source {
            *embedded = embedded.with(self.options);
        }
        self
    }

    /// The folder of the files; `None` for embedded files.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Folder(folder) => Some(folder.path()),
            Source::Embedded(_) => None,
        }
    }

    /// The reply to a GET or HEAD request. `path` is the file's name below the route, as sent: escapes are decoded here.
    pub fn find(&self, cache: &mut FileCache, request: &HttpRequest<'_>, path: &str) -> Result<FileReply, FileMiss> {
        let mut text = cache.take_text();
        let found = match Location::read(path, self.options, &mut text) {
            Some(location) => self.find_location(cache, request, &location),
            None => Err(FileMiss::NotFound),
        };
        cache.give_text(text);
        found
    }

    fn find_location(
        &self,
        cache: &mut FileCache,
        request: &HttpRequest<'_>,
        location: &Location<'_>,
    ) -> Result<FileReply, FileMiss> {
        let fields = Fields::of(request);
        let found = match &self.source {
            Source::Folder(folder) => cache.find(folder, location.name(), self.options, fields.accepts())?,
            Source::Embedded(embedded) => embedded.find(location.name(), fields.accepts())?,
        };
        match found {
            Lookup::File(file) => Ok(FileReply::to(&fields, request.method(), file)),
            Lookup::Folder if self.options.index && !location.is_folder() => Ok(FileReply::redirect(request)),
            Lookup::Folder => Err(FileMiss::NotFound),
        }
    }
}

impl Options {
    const DEFAULT: Options = Options { index: false, hidden: false, immutable: true };

    /// The name of a folder's own file, if [`Files::index`] is on.
    fn index_name(self) -> Option<&'static str> {
        self.index.then_some(INDEX)
    }
}

/// A list of files for [`Files::embedded`], included when the program is built: a folder, relative to the package, and names
/// below it.
///
/// ```
/// let files = http::Files::embedded(http::embed!("tests/assets", "site.css", "images/dot.svg"));
/// ```
#[macro_export]
macro_rules! embed {
    ($folder:literal, $($name:literal),+ $(,)?) => {{
        const FILES: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $name)))),+];
        FILES
    }};
}
