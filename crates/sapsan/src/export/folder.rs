//! Documents of a data folder, all as of one moment. Documents that have expired by then are left out.

use super::source::{CollectionOutline, Source, Stopped, Visit};
use docs::catalog::CollectionInfo;
use docs::{CollectionId, DocumentDatabase, Moment, ReaderSession};
use std::ops::ControlFlow;

/// A data folder as a source of documents.
pub(crate) struct FolderSource<'d> {
    database: &'d DocumentDatabase,
    moment: Moment<'d>,
}

impl<'d> FolderSource<'d> {
    /// The database as it is now.
    pub(crate) fn new(database: &'d DocumentDatabase, session: &'d ReaderSession) -> FolderSource<'d> {
        FolderSource { database, moment: session.now() }
    }

    fn read(&self, id: CollectionId, info: &CollectionInfo, visit: &mut Visit<'_>) -> Result<(), Stopped> {
        let damaged = |error: docs::ReadError| {
            Stopped::Failed(format!("{}: {error}; check the data folder with `sapsan verify`", info.name))
        };
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let after = behind.as_deref().and_then(|key| info.key.kind.of_bytes(key));
            let mut stopped = None;
            let goes_on =
                self.moment.list(id, after.as_ref(), usize::MAX, &mut |_, stored| match visit(stored.document()?) {
                    Ok(()) => Ok(ControlFlow::Continue(())),
                    Err(error) => {
                        stopped = Some(error);
                        Ok(ControlFlow::Break(()))
                    }
                });
            let goes_on = goes_on.map_err(damaged)?;
            // Bytes that a failing disk returned are not trusted.
            self.moment.check().map_err(damaged)?;
            match (stopped, goes_on) {
                (Some(stopped), _) => return Err(stopped),
                (None, None) => return Ok(()),
                (None, key) => behind = key,
            }
        }
    }
}

/// The fields whose schema lists `string` beside other types.
fn may_be_text(info: &CollectionInfo) -> Vec<String> {
    let schema: serde_json::Value =
        info.schema.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let lists_text = |field: &str| {
        let types = schema["properties"][field]["type"].as_array();
        types.is_some_and(|types| types.iter().any(|name| name == "string"))
    };
    info.fields.iter().map(|field| field.name.clone()).filter(|name| lists_text(name)).collect()
}

impl Source for FolderSource<'_> {
    fn collections(&self) -> Result<Vec<CollectionOutline>, String> {
        let outline = |info: &CollectionInfo| CollectionOutline {
            name: info.name.clone(),
            key: info.key.field.clone(),
            fields: Some(info.fields.iter().map(|field| field.name.clone()).collect()),
            may_be_text: may_be_text(info),
        };
        Ok(self.database.catalog().collections.iter().map(|info| outline(info)).collect())
    }

    fn each(&self, collection: &str, visit: &mut Visit<'_>) -> Result<(), Stopped> {
        let missing = || Stopped::Failed(format!("there is no collection {collection:?}"));
        let id = self.database.collection(collection).ok_or_else(missing)?;
        self.read(id, &self.database.collection_at(id).info, visit)
    }
}
