//! Paths that a check leaves out, by patterns of routes.

use http::{Lookup, Method, Router};
use std::sync::Arc;

/// Patterns of paths. One that is none is told when the application starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exempt {
    patterns: Vec<String>,
    router: Option<Arc<Router<()>>>,
}

impl Exempt {
    pub(crate) fn add(&mut self, pattern: &str) {
        self.patterns.push(pattern.to_owned());
    }

    /// Makes of the patterns what finds them, or says which is none.
    pub(crate) fn build(mut self) -> Result<Exempt, String> {
        let mut router = Router::new();
        for pattern in &self.patterns {
            // The method is not looked at: all patterns stand under one.
            router.route(Method::Post, pattern, ()).map_err(|error| error.to_string())?;
        }
        self.router = (!self.patterns.is_empty()).then(|| Arc::new(router));
        Ok(self)
    }

    #[inline]
    pub(crate) fn has(&self, path: &str) -> bool {
        self.router.as_ref().is_some_and(|router| matches!(router.find(Method::Post, path), Lookup::Found { .. }))
    }
}
