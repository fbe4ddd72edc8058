//! Inputs of ammo and answers: a file or standard input, read more than once if possible.
//!
//! An input of up to [`KEPT_BYTES_MAX`] is kept in memory, so that a short list that is repeated for minutes needs no system
//! calls. A longer file is opened again for each pass; a longer standard input can be read only once.

use super::error::{AmmoError, AmmoPlace};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest input that is kept in memory, in bytes.
pub const KEPT_BYTES_MAX: usize = 4 << 20;
/// Bytes per read of a file.
const BUFFER_BYTES: usize = 256 << 10;
/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Whether a path stands for standard input.
pub(crate) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Bytes of an input, from its beginning.
pub(crate) type Reader = Box<dyn BufRead + Send>;

/// An input that is open.
pub(crate) struct Input {
    name: String,
    /// The whole input if it is short, otherwise its beginning.
    beginning: Arc<[u8]>,
    rest: Rest,
}

/// The input after the beginning.
enum Rest {
    Nothing,
    /// The file is longer: it is opened again for each pass.
    File(PathBuf),
    /// A stream that can be read once. `None`: it was read.
    Stream(Option<Reader>),
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path) -> Result<Input, AmmoError> {
        if is_standard_input(path) {
            let stream = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
            return Input::of_stream("standard input", Box::new(stream));
        }
        let name = path.display().to_string();
        let mut file = File::open(path).map_err(|error| unreadable(&name, &error))?;
        let beginning = beginning_of(&mut file).map_err(|error| unreadable(&name, &error))?;
        let rest = if beginning.len() > KEPT_BYTES_MAX { Rest::File(path.to_owned()) } else { Rest::Nothing };
        Ok(Input { name, beginning: beginning.into(), rest })
    }

    /// An input that is read from `stream`.
    pub(crate) fn of_stream(name: &str, mut stream: Reader) -> Result<Input, AmmoError> {
        let beginning = beginning_of(&mut stream).map_err(|error| unreadable(name, &error))?;
        let rest = if beginning.len() > KEPT_BYTES_MAX { Rest::Stream(Some(stream)) } else { Rest::Nothing };
        Ok(Input { name: name.to_owned(), beginning: beginning.into(), rest })
    }

    /// The input's name in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The whole input if it is short, otherwise the part that is kept.
    pub(crate) fn beginning(&self) -> &[u8] {
        without_mark(&self.beginning)
    }

    /// Whether [`Input::beginning`] is the whole input.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// Whether it can be read more than once.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self.rest, Rest::Stream(_))
    }

    /// Reads from the first byte on. `None`: the input was a stream, which has been read.
    pub(crate) fn read(&mut self) -> Result<Option<Reader>, AmmoError> {
        let kept = Cursor::new(Arc::clone(&self.beginning));
        let mut reader: Reader = match &mut self.rest {
            Rest::Nothing => Box::new(kept),
            Rest::File(path) => {
                let file = File::open(path).map_err(|error| unreadable(&self.name, &error))?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, file))
            }
            Rest::Stream(stream) => match stream.take() {
                Some(stream) => Box::new(kept.chain(stream)),
                None => return Ok(None),
            },
        };
        reader.consume(self.beginning.len() - self.beginning().len());
        Ok(Some(reader))
    }
}

/// As much as is kept, plus one byte if there is more.
fn beginning_of(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(KEPT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes the byte order mark with which some editors begin a file.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> AmmoError {
    AmmoError::input(name, AmmoPlace::Whole, format!("cannot be read: {error}"))
}

#[cfg(test)]
mod opening {
    use super::{Input, KEPT_BYTES_MAX};
    use std::io::Read as _;

    fn text(input: &mut Input) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut reader = input.read().expect("readable")?;
        reader.read_to_end(&mut bytes).expect("readable");
        Some(bytes)
    }

    #[test]
    fn a_file_is_read_again_for_each_pass() {
        let long = [b"/a\n".repeat(KEPT_BYTES_MAX / 3), b"/end\n".to_vec()].concat();
        for bytes in [b"/a\n".to_vec(), long] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), &bytes).expect("written");
            let mut input = Input::open(file.path()).expect("open");
            assert!(text(&mut input).as_deref() == Some(&bytes) && text(&mut input).as_deref() == Some(&bytes));
        }
    }

    #[test]
    fn a_stream_is_read_again_only_where_it_is_short() {
        let stream = |bytes: &[u8]| Input::of_stream("stream", Box::new(std::io::Cursor::new(bytes.to_vec())));
        let mut short = stream(b"/a").expect("open");
        assert_eq!((text(&mut short), text(&mut short)), (Some(b"/a".to_vec()), Some(b"/a".to_vec())));
        let bytes = vec![b'x'; KEPT_BYTES_MAX + 1000];
        let mut long = stream(&bytes).expect("open");
        assert!(text(&mut long) == Some(bytes));
        assert_eq!(text(&mut long), None);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_a_missing_file_is_an_error_with_its_name() {
        let mut input = Input::of_stream("stream", Box::new("\u{feff}/a".as_bytes())).expect("open");
        assert_eq!(input.beginning(), b"/a");
        assert_eq!(text(&mut input), Some(b"/a".to_vec()));
        let error = Input::open(std::path::Path::new("no/such.file")).err().expect("missing").to_string();
        assert!(error.starts_with("no/such.file: cannot be read"), "{error}");
    }
}
