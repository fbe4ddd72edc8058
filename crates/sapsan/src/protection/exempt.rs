//! Paths that a check skips, as patterns of routes.

use http::{Method, RouteLookup, Router};
use std::sync::Arc;

/// Patterns of paths. An invalid one is reported when the application starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exempt {
    patterns: Vec<String>,
    router: Option<Arc<Router<()>>>,
}

impl Exempt {
    pub(crate) fn add(&mut self, pattern: &str) {
        self.patterns.push(pattern.to_owned());
    }

    /// Builds the matcher, or reports the invalid pattern.
    pub(crate) fn build(mut self) -> Result<Exempt, String> {
        let mut router = Router::new();
        for pattern in &self.patterns {
            // Exemptions hold for every method, so all patterns are stored under one.
            router.route(Method::Post, pattern, ()).map_err(|error| error.to_string())?;
        }
        self.router = (!self.patterns.is_empty()).then(|| Arc::new(router));
        Ok(self)
    }

    #[inline]
    pub(crate) fn has(&self, path: &str) -> bool {
        self.router.as_ref().is_some_and(|router| matches!(router.find(Method::Post, path), RouteLookup::Found { .. }))
    }
}
