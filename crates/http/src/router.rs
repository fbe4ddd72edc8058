//! Router: finds the route of a method and a path.
//!
//! There is one matchit tree for each method, so routes match per method by construction: if a fixed route lacks the method, the
//! request falls through to a route with a parameter that has it. HEAD uses the routes of GET if it has none of its own. Only a
//! miss searches the other trees, to distinguish 405 from 404 and to answer OPTIONS.
//!
//! Patterns are matchit's: `/users/{id}`, `/files/{*rest}`. They match the path as sent, so an escaped slash never divides
//! segments; parameters are decoded by [`Params::get`].
//!
//! The usual route ends in its one parameter: `/users/{id}`. matchit finds it in 180 instructions and spends as many on its
//! parameters, which it keeps as bytes and checks to be UTF-8 at each access. So each tree has shortcuts ([`Shortcut`]) for such
//! routes, and for those with fixed text after the parameter, such as `/users/{id}/visits`: the text before and after the
//! parameter is compared. Only a route with which no other route of its tree can conflict has a shortcut, so both ways find the
//! same route.

use std::fmt;

use crate::method::Method;
use crate::query::{DecodeError, decode_path};

/// Limit of parameters of one pattern. matchit keeps three without allocating.
const PARAMETERS_MAX: usize = 8;

/// Routes of an application, each with a value of the application's own.
#[derive(Clone, Debug)]
pub struct Router<T> {
    trees: [Tree; Method::ALL.len()],
    values: Vec<T>,
}

/// The routes of one method, as indices of the router's values.
#[derive(Clone, Debug, Default)]
struct Tree {
    all: matchit::Router<usize>,
    patterns: Vec<(String, usize)>,
    shortcuts: Vec<Shortcut>,
}

/// A route of fixed text except for one segment, which is a parameter.
#[derive(Clone, Debug)]
struct Shortcut {
    /// With the slash before the parameter.
    prefix: Box<str>,
    name: Box<str>,
    /// With the slash after the parameter; empty if the parameter is the last segment.
    suffix: Box<str>,
    value: usize,
    /// The prefix's first eight bytes as a word, and the mask of the bits that are used.
    head: u64,
    head_mask: u64,
}

/// The first eight bytes of a text, the first one lowest, padded with zeros.
#[inline]
fn head_of(text: &str) -> u64 {
    match text.as_bytes().first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        // A copy of a length known only at run time would be a call.
        None => text.bytes().rev().fold(0, |head, byte| head << 8 | u64::from(byte)),
    }
}

impl Shortcut {
    fn new(pattern: &str, value: usize) -> Option<Shortcut> {
        let (prefix, rest) = pattern.split_once('{')?;
        let (name, suffix) = rest.split_once('}')?;
        let is_plain = |text: &str| !text.contains(['{', '}', '*']);
        let is_segment = prefix.ends_with('/') && (suffix.is_empty() || suffix.starts_with('/') && suffix.len() > 1);
        let is_one = is_segment && is_plain(suffix) && is_plain(name) && !name.is_empty();
        is_one.then(|| Shortcut {
            prefix: prefix.into(),
            name: name.into(),
            suffix: suffix.into(),
            value,
            head: head_of(prefix),
            head_mask: u64::MAX >> (64 - 8 * prefix.len().min(8)),
        })
    }

    /// Whether another pattern may match a path that this one matches. A pattern with a parameter further to the left does not:
    /// matchit prefers fixed text. Among patterns that begin alike, one conflicts if it has as many segments, or any number; or
    /// if it has text beside its parameter: matchit does not backtrack from such a segment if the rest does not match.
    fn contends_with(&self, pattern: &str) -> bool {
        let slashes = |text: &str| text.bytes().filter(|byte| *byte == b'/').count();
        let Some(rest) = pattern.strip_prefix(&*self.prefix) else { return false };
        // Doubled braces stand for themselves.
        let segment = rest.split('/').next().unwrap_or_default().replace("{{", "").replace("}}", "");
        if segment.contains('{') && !(segment.starts_with('{') && segment.ends_with('}')) {
            return true;
        }
        match rest.split_once("{*") {
            Some((before, _)) => slashes(before) <= slashes(&self.suffix),
            None => slashes(rest) == slashes(&self.suffix),
        }
    }

    /// The parameter's value in a path, if this route matches. `head` is the path's.
    #[inline]
    fn parameter<'p>(&self, path: &'p str, head: u64) -> Option<&'p str> {
        // The first bytes and the length are compared first, without a call: they exclude most other routes.
        let (prefix, suffix) = (&*self.prefix, &*self.suffix);
        if (head ^ self.head) & self.head_mask != 0 || path.len() <= prefix.len() + suffix.len() {
            return None;
        }
        let is_short = prefix.len() <= size_of::<u64>();
        let rest = if is_short { path.get(prefix.len()..)? } else { path.strip_prefix(prefix)? };
        let parameter = if suffix.is_empty() { rest } else { rest.strip_suffix(suffix)? };
        (!parameter.bytes().any(|byte| byte == b'/')).then_some(parameter)
    }
}

