//! `files` of an endpoint: a folder whose files it serves.

use docs::config::{ConfigTable, Item};
use docs::engine::Store;
use http::{Files, Method};
use std::path::{Path, PathBuf};

/// Keys of an endpoint that concern documents.
const OF_DOCUMENTS: [&str; 4] = ["require", "params", "reply", "guard"];

/// A folder and its options, as written. The path is relative to the configuration file's folder, or absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesConfig {
    /// The folder.
    pub folder: PathBuf,
    /// A folder below it is answered with its `index.html`.
    pub index: bool,
    /// Names that begin with a dot are served too.
    pub hidden: bool,
    /// Clients keep files with a fingerprint in the name for a year.
    pub immutable: bool,
}

impl FilesConfig {
    /// Reads `"public"`, or `{ folder = "public", index = true }`, of an endpoint with this route. A folder that cannot be opened is a
    /// mistake.
    pub(super) fn read(
        item: &Item<'_>,
        endpoint: &ConfigTable<'_>,
        route: Option<&(Method, String)>,
    ) -> Option<FilesConfig> {
        for other in OF_DOCUMENTS.iter().filter_map(|name| endpoint.get(name)) {
            other.mistake(format!("`{}` beside `files`: a file is no document", other.name()), "");
        }
        if let Some((method, pattern)) = route {
            let allowed = "\"GET /path/{*name}\"";
            if *method != Method::Get {
                item.mistake(format!("`files` with the method {}: files are read", method.name()), allowed);
            } else if rest_parameter(pattern).is_none() {
                let what = format!("`files` with the route {pattern}: it has no parameter for the path of the file");
                item.mistake(what, allowed);
            }
        }
        let switches = if item.value().is_table() { item.table() } else { None };
        let folder = match &switches {
            Some(table) => {
                table.check_keys(&["folder", "index", "hidden", "immutable"], &[]);
                table.require("folder")?
            }
            None => endpoint.get(item.name())?,
        };
        let switch = |name: &str| switches.as_ref().and_then(|table| table.get(name)).and_then(|item| item.boolean());
        let config = FilesConfig {
            folder: item.source().relative(folder.text()?),
            index: switch("index").unwrap_or(false),
            hidden: switch("hidden").unwrap_or(false),
            immutable: switch("immutable").unwrap_or(true),
        };
        let allowed = "a folder that the server may read, relative to this file";
        if let Err(problem) = config.open() {
            folder.mistake(problem, allowed);
            return None;
        }
        let served = match config.folder.canonicalize() {
            Ok(own) if resolved(&item.source().relative(".")).starts_with(&own) => "this file",
            _ if Store::is_in(&config.folder) => "the files of a database",
            _ => return Some(config),
        };
        folder.mistake(format!("`files` would serve {served}"), "a folder of its own, as \"public\"");
        None
    }

    /// Whether this folder is another one, lies in it or holds it.
    pub(crate) fn overlaps(&self, other: &Path) -> bool {
        let (own, other) = (resolved(&self.folder), resolved(other));
        own.starts_with(&other) || other.starts_with(&own)
    }

    /// Opens the files. The error names the folder.
    pub(crate) fn open(&self) -> Result<Files, String> {
        let opened = Files::folder(&self.folder);
        let files = opened.map_err(|error| format!("cannot open the folder {}: {error}", self.folder.display()))?;
        Ok(files.index(self.index).hidden(self.hidden).immutable(self.immutable))
    }
}

/// A path without links, of which the end need not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|known| Some((known, known.canonicalize().ok()?)));
    let (known, found) = found.unwrap_or((Path::new(""), std::env::current_dir().unwrap_or_default()));
    path.strip_prefix(known).map_or_else(|_| path.to_owned(), |rest| found.join(rest))
}

/// The parameter for the rest of the path, if a pattern ends in one: `path` of `/assets/{*path}`.
pub(crate) fn rest_parameter(pattern: &str) -> Option<&str> {
    pattern.rsplit('/').next()?.strip_prefix("{*")?.strip_suffix('}')
}

/// The same pattern for the folder itself: `/assets/` of `/assets/{*path}`.
pub(crate) fn folder_pattern(pattern: &str) -> Option<&str> {
    rest_parameter(pattern)?;
    pattern.rfind('/').map(|slash| &pattern[..=slash])
}
