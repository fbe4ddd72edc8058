//! The log: lines on standard error, through a bounded queue to a thread of its own, so that a slow terminal or a full
//! pipe never holds a loop. Lines that find the queue full are dropped and counted.

use http::{QueuedWriter, QueuedWriterThread};
use std::io::Write;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Which lines are logged; `SAPSAN_LOG=debug` shows more.
const FILTER_VARIABLE: &str = "SAPSAN_LOG";

/// Keeps the log's thread; dropped last, it writes what is queued.
pub(super) struct Log {
    _thread: Option<QueuedWriterThread>,
}

/// Starts the log for the process.
pub(super) fn start() -> Log {
    let Ok((writer, thread)) = QueuedWriter::start(std::io::stderr()) else { return Log { _thread: None } };
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Lines(writer)).finish();
    // Fails only where a log is set already, as in tests that run commands in one process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Log { _thread: Some(thread) }
}

/// Makes one line's buffer.
struct Lines(QueuedWriter);

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Line<'w>;

    fn make_writer(&'w self) -> Line<'w> {
        Line { writer: &self.0, bytes: Vec::new() }
    }
}

/// Gathers a line and queues it whole.
struct Line<'w> {
    writer: &'w QueuedWriter,
    bytes: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.writer.write_line(std::mem::take(&mut self.bytes));
    }
}
