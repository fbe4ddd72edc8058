//! The configuration file's sections about documents: `[collections.NAME]`, `[views.NAME]` and `[params.NAME]`.
//!
//! The other sections belong to the server, which reads them from the same [`ConfigFile`] through the same checked
//! [`ConfigTable`]s, so that all mistakes of a file are reported at once. Every mistake states its place, what is wrong and what
//! is allowed.
//!
//! ```
//! use docs::config::{Config, ConfigFile, ConfigTable};
//! let text = "[collections.visits]\nkey = { field = \"id\", type = \"u32\" }\nidexes = []\n";
//! let source = ConfigFile::new("travels.toml".as_ref(), text);
//! let document = source.document();
//! let config = Config::read(&ConfigTable::root(&source, &document));
//! assert_eq!(
//!     source.finish().unwrap_err().to_string(),
//!     "travels.toml:3:1: unknown key `idexes` in [collections.visits]; allowed: key, schema, unique, indexes, references, expire"
//! );
//! ```

mod collection;
mod declaration;
mod file;
mod lints;
mod mistake;
mod parameter;
pub(crate) mod row_name;
mod schema_text;
mod source;
mod table;
mod trail;
mod view;

use std::path::Path;

pub use collection::{
    COLLECTIONS_MAX, CollectionConfig, ExpireConfig, INDEX_FIELDS_MAX, INDEXES_MAX, NAME_BYTES_MAX, is_name,
    names_allowed,
};
pub use declaration::{BUILD_BYTES_DEFAULT, Config, IncludedFields, SORT_BYTES_DEFAULT, ViewConfig};
pub use file::read_file;
pub use mistake::{MISTAKES_MAX, Mistake, Mistakes};
pub use parameter::{
    Default as ParameterDefault, ENUM_VALUES_MAX, PARAMETER_KINDS, Parameter, ParameterKind, ParameterPlace,
    ParameterValue,
};
pub(crate) use schema_text::read as schema_text;
pub use schema_text::{SCHEMA_BYTES_MAX, json_text};
pub use source::ConfigFile;
pub use table::{ConfigTable, Item};

/// The sections of a file.
pub const SECTIONS: [&str; 8] = ["collections", "views", "params", "guards", "endpoints", "errors", "server", "tokens"];
/// Names of sections reserved for later.
pub const SECTIONS_LATER: [&str; 1] = ["auth"];
/// Most entries of `[params]`.
pub const PARAMETERS_MAX: usize = 256;

/// Reads an entry of `[params]`, whose value does not come from requests.
fn read_parameter(item: &Item<'_>) -> Parameter {
    let parameter = Parameter::read(item);
    if parameter.from != ParameterPlace::Query {
        item.mistake(format!("`{}` has `from`, which belongs to a parameter of an endpoint", item.path()), "");
    }
    parameter
}

/// Whether a text contains a name as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.to_ascii_lowercase().match_indices(&name.to_ascii_lowercase()).any(|(at, found)| {
        let before = text.as_bytes()[..at].last().is_some_and(|byte| is_part(*byte));
        let behind = text.as_bytes().get(at + found.len()).is_some_and(|byte| is_part(*byte));
        !before && !behind
    })
}

impl Config {
    /// Reads the sections about documents, and checks the names of all sections. Mistakes are recorded in the table's source.
    pub fn read(root: &ConfigTable<'_>) -> Config {
        root.check_keys(&SECTIONS, &SECTIONS_LATER);
        let params = root.get("params").and_then(|item| item.table()).map(|table| table.entries());
        let mut params = params.unwrap_or_default();
        if params.len() > PARAMETERS_MAX {
            root.mistake(format!("{} parameters", params.len()), format!("up to {PARAMETERS_MAX}"));
            params.truncate(PARAMETERS_MAX);
        }
        let (collections, doubtful) = collection::read_all(root);
        let params = params.iter().map(read_parameter).collect();
        let mut config = Config { collections, doubtful, params, ..Config::default() };
        (config.views, config.doubtful) = view::read_all(root, &config);
        config
    }

    /// The same configuration without the views that have mistakes.
    pub fn sound(&self) -> Config {
        let views = self.views.iter().filter(|view| !self.doubtful.contains(&view.name));
        Config { views: views.cloned().collect(), ..self.clone() }
    }

    /// Whether a statement names a collection or view with mistakes.
    pub fn is_doubtful(&self, sql: &str) -> bool {
        self.doubtful.iter().any(|name| names(sql, name))
    }

    /// Adds fields to those that an index includes; existing ones keep their positions.
    pub fn include(&mut self, collection: &str, index: &[String], fields: &[String]) {
        let place = self.included.iter().position(|known| known.collection == collection && known.index == index);
        let place = place.unwrap_or_else(|| {
            let (collection, index) = (collection.to_string(), index.to_vec());
            self.included.push(IncludedFields { collection, index, fields: Vec::new() });
            self.included.len() - 1
        });
        let known = &mut self.included[place].fields;
        for field in fields {
            if !known.contains(field) {
                known.push(field.clone());
            }
        }
    }

    /// Reads a file's text alone, for tools that need only the sections about documents.
    pub fn parse(path: &Path, text: &str) -> Result<Config, Mistakes> {
        let source = ConfigFile::new(path, text);
        let document = source.document();
        let config = Config::read(&ConfigTable::root(&source, &document));
        source.finish().map(|()| config)
    }
}
