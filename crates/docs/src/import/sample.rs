//! Reads the first records of a file without a database, for `sapsan init`, which declares a collection for them.

use std::ops::ControlFlow;

use binjson::{Encoder, StoredDocument};

use super::csv::{self, Cell, RowReader};
use super::input::{self, Content, Source};
use super::split::{Batch, Splitter};
use super::{BadRecord, FilePlace, ImportError, ImportOptions, Input};

/// One record.
pub enum SampledRecord<'s> {
    /// A document of a JSON file.
    Document {
        /** The name of its array, if the file is an object of arrays. */
        array: Option<&'s str>,
        /** The record. */
        document: StoredDocument<'s>,
    },
    /// A row of a table.
    Row {
        /** The names of the columns. */
        columns: &'s [String],
        /** The cells of the row: one for each column. */
        cells: &'s [Cell<'s>],
    },
}

/// Called with each record, and with the number of bytes read of the file so far. Returns whether to continue.
pub type VisitSampled<'v> = dyn FnMut(SampledRecord<'_>, u64) -> ControlFlow<()> + 'v;

/// Reads records of an input, which must not be an archive, until `visit` breaks. Returns whether all records were read. A record that
/// an import into any collection would refuse is an error here too.
pub fn sample(input: Input, visit: &mut VisitSampled<'_>) -> Result<bool, ImportError> {
    let mut sources = Vec::new();
    // With a collection, a stream that begins with `{` is read as one record for each line.
    let options = ImportOptions { collection: Some(String::new()), ..ImportOptions::default() };
    input::open(input, &options, &mut sources)?;
    let refused = |file: &str, why: &str| ImportError::File { file: file.to_string(), why: why.to_string() };
    match sources.pop() {
        Some(Source { name, format, content: Content::Stream(read), .. }) => {
            let mut reader = SampleReader::new(name, Splitter::new(read, format));
            reader.read(visit)
        }
        Some(Source { name, .. }) => Err(refused(&name, "an archive cannot be read here: unpack it first")),
        None => Err(refused("the archive", "it has no file of records")),
    }
}

/// See [`sample`].
struct SampleReader<R> {
    name: String,
    splitter: Splitter<R>,
    encoder: Encoder,
    /// A document in the encoding of stored documents.
    stored: Vec<u8>,
}

impl<R: std::io::Read> SampleReader<R> {
    fn new(name: String, splitter: Splitter<R>) -> SampleReader<R> {
        SampleReader { name, splitter, encoder: Encoder::new(), stored: Vec::new() }
    }

    fn read(&mut self, visit: &mut VisitSampled<'_>) -> Result<bool, ImportError> {
        let header = self.splitter.header().map_err(|error| self.broken(error.why))?;
        let mut table = match header {
            None => None,
            Some((row, delimiter)) => {
                let names = csv::header(&row, delimiter).map_err(|why| self.broken(why))?;
                Some((names, RowReader::new(delimiter)))
            }
        };
        while let Some(batch) = self.splitter.next(0).map_err(|error| self.broken(error.why))? {
            let flow = match &mut table {
                None => self.documents(&batch, visit)?,
                Some((columns, reader)) => self.rows(&batch, columns, reader, visit)?,
            };
            if flow.is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn documents(&mut self, batch: &Batch, visit: &mut VisitSampled<'_>) -> Result<ControlFlow<()>, ImportError> {
        let (bytes, mut start) = (self.splitter.position(), 0);
        for &(end, place) in &batch.records {
            self.stored.clear();
            let place = if self.splitter.counts_lines() { FilePlace::Line(place) } else { FilePlace::Byte(place) };
            let encoded = self.encoder.encode(&batch.bytes[start..end], &mut self.stored);
            encoded.map_err(|error| self.bad(place, error.to_string()))?;
            let document = StoredDocument::from_bytes(&self.stored).ok().filter(StoredDocument::is_object);
            let document = document.ok_or_else(|| self.bad(place, "a document is a JSON object".to_string()))?;
            if visit(SampledRecord::Document { array: batch.array.as_deref(), document }, bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            start = end;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn rows(
        &mut self,
        batch: &Batch,
        columns: &[String],
        reader: &mut RowReader,
        visit: &mut VisitSampled<'_>,
    ) -> Result<ControlFlow<()>, ImportError> {
        let (bytes, mut start) = (self.splitter.position(), 0);
        for &(end, line) in &batch.records {
            let bad = |bad: csv::BadCell| self.bad(FilePlace::Cell { line, column: bad.column }, bad.why);
            reader.read_as_wide(&batch.bytes[start..end], columns.len()).map_err(bad)?;
            let cells = (0..columns.len()).map(|place| reader.cell(place)).collect::<Result<Vec<_>, _>>();
            if visit(SampledRecord::Row { columns, cells: &cells.map_err(bad)? }, bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            start = end;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn bad(&self, place: FilePlace, why: String) -> ImportError {
        ImportError::Record(BadRecord { file: self.name.clone(), place, why })
    }

    fn broken(&self, why: String) -> ImportError {
        ImportError::File { file: self.name.clone(), why }
    }
}
