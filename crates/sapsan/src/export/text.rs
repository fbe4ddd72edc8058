//! Documents as JSON: a document on each line, or arrays.

use super::source::{Source, Stopped};
use std::io::Write;

/// Writes a document on each line. Returns the number of documents.
pub(crate) fn write_lines(source: &dyn Source, collection: &str, out: &mut dyn Write) -> Result<u64, Stopped> {
    let mut documents = 0;
    source.each(collection, &mut |document| {
        out.write_all(document.text())?;
        out.write_all(b"\n")?;
        documents += 1;
        Ok(())
    })?;
    Ok(documents)
}

/// Writes collections as arrays, with a document on each line; if `is_named`, as members of one object. Returns the number of documents.
pub(crate) fn write_arrays(
    source: &dyn Source,
    collections: &[&str],
    is_named: bool,
    out: &mut dyn Write,
) -> Result<u64, Stopped> {
    let mut documents = 0;
    for (number, collection) in collections.iter().enumerate() {
        if is_named {
            let before = if number == 0 { "{" } else { ",\n" };
            // A collection's name has nothing to escape.
            write!(out, "{before}\"{collection}\":")?;
        }
        let mut before: &[u8] = b"[\n";
        source.each(collection, &mut |document| {
            out.write_all(before)?;
            out.write_all(document.text())?;
            before = b",\n";
            documents += 1;
            Ok(())
        })?;
        out.write_all(if before == b"[\n" { b"[]" } else { b"\n]" })?;
    }
    out.write_all(if is_named { b"}\n" } else { b"\n" })?;
    Ok(documents)
}
