//! Progress bars: on standard error, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Counts documents.
pub(crate) fn documents(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} documents, {per_sec}, {eta} left")
}

/// Counts entries of trees; the message tells what is done with them.
pub(crate) fn entries(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} entries, {msg}, {elapsed}")
}

/// Counts keys of a Redis.
pub(crate) fn keys(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} keys, {per_sec}, {eta} left {msg}")
}

/// Counts bytes of input; the message tells the documents.
pub(crate) fn bytes(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {bytes}/{total_bytes}, {msg}, {eta} left")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
