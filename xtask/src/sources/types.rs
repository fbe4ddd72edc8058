//! Types of one name: a name that means two things has to be looked up at every use.
//!
//! Compared are the types that other files may name: those with `pub` of all crates, and those with `pub` or `pub(crate)` of one
//! crate. The words of the field that each crate has for itself (its settings, its errors) are listed as shared.

use super::modules::Crate;
use std::collections::BTreeMap;

/// Names that two types have. A new type gets a name of its own; a name that became unique is taken off.
const SHARED: &[&str] = &[
    "Applied",
    "Arguments",
    "Asked",
    "Begin",
    "Body",
    "Buffers",
    "Change",
    "Client",
    "Clock",
    "Command",
    "Compared",
    "Compiled",
    "Config",
    "Counter",
    "Counts",
    "Cursor",
    "Damaged",
    "Database",
    "Differences",
    "DirectReads",
    "Document",
    "Done",
    "Durability",
    "Entry",
    "Error",
    "Event",
    "Field",
    "Fields",
    "Form",
    "Generate",
    "Guard",
    "Held",
    "Included",
    "Inner",
    "Kept",
    "KeyRange",
    "Keys",
    "Kind",
    "Latency",
    "Limits",
    "Lookup",
    "Metrics",
    "Moment",
    "Next",
    "OpenError",
    "Options",
    "Origin",
    "Outcome",
    "Output",
    "Part",
    "Parts",
    "Place",
    "Plan",
    "Pool",
    "Progress",
    "Published",
    "Query",
    "Reply",
    "Report",
    "Request",
    "Resolved",
    "Run",
    "Running",
    "Sampled",
    "Scratch",
    "Seen",
    "Server",
    "Session",
    "Settings",
    "Shape",
    "Snapshot",
    "Source",
    "StartError",
    "State",
    "Table",
    "Target",
    "TlsError",
    "Transaction",
    "Value",
    "Verdict",
    "Version",
    "View",
    "Visit",
];

/// Where a name stands: crate, file, and whether it is visible to other crates.
type Place<'a> = (&'a str, &'a str, bool);

/// Each name that two types have and that is not listed, and each listed one that only one type has.
pub(super) fn faults(crates: &[Crate]) -> Vec<String> {
    let shared = shared(crates);
    let mut faults = Vec::new();
    for (name, files) in shared.iter().filter(|(name, _)| !SHARED.contains(name)) {
        faults.push(format!("types of one name: {name} in {}; give one of them a name of its own", files.join(", ")));
    }
    for name in SHARED.iter().filter(|name| !shared.contains_key(*name)) {
        faults.push(format!("{name} names one type only: take it off the list in xtask/src/sources/types.rs"));
    }
    faults
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
