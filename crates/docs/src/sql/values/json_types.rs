//! Sets of JSON types: of a field, or of a result column.

/// A set of JSON types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonTypes(u8);

impl JsonTypes {
    /// The empty set.
    pub const NONE: JsonTypes = JsonTypes(0);
    /// NULL, or a missing field.
    pub const NULL: JsonTypes = JsonTypes(1);
    /// True and false.
    pub const BOOLEAN: JsonTypes = JsonTypes(2);
    /// Numbers without a fraction.
    pub const INTEGER: JsonTypes = JsonTypes(4);
    /// All numbers.
    pub const NUMBER: JsonTypes = JsonTypes(4 | 8);
    /// Texts.
    pub const STRING: JsonTypes = JsonTypes(16);
    /// Arrays.
    pub const ARRAY: JsonTypes = JsonTypes(32);
    /// Objects.
    pub const OBJECT: JsonTypes = JsonTypes(64);
    /// All types of JSON.
    pub const ANY: JsonTypes = JsonTypes(127);
    /// All types of SQL values.
    pub const VALUE: JsonTypes = JsonTypes(1 | 4 | 8 | 16);

    /// The union of both.
    #[must_use]
    pub const fn or(self, other: JsonTypes) -> JsonTypes {
        JsonTypes(self.0 | other.0)
    }

    /// The types in this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: JsonTypes) -> JsonTypes {
        JsonTypes(self.0 & !other.0)
    }

    /// Whether all types of `other` are among these.
    pub const fn has(self, other: JsonTypes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether `other` contains each type of this set.
    pub const fn within(self, other: JsonTypes) -> bool {
        other.has(self)
    }

    /// With NULL added if `is` holds.
    pub(in crate::sql) const fn null_if(self, is: bool) -> JsonTypes {
        if is { self.or(JsonTypes::NULL) } else { self }
    }

    /// For stored JSON: the types of the SQL values that expressions get from it.
    pub(in crate::sql) const fn as_value(self) -> JsonTypes {
        let nested = JsonTypes::ARRAY.or(JsonTypes::OBJECT);
        let mut types = self.without(JsonTypes::BOOLEAN).without(nested);
        if self.has(JsonTypes::BOOLEAN) {
            types = types.or(JsonTypes::INTEGER);
        }
        if self.0 & nested.0 != 0 {
            types = types.or(JsonTypes::STRING);
        }
        types
    }

    /// Their names in JSON Schema.
    pub fn names(self) -> Vec<&'static str> {
        let number = if self.has(JsonTypes::NUMBER) { "number" } else { "integer" };
        let all = [
            (JsonTypes::INTEGER, number),
            (JsonTypes::STRING, "string"),
            (JsonTypes::BOOLEAN, "boolean"),
            (JsonTypes::ARRAY, "array"),
            (JsonTypes::OBJECT, "object"),
            (JsonTypes::NULL, "null"),
        ];
        all.into_iter().filter(|(types, _)| self.has(*types)).map(|(_, name)| name).collect()
    }
}
