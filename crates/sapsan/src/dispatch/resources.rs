//! What the handlers of an application use: its states, database, sessions and executors.

use super::pools::Pools;
use crate::database::Database;
use crate::protection::Protection;
use std::any::{Any, TypeId};

/// The resources of an application, shared by all loops.
pub(crate) struct Resources {
    pub(crate) states: States,
    pub(crate) database: Option<Database>,
    /// It has the sessions.
    pub(crate) protection: Protection,
    pub(crate) pools: Pools,
}

/// The application's states, one of each type. There are few, so the search is linear.
#[derive(Default)]
pub(crate) struct States(Vec<StateOf>);

struct StateOf {
    id: TypeId,
    name: &'static str,
    state: Box<dyn Any + Send + Sync>,
}

impl States {
    /// Adds a state; `false` if there is already one of its type.
    pub(crate) fn insert<T: Any + Send + Sync>(&mut self, state: T) -> bool {
        let is_new = self.get::<T>().is_none();
        if is_new {
            let (id, name) = (TypeId::of::<T>(), std::any::type_name::<T>());
            self.0.push(StateOf { id, name, state: Box::new(state) });
        }
        is_new
    }

    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.0.iter().find(|known| known.id == id).and_then(|known| known.state.downcast_ref())
    }

    /// Adds others. Returns the names of the types that are there already.
    pub(crate) fn merge(&mut self, others: States) -> Vec<&'static str> {
        let is_here = |other: &StateOf| self.0.iter().any(|known| known.id == other.id);
        let (twice, new): (Vec<StateOf>, Vec<StateOf>) = others.0.into_iter().partition(is_here);
        self.0.extend(new);
        twice.into_iter().map(|other| other.name).collect()
    }
}
