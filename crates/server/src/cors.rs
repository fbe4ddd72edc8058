//! Cross-origin requests (the Fetch standard, section 3.3): which pages of other origins may use declared endpoints, by `[server] cors`.
//!
//! Without the setting no page of another origin reads a reply. The general API takes part in none of this: see `access`.

use crate::config::CorsConfig;
use http::{Reply, Request};

/// What a page may read of a reply's header beside what the standard always lets it read.
const EXPOSED: &str = "ETag, Location, Retry-After, Sapsan-Plan";

/// The setting, ready for replies.
#[derive(Debug)]
pub(crate) struct Cors {
    /// None: any.
    origins: Option<Box<[String]>>,
    /// None: those of the route.
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

    /// Says on a reply whether the page that asks may read it.
    pub(crate) fn mark(&self, request: &Request<'_>, reply: &mut Reply<'_>) {
        if self.allow(request, reply) {
            reply.header("Access-Control-Expose-Headers", EXPOSED);
        }
    }

    /// Says what a page may ask, where its browser asks that first. `allow` are the methods of the route.
    pub(crate) fn preflight(&self, request: &Request<'_>, allow: &str, reply: &mut Reply<'_>) {
        if self.allow(request, reply) && request.header("Access-Control-Request-Method").is_some() {
            reply.header("Access-Control-Allow-Methods", self.methods.as_deref().unwrap_or(allow));
            reply.header("Access-Control-Allow-Headers", &self.headers);
            reply.header("Access-Control-Max-Age", &self.max_age);
        }
    }

    /// Whether the origin of the request is allowed; says so, and to caches that the reply depends on it.
    fn allow(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> bool {
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
