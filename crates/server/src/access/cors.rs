//! Cross-origin requests (the Fetch standard, section 3.3): the pages of other origins that may use declared endpoints, by
//! `[server] cors`.
//!
//! Without the setting no page of another origin can read a reply. The general API has no CORS: see `sender`.

use crate::config::CorsConfig;
use http::{HttpRequest, Reply};

/// Reply fields that a page may read besides those that the standard always allows.
const EXPOSED: &str = "ETag, Location, Retry-After, Sapsan-Plan";

/// The setting, prepared for replies.
#[derive(Debug)]
pub(crate) struct Cors {
    /// `None`: any.
    origins: Option<Box<[String]>>,
    /// `None`: those of the route.
    methods: Option<String>,
    headers: String,
    credentials: bool,
    max_age: String,
}

impl Cors {
    pub(crate) fn new(config: &CorsConfig) -> Cors {
        let is_any = config.origins.iter().any(|origin| origin == "*");
        Cors {
            origins: (!is_any).then(|| config.origins.clone().into()),
            methods: config.methods.as_ref().map(|methods| methods.join(", ")),
            headers: config.headers.join(", "),
            credentials: config.credentials,
            max_age: config.max_age_seconds.to_string(),
        }
    }

    /// Adds the fields that let the requesting page read the reply.
    pub(crate) fn mark(&self, request: &HttpRequest<'_>, reply: &mut Reply<'_>) {
        if self.allow(request, reply) {
            reply.header("Access-Control-Expose-Headers", EXPOSED);
        }
    }

    /// Answers a browser's preflight request. `allow` are the methods of the route.
    pub(crate) fn preflight(&self, request: &HttpRequest<'_>, allow: &str, reply: &mut Reply<'_>) {
        if self.allow(request, reply) && request.header("Access-Control-Request-Method").is_some() {
            reply.header("Access-Control-Allow-Methods", self.methods.as_deref().unwrap_or(allow));
            reply.header("Access-Control-Allow-Headers", &self.headers);
            reply.header("Access-Control-Max-Age", &self.max_age);
        }
    }

    /// Whether the request's origin is allowed. Adds the fields that say so, and `Vary` for caches.
    fn allow(&self, request: &HttpRequest<'_>, reply: &mut Reply<'_>) -> bool {
        if self.origins.is_some() {
            reply.header("Vary", "Origin");
        }
        if !request.has_origin() {
            return false;
        }
        let sent = request.header("Origin").and_then(|origin| std::str::from_utf8(origin).ok());
        let allowed = match &self.origins {
            None => Some("*"),
            Some(known) => sent.filter(|sent| known.iter().any(|known| known == sent)),
        };
        let Some(origin) = allowed else { return false };
        reply.header("Access-Control-Allow-Origin", origin);
        if self.credentials {
            reply.header("Access-Control-Allow-Credentials", "true");
        }
        true
    }
}
