//! The log: lines on standard error, through a bounded queue to a thread of its own, so that a slow terminal or a full
//! pipe never holds a loop. Lines that find the queue full are dropped and counted. Panics are lines of the log, too.

use crate::cli::Level;
use http::{QueuedWriter, QueuedWriterThread};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Which lines are logged; `SAPSAN_LOG=debug` shows more.
const FILTER_VARIABLE: &str = "SAPSAN_LOG";

/// How long a process that ends for a fault waits for its last lines to be written.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// Keeps the log's thread; dropped last, it writes what is queued.
pub(crate) struct Log {
    writer: Option<QueuedWriter>,
    _thread: Option<QueuedWriterThread>,
}

impl Log {
    /// What ends the process from any thread, with this status, once the lines queued so far are written.
    pub(crate) fn exit(&self, status: i32) -> impl FnOnce() + Send + 'static {
        let writer = self.writer.clone();
        move || {
            writer.map(|writer| writer.flush_within(LAST_LINES_WAIT));
            std::process::exit(status)
        }
    }
}

/// Starts the log for the process, at this level or at that of the variable.
pub(crate) fn start(level: Option<Level>) -> Log {
    let Ok((writer, thread)) = QueuedWriter::start(std::io::stderr()) else {
        return Log { writer: None, _thread: None };
    };
    std::panic::set_hook(Box::new(log_panic));
    let filter = match level {
        Some(level) => EnvFilter::new(directive(level)),
        None => EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(directive(Level::Info))),
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    let subscriber = subscriber.with_writer(Lines(writer.clone())).finish();
    // Fails only where a log is set already, as in tests that run commands in one process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Log { writer: Some(writer), _thread: Some(thread) }
}

fn directive(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

/// Queues what a panic says. The hook of the standard library writes to standard error itself: where nobody reads there it would
/// hold the thread that panicked, perhaps an event loop, for ever.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let (thread, text) = (thread.name().unwrap_or("unnamed"), panic.payload_as_str().unwrap_or("no text"));
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    // Empty unless RUST_BACKTRACE asks for one.
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(thread, place, "panic: {text}\n{backtrace}"),
        _ => tracing::error!(thread, place, "panic: {text}"),
    }
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
