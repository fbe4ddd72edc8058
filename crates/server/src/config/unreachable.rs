//! Endpoints whose scope no token of the file has: not a mistake, since tokens come and go, but worth a warning before the first
//! client is refused.

use super::ServiceConfig;

/// One line for each scope that endpoints require and no token has.
pub fn unreachable_scopes(config: &ServiceConfig) -> Vec<String> {
    let mut scopes: Vec<&str> = config.endpoints.iter().filter_map(|endpoint| endpoint.scope.as_deref()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes.retain(|scope| !config.tokens.iter().any(|token| token.allows(scope)));
    let warning = |scope: &str| {
        let mut routes = config.endpoints.iter().filter(|endpoint| endpoint.scope.as_deref() == Some(scope));
        let first = routes.next().map_or("", |endpoint| endpoint.route.as_str());
        let more = match routes.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!(
            "no token has the scope `{scope}`, which {first}{more} asks for: nobody can call it. `sapsan token NAME --allow \
             {scope}` makes a token"
        )
    };
    scopes.into_iter().map(warning).collect()
}
