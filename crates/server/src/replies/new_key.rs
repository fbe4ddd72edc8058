//! The key of a new document in a reply.

use super::media::JSON;
use crate::config::{Action, EndpointConfig, path_parameters};
use crate::requests::escape::escape;
use docs::catalog::CollectionInfo;
use docs::key::{Key, KeyType};
use docs::order::Scalar;
use http::{LateReply, Status};

/// How a declared endpoint reports keys that its collection generates.
#[derive(Debug)]
pub(crate) struct KeyTold {
    field: String,
    kind: KeyType,
    /// Text before and after the key in the path of a declared endpoint that answers with the document.
    path: Option<(String, String)>,
}

impl KeyTold {
    /// `None` if the collection generates no keys.
    pub(crate) fn new(info: &CollectionInfo, endpoints: &[EndpointConfig]) -> Option<KeyTold> {
        info.key.generate?;
        let path = endpoints.iter().find_map(|endpoint| match &endpoint.action {
            Action::Get(target)
                if target.collection == info.name && path_parameters(&endpoint.pattern).count() == 1 =>
            {
                let (before, behind) = endpoint.pattern.split_once(&format!("{{{}}}", target.parameter))?;
                Some((before.to_owned(), behind.to_owned()))
            }
            _ => None,
        });
        Some(KeyTold { field: info.key.field.clone(), kind: info.key.kind, path })
    }

    /// Answers an insert with the key, and with the document's location if it has one.
    pub(crate) fn send(&self, mut late: LateReply, status: Status, fixed: Option<Vec<u8>>, key: &[u8]) {
        let key = self.kind.of_bytes(key);
        if let (Some((before, behind)), Some(key)) = (&self.path, &key) {
            late.header("Location", &format!("{before}{}{behind}", in_path(key)));
        }
        let body = || key.map_or_else(|| b"{}".to_vec(), |key| as_object(&self.field, &key));
        late.send(status, JSON, fixed.unwrap_or_else(body));
    }
}

/// An object with only the key.
pub(crate) fn as_object(field: &str, key: &Key<'_>) -> Vec<u8> {
    let value = match key.scalar() {
        Scalar::Text(text) => serde_json::Value::from(text),
        Scalar::Integer(number) => serde_json::Value::from(number),
        Scalar::Null | Scalar::Real(_) => serde_json::Value::Null,
    };
    format!("{{{}:{value}}}", serde_json::Value::from(field)).into_bytes()
}

/// A key in a path; text is percent-escaped.
pub(crate) fn in_path(key: &Key<'_>) -> String {
    let mut path = String::new();
    match key.scalar() {
        Scalar::Text(text) => {
            escape(text.as_bytes(), &mut path);
        }
        Scalar::Integer(number) => path.push_str(&number.to_string()),
        Scalar::Null | Scalar::Real(_) => {}
    }
    path
}
