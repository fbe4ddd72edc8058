//! Layers of the crates that the compiler does not check: which files may name the crate of the storage engine, and which of its files
//! may take synchronisation from the standard library.

#[cfg(test)]
mod engine {
    use crate::tools;
    use std::fs;
    use std::path::Path;

    /// Files outside of `store` that may name it: the room bound to it, and tests that put a disk of their own below it.
    const MAY_NAME: [&str; 4] = [
        "crates/docs/src/engine/binding.rs",
        "crates/docs/tests/dying_disk/mod.rs",
        "crates/docs/tests/faulty_lives/mod.rs",
        "crates/docs/tests/lives/mod.rs",
    ];
    /// Crates that may depend on it.
    const MAY_DEPEND: [&str; 1] = ["crates/docs/Cargo.toml"];

    /// The files below a folder whose names end so, without the folders of `store` and of build results.
    fn files(folder: &Path, ending: &str, found: &mut Vec<String>) {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let inside = path.strip_prefix(tools::root()).expect("a path in the project").to_str().expect("a name");
            if path.is_dir() && inside != "crates/store" && !inside.ends_with("/target") {
                files(&path, ending, found);
            } else if inside.ends_with(ending) && path.is_file() {
                found.push(inside.to_owned());
            }
        }
    }

    /// Whether a line of Rust names the crate, in a comment too.
    fn names_store(line: &str) -> bool {
        let of_name = |byte: char| byte.is_alphanumeric() || byte == '_';
        line.match_indices("store").any(|(at, word)| {
            let (before, behind) = (&line[..at], &line[at + word.len()..]);
            let is_whole = !before.ends_with(|last| of_name(last) || last == ':') && !behind.starts_with(of_name);
            is_whole && (behind.starts_with("::") || before.ends_with("use ") || before.ends_with("extern crate "))
        })
    }

    /// Whether a line of a manifest is a dependency on it.
    fn depends_on_store(line: &str) -> bool {
        let behind = line.trim_start().strip_prefix("store").unwrap_or_default().trim_start();
        behind.starts_with(['.', '=']) || line.contains("package = \"store\"")
    }

    /// Places in files of this ending where a line is such, apart from these files.
    fn places(ending: &str, is_such: fn(&str) -> bool, apart: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        for folder in ["crates", "apps"] {
            files(&tools::root().join(folder), ending, &mut all);
        }
        for file in apart {
            assert!(all.iter().any(|found| found == file), "{file} is gone: strike it from the list");
        }
        all.retain(|file| !apart.contains(&file.as_str()));
        let of_file = |file: &String| {
            let text = fs::read_to_string(tools::root().join(file)).expect("a text");
            let lines = text.lines().enumerate().filter(|(_, line)| is_such(line));
            lines.map(|(number, line)| format!("{file}:{}: {}", number + 1, line.trim())).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_file).collect()
    }

    #[test]
    fn the_crate_of_the_engine_is_named_in_one_room() {
        let found = places(".rs", names_store, &MAY_NAME);
        assert!(found.is_empty(), "to be named through `docs::engine`: {found:#?}");
    }

    #[test]
    fn one_crate_depends_on_the_crate_of_the_engine() {
        let found = places("Cargo.toml", depends_on_store, &MAY_DEPEND);
        assert!(found.is_empty(), "to depend on `docs`, which has `docs::engine`: {found:#?}");
    }

    #[test]
    fn a_line_that_names_the_crate_is_recognised() {
        for line in
            ["use store::Error;", "    /// See [`store::StoreOptions`].", "f(store::Store::open(dir))", "use store;"]
        {
            assert!(names_store(line), "{line}");
        }
        for line in [
            "use crate::store::run;",
            "restore::run()",
            "self.store.tree()",
            "// the store: it writes",
            "my_store::x()",
        ] {
            assert!(!names_store(line), "{line}");
        }
        assert!(depends_on_store("store.workspace = true") && depends_on_store("store = { path = \"../store\" }"));
        assert!(!depends_on_store("restore = \"1\"") && !depends_on_store("description = \"over the store\""));
    }
}

#[cfg(test)]
mod synchronisation {
    use crate::tools;
    use std::fs;
    use std::path::Path;

    /// The module that everything else takes it from: the scheduler under test takes its place.
    const MODULE: &str = "crates/store/src/base/sync.rs";
    /// Files that take it from the standard library all the same, each with its reason.
    const EXCEPTIONS: [(&str, &str); 2] = [
        ("crates/store/src/disk/lost.rs", "a signal handler uses it, where no other thread may run first"),
        ("crates/store/src/disk/system.rs", "a signal is ignored once, for the process and not for a store"),
    ];

    fn files(folder: &Path, found: &mut Vec<String>) {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                files(&path, found);
            } else {
                let inside = path.strip_prefix(tools::root()).expect("a path in the project");
                found.push(inside.to_str().expect("a name").to_owned());
            }
        }
    }

    /// Whether a line takes something from the standard library, or past the module, that the scheduler under test must know of.
    /// References are counted without it: no thread waits for them.
    fn is_past_module(line: &str) -> bool {
        let code = line.trim_start();
        let references = ["use std::sync::Arc;", "use std::sync::Weak;", "use std::sync::{Arc, Weak};"];
        let foreign = [
            "std::sync::",
            "std::thread",
            "std::hint::spin_loop",
            "loom::",
            "shuttle::",
            "schedules::",
            "hashbrown::DefaultHash",
        ];
        let takes_clock = code.contains("std::time::") && code.contains("Instant");
        let takes_local = code.starts_with("thread_local!") && code.contains("std::");
        !code.starts_with("//")
            && !references.contains(&code)
            && (foreign.iter().any(|name| code.contains(name)) || takes_clock || takes_local)
    }

    /// The lines of a file before its unit tests, which may use threads of their own.
    fn own_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
        let is_test = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        let end =
            text.lines().collect::<Vec<_>>().windows(2).position(|pair| is_test(pair[0]) && pair[1].contains("mod "));
        text.lines().take(end.unwrap_or(usize::MAX)).enumerate()
    }

    #[test]
    fn the_store_synchronises_through_one_module() {
        let mut all = Vec::new();
        files(&tools::root().join("crates/store/src"), &mut all);
        for (file, _) in EXCEPTIONS {
            assert!(all.iter().any(|found| found == file), "{file} is gone: strike it from the list");
        }
        all.retain(|file| !file.starts_with(MODULE) && !file.ends_with("tests.rs"));
        all.retain(|file| EXCEPTIONS.iter().all(|(exception, _)| exception != file));
        let of_file = |file: &String| {
            let text = fs::read_to_string(tools::root().join(file)).expect("a text");
            let lines = own_lines(&text).filter(|(_, line)| is_past_module(line));
            lines.map(|(number, line)| format!("{file}:{}: {}", number + 1, line.trim())).collect::<Vec<_>>()
        };
        let found: Vec<String> = all.iter().flat_map(of_file).collect();
        assert!(found.is_empty(), "to be taken from `base::sync`: {found:#?}");
    }

    #[test]
    fn a_line_past_the_module_is_recognised() {
        for line in [
            "use std::sync::Mutex;",
            "use std::sync::{Arc, Mutex};",
            "    std::thread::yield_now();",
            "use std::time::{Duration, Instant};",
            "use std::sync::atomic::AtomicU64;",
        ] {
            assert!(is_past_module(line), "{line}");
        }
        for line in
            ["use std::sync::Arc;", "use std::time::Duration;", "use crate::base::sync::Mutex;", "// std::thread"]
        {
            assert!(!is_past_module(line), "{line}");
        }
    }
}
