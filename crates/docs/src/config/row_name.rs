//! Names of a collection's rows in the stored catalog. The name of an index's or unique field's row is also the first choice
//! for the name of its tree.

pub(crate) fn collection_row(collection: &str) -> String {
    format!("collection/{collection}")
}

pub(crate) fn index_row(collection: &str, fields: &[String]) -> String {
    format!("index/{collection}/{}", joined(fields))
}

pub(crate) fn unique_row(collection: &str, fields: &[String]) -> String {
    format!("unique/{collection}/{}", joined(fields))
}

pub(crate) fn reference_row(collection: &str, field: &str) -> String {
    format!("reference/{collection}/{}", escaped(field))
}

/// The collection and the fields of an index, from its row's key.
pub(crate) fn indexed_fields(key: &str) -> Option<(&str, Vec<String>)> {
    let (collection, fields) = key.strip_prefix("index/")?.split_once('/')?;
    let plain = |field: &str| {
        let field = field.replace("%00", "\0").replace("%23", "#").replace("%2C", ",").replace("%2F", "/");
        field.replace("%25", "%")
    };
    Some((collection, fields.split(',').map(plain).collect()))
}

/// The names of fields inside a row's key.
fn joined(fields: &[String]) -> String {
    fields.iter().map(|field| escaped(field)).collect::<Vec<_>>().join(",")
}

/// A field's name inside a row's key.
fn escaped(field: &str) -> String {
    let field = field.replace('%', "%25").replace('/', "%2F").replace(',', "%2C").replace('#', "%23");
    field.replace('\0', "%00")
}
