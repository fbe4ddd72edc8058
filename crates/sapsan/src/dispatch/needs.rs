//! The check of what handlers need of their application.

use super::resources::Resources;
use std::any::Any;

/// Checks what a route's handler needs of its application. Used once, at the start.
pub struct Needs<'b> {
    pub(crate) resources: &'b Resources,
    /// The path's pattern.
    pub(crate) pattern: &'b str,
    pub(crate) missing: Vec<String>,
}

impl Needs<'_> {
    /// Requires a state of this type.
    pub fn state<T: Any + Send + Sync>(&mut self) {
        if self.resources.states.get::<T>().is_none() {
            let name = std::any::type_name::<T>();
            self.missing.push(format!("a state of type {name} is missing: give one by App::state"));
        }
    }

    /// Requires a database.
    pub fn database(&mut self) {
        if self.resources.database.is_none() {
            self.missing.push("a database is missing: give one by App::database".to_owned());
        }
    }

    /// Requires a condition; if it does not hold, `otherwise` is reported.
    pub fn that(&mut self, is_there: bool, otherwise: &str) {
        if !is_there {
            self.missing.push(otherwise.to_owned());
        }
    }

    /// Requires that the path has this number of parameters.
    pub fn path_parameters(&mut self, count: usize) {
        let has = self.pattern.replace("{{", "").matches('{').count();
        if has != count {
            self.missing.push(format!("its handler takes {count} path parameters, the path has {has}"));
        }
    }

    /// Requires an executor of this name.
    pub fn executor(&mut self, name: &str) {
        if !self.resources.pools.has(name) {
            self.missing.push(format!("an executor \"{name}\" is missing: give one by App::executor"));
        }
    }
}