/// Result of a lookup by method and path.
#[derive(Debug)]
pub enum RouteLookup<'r, 'p, T> {
    /// A route.
    Found {
        /// The route's value.
        value: &'r T,
        /// Values of the path's parameters.
        params: Params<'r, 'p>,
    },
    /// No route has this path: 404.
    NotFound,
    /// Routes match this path, but none with this method: 405 with `Allow`.
    MethodNotAllowed {
        /// The value of `Allow`.
        allow: String,
    },
    /// An OPTIONS request to a path without a route for OPTIONS: 204 with `Allow`.
    Options {
        /// The value of `Allow`.
        allow: String,
    },
}

/// The parameters of a matched path.
#[derive(Debug)]
pub struct Params<'r, 'p>(Found<'r, 'p>);

#[derive(Debug)]
enum Found<'r, 'p> {
    /// By a shortcut: name and value.
    One(&'r str, &'p str),
    Any(matchit::Params<'r, 'p>),
}

impl<'p> Params<'_, 'p> {
    /// A parameter as sent.
    #[inline]
    pub fn get_raw(&self, name: &str) -> Option<&'p str> {
        match &self.0 {
            Found::One(its_name, value) => (*its_name == name).then_some(*value),
            Found::Any(params) => params.get(name),
        }
    }

    /// The first parameter, as sent. For routes that have one: its name is not compared.
    #[inline]
    pub fn first_raw(&self) -> Option<&'p str> {
        match &self.0 {
            Found::One(_, value) => Some(*value),
            Found::Any(params) => params.iter().next().map(|(_, value)| value),
        }
    }

    /// A parameter, decoded; `scratch` is used if something is escaped.
    pub fn get<'a>(&self, name: &str, scratch: &'a mut Vec<u8>) -> Option<Result<&'a str, DecodeError>>
    where
        'p: 'a,
    {
        Some(decode_path(self.get_raw(name)?, scratch))
    }

    /// All parameters as sent, in the pattern's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'p str)> + '_ {
        let (one, any) = match &self.0 {
            Found::One(name, value) => (Some((*name, *value)), None),
            Found::Any(params) => (None, Some(params.iter())),
        };
        one.into_iter().chain(any.into_iter().flatten())
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
        Router { trees: std::array::from_fn(|_| Tree::default()), values: Vec::new() }
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
        self.trees[method as usize].add(pattern, self.values.len()).map_err(|error| {
            refuse(match error {
                matchit::InsertError::Conflict { with } => {
                    format!("takes the same paths as \"{} {with}\"", method.name())
                }
                other => format!("{other}; a parameter is a whole name in braces, as in /users/{{id}}"),
            })
        })?;
        self.values.push(value);
        Ok(())
    }

    /// Finds the route of a request.
    #[inline]
    pub fn find<'r, 'p>(&'r self, method: Method, path: &'p str) -> RouteLookup<'r, 'p, T> {
        match self.trees[method as usize].find_short(path) {
            Some((shortcut, parameter)) => {
                let params = Params(Found::One(&shortcut.name, parameter));
                RouteLookup::Found { value: &self.values[shortcut.value], params }
            }
            None => self.find_any(method, path),
        }
    }

    #[inline(never)]
    fn find_any<'r, 'p>(&'r self, method: Method, path: &'p str) -> RouteLookup<'r, 'p, T> {
        match self.trees[method as usize].find_any(path) {
            Some((value, params)) => RouteLookup::Found { value: &self.values[value], params },
            None => self.miss(method, path),
        }
    }

    #[cold]
    fn miss<'r, 'p>(&'r self, method: Method, path: &'p str) -> RouteLookup<'r, 'p, T> {
        if method == Method::Head
            && let Some((value, params)) = self.trees[Method::Get as usize].find(path)
        {
            return RouteLookup::Found { value: &self.values[value], params };
        }
        let takes = |method: Method| self.trees[method as usize].find(path).is_some();
        let takes = |method| takes(method) || (method == Method::Head && takes(Method::Get));
        let mut allowed: Vec<&str> = Method::ALL.into_iter().filter(|&m| takes(m)).map(Method::name).collect();
        if allowed.is_empty() {
            return RouteLookup::NotFound;
        }
        if !takes(Method::Options) {
            allowed.push(Method::Options.name());
        }
        let allow = allowed.join(", ");
        if method == Method::Options { RouteLookup::Options { allow } } else { RouteLookup::MethodNotAllowed { allow } }
    }
}

impl Tree {
    fn add(&mut self, pattern: &str, value: usize) -> Result<(), matchit::InsertError> {
        if let Err(refused) = self.all.insert(pattern, value) {
            // matchit leaves the front of a refused pattern in the tree.
            self.all = matchit::Router::new();
            for (pattern, value) in &self.patterns {
                self.all.insert(pattern.as_str(), *value)?;
            }
            return Err(refused);
        }
        self.shortcuts.retain(|shortcut| !shortcut.contends_with(pattern));
        if let Some(shortcut) = Shortcut::new(pattern, value)
            && !self.patterns.iter().any(|(other, _)| shortcut.contends_with(other))
        {
            self.shortcuts.push(shortcut);
        }
        self.patterns.push((pattern.to_owned(), value));
        Ok(())
    }

