//! A complete form with files.

use super::deserializer;
use super::spool::DiskRoom;
use crate::reply::Error;
use http::Status;
use http::forms::FormField;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// A form with files (`multipart/form-data`), for handlers of [`crate::upload()`].
///
/// A file input that was left empty counts as no file.
#[derive(Debug, Default)]
pub struct Multipart {
    pub(super) fields: Vec<FormField<'static>>,
    pub(super) files: Vec<UploadedFile>,
    /// Dropped with the files, which frees their room on disk.
    pub(super) _room: Option<DiskRoom>,
}

impl Multipart {
    /// The value of the first field of this name that is not a file.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.name == name).map(|field| &*field.value)
    }

    /// Names and values of the fields that are not files, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|field| (&*field.name, &*field.value))
    }

    /// The fields that are not files, deserialized as [`crate::Form`] does.
    ///
    /// # Errors
    ///
    /// 422, with the field that does not fit `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        deserializer::read(&self.fields).map_err(|error| Error::new(Status(422), error.to_string()))
    }

    /// The first file of the field of this name.
    pub fn file(&self, field: &str) -> Option<&UploadedFile> {
        self.files.iter().find(|file| file.field == field)
    }

    /// All files, in their order.
    pub fn files(&self) -> &[UploadedFile] {
        &self.files
    }
}

/// A file of a form. A larger one is on disk, in a file without a name, which is removed when this value is dropped.
#[derive(Debug)]
pub struct UploadedFile {
    pub(super) field: String,
    pub(super) name: String,
    pub(super) content_type: Option<String>,
    pub(super) bytes: u64,
    pub(super) content: Stored,
}

/// Where the bytes of a file are stored.
#[derive(Debug)]
pub(super) enum Stored {
    Memory(Vec<u8>),
    Disk(File),
}

impl UploadedFile {
    /// The name of its field in the form.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The client's name for the file, without folders. Only for display: never use it in a path, because it may be anything
    /// and two clients may send the same one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The media type that the client sent. It may be wrong.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Length of its content in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads its whole content. May wait for the disk.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.copy_to(&mut content).map(|_| content)
    }

    /// Writes its content to `to`, and returns the number of bytes. May wait for the disk.
    ///
    /// # Errors
    ///
    /// Those of the system, and of `to`.
    pub fn copy_to(&self, to: &mut impl Write) -> io::Result<u64> {
        match &self.content {
            Stored::Memory(bytes) => to.write_all(bytes).map(|()| self.bytes),
            Stored::Disk(file) => {
                let mut file = file;
                file.rewind()?;
                io::copy(&mut file.take(self.bytes), to)
            }
        }
    }

    /// Writes its content into a new file at this path, which must not come from the client. May wait for the disk.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is such a file; otherwise the system's error, and the new file is removed.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mut file = File::create_new(path)?;
        let copied = self.copy_to(&mut file);
        if copied.is_err() {
            // The error that is returned is that of writing.
            let _ = std::fs::remove_file(path);
        }
        copied.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: Stored, bytes: u64) -> UploadedFile {
        UploadedFile { field: "f".to_owned(), name: String::new(), content_type: None, bytes, content }
    }

    #[test]
    fn a_file_is_read_wherever_it_is() {
        let mut on_disk = tempfile::tempfile().unwrap();
        on_disk.write_all(b"content").unwrap();
        for file in [file(Stored::Memory(b"content".to_vec()), 7), file(Stored::Disk(on_disk), 7)] {
            for _ in 0..2 {
                assert_eq!(file.content().unwrap(), b"content");
            }
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("saved");
            file.save(&path).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"content");
            assert_eq!(file.save(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
    }
}
