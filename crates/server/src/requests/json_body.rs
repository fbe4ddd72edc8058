//! The JSON body of a request of the general API, read strictly: a name that comes twice in one object is refused, as in documents. Two
//! readers of such a body, a filter before the server and the server, could take different values.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::params::echo;

/// Reads a body. The error says what is wrong, and where.
pub(crate) fn read(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice::<Strict>(body).map(|strict| strict.0).map_err(|error| format!("the body: {error}"))
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the name `{}` comes twice in one object", echo(&name))));
            }
            let Strict(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_by_anyone_and_a_name_that_comes_twice_is_refused() {
        let text = r#"{"a":[1,-2,3.5,"x",null,true,18446744073709551615],"b":{"a":{}}}"#;
        assert_eq!(read(text.as_bytes()), Ok(serde_json::from_str(text).expect("JSON")));
        for twice in [r#"{"sql":1,"sql":2}"#, r#"{"params":[{"sql":1,"\u0073ql":2}]}"#] {
            let refused = read(twice.as_bytes()).expect_err("it is ambiguous");
            assert!(refused.starts_with("the body: the name `sql` comes twice in one object at line 1"), "{refused}");
        }
        assert!(read(b"{\"a\":1}x").is_err() && read(b"").is_err() && read(b"1e400").is_err());
    }
}
