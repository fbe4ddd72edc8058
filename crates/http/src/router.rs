//! Router: which route takes a method and a path.
//!
//! There is one matchit tree for each method. So routes match per method by construction: where a fixed route lacks
//! the method, the request falls through to a route with a parameter that has it. HEAD is taken by GET's routes where
//! it has none of its own. Only a miss looks into the other trees, to tell 405 from 404 and to answer OPTIONS.
//!
//! Patterns are matchit's: `/users/{id}`, `/files/{*rest}`. They match the path as sent, so an escaped slash never
//! divides; parameters are decoded by [`Params::get`].

use std::fmt;

use crate::query::{DecodeError, decode_path};
use crate::service::Method;

/// Parameters of one pattern. matchit keeps three without allocating; that is all we promise to be fast, not a limit.
const PARAMETERS_MAX: usize = 8;

/// Routes of an application, each with a value of the application's own.
#[derive(Clone, Debug)]
pub struct Router<T> {
    trees: [matchit::Router<T>; Method::ALL.len()],
}

/// What a path and a method lead to.
#[derive(Debug)]
pub enum Lookup<'r, 'p, T> {
    /// A route.
    Found {
        /// The route's value.
        value: &'r T,
        /// What the path's parameters hold.
        params: Params<'r, 'p>,
    },
    /// No route has this path: 404.
    NotFound,
    /// Routes have this path, none for this method: 405 with `Allow`.
    MethodNotAllowed {
        /// The value of `Allow`.
        allow: String,
    },
    /// An OPTIONS request to a path without a route of its own for it: 204 with `Allow`.
    Options {
        /// The value of `Allow`.
        allow: String,
    },
}

/// The parameters of a matched path.
#[derive(Debug)]
pub struct Params<'r, 'p> {
    params: matchit::Params<'r, 'p>,
}

impl<'p> Params<'_, 'p> {
    /// A parameter as sent.
    pub fn get_raw(&self, name: &str) -> Option<&'p str> {
        self.params.get(name)
    }

    /// A parameter, decoded; `scratch` is used where something is escaped.
    pub fn get<'a>(&self, name: &str, scratch: &'a mut Vec<u8>) -> Option<Result<&'a str, DecodeError>>
    where
        'p: 'a,
    {
        Some(decode_path(self.params.get(name)?, scratch))
    }

    /// All parameters as sent, in the pattern's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'p str)> + '_ {
        self.params.iter()
    }
}

/// Why a route cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteError {
    /// The route, as `METHOD PATTERN`.
    pub route: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route \"{}\": {}", self.route, self.reason)
    }
}

impl std::error::Error for RouteError {}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Router::new()
    }
}

impl<T> Router<T> {
    /// A router without routes.
    pub fn new() -> Self {
        Router { trees: std::array::from_fn(|_| matchit::Router::new()) }
    }

    /// Adds a route.
    pub fn route(&mut self, method: Method, pattern: &str, value: T) -> Result<(), RouteError> {
        let refuse = |reason: String| RouteError { route: format!("{} {pattern}", method.name()), reason };
        if !pattern.starts_with('/') {
            return Err(refuse("a pattern begins with /".to_owned()));
        }
        if pattern.matches('{').count() > PARAMETERS_MAX {
            return Err(refuse(format!("more than {PARAMETERS_MAX} parameters")));
        }
        self.trees[method as usize].insert(pattern, value).map_err(|error| {
            refuse(match error {
                matchit::InsertError::Conflict { with } => {
                    format!("takes the same paths as \"{} {with}\"", method.name())
                }
                other => format!("{other}; a parameter is a whole name in braces, as in /users/{{id}}"),
            })
        })
    }

    /// Finds the route of a request. Kept out of line, so that a profile shows its cost under its name.
    #[inline(never)]
    pub fn find<'r, 'p>(&'r self, method: Method, path: &'p str) -> Lookup<'r, 'p, T> {
        match self.trees[method as usize].at(path) {
            Ok(found) => Lookup::Found { value: found.value, params: Params { params: found.params } },
            Err(_) => self.miss(method, path),
        }
    }

