//! A path parameter with its type: the declared one, or that of the key with which `require` finds a document, otherwise text.

use crate::config::EndpointConfig;
use docs::catalog::Catalog;
use docs::config::{Parameter, ParameterDefault, ParameterKind, ParameterPlace};
use docs::key::KeyType;

/// A path parameter: declared, or of the type of the key with which `require` finds a document, otherwise text.
pub(crate) fn of_path(name: &str, endpoint: &EndpointConfig, catalog: &Catalog) -> Parameter {
    if let Some(declared) = endpoint.path_params.iter().find(|parameter| parameter.name == name) {
        return declared.clone();
    }
    let target = endpoint.require.as_ref().filter(|target| target.parameter == name);
    let kind = target.and_then(|target| Some(catalog.collection(&target.collection)?.key.kind));
    let is_integer = matches!(kind, Some(KeyType::U32 | KeyType::I64));
    parameter(name, if is_integer { ParameterKind::Integer } else { ParameterKind::Text })
}

/// An undeclared path parameter of this type.
pub(crate) fn parameter(name: &str, kind: ParameterKind) -> Parameter {
    let default = ParameterDefault::Missing;
    Parameter {
        name: name.to_owned(),
        kind,
        values: Vec::new(),
        min: None,
        max: None,
        default,
        required: false,
        from: ParameterPlace::Query,
    }
}
