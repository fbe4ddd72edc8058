//! Rust values as keys of documents and as parameters of statements.

use super::failure::DatabaseError;
use docs::order::Scalar;
use docs::sql::Value;

/// A value of a key or a parameter: text, a number, a boolean (1 or 0), or `None` (NULL).
pub trait DbValue {
    /// The value.
    fn scalar(&self) -> Scalar<'_>;
}

impl DbValue for str {
    fn scalar(&self) -> Scalar<'_> {
        Scalar::Text(self)
    }
}

impl DbValue for String {
    fn scalar(&self) -> Scalar<'_> {
        Scalar::Text(self)
    }
}

impl DbValue for f64 {
    fn scalar(&self) -> Scalar<'_> {
        Scalar::Real(*self)
    }
}

impl DbValue for bool {
    fn scalar(&self) -> Scalar<'_> {
        Scalar::Integer(i64::from(*self))
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl DbValue for $integer {
            fn scalar(&self) -> Scalar<'_> {
                Scalar::Integer(i64::from(*self))
            }
        }
    )*};
}

integers!(u8, u16, u32, i8, i16, i32, i64);

/// A value above `i64::MAX` becomes a real number, as in SQL.
impl DbValue for u64 {
    fn scalar(&self) -> Scalar<'_> {
        i64::try_from(*self).map_or(Scalar::Real(*self as f64), Scalar::Integer)
    }
}

impl DbValue for usize {
    fn scalar(&self) -> Scalar<'_> {
        i64::try_from(*self).map_or(Scalar::Real(*self as f64), Scalar::Integer)
    }
}

impl<V: DbValue + ?Sized> DbValue for &V {
    fn scalar(&self) -> Scalar<'_> {
        (**self).scalar()
    }
}

impl<V: DbValue> DbValue for Option<V> {
    fn scalar(&self) -> Scalar<'_> {
        self.as_ref().map_or(Scalar::Null, DbValue::scalar)
    }
}

/// The parameters of a statement (`:name`): a tuple of up to six values, in the order in which their names first occur in the statement, or
/// an array of names and values, `[("login", &login as &dyn DbValue), …]`. `()` for a statement without parameters.
pub trait Parameters {
    /// Calls `with` with the values in the order of `names`.
    fn with<R>(
        &self,
        names: &[String],
        with: impl FnOnce(&[Value<'_>]) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError>;
}

pub(crate) fn value(scalar: Scalar<'_>) -> Value<'_> {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Integer(integer) => Value::Integer(integer),
        Scalar::Real(real) => Value::Real(real),
        Scalar::Text(text) => Value::Text(text.as_bytes()),
    }
}

fn wrong_count(names: &[String], given: usize) -> DatabaseError {
    let (count, names) = (names.len(), names.join(", "));
    DatabaseError::Usage(format!("{given} parameters given, the statement has {count}: {names}"))
}

impl Parameters for () {
    fn with<R>(
        &self,
        names: &[String],
        with: impl FnOnce(&[Value<'_>]) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        if names.is_empty() { with(&[]) } else { Err(wrong_count(names, 0)) }
    }
}

macro_rules! tuples {
    ($($value:ident $place:tt),*) => {
        impl<$($value: DbValue),*> Parameters for ($($value,)*) {
            fn with<R>(
                &self,
                names: &[String],
                with: impl FnOnce(&[Value<'_>]) -> Result<R, DatabaseError>,
            ) -> Result<R, DatabaseError> {
                let values = [$(value(self.$place.scalar())),*];
                if names.len() == values.len() { with(&values) } else { Err(wrong_count(names, values.len())) }
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

impl<const N: usize> Parameters for [(&str, &dyn DbValue); N] {
    fn with<R>(
        &self,
        names: &[String],
        with: impl FnOnce(&[Value<'_>]) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        let known = |(name, _): &&(&str, &dyn DbValue)| !names.iter().any(|known| known == name);
        if let Some((name, _)) = self.iter().find(known) {
            return Err(DatabaseError::Usage(format!("the statement has no parameter {name}: {}", names.join(", "))));
        }
        let values: Result<Vec<Value<'_>>, DatabaseError> = names
            .iter()
            .map(|name| {
                let given = self.iter().find(|(known, _)| known == name);
                given
                    .map(|(_, given)| value(given.scalar()))
                    .ok_or_else(|| DatabaseError::Usage(format!("the statement's parameter {name} is not given")))
            })
            .collect();
        with(&values?)
    }
}
