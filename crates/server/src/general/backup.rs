//! `POST /_/backup` `{"to": "NAME"}`: a copy of the database while it serves; `GET /_/backup` reports its progress.
//!
//! The server writes it into its own folder for backups, `[server] backups`, under a name from the request. It is never streamed
//! to the client: a slow client would keep the pages of an old state from being reused, and the data file would grow. A request
//! cannot name any other path.
//!
//! One backup at a time. It has a thread of its own, since no query may wait for the minutes that it takes, and is answered when
//! the copy is complete, read back, and on disk. A server that drains stops it, and so does the end of its request's token: a
//! partial copy is removed, since it would not be a valid store.

use super::fail;
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::maintenance::backups::{Backups, UnderWay};
use crate::replies::media::JSON;
use crate::requests::json_body;
use crate::service::Service;
use crate::threads::background;
use docs::DocumentDatabase;
use docs::engine::{self, Classified, ErrorKind};
use http::{HttpRequest, Reply, Status};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// Limit of a request's body.
const BODY_BYTES_MAX: usize = 1024;
/// Limit of a backup's name.
const NAME_BYTES_MAX: usize = 100;

/// Reports the running backup's progress.
pub(super) fn send_state(service: &Service, reply: Reply<'_>) {
    let under_way = service.backups.under_way().clone();
    let state = match under_way {
        None => serde_json::json!({ "running": false }),
        Some(UnderWay { name, progress }) => serde_json::json!({
            "running": true,
            "to": name,
            "entries": progress.entries,
            "entries_total": progress.entries_total,
            "verifying": progress.is_verifying,
        }),
    };
    reply.send(Status(200), JSON, state.to_string().as_bytes());
}

/// Makes a backup.
pub(super) fn make(service: &Service, request: &HttpRequest<'_>, (permit, reply): (Permit, Reply<'_>)) {
    let admitted = read(request.body()).and_then(|name| {
        let (folder, thread) =
            service.backups.folder.as_ref().zip(service.backup_thread.as_ref()).ok_or_else(no_folder)?;
        let turn = service.backups.take_turn(&name)?;
        Ok((folder.join(name), turn, thread))
    });
    let (to, turn, thread) = match admitted {
        Ok(admitted) => admitted,
        Err(failure) => return fail(&failure, reply),
    };
    let (database, errors) = (service.database.clone(), Arc::new(ErrorRules::default()));
    background::run(thread, &Arc::clone(&errors), reply.later(), move |late| {
        let result = copy(&database, &to, &turn.backups, &permit);
        // Before the answer: a client that has it may request the next backup.
        drop(turn);
        match result {
            Ok(body) => late.send(Status(200), JSON, body),
            Err(failure) => refusal::refuse(&errors, late, &failure),
        }
    });
}

fn no_folder() -> Failure {
    let detail = "no folder for backups is set: add `backups = \"DIR\"` to [server], or start with --backups DIR";
    Failure::new(FailureKind::Forbidden, detail)
}

/// The name in the request: one path segment, not hidden.
fn read(body: &[u8]) -> Result<String, Failure> {
    const ALLOWED: &str =
        "{\"to\": \"NAME\"}, the name in letters, digits, `.`, `-` and `_`, and not beginning with `.`";
    let invalid = |what: &str| Failure::new(FailureKind::Invalid, format!("{what}; allowed: {ALLOWED}"));
    if body.len() > BODY_BYTES_MAX {
        return Err(Failure::new(FailureKind::TooLarge, format!("a body of over {BODY_BYTES_MAX} bytes")));
    }
    let body = json_body::read(body).map_err(|why| invalid(&why))?;
    let name = match body.as_object() {
        Some(fields) if fields.len() == 1 => fields.get("to").and_then(|name| name.as_str()),
        _ => None,
    };
    let name = name.ok_or_else(|| invalid("the body names no backup"))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(invalid(&format!("{} is no name of a backup", serde_json::Value::from(name))));
    }
    Ok(name.to_owned())
}

fn copy(
    database: &DocumentDatabase,
    to: &std::path::Path,
    backups: &Backups,
    permit: &Permit,
) -> Result<Vec<u8>, Failure> {
    let began = Instant::now();
    tracing::info!(to = %to.display(), "a backup begins");
    let mut goes_on = |progress| match permit.check() {
        Ok(()) => backups.note(progress),
        Err(_) => ControlFlow::Break(()),
    };
    let copied = database.store().backup(to, &mut goes_on).map_err(|error| {
        tracing::error!(to = %to.display(), %error, "a backup failed");
        permit.check().err().unwrap_or_else(|| of_store(&error, to))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    tracing::info!(to = %to.display(), version = copied.version.0, bytes = copied.bytes, seconds, "a backup is made");
    let state = serde_json::json!({
        "to": to.to_string_lossy(),
        "version": copied.version.0,
        "entries": copied.entries,
        "bytes": copied.bytes,
        "seconds": seconds,
    });
    Ok(state.to_string().into_bytes())
}

fn of_store(error: &engine::StoreError, to: &std::path::Path) -> Failure {
    let kind = match error.kind() {
        ErrorKind::InUse | ErrorKind::System(std::io::ErrorKind::DirectoryNotEmpty) => FailureKind::Conflict,
        ErrorKind::Busy | ErrorKind::OldStates => FailureKind::Busy,
        ErrorKind::Damaged => FailureKind::Internal,
        _ => FailureKind::Unavailable,
    };
    Failure::new(kind, format!("{}: {error}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use docs::engine::StoreError;
    use std::io;

    #[test]
    fn a_backup_that_fails_tells_whether_to_come_again_or_to_choose_another_place() {
        let system =
            |kind: io::ErrorKind| StoreError::Io { context: "a file".to_owned(), source: io::Error::from(kind).into() };
        let damage = StoreError::Corrupt { file: "tree".to_owned(), offset: 4096, what: "its checksum".to_owned() };
        for (error, kind) in [
            (StoreError::Locked, FailureKind::Conflict),
            (system(io::ErrorKind::DirectoryNotEmpty), FailureKind::Conflict),
            (system(io::ErrorKind::PermissionDenied), FailureKind::Unavailable),
            (StoreError::Busy, FailureKind::Busy),
            (StoreError::Pinned { states: 64 }, FailureKind::Busy),
            (damage, FailureKind::Internal),
            (StoreError::Full, FailureKind::Unavailable),
            (StoreError::Closed, FailureKind::Unavailable),
        ] {
            let failure = of_store(&error, "backups/today".as_ref());
            assert_eq!(failure.kind, kind, "{error}");
            assert_eq!(failure.detail, format!("backups/today: {error}"));
        }
    }

    #[test]
    fn a_backup_whose_token_is_revoked_ends_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
        let config = docs::config::Config::parse("c.toml".as_ref(), text).unwrap();
        let options = engine::StoreOptions::default();
        let (database, _) = DocumentDatabase::open(&config, &folder.path().join("data"), options).unwrap();
        let (to, backups) = (folder.path().join("b"), Backups::new(None));
        let refused = copy(&database, &to, &backups, &Permit::revoked()).expect_err("no permission");
        assert_eq!(refused.kind, FailureKind::Unauthorized);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the data");
        copy(&database, &to, &backups, &Permit::default()).expect("a backup");
    }
}
