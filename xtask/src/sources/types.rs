//! Types of one name: a name that means two things has to be looked up at every use.
//!
//! Compared are the types that other files may name: those with `pub` of all crates, and those with `pub` or `pub(crate)` of one
//! crate.

use super::modules::Crate;
use std::collections::BTreeMap;

/// Where a name stands: crate, file, and whether it is visible to other crates.
type Place<'a> = (&'a str, &'a str, bool);

/// Each name that two types have.
pub(super) fn faults(crates: &[Crate]) -> Vec<String> {
    let message = |(name, files): (&str, Vec<&str>)| {
        format!("types of one name: {name} in {}; give one of them a name of its own", files.join(", "))
    };
    shared(crates).into_iter().map(message).collect()
}

/// The names that several types have, with their files.
fn shared(crates: &[Crate]) -> BTreeMap<&str, Vec<&str>> {
    let mut places: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
    for one in crates {
        for module in &one.modules {
            for (name, is_for_all) in &module.types {
                let file = one.files[module.file].as_str();
                places.entry(name).or_default().push((folder(file), file, *is_for_all));
            }
        }
    }
    let collide = |a: &Place, b: &Place| a.1 != b.1 && (a.0 == b.0 || (a.2 && b.2));
    let shared = places.into_iter().filter_map(|(name, places)| {
        let does = |place: &&Place| places.iter().any(|other| collide(place, other));
        let files: Vec<&str> = places.iter().filter(does).map(|place| place.1).collect();
        (!files.is_empty()).then_some((name, files))
    });
    shared.collect()
}

/// The folder of a file's crate.
fn folder(file: &str) -> &str {
    file.find("/src/").map_or(file, |end| &file[..end])
}

#[cfg(test)]
mod comparing {
    use super::shared;
    use crate::sources::modules::Crate;
    use std::fs;

    #[test]
    fn names_are_compared_in_a_crate_and_public_ones_between_crates() {
        let folder = tempfile::tempdir().expect("a folder");
        let crates = [
            (
                "a",
                "pub struct Both;\npub(crate) struct Inner;\nmod m;",
                "pub(crate) type Both = ();\npub(super) enum Near {}",
            ),
            ("b", "pub enum Other<T> { A(T) }\npub(crate) struct Inner;\nstruct Near;\nmod m;", "pub struct Only;"),
            ("c", "pub trait Other {}\n#[cfg(test)]\npub struct Only;\nmod m;", "fn f() {}"),
        ];
        let crates = crates.map(|(name, root, part)| {
            let source = folder.path().join(name).join("src");
            fs::create_dir_all(&source).expect("a folder");
            fs::write(source.join("lib.rs"), root).expect("a file");
            fs::write(source.join("m.rs"), part).expect("a file");
            Crate::read(folder.path(), &source).expect("a crate").remove(0)
        });
        let found: Vec<_> = shared(&crates).into_iter().map(|(name, files)| (name, files.join(" "))).collect();
        let expected = [("Both", "a/src/lib.rs a/src/m.rs"), ("Other", "b/src/lib.rs c/src/lib.rs")];
        assert_eq!(found, expected.map(|(name, files)| (name, files.to_owned())));
    }
}
