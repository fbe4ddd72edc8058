//! Opening inputs. Each file, and each file in an archive, is a separate source that one thread reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use zip::ZipArchive;

use super::split::Format;
use super::{ImportError, ImportOptions, Input, RecordFormat, ZIP_ENTRIES_MAX};

/// One stream of records.
pub(super) struct Source {
    /// Its name in messages.
    pub(super) name: String,
    pub(super) format: Format,
    /// Unpacked size, if known.
    pub(super) bytes: Option<u64>,
    pub(super) content: Content,
}

/// Access to the bytes.
pub(super) enum Content {
    Stream(Box<dyn Read + Send>),
    /// The archive and the entry's number in it.
    Packed(ZipArchive<Shared>, usize),
}

impl Format {
    /// That of files whose names have this ending.
    fn of_extension(extension: &str) -> Option<Format> {
        match extension {
            "json" => Some(Format::Json),
            "ndjson" | "jsonl" => Some(Format::Lines),
            "csv" => Some(RecordFormat::Csv.into()),
            "tsv" => Some(RecordFormat::Tsv.into()),
            _ => None,
        }
    }
}

impl From<RecordFormat> for Format {
    fn from(format: RecordFormat) -> Format {
        match format {
            RecordFormat::Json => Format::Json,
            RecordFormat::Lines => Format::Lines,
            RecordFormat::Csv => Format::Rows { delimiter: b',' },
            RecordFormat::Tsv => Format::Rows { delimiter: b'\t' },
        }
    }
}

/// Opens an input; an archive has one source for each of its files.
pub(super) fn open(input: Input, options: &ImportOptions, sources: &mut Vec<Source>) -> Result<(), ImportError> {
    let guess = options.format.map_or(Format::Guess { named: options.collection.is_some() }, Format::from);
    let (name, path) = match input {
        Input::Stream { name, read } => {
            sources.push(Source { name, format: guess, bytes: None, content: Content::Stream(read) });
            return Ok(());
        }
        Input::File(path) => (path.display().to_string(), path),
    };
    let refused = |why: String| ImportError::File { file: name.clone(), why };
    let file = File::open(&path).map_err(|error| refused(error.to_string()))?;
    let bytes = file.metadata().map(|meta| meta.len()).ok();
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    if extension == "zip" {
        return unpack(&name, file, sources).map_err(refused);
    }
    let named = options.format.map(Format::from).or_else(|| Format::of_extension(&extension));
    let format = named.ok_or_else(|| {
        refused("its name does not say the format: end it in .json, .ndjson, .jsonl, .csv, .tsv or .zip, or name the format with --format".to_owned())
    })?;
    sources.push(Source { name, format, bytes, content: Content::Stream(Box::new(file)) });
    Ok(())
}

fn unpack(name: &str, file: File, sources: &mut Vec<Source>) -> Result<(), String> {
    let shared = Shared { file: Arc::new(file), at: 0 };
    let mut archive = ZipArchive::new(shared).map_err(|error| error.to_string())?;
    if archive.len() > ZIP_ENTRIES_MAX {
        return Err(format!("{} files in the archive, allowed are {ZIP_ENTRIES_MAX}", archive.len()));
    }
    for number in 0..archive.len() {
        let entry = archive.by_index(number).map_err(|error| error.to_string())?;
        if entry.is_dir() {
            continue;
        }
        let inner = entry.name().map_err(|error| error.to_string())?.into_owned();
        let named = inner.rsplit_once('.').and_then(|(_, extension)| Format::of_extension(extension));
        // Archives often contain readme files and the like.
        let Some(format) = named else { continue };
        let bytes = Some(entry.size());
        drop(entry);
        let content = Content::Packed(archive.clone(), number);
        sources.push(Source { name: format!("{name}/{inner}"), format, bytes, content });
    }
    Ok(())
}

/// A file that several threads read, each at its own position.
#[derive(Clone)]
pub(super) struct Shared {
    file: Arc<File>,
    at: u64,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Shared {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
        };
        self.at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
