//! `sapsan restore BACKUP DIR`: a data folder of a backup, checked before it is one.

use crate::cli::Restore;
use crate::console::{Outcome, output, progress};
use docs::engine::Store;
use std::ops::ControlFlow;

pub(crate) fn run(arguments: &Restore) -> Outcome {
    let (from, to) = (&arguments.backup, &arguments.data);
    if !Store::is_in(from) {
        return Err(format!("{} is no backup", from.display()));
    }
    let bar = progress::bytes(0);
    let restored = Store::restore(from, to, &mut |progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes);
        bar.set_message(if progress.is_verifying { "reading it back" } else { "copying" });
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let restored = restored.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    let (entries, bytes, version) = (restored.entries, restored.bytes, restored.version.0);
    output::line(format_args!("{}: {entries} entries, {bytes} bytes, up to change {version}", to.display()))
}
