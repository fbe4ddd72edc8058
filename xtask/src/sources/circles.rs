//! Circles of imports: files of one crate that use one another.
//!
//! In a circle no file can be read or changed alone. The usual remedy is to move the item that both sides use into a file below
//! them. Where two types know each other by design, a use is listed as known, so that the check reports any other circle.

use super::modules::Crate;
use std::collections::{BTreeMap, BTreeSet};

/// A use of one file by another that closes a circle by design: user, used, reason.
type Known = (&'static str, &'static str, &'static str);

/// The uses that are left.
const KNOWN: &[Known] = &[(
    "crates/reactor/src/protocol.rs",
    "crates/reactor/src/event_loop/io.rs",
    "a protocol's calls take an Io, which opens connections with further protocols: the loop's core and its mail hold them",
)];

/// Files that a file uses, each with the names used.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>;

/// Each circle of each crate, and each known use that closes no circle any more.
pub(super) fn faults(crates: &[Crate]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut stale: Vec<&Known> = KNOWN.iter().collect();
    for one in crates {
        let mut uses = uses(one);
        stale.retain(|(user, used, _)| !reaches(&uses, used, user) || !has(&uses, user, used));
        for (user, used, _) in KNOWN {
            uses.get_mut(user).map(|all| all.remove(used));
        }
        faults.extend(circles(&uses).iter().map(|circle| message(circle, &uses)));
    }
    let all_stale = stale.iter().map(|(user, used, _)| {
        format!("{user} uses {used} no more, or in no circle: take it off the list in xtask/src/sources/circles.rs")
    });
    faults.extend(all_stale);
    faults
}

fn uses(one: &Crate) -> Uses<'_> {
    let mut uses: Uses = BTreeMap::new();
    for (index, module) in one.modules.iter().enumerate() {
        let own = uses.entry(&one.files[module.file]).or_default();
        for (file, name) in one.uses(index) {
            own.entry(&one.files[file]).or_default().insert(name);
        }
    }
    uses
}

fn has(uses: &Uses, user: &str, used: &str) -> bool {
    uses.get(user).is_some_and(|all| all.contains_key(used))
}

/// Whether a file uses another, directly or through others.
fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    reached(uses, from).contains(to)
}

fn reached<'a>(uses: &Uses<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = uses.get(from).into_iter().flat_map(BTreeMap::keys).copied().collect();
    while let Some(file) = open.pop() {
        let Some((file, all)) = uses.get_key_value(file) else { continue };
        if reached.insert(*file) {
            open.extend(all.keys());
        }
    }
    reached
}

/// Files that reach one another, each group once.
fn circles<'a>(uses: &Uses<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|file| (*file, reached(uses, file))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &reached {
        if others.contains(file) && !circles.iter().any(|circle| circle.contains(file)) {
            circles.push(others.iter().filter(|other| reached[*other].contains(file)).copied().collect());
        }
    }
    circles
}

fn message(circle: &BTreeSet<&str>, uses: &Uses) -> String {
    let mut message = format!("{} files use one another:", circle.len());
    for user in circle {
        for (used, names) in uses[user].iter().filter(|(used, _)| circle.contains(*used)) {
            let names: Vec<&str> = names.iter().copied().collect();
            message += &format!("\n  {user} uses {used}: {}", names.join(", "));
        }
    }
    message
}

#[cfg(test)]
mod checking {
    use super::{circles, uses};
    use crate::sources::modules::Crate;
    use std::fs;
    use std::path::Path;

    /// The circles of a crate with these files, each as the names of its files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let crates = Crate::read(folder.path(), folder.path()).expect("a crate");
        let circles = circles(&uses(&crates[0])).into_iter();
        circles.map(|circle| circle.into_iter().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn files_that_use_one_another_are_a_circle_in_any_form_of_path() {
        let root = ("lib.rs", "mod a;\nmod b { pub(crate) mod c; pub(crate) use c::B as Named; }");
        for (a, c) in [
            ("use crate::b::c::B;\npub(crate) struct A;", "use crate::a::A;\npub(crate) struct B;"),
            ("use crate::b::{self, Named};\npub(crate) struct A;", "use super::super::a::*;\nfn f(_: A) {}"),
            ("pub(crate) struct A(crate::b::Named);", "pub(crate) struct B; fn f() { crate::a::g() }"),
            ("use crate::{b::c, c::d};\nfn f() { c::g() }", "use crate::a; fn g() { a::f() }"),
            ("use crate::b as other;\nfn f() { other::c::g() }", "pub(crate) use crate::a::A; fn g(_: A) {}"),
        ] {
            assert_eq!(found(&[root, ("a.rs", a), ("b/c.rs", c)]), ["a.rs b/c.rs"], "{a}\n{c}");
        }
    }

    #[test]
    fn tests_comments_reexports_and_a_folder_with_its_parts_make_no_circle() {
        let root = ("lib.rs", "mod a;\nmod b;\n#[cfg(test)] mod t;\npub use b::B;");
        let a = ("a.rs", "// use crate::b::B;\npub struct A<'a>(&'a str);\nconst C: char = '\"';\n");
        for b in [
            "use crate::a::A; pub struct B;",
            "pub use crate::a::A; pub struct B;\n#[cfg(test)]\nmod tests { use crate::t::T; }",
            "mod c { use super::B; } use c::d; pub struct B;",
        ] {
            let both = "use crate::b::B; use crate::a::A;";
            assert_eq!(found(&[root, a, ("b.rs", b), ("t.rs", both)]), [""; 0], "{b}");
        }
        let a = ("a.rs", "pub struct A;\n#[cfg(test)]\nimpl Into<A, B> for A { fn f(_: crate::b::B) {} }");
        assert_eq!(found(&[root, a, ("b.rs", "use crate::a::A; pub struct B;")]), [""; 0]);
    }
}
