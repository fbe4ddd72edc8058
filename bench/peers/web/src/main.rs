//! The bank's pages on axum: askama for the pages, the signed cookies of axum-extra for the session, one thread.
//!
//! It keeps users and last logins in memory and writes nothing to a disk, so its login is no peer of a durable one: what is compared are
//! the pages. `web ADDRESS USERS.tsv`
//!
//! GET / shows the form and a notice that goes after one view; POST /login checks the password and sets the session; GET /mypage checks
//! the session and looks its user up.

use askama::Template;
use axum::extract::{Form, FromRef, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum_extra::extract::cookie::{Cookie, Key, SameSite, SignedCookieJar};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SESSION: &str = "session";
const NOTICE: &str = "notice";
/// The header fields that the facade sets by default: both sides send the same.
const SECURITY: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'self'"),
];

struct User {
    login: String,
    salt: String,
    hash: String,
    last_login: Mutex<(String, String)>,
}

#[derive(Clone)]
struct Bank {
    users: Arc<Vec<User>>,
    by_login: Arc<HashMap<String, usize>>,
    key: Key,
}

impl FromRef<Bank> for Key {
    fn from_ref(bank: &Bank) -> Key {
        bank.key.clone()
    }
}

#[derive(Template)]
#[template(path = "index.html")]
struct Index<'n> {
    notice: Option<&'n str>,
}

#[derive(Template)]
#[template(path = "mypage.html")]
struct MyPage<'u> {
    login: &'u str,
    last_at: &'u str,
    last_address: &'u str,
}

/// The login page without a notice: rendered once, as the bank does.
static PLAIN_INDEX: LazyLock<String> = LazyLock::new(|| Index { notice: None }.render().unwrap_or_default());

#[derive(Deserialize)]
struct Credentials {
    login: String,
    password: String,
}

fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn cookie(name: &'static str, value: String) -> Cookie<'static> {
    Cookie::build((name, value)).path("/").http_only(true).same_site(SameSite::Lax).build()
}

async fn index(jar: SignedCookieJar) -> Response {
    match jar.get(NOTICE) {
        None => Html(PLAIN_INDEX.as_str()).into_response(),
        Some(notice) => {
            let shown = page(&Index { notice: Some(notice.value()) });
            (jar.remove(Cookie::build(NOTICE).path("/")), shown).into_response()
        }
    }
}

fn refused(jar: SignedCookieJar, notice: &str) -> Response {
    (jar.add(cookie(NOTICE, notice.to_owned())), Redirect::to("/")).into_response()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn login(State(bank): State<Bank>, jar: SignedCookieJar, Form(form): Form<Credentials>) -> Response {
    let place = bank.by_login.get(&form.login).copied();
    let user = place.and_then(|place| Some((place, bank.users.get(place)?)));
    let right = user.filter(|(_, user)| {
        hex(&Sha256::new().chain_update(&form.password).chain_update(":").chain_update(&user.salt).finalize())
            == user.hash
    });
    match right {
        Some((place, user)) => {
            let mut last = user.last_login.lock().unwrap_or_else(PoisonError::into_inner);
            *last = ("2014-09-27 12:00:00".to_owned(), "127.0.0.1".to_owned());
            (jar.add(cookie(SESSION, place.to_string())), Redirect::to("/mypage")).into_response()
        }
        None => refused(jar, "Wrong username or password"),
    }
}

async fn my_page(State(bank): State<Bank>, jar: SignedCookieJar) -> Response {
    let user = jar.get(SESSION).and_then(|cookie| bank.users.get(cookie.value().parse::<usize>().ok()?));
    match user {
        Some(user) => {
            let last = user.last_login.lock().unwrap_or_else(PoisonError::into_inner);
            page(&MyPage { login: &user.login, last_at: &last.0, last_address: &last.1 })
        }
        None => refused(jar, "You must be logged in"),
    }
}

/// Adds the header fields of [`SECURITY`].
async fn secured(mut response: Response) -> Response {
    for (name, value) in SECURITY {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn users(file: &str) -> Result<Vec<User>, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file)?;
    let user = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, login, _, salt, hash] = fields[..] else { return Err(format!("{file}: {line}")) };
        let last_login = Mutex::new(("2014-09-27 12:00:00".to_owned(), "127.0.0.1".to_owned()));
        Ok(User { login: login.to_owned(), salt: salt.to_owned(), hash: hash.to_owned(), last_login })
    };
    Ok(text.lines().map(user).collect::<Result<_, _>>()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, file] = &arguments[..] else { return Err("usage: web ADDRESS USERS.tsv".into()) };
    let users = users(file)?;
    let by_login = users.iter().enumerate().map(|(place, user)| (user.login.clone(), place)).collect();
    let bank = Bank { users: Arc::new(users), by_login: Arc::new(by_login), key: Key::generate() };
    let app = axum::Router::new()
        .route("/", get(index))
        .route("/login", post(login))
        .route("/mypage", get(my_page))
        .layer(axum::middleware::map_response(secured))
        .with_state(bank);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true))), app).await
    })?;
    Ok(())
}