    #[cold]
    fn miss<'r, 'p>(&'r self, method: Method, path: &'p str) -> Lookup<'r, 'p, T> {
        if method == Method::Head
            && let Ok(found) = self.trees[Method::Get as usize].at(path)
        {
            return Lookup::Found { value: found.value, params: Params { params: found.params } };
        }
        let takes = |method: Method| self.trees[method as usize].at(path).is_ok();
        let takes = |method| takes(method) || (method == Method::Head && takes(Method::Get));
        let mut allowed: Vec<&str> = Method::ALL.into_iter().filter(|&m| takes(m)).map(Method::name).collect();
        if allowed.is_empty() {
            return Lookup::NotFound;
        }
        if !takes(Method::Options) {
            allowed.push(Method::Options.name());
        }
        let allow = allowed.join(", ");
        if method == Method::Options { Lookup::Options { allow } } else { Lookup::MethodNotAllowed { allow } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn travels() -> Router<&'static str> {
        let mut router = Router::new();
        for (method, pattern) in [
            (Method::Get, "/users/{id}"),
            (Method::Get, "/users/{id}/visits"),
            (Method::Post, "/users/new"),
            (Method::Post, "/users/{id}"),
            (Method::Put, "/only/put"),
        ] {
            router.route(method, pattern, pattern).unwrap();
        }
        router
    }

    #[track_caller]
    fn check(method: Method, path: &str, expected: &str) {
        let router = travels();
        let got = match router.find(method, path) {
            Lookup::Found { value, params } => {
                let params: Vec<String> = params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("{value}{}", params.concat())
            }
            Lookup::NotFound => "404".to_owned(),
            Lookup::MethodNotAllowed { allow } => format!("405 {allow}"),
            Lookup::Options { allow } => format!("204 {allow}"),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn a_fixed_route_wins_over_a_parameter() {
        check(Method::Post, "/users/new", "/users/new");
        check(Method::Post, "/users/newer", "/users/{id} id=newer");
    }

    #[test]
    fn a_fixed_route_without_the_method_falls_through_to_a_parameter() {
        check(Method::Get, "/users/new", "/users/{id} id=new");
    }

    #[test]
    fn unknown_paths_are_not_found() {
        for path in ["/", "/users", "/users/", "/users/1/", "/users/1/visits/2", "*", "/nothing"] {
            check(Method::Get, path, "404");
        }
    }

    #[test]
    fn a_known_path_without_the_method_is_not_allowed() {
        check(Method::Delete, "/users/1", "405 GET, HEAD, POST, OPTIONS");
        check(Method::Get, "/only/put", "405 PUT, OPTIONS");
    }

    #[test]
    fn head_falls_to_get_and_options_lists_the_methods() {
        check(Method::Head, "/users/1", "/users/{id} id=1");
        check(Method::Options, "/users/new", "204 GET, HEAD, POST, OPTIONS");
        check(Method::Options, "/nothing", "404");
    }

    #[test]
    fn an_escaped_slash_does_not_divide_and_parameters_are_decoded() {
        check(Method::Get, "/users/a%2Fb", "/users/{id} id=a%2Fb");
        let router = travels();
        let Lookup::Found { params, .. } = router.find(Method::Get, "/users/a%2fb+c") else { panic!("found") };
        assert_eq!(params.get("id", &mut Vec::new()), Some(Ok("a/b+c")));
        assert_eq!(params.get("none", &mut Vec::new()), None);
    }

    #[test]
    fn conflicting_and_malformed_routes_are_told() {
        let mut router = travels();
        let error = router.route(Method::Get, "/users/{name}", "x").unwrap_err();
        assert_eq!(error.to_string(), "route \"GET /users/{name}\": takes the same paths as \"GET /users/{id}\"");
        assert!(router.route(Method::Get, "users", "x").is_err());
        assert!(router.route(Method::Get, "/a/{b", "x").is_err());
        assert!(router.route(Method::Get, &"/{a}".repeat(9), "x").is_err());
    }
}
