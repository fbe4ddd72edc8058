//! What a route calls.

use super::needs::Needs;
use super::request::Request;
use super::response::Response;

/// A handler behind a trait object.
pub(crate) trait Endpoint: Send + Sync {
    fn call(&self, request: &Request<'_>) -> Response;
    fn needs(&self, needs: &mut Needs<'_>);
    fn takes_pieces(&self) -> bool {
        false
    }
}
