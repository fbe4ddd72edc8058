//! Parts of the file that are valid but probably mistakes: rules of schemas that check nothing or refuse everything, and endpoints
//! whose scope no token of the file has. Tokens come and go, but this is worth a warning before the first client is refused.

use super::ServiceConfig;

/// One line for each part of the file that is probably a mistake.
pub fn lints(config: &ServiceConfig) -> Vec<String> {
    let mut lints: Vec<String> =
        config.docs.collections.iter().flat_map(docs::config::CollectionConfig::lints).collect();
    for endpoint in &config.endpoints {
        let of_body = endpoint.body.iter().flat_map(|body| docs::schema_lints(body.schema_text()));
        lints.extend(of_body.map(|lint| format!("the body of {}: {lint}", endpoint.route)));
    }
    lints.extend(unreachable_scopes(config));
    lints
}

/// One line for each scope that endpoints require and no token has.
fn unreachable_scopes(config: &ServiceConfig) -> Vec<String> {
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
