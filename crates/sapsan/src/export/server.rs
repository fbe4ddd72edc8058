//! Documents of a running server, page by page through the general API. They are not of one moment: a document that stays in its
//! collection is read once, and one that changes meanwhile is read as it was before or after the change.

use super::source::{CollectionOutline, Source, Stopped, Visit};
use crate::target::remote::{self, Remote};
use binjson::{JsonValue, StoredDocument};

/// Most documents of a page: the server's own limit.
const PAGE_DOCUMENTS: usize = 1_000;
/// Most bytes of a page: the server ends a page after the document that exceeds a megabyte.
const PAGE_BYTES_MAX: u64 = (binjson::TEXT_BYTES_MAX + (2 << 20)) as u64;

/// A running server as a source of documents.
pub(crate) struct ServerSource {
    remote: Remote,
}

impl ServerSource {
    pub(crate) fn new(remote: Remote) -> ServerSource {
        ServerSource { remote }
    }

    /// Sends a GET request; returns its JSON answer in the encoding of stored documents.
    fn ask(&self, target: &str) -> Result<Vec<u8>, String> {
        let (status, body) = self.remote.ask_at_most("GET", target, "", PAGE_BYTES_MAX)?;
        if status != 200 {
            return Err(remote::refusal(status, &String::from_utf8_lossy(&body)));
        }
        let mut stored = Vec::new();
        binjson::encode(&body, &mut stored)
            .map_err(|error| format!("the server's answer to GET {target} cannot be read: {error}"))?;
        Ok(stored)
    }

    /// Visits the documents of a page; returns the key after which the next page begins.
    fn page(&self, target: &str, visit: &mut Visit<'_>) -> Result<Option<String>, Stopped> {
        let stored = self.ask(target).map_err(Stopped::Failed)?;
        let strange = || Stopped::Failed(format!("the server's answer to GET {target} is not a page of documents"));
        let page = StoredDocument::from_bytes(&stored).map_err(|_| strange())?;
        let (items, after) = page.root().field("items").zip(page.root().field("after")).ok_or_else(strange)?;
        let mut document = Vec::new();
        for item in items.elements() {
            document.clear();
            binjson::encode(item.raw(), &mut document).map_err(|_| strange())?;
            visit(StoredDocument::from_bytes(&document).map_err(|_| strange())?)?;
        }
        Ok(key_text(after))
    }
}

impl Source for ServerSource {
    fn collections(&self) -> Result<Vec<CollectionOutline>, String> {
        let stored = self.ask("/_/schema")?;
        let text = |value: Option<JsonValue<'_>>| value.and_then(|value| value.as_str()).map(|text| text.into_owned());
        let outline = |value: JsonValue<'_>| {
            let key = text(value.field("key")?.field("field"))?;
            Some(CollectionOutline { name: text(value.field("name"))?, key, fields: None, may_be_text: Vec::new() })
        };
        let schema = StoredDocument::from_bytes(&stored).ok();
        let collections = schema.as_ref().and_then(|schema| schema.root().field("collections"));
        let outlines = collections.map(|collections| collections.elements().map(outline).collect::<Option<Vec<_>>>());
        outlines.flatten().ok_or_else(|| "the server's answer to GET /_/schema has no list of collections".to_owned())
    }

    fn each(&self, collection: &str, visit: &mut Visit<'_>) -> Result<(), Stopped> {
        let first = format!("/_/collections/{}?limit={PAGE_DOCUMENTS}", encoded(collection));
        let mut after = self.page(&first, visit)?;
        while let Some(key) = after {
            after = self.page(&format!("{first}&after={}", encoded(&key)), visit)?;
            if after.as_ref() == Some(&key) {
                return Err(Stopped::Failed(format!(
                    "the server repeats the page after the key {key:?}: the export is stopped, because it would not end"
                )));
            }
        }
        Ok(())
    }
}

/// A key as text; `None` for null.
fn key_text(key: JsonValue<'_>) -> Option<String> {
    match key.as_str() {
        Some(text) => Some(text.into_owned()),
        None => key.as_i64().map(|number| number.to_string()),
    }
}

/// Percent-encodes all bytes except unreserved characters (RFC 3986).
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
