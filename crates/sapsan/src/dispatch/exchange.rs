//! Values of one request. They outlive the handler's call if the reply is late.

use crate::session::SessionData;
use std::any::{Any, TypeId};

/// Values that middleware, layers and handlers of one request pass to one another, one of each type. With a late reply they move to
/// the thread that answers.
///
/// Bound: the number of types used. An empty exchange allocates nothing.
#[derive(Default)]
pub struct Exchange {
    /// The session, once it was read. A field of its own, so that it needs no allocation.
    pub(crate) session: Option<SessionData>,
    values: Vec<Box<dyn Any + Send>>,
}

impl Exchange {
    /// The value of this type.
    pub fn get<T: Any + Send>(&self) -> Option<&T> {
        self.values.iter().find_map(|value| value.downcast_ref())
    }

    /// The value of this type, mutable.
    pub fn get_mut<T: Any + Send>(&mut self) -> Option<&mut T> {
        self.values.iter_mut().find_map(|value| value.downcast_mut())
    }

    /// Inserts a value. Returns the previous value of its type.
    pub fn insert<T: Any + Send>(&mut self, value: T) -> Option<T> {
        match self.get_mut::<T>() {
            Some(place) => Some(std::mem::replace(place, value)),
            None => {
                self.values.push(Box::new(value));
                None
            }
        }
    }

    /// Removes the value of this type and returns it.
    pub fn remove<T: Any + Send>(&mut self) -> Option<T> {
        let place = self.values.iter().position(|value| (**value).type_id() == TypeId::of::<T>())?;
        self.values.swap_remove(place).downcast().ok().map(|value| *value)
    }

    /// The session, if the handler took it as an argument.
    pub fn session(&mut self) -> Option<&mut SessionData> {
        self.session.as_mut()
    }
}
