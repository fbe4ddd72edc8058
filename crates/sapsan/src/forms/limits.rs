//! Limits of forms with files.

use http::forms::MultipartLimits;
use std::path::PathBuf;

/// Limits of a form with files, and the folder of its files.
#[derive(Clone, Debug)]
pub struct UploadLimits {
    /// Limits of the form's parts, heads, names, fields and bytes. Beyond one of them: 413.
    pub form: MultipartLimits,
    /// A larger file goes to disk.
    pub file_memory_bytes_max: usize,
    /// Bytes of names, fields and files that one form may have in memory. Beyond half of it files go to disk, beyond all of it: 413.
    pub memory_bytes_max: usize,
    /// Bytes on disk of all forms of this handler that are arriving or being handled. Beyond it: 503.
    pub disk_bytes_max: u64,
    /// The folder of the files, which have no names there. On many systems `/tmp` is memory.
    pub folder: PathBuf,
}

impl Default for UploadLimits {
    fn default() -> UploadLimits {
        UploadLimits {
            form: MultipartLimits::default(),
            file_memory_bytes_max: 64 << 10,
            memory_bytes_max: 1 << 20,
            disk_bytes_max: 1 << 30,
            folder: std::env::temp_dir(),
        }
    }
}
