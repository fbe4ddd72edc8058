//! `cargo xtask book`: the pages of `docs/` as a book, `target/book/index.html`, made by mdBook.
//!
//! Pages link to files of the repository outside `docs/`. The book contains a copy of each as plain text, so that it can be
//! served on its own. mdBook is built into `target/tools` if it is missing.

use crate::tools;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginning of a link that leads out of the folder.
const OUTSIDE: &str = "](../";
/// The folder of the book for files outside `docs/`.
const FILES: &str = "files";

/// Builds it.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no argument, got `{unknown}`"));
    }
    let mdbook = match mdbook() {
        Some(mdbook) => mdbook,
        None => install()?,
    };
    let book = tools::target().join("book");
    build(&mdbook, &tools::target().join("book-source"), &book)?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// The mdbook program, if installed.
fn mdbook() -> Option<PathBuf> {
    let own = tools::target().join("tools/bin/mdbook");
    if own.is_file() {
        return Some(own);
    }
    tools::is_on_path("mdbook").then(|| PathBuf::from("mdbook"))
}

fn install() -> Result<PathBuf, String> {
    eprintln!("xtask: `mdbook` is missing; building it into target/tools");
    let folder = tools::target().join("tools");
    let status = Command::new("cargo").args(["install", "mdbook", "--locked", "--root"]).arg(&folder).status();
    match status {
        Ok(status) if status.success() => Ok(folder.join("bin/mdbook")),
        _ => Err("`cargo install mdbook` failed".to_owned()),
    }
}

/// Builds the book from the current pages, using a folder for mdBook's input.
fn build(mdbook: &Path, source: &Path, book: &Path) -> Result<(), String> {
    for folder in [source, book] {
        let _ = fs::remove_dir_all(folder);
    }
    let docs = tools::root().join("docs");
    let mut outside = BTreeSet::new();
    copy(&docs, source, &mut outside).map_err(|error| format!("{}: {error}", docs.display()))?;
    for path in outside {
        let (from, to) = (tools::root().join(&path), source.join(own_copy(&path)));
        let copied = fs::create_dir_all(to.parent().unwrap_or(source)).and_then(|()| fs::copy(&from, &to));
        copied.map_err(|error| format!("{path}: {error}"))?;
    }
    let built = Command::new(mdbook).arg("build").arg(source).arg("--dest-dir").arg(book).output();
    let output = built.map_err(|error| format!("{}: {error}", mdbook.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Copies a folder; links out of it are changed to the book's own copies, whose paths are collected.
fn copy(from: &Path, to: &Path, outside: &mut BTreeSet<String>) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target, outside)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            fs::write(target, turned(&fs::read_to_string(&path)?, outside))?;
        } else {
            fs::copy(&path, target)?;
        }
    }
    Ok(())
}

/// A page whose links out of the folder are changed.
fn turned(page: &str, outside: &mut BTreeSet<String>) -> String {
    let mut parts = page.split(OUTSIDE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let path = link.split('#').next().unwrap_or_default();
        outside.insert(path.to_owned());
        text += &format!("]({}){rest}", own_copy(path));
    }
    text
}

/// The path of a file in the book. mdBook would treat links to names with `.md` as pages.
fn own_copy(path: &str) -> String {
    format!("{FILES}/{}.txt", path.strip_suffix(".md").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn links_out_of_the_folder_lead_to_copies_in_the_book() {
        let mut outside = BTreeSet::new();
        let page = turned("see [a](../a/b.md#c), [d](e.md) and [f](../f.toml).", &mut outside);
        assert_eq!(page, "see [a](files/a/b.txt), [d](e.md) and [f](files/f.toml.txt).");
        assert_eq!(outside.into_iter().collect::<Vec<_>>(), ["a/b.md", "f.toml"]);
    }

    #[test]
    fn no_link_of_the_book_is_broken() {
        let Some(mdbook) = mdbook() else {
            let line = b"\nSKIPPED: mdbook is not there (cargo xtask book builds it)\n";
            std::io::stdout().write_all(line).expect("a standard output");
            return;
        };
        let folder = tools::target().join(format!("book-test-{}", std::process::id()));
        let book = folder.join("book");
        let built = build(&mdbook, &folder.join("source"), &book);
        let broken = built.map(|()| broken_links(&book));
        let _ = fs::remove_dir_all(&folder);
        let (pages, broken) = broken.expect("the book is built");
        assert!(pages > 15 && broken.is_empty(), "{pages} pages: {broken:#?}");
    }

    /// The number of pages, and their broken links.
    fn broken_links(book: &Path) -> (usize, Vec<String>) {
        let pages = fs::read_dir(book).expect("a folder").map(|entry| entry.expect("an entry").path());
        let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "html"));
        // The page that a server sends for missing paths has links from the server's root.
        let pages: Vec<PathBuf> = pages.filter(|path| !path.ends_with("404.html")).collect();
        let mut broken = Vec::new();
        for page in &pages {
            let html = fs::read_to_string(page).expect("a page");
            for link in [" href=\"", " src=\""].iter().flat_map(|name| html.split(name).skip(1)) {
                let link = link.split('"').next().unwrap_or_default();
                if !link.contains(':') && !leads_somewhere(book, page, link) {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
        (pages.len(), broken)
    }

    fn leads_somewhere(book: &Path, page: &Path, link: &str) -> bool {
        let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { page.to_owned() } else { book.join(path) };
        if fragment.is_empty() || target.extension().is_none_or(|extension| extension != "html") {
            return target.is_file();
        }
        fs::read_to_string(target).is_ok_and(|html| html.contains(&format!("id=\"{fragment}\"")))
    }
}
