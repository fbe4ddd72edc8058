//! The application: its routes, middleware, shared state and settings, and its start.

use super::start_error::StartError;
use crate::database::Database;
use crate::dispatch::{
    Around, Built, Endpoint, Environment, Layer, Needs, Pools, Resources, Route, States, Surrounded, Threads,
};
use crate::protection::{FormTokens, Origins, ProtectionSettings, SecurityHeaders};
use crate::reply::{Error, ErrorPage};
use crate::routes::{Erased, FilesEndpoint, Handler, folder_pattern};
use crate::session::Sessions;
use http::{ClientLimits, Deadlines, Files, Method, Router};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A web application.
///
/// Each method takes the application and returns it, so calls are chained. [`App::serve`] serves until the process receives a signal to
/// end; [`App::start`] returns a handle.
pub struct App {
    routes: Vec<Route>,
    states: States,
    layers: Vec<Box<dyn Layer>>,
    around: Vec<Box<dyn Around>>,
    executors: Vec<(String, Threads)>,
    database: Option<Database>,
    error_page: Option<ErrorPage>,
    mistakes: Vec<String>,
    pub(crate) protection: ProtectionSettings,
    pub(super) addresses: Vec<String>,
    pub(crate) settings: AppSettings,
}

/// Number of event loops, settings of the HTTP server, and time limit of the drain.
#[derive(Clone, Debug)]
pub(crate) struct AppSettings {
    pub(crate) threads: usize,
    pub(crate) http: http::HttpSettings,
    pub(super) drain_max: Duration,
}

impl Default for App {
    fn default() -> App {
        App::new()
    }
}

impl App {
    /// An application without routes. It uses all cores.
    pub fn new() -> App {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        App {
            routes: Vec::new(),
            states: States::default(),
            layers: Vec::new(),
            around: Vec::new(),
            executors: Vec::new(),
            database: None,
            error_page: None,
            mistakes: Vec::new(),
            protection: ProtectionSettings::default(),
            addresses: Vec::new(),
            settings: AppSettings { threads, http: http::HttpSettings::default(), drain_max: Duration::from_secs(10) },
        }
    }

