//! `sapsan compact DIR`: the tree file written anew, as small as it goes, where that is smaller.

use super::backup::show;
use crate::cli::Folder;
use crate::console::{Outcome, output, progress};
use docs::engine::{Classified, Compacted, ErrorKind, Store, StoreOptions};

pub(crate) fn run(arguments: &Folder) -> Outcome {
    let data = &arguments.data;
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let bar = progress::entries(0);
    let copied = Store::compact(data, StoreOptions::default(), &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let copied = copied.map_err(|error| match error.kind() {
        ErrorKind::DiskFull => format!(
            "{}: disk full; nothing was changed. The new tree file needs room for the live data beside the old one, \
             which `sapsan stat {0}` tells: delete other files, or `sapsan backup` to another disk and restore",
            data.display()
        ),
        _ => format!("{}: {error}", data.display()),
    })?;
    let Compacted { entries, bytes_before, bytes_anew, is_replaced, .. } = copied;
    match is_replaced {
        true => output::line(format_args!(
            "{}: {entries} entries; {bytes_before} bytes became {bytes_anew}",
            data.display()
        )),
        false => output::line(format_args!(
            "{}: {entries} entries; the file of {bytes_before} bytes stays: written anew it would take {bytes_anew}",
            data.display()
        )),
    }
}
