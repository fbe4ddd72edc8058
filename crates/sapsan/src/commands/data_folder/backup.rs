//! `sapsan backup FROM TO`: of a running server by its address, of a data folder that nobody has open directly.

use crate::cli::Backup;
use crate::console::{Outcome, output, progress};
use crate::target::remote::{self, Remote};
use docs::engine::{Classified, CopyProgress, ErrorKind, Store, StoreOptions};
use indicatif::ProgressBar;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often a server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(250);

pub(crate) fn run(arguments: &Backup) -> Outcome {
    match Remote::of(&arguments.from, &arguments.secret) {
        Some(remote) => of_server(&remote?, &arguments.to),
        None => of_folder(Path::new(&arguments.from), &arguments.to),
    }
}

fn of_folder(data: &Path, to: &Path) -> Outcome {
    if !Store::is_in(data) {
        return Err(format!("{} is no data folder", data.display()));
    }
    let (store, _) = Store::open(data, StoreOptions::default()).map_err(|error| match error.kind() {
        ErrorKind::InUse => {
            format!("{}: another process has it open. If that is a server, name its address, as in http://127.0.0.1:8080; otherwise wait for its end", data.display())
        }
        _ => format!("{}: {error}", data.display()),
    })?;
    let bar = progress::entries(0);
    let copied = store.backup(to, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let copied = copied.map_err(|error| format!("{} to {}: {error}", data.display(), to.display()))?;
    let (entries, bytes, version) = (copied.entries, copied.bytes, copied.version.0);
    output::line(format_args!("{}: {entries} entries, {bytes} bytes, up to change {version}", to.display()))
}

/// Shows a copy on its way.
pub(super) fn show(bar: &ProgressBar, progress: CopyProgress) -> ControlFlow<()> {
    bar.set_length(progress.entries_total);
    bar.set_position(progress.entries);
    bar.set_message(if progress.is_verifying { "reading it back" } else { "copying" });
    ControlFlow::Continue(())
}

fn of_server(remote: &Remote, to: &Path) -> Outcome {
    let body = serde_json::json!({ "to": to.to_string_lossy() }).to_string();
    let (status, answer) = std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        scope.spawn(move || follow(remote, &is_done));
        let answer = remote.ask("POST", "/_/backup", &body);
        drop(done);
        answer
    })?;
    if status != 200 {
        return Err(remote::refusal(status, &answer));
    }
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
    let folder = answer["to"].as_str().unwrap_or_default();
    let (entries, bytes, version) = (&answer["entries"], &answer["bytes"], &answer["version"]);
    output::line(format_args!("{folder}: {entries} entries, {bytes} bytes, up to change {version}"))
}

/// Shows how far the server is until the answer is there.
fn follow(remote: &Remote, is_done: &Receiver<()>) {
    let bar = progress::entries(0);
    while is_done.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
        // A failed request for the progress is ignored: only the answer to the backup counts.
        let Ok((200, progress)) = remote.ask("GET", "/_/backup", "") else { continue };
        let progress: serde_json::Value = serde_json::from_str(&progress).unwrap_or_default();
        bar.set_length(progress["entries_total"].as_u64().unwrap_or(0));
        bar.set_position(progress["entries"].as_u64().unwrap_or(0));
        bar.set_message(if progress["verifying"] == true { "reading it back" } else { "copying" });
    }
    bar.finish_and_clear();
}
