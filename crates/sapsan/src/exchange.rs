//! What belongs to one request and its reply, and outlives the handler's call where the reply comes later.

use crate::session::SessionData;
use std::any::{Any, TypeId};

/// Values of one request that middleware, layers and handlers leave for one another, one of each type. Goes with a late reply to the
/// thread that answers.
///
/// Bound: as many as there are types; empty, it costs nothing.
#[derive(Default)]
pub struct Exchange {
    /// Where the session was looked at. Not among the values, so that it needs no allocation.
    pub(crate) session: Option<SessionData>,
    values: Vec<Box<dyn Any + Send>>,
}

impl Exchange {
    /// The value of this type.
    pub fn get<T: Any + Send>(&self) -> Option<&T> {
        self.values.iter().find_map(|value| value.downcast_ref())
    }

    /// The same, to be changed.
    pub fn get_mut<T: Any + Send>(&mut self) -> Option<&mut T> {
        self.values.iter_mut().find_map(|value| value.downcast_mut())
    }

    /// Puts a value in the place of the one of its type, which it gives back.
    pub fn insert<T: Any + Send>(&mut self, value: T) -> Option<T> {
        match self.get_mut::<T>() {
            Some(place) => Some(std::mem::replace(place, value)),
            None => {
                self.values.push(Box::new(value));
                None
            }
        }
    }

    /// Takes the value of this type out.
    pub fn remove<T: Any + Send>(&mut self) -> Option<T> {
        let place = self.values.iter().position(|value| (**value).type_id() == TypeId::of::<T>())?;
        self.values.swap_remove(place).downcast().ok().map(|value| *value)
    }
}