    /// Adds a route. A pattern is a path with parameters in braces: `/users/{id}`, `/files/{*rest}`. A fixed path has priority over one
    /// with parameters.
    pub fn route<Args: 'static>(self, method: Method, pattern: &str, handler: impl Handler<Args>) -> App {
        self.endpoint(method, pattern, Box::new(Erased::new(handler)))
    }

    /// Adds a route for GET, and for HEAD.
    pub fn get<Args: 'static>(self, pattern: &str, handler: impl Handler<Args>) -> App {
        self.route(Method::Get, pattern, handler)
    }

    /// Adds a route for POST.
    pub fn post<Args: 'static>(self, pattern: &str, handler: impl Handler<Args>) -> App {
        self.route(Method::Post, pattern, handler)
    }

    /// Adds a route for PUT.
    pub fn put<Args: 'static>(self, pattern: &str, handler: impl Handler<Args>) -> App {
        self.route(Method::Put, pattern, handler)
    }

    /// Adds a route for PATCH.
    pub fn patch<Args: 'static>(self, pattern: &str, handler: impl Handler<Args>) -> App {
        self.route(Method::Patch, pattern, handler)
    }

    /// Adds a route for DELETE.
    pub fn delete<Args: 'static>(self, pattern: &str, handler: impl Handler<Args>) -> App {
        self.route(Method::Delete, pattern, handler)
    }

    /// Serves files for GET and HEAD: those of a folder, or embedded ones. The pattern ends in a parameter for the rest of the path.
    ///
    /// ```
    /// # use sapsan::{App, Files};
    /// # fn app() -> std::io::Result<App> {
    /// let app = App::new().files("/assets/{*path}", Files::folder("public")?);
    /// # Ok(app)
    /// # }
    /// ```
    pub fn files(mut self, pattern: &str, files: Files) -> App {
        let Some(folder) = folder_pattern(pattern) else {
            self.mistakes.push(format!("files at {pattern}: the pattern has to end in a parameter such as {{*path}}"));
            return self;
        };
        let (has_index, files) = (files.has_index(), Arc::new(files));
        let app = self.endpoint(
            Method::Get,
            pattern,
            Box::new(FilesEndpoint { files: Arc::clone(&files), is_folder: false }),
        );
        // A parameter for the rest of a path never matches an empty rest, so the folder itself needs a route of its own.
        if has_index {
            app.endpoint(Method::Get, folder, Box::new(FilesEndpoint { files, is_folder: true }))
        } else {
            app
        }
    }

    pub(crate) fn endpoint(mut self, method: Method, pattern: &str, endpoint: Box<dyn Endpoint>) -> App {
        self.routes.push(Route { method, pattern: pattern.to_owned(), endpoint });
        self
    }

    /// Mounts another application under a prefix; its route `/` becomes the prefix. Its functions run around its own routes only. Its
    /// states, database and executors are added to this application's. Layers, sessions, form tokens, origins, security headers, error
    /// page, addresses and settings are this application's.
    pub fn nest(mut self, prefix: &str, inner: App) -> App {
        let App { routes, states, layers, around, executors, database, mistakes, protection, .. } = inner;
        if protection.has_session_checks() {
            self.mistakes.push(format!(
                "the application nested at {prefix} has sessions or form tokens: set them on the one around it"
            ));
        }
        if !prefix.starts_with('/') || prefix.ends_with('/') {
            self.mistakes
                .push(format!("the prefix \"{prefix}\" of a nested application must begin with / and not end with it"));
        }
        let around: Arc<[Box<dyn Around>]> = around.into();
        for Route { method, pattern, endpoint } in routes {
            let pattern = if pattern == "/" { prefix.to_owned() } else { format!("{prefix}{pattern}") };
            let wrapped = Surrounded { around: Arc::clone(&around), endpoint };
            self.routes.push(Route { method, pattern, endpoint: Box::new(wrapped) });
        }
        self.mistakes.extend(mistakes);
        self.mistakes.extend(self.states.merge(states).into_iter().map(|name| format!("two states of type {name}")));
        if !layers.is_empty() {
            self.mistakes.push(format!("the application nested at {prefix} has layers: add them to the one around it"));
        }
        let with_executors = executors.into_iter().fold(self, |app, (name, threads)| app.executor(&name, threads));
        match database {
            Some(database) => with_executors.database(database),
            None => with_executors,
        }
    }

    /// Adds a value that handlers take as [`crate::State`], at most one of each type.
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> App {
        if !self.states.insert(state) {
            self.mistakes.push(format!("two states of type {}", std::any::type_name::<T>()));
        }
        self
    }

    /// Sets the database, which handlers take as [`crate::Db`] or [`Database`].
    pub fn database(mut self, database: Database) -> App {
        if self.database.replace(database).is_some() {
            self.mistakes.push("two databases".to_owned());
        }
        self
    }

    /// Adds threads for blocking work ([`crate::blocking()`]) under a name.
    pub fn executor(mut self, name: &str, threads: Threads) -> App {
        if self.executors.iter().any(|(known, _)| known == name) {
            self.mistakes.push(format!("two executors \"{name}\""));
        }
        self.executors.push((name.to_owned(), threads));
        self
    }

    /// Adds a function around all handlers. It runs inside the functions that were added before. It sees requests to unknown paths, too.
    pub fn around(mut self, around: impl Around) -> App {
        self.around.push(Box::new(around));
        self
    }

    /// Adds a layer: see [`Layer`].
    pub fn layer(mut self, layer: impl Layer) -> App {
        self.layers.push(Box::new(layer));
        self
    }

    /// Sets how an error looks to clients that accept HTML. The page of an internal error is not given the cause.
    pub fn error_page(mut self, page: impl Fn(&Error) -> String + Send + Sync + 'static) -> App {
        self.error_page = Some(Box::new(page));
        self
    }

    /// Turns on sessions, which handlers take as [`crate::Session`].
    pub fn sessions(mut self, sessions: Sessions) -> App {
        self.protection.sessions = Some(sessions);
        self
    }

    /// Sets which origins' pages may send requests that may change something. Default: pages of the same origin.
    pub fn origins(mut self, origins: Origins) -> App {
        self.protection.origins = origins;
        self
    }

    /// Requires a token of the session in requests that may change something.
    pub fn form_tokens(mut self, form_tokens: FormTokens) -> App {
        self.protection.form_tokens = Some(form_tokens);
        self
    }

    /// Sets the security headers of replies. Without this call they are [`SecurityHeaders::default`].
    pub fn security_headers(mut self, headers: SecurityHeaders) -> App {
        self.protection.security_headers = headers;
        self
    }

    /// Sets the number of event loops. Default: one for each core.
    pub fn threads(mut self, threads: usize) -> App {
        self.settings.threads = threads;
        self
    }

    /// Lists the proxies whose header fields may name the client: addresses, networks (`10.0.0.0/8`), `unix` for peers on Unix sockets.
    /// [`crate::ClientAddress`] is then the last hop in `X-Forwarded-For`, or in `Forwarded` if that is absent, that is not a
    /// trusted proxy.
    pub fn trusted_proxies<T: AsRef<str>>(mut self, entries: &[T]) -> App {
        match http::TrustedProxies::new(entries) {
            Ok(proxies) => self.settings.http.trusted_proxies = proxies,
            Err((place, error)) => {
                let entry = entries.get(place).map_or("", |entry| entry.as_ref());
                self.mistakes.push(format!("trusted proxy \"{entry}\" is not valid; allowed: {error}"));
            }
        }
        self
    }

    /// Sets the limits of requests and connections.
    pub fn limits(mut self, limits: ClientLimits) -> App {
        self.settings.http.limits = limits;
        self
    }

    /// Sets the maximum length of a request's body, in bytes. A longer body is answered 413.
    pub fn body_bytes_max(mut self, bytes: usize) -> App {
        self.settings.http.limits.body_bytes_max = bytes;
        self
    }

    /// Sets how long a client may take to send a request.
    pub fn deadlines(mut self, deadlines: Deadlines) -> App {
        self.settings.http.deadlines = deadlines;
        self
    }

    /// Sets all settings of the HTTP server: limits, deadlines, the access log.
    pub fn http(mut self, settings: http::HttpSettings) -> App {
        self.settings.http = settings;
        self
    }

    /// Sets how long running requests may take to end when the application is stopped. Default: 10 s.
    pub fn drain_max(mut self, limit: Duration) -> App {
        self.settings.drain_max = limit;
        self
    }

    /// Listens on another address too, besides the one that [`App::serve`] or [`App::start`] is given.
    pub fn listen(mut self, address: &str) -> App {
        self.addresses.push(address.to_owned());
        self
    }

    /// Checks the application and builds its shared form, or reports all mistakes.
    pub(crate) fn build(self) -> Result<(Built, AppSettings), StartError> {
        let App {
            routes,
            states,
            layers,
            around,
            executors,
            database,
            error_page,
            mut mistakes,
            protection,
            settings,
            ..
        } = self;
        let mut router = Router::new();
        for (number, route) in routes.iter().enumerate() {
            if let Err(error) = router.route(route.method, &route.pattern, number) {
                mistakes.push(error.to_string());
            }
        }
        let pools = Pools::start(executors).unwrap_or_else(|error| {
            mistakes.push(format!("an executor does not start: {error}"));
            Pools::default()
        });
        let protection = protection.build(&mut mistakes);
        if let Some(loops_max) = database.as_ref().map(Database::loops_max).filter(|max| *max < settings.threads) {
            mistakes.push(format!(
                "{} event loops have no readers of the database: App::threads({loops_max}) at most, or Database::open_with and a larger readers_max",
                settings.threads
            ));
        }
        let resources = Resources { states, database, protection, pools };
        for route in &routes {
            let mut needs = Needs { resources: &resources, pattern: &route.pattern, missing: Vec::new() };
            route.endpoint.needs(&mut needs);
            let name = format!("{} {}", route.method.name(), route.pattern);
            mistakes.extend(needs.missing.into_iter().map(|missing| format!("route \"{name}\": {missing}")));
        }
        if !mistakes.is_empty() {
            return Err(StartError::Application(mistakes));
        }
        let environment = Arc::new(Environment { resources, layers, error_page });
        Ok((Built { router, routes, around, environment }, settings))
    }
}