    #[inline]
    fn find_short<'p>(&self, path: &'p str) -> Option<(&Shortcut, &'p str)> {
        let head = head_of(path);
        self.shortcuts.iter().find_map(|shortcut| Some((shortcut, shortcut.parameter(path, head)?)))
    }

    fn find_any<'r, 'p>(&'r self, path: &'p str) -> Option<(usize, Params<'r, 'p>)> {
        let found = self.all.at(path).ok()?;
        Some((*found.value, Params(Found::Any(found.params))))
    }

    fn find<'r, 'p>(&'r self, path: &'p str) -> Option<(usize, Params<'r, 'p>)> {
        match self.find_short(path) {
            Some((shortcut, parameter)) => Some((shortcut.value, Params(Found::One(&shortcut.name, parameter)))),
            None => self.find_any(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            RouteLookup::Found { value, params } => {
                let params: Vec<String> = params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("{value}{}", params.concat())
            }
            RouteLookup::NotFound => "404".to_owned(),
            RouteLookup::MethodNotAllowed { allow } => format!("405 {allow}"),
            RouteLookup::Options { allow } => format!("204 {allow}"),
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
    fn the_first_parameter_is_found_without_its_name() {
        let mut router = travels();
        router.route(Method::Get, "/{a}/of/{b}", "two").unwrap();
        for (path, expected) in [("/users/7", Some("7")), ("/users/7/visits", Some("7")), ("/x/of/y", Some("x"))] {
            let RouteLookup::Found { params, .. } = router.find(Method::Get, path) else { panic!("{path}") };
            assert_eq!(params.first_raw(), expected);
        }
        let RouteLookup::Found { params, .. } = router.find(Method::Put, "/only/put") else { panic!("found") };
        assert_eq!(params.first_raw(), None);
    }

    #[test]
    fn an_escaped_slash_does_not_divide_and_parameters_are_decoded() {
        check(Method::Get, "/users/a%2Fb", "/users/{id} id=a%2Fb");
        let router = travels();
        let RouteLookup::Found { params, .. } = router.find(Method::Get, "/users/a%2fb+c") else { panic!("found") };
        assert_eq!(params.get("id", &mut Vec::new()), Some(Ok("a/b+c")));
        assert_eq!(params.get("none", &mut Vec::new()), None);
    }

    #[test]
    fn a_route_with_a_rival_has_no_shortcut() {
        let shortcuts = |patterns: &[&str]| {
            let mut tree = Tree::default();
            patterns.iter().zip(0..).for_each(|(pattern, value)| tree.add(pattern, value).unwrap());
            tree.shortcuts.len()
        };
        assert_eq!(shortcuts(&["/users/{id}", "/users/{id}/visits", "/{any}/new", "/visits/{id}"]), 3);
        assert_eq!(shortcuts(&["/users/{id}/visits", "/users/new/visits"]), 0);
        assert_eq!(shortcuts(&["/users/{id}/visits", "/users/{id}/{any}"]), 0);
        assert_eq!(shortcuts(&["/users/{id}/visits", "/users/new/{*all}"]), 0);
        assert_eq!(shortcuts(&["/users/{id}", "/users/new"]), 0);
        assert_eq!(shortcuts(&["/users/new", "/users/{id}"]), 0);
        assert_eq!(shortcuts(&["/users/{id}", "/users/{id}.json"]), 0);
        assert_eq!(shortcuts(&["/users/{id}/visits", "/users/{id}.json/a/b"]), 0);
        assert_eq!(shortcuts(&["/{a}/{b}", "/files/{*rest}", "/a{{b/{id}", "/{id}"]), 1);
    }

    /// Routes of few letters, so that they collide.
    fn patterns() -> impl Strategy<Value = Vec<String>> {
        let segment = prop_oneof![
            Just("a"),
            Just("b"),
            Just("ab"),
            Just("{x}"),
            Just("{y}"),
            Just("a{x}"),
            Just("{x}b"),
            Just("{*z}"),
        ];
        let pattern = prop::collection::vec(segment, 1..4).prop_map(|segments| format!("/{}", segments.join("/")));
        prop::collection::vec(pattern, 1..8)
    }

    proptest! {
        #[test]
        fn shortcuts_lead_where_matchit_does(patterns in patterns(), paths in prop::collection::vec("(/[ab]{0,3}){1,4}", 1..20)) {
            let mut tree = Tree::default();
            for (pattern, value) in patterns.iter().zip(0..) {
                let _ = tree.add(pattern, value);
            }
            for path in &paths {
                let straight = tree.all.at(path).ok();
                let straight = straight.map(|found| (*found.value, Params(Found::Any(found.params))));
                let told = |found: Option<(usize, Params<'_, '_>)>| {
                    found.map(|(value, params)| (value, format!("{:?}", params.iter().collect::<Vec<_>>())))
                };
                prop_assert_eq!(told(tree.find(path)), told(straight), "{} in {:?}", path, patterns);
            }
        }
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
