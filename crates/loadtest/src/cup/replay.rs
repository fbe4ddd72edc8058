//! Ammo and answers in a folder, under the contest's names, for the phases that the folder has.
//!
//! `FOLDER` (or `FOLDER/ammo`) holds `phase_N_….ammo`; the answers are `phase_N_….answ` beside them, in `FOLDER/answers` or in
//! `FOLDER/../answers`. A file with fewer requests than its phase is repeated. A repeated GET or update has the same answer
//! again; a repeated POST of a new entity must answer 400, because the entity exists by then.

use super::phase_source::{Shot, Shots};
use super::{Shared, lock};
use crate::ammo::{Ammo, AmmoOptions, Format};
use crate::answers::Comparison;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhaseFiles {
    pub(crate) ammo: PathBuf,
    pub(crate) answers: PathBuf,
}

/// Finds the files of phase `number` (1 to 3). `None`: the folder has no ammo for it. Ammo without answers is an error.
pub(crate) fn find(folder: &Path, number: usize) -> Result<Option<PhaseFiles>, String> {
    let beginning = format!("phase_{number}_");
    let among =
        |folders: &[PathBuf], ending: &str| folders.iter().find_map(|folder| first_named(folder, &beginning, ending));
    let Some(ammo) = among(&[folder.to_owned(), folder.join("ammo")], ".ammo") else { return Ok(None) };
    let answers = [folder.to_owned(), folder.join("answers"), folder.join("../answers")];
    match among(&answers, ".answ") {
        Some(answers) => Ok(Some(PhaseFiles { ammo, answers })),
        None => Err(format!("{} has no answers: {beginning}….answ beside it, or in a folder answers", ammo.display())),
    }
}

/// The first file, by name, with this beginning and ending.
fn first_named(folder: &Path, beginning: &str, ending: &str) -> Option<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(beginning) && name.ends_with(ending)
    };
    let entries = std::fs::read_dir(folder).ok()?;
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(named).min()
}

/// The requests of a phase's files, repeated endlessly.
pub(crate) struct Replay {
    ammo: Ammo,
    world: Shared,
}

impl Replay {
    pub(crate) fn open(files: &PhaseFiles, world: Shared) -> Result<Replay, String> {
        let options = AmmoOptions { format: Some(Format::Phantom), ..AmmoOptions::default() };
        // Each request carries its expected answer; this comparison is not used.
        let ammo = Ammo::open_with_answers(&files.ammo, &files.answers, Arc::new(Comparison::default()), options);
        Ok(Replay { ammo: ammo.map_err(|error| error.to_string())?, world })
    }
}

impl Shots for Replay {
    fn next(&mut self, shot: &mut Shot) -> Result<(), String> {
        let item = self.ammo.next_item().map_err(|error| error.to_string())?;
        let item = item.ok_or("the ammo has ended")?;
        shot.request.clone_from(&item.request);
        shot.expected = item.expected.take().ok_or("the request has no answer")?;
        let is_repeated = self.ammo.passes_begun() > 1;
        let expected = &mut shot.expected;
        if expected.method == "POST" && expected.status == 200 {
            if is_repeated {
                let is_new = expected.target.split('?').next().is_some_and(|path| path.ends_with("/new"));
                expected.status = if is_new { 400 } else { 200 };
            } else {
                lock(&self.world).apply(&expected.target, body_of(&shot.request.bytes));
            }
        }
        Ok(())
    }
}

/// The body of a request; white space after it is not part of the JSON.
fn body_of(request: &[u8]) -> &[u8] {
    memchr::memmem::find(request, b"\r\n\r\n").map_or(b"", |head| &request[head + 4..])
}

#[cfg(test)]
mod folders {
    use super::{PhaseFiles, Replay, find};
    use crate::cup::phase_source::{Shot, Shots as _};
    use crate::cup::world::EntityKind;
    use crate::cup::{lock, sample_world};
    use std::fs;

    #[test]
    fn files_are_found_by_the_number_of_their_phase() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ammo, answers) = (folder.path().join("ammo"), folder.path().join("answers"));
        fs::create_dir_all(&ammo).expect("made");
        fs::create_dir_all(&answers).expect("made");
        fs::write(ammo.join("phase_1_get.ammo"), "").expect("written");
        fs::write(answers.join("phase_1_get.answ"), "").expect("written");
        for place in [folder.path(), &ammo] {
            let files = find(place, 1).expect("whole").expect("there");
            assert!(files.ammo.exists() && files.answers.exists());
        }
        assert_eq!(find(folder.path(), 2), Ok(None));
        fs::write(ammo.join("phase_2_post.ammo"), "").expect("written");
        assert!(find(folder.path(), 2).expect_err("no answers").contains("phase_2_"));
    }

    #[test]
    fn a_repeated_new_entity_must_be_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let new = "POST /visits/new?query_id=0 HTTP/1.1\r\nContent-Length: 12\r\n\r\n{\"id\": 1000}\r\n";
        let update = "POST /visits/1000?query_id=1 HTTP/1.1\r\nContent-Length: 11\r\n\r\n{\"mark\": 4}\r\n";
        let record = |request: &str| format!("{} tag\n{request}", request.len());
        let files = PhaseFiles { ammo: folder.path().join("a"), answers: folder.path().join("b") };
        fs::write(&files.ammo, record(new) + &record(update)).expect("written");
        let answers = "POST\t/visits/new?query_id=0\t200\nPOST\t/visits/1000?query_id=1\t200\n";
        fs::write(&files.answers, answers).expect("written");
        let world = sample_world();
        let mut replay = Replay::open(&files, world.clone()).expect("open");
        let mut shot = Shot::default();
        let statuses: Vec<u16> = (0..4)
            .map(|_| {
                replay.next(&mut shot).expect("a request");
                shot.expected.status
            })
            .collect();
        assert_eq!(statuses, [200, 200, 400, 200]);
        let world = lock(&world);
        let known = serde_json::to_string(world.of(EntityKind::Visits).known(1000).expect("made")).expect("JSON");
        assert_eq!(known, r#"{"id":1000,"mark":4}"#);
    }
}
