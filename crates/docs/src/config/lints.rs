//! Parts of declared collections that are valid but probably mistakes.

use super::CollectionConfig;
use crate::encoding::KeyType;
use schema::types;

impl CollectionConfig {
    /// One line for each part of the schema that is probably a mistake ([`schema::lints`]), or that no key can fit.
    pub fn lints(&self) -> Vec<String> {
        let Some(text) = &self.schema else { return Vec::new() };
        let place = format!("collections.{}.schema", self.name);
        let mut lints: Vec<String> = schema::lints(text).iter().map(|lint| format!("{place}{lint}")).collect();
        let field = &self.key.field;
        let of_keys = match self.key.kind {
            KeyType::U32 | KeyType::I64 => types::INTEGER,
            KeyType::String => types::STRING,
        };
        let allowed = serde_json::from_str(text).map_or(types::ANY, |schema| types::of_field(&schema, field));
        if allowed & of_keys == 0 {
            lints.push(format!(
                "{place}/properties{} allows {}, but the keys are of the type {}: no document fits both",
                schema::pointer(field),
                types::type_names(allowed),
                self.key.kind.name()
            ));
        }
        lints
    }
}
