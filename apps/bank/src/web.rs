//! The web application: its configuration, routes and handlers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sapsan::{
    App, ClientAddress, Db, Error, Files, Form, Html, Json, Keys, Later, Redirect, Respond, Response, Session,
    SessionData, SessionError, Sessions, Shared, Threads, blocking, embed, later,
};
use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, AttemptVerdict, Decision, LockReport, Login};
use crate::bank::{Bank, attempt_of};
use crate::clock;
use crate::ledger::{LedgerError, embedded};
use crate::page::{Index, MyPage, PLAIN_INDEX};
use crate::user::{User, find};

/// The kind of the flash message that is shown as the login page's notice.
const NOTICE: &str = "notice";
/// The session value that holds the logged-in customer.
const CUSTOMER: &str = "customer";
const MUST_LOG_IN: &str = "You must be logged in";
/// The file in the data folder with the keys that sign sessions.
const KEYS_FILE: &str = "session.keys";
/// The executor of reports, which read all locked users and banned addresses.
const REPORTS: &str = "reports";
const REPORT_THREADS: Threads = Threads { count: 1, queue_max: 16 };
/// Largest form body in bytes: a login and a password.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Settings of the web application.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    /// The data folder, which holds the keys of sessions.
    pub data: PathBuf,
    /// The folder with `stylesheets` and `images`; without one the files built into the program are used.
    pub assets: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<String>,
    /// Number of event loops; by default one for each core.
    pub threads: Option<usize>,
}

/// The application.
///
/// # Errors
/// The keys of sessions, or a folder of assets, cannot be used.
pub fn app(bank: Bank, settings: &WebSettings) -> Result<App, String> {
    let keys = Keys::from_file(settings.data.join(KEYS_FILE)).map_err(|error| error.to_string())?;
    let mut app = App::new()
        .body_bytes_max(BODY_BYTES_MAX)
        .database(bank.database().clone())
        .state(Arc::new(bank))
        .sessions(Sessions::signed(keys).plain_http().name("bank"))
        .executor(REPORTS, REPORT_THREADS)
        .get("/", index)
        .post("/login", log_in)
        .post("/logout", log_out)
        .get("/mypage", my_page)
        .get("/report", blocking(REPORTS, report))
        .trusted_proxies(&settings.trusted_proxies);
    if let Some(threads) = settings.threads {
        app = app.threads(threads);
    }
    let (stylesheets, images) = assets(settings.assets.as_deref())?;
    Ok(app.files("/stylesheets/{*path}", stylesheets).files("/images/{*path}", images))
}

/// The style sheets and the pictures: files of a folder, or files that the compiler put into the program.
fn assets(folder: Option<&Path>) -> Result<(Files, Files), String> {
    let Some(folder) = folder else {
        let stylesheets = embed!("public/stylesheets", "bootstrap.min.css", "bootflat.min.css", "isucon-bank.css");
        return Ok((Files::embedded(stylesheets), Files::embedded(embed!("public/images", "isucon-bank.png"))));
    };
    let of = |name: &str| {
        let folder = folder.join(name);
        Files::folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))
    };
    Ok((of("stylesheets")?, of("images")?))
}

/// The form of the login page.
#[derive(Deserialize)]
struct Credentials {
    login: String,
    password: String,
}

/// The session data of the logged-in customer.
#[derive(Deserialize, Serialize)]
struct Customer<'c> {
    login: Cow<'c, str>,
    last_at: Cow<'c, str>,
    last_address: Cow<'c, str>,
}

fn index(session: Session<'_>) -> Response {
    match session.take_flash(NOTICE) {
        Some(notice) => Html(Index { notice: Some(&notice) }).respond(),
        None => Html(PLAIN_INDEX.as_str()).respond(),
    }
}

fn log_in(
    Form(Credentials { login, password }): Form<Credentials>,
    ClientAddress(client): ClientAddress,
    db: Db<'_>,
    Shared(bank): Shared<Bank>,
    _session: Session<'_>,
) -> Result<Later, Error> {
    let user = find(&login, |login| db.get::<User>("users", login))?;
    let attempt = attempt_of(&login, &password, user.as_ref(), client);
    let rules = bank.rules();
    Ok(match bank.redis() {
        None => {
            let attempt = Arc::new(attempt);
            let told = Arc::clone(&attempt);
            db.write_with(
                move |tx| embedded::attempt(tx, &attempt, rules),
                move |decision, exchange| answer(decision.map_err(LedgerError::from), &told, exchange.session()),
            )
        }
        Some(_) => later(move |mut responder| {
            let told = attempt.clone();
            let answer = move |decision| {
                let reply = answer(decision, &told, responder.session());
                responder.send(reply);
            };
            if let Some(redis) = bank.redis() {
                redis.attempt(attempt, rules, Box::new(answer));
            }
        }),
    })
}

/// The reply if a ledger fails.
fn failed(error: LedgerError) -> Error {
    match error {
        LedgerError::Busy => Error::busy("too many attempts wait"),
        LedgerError::Failed(why) => Error::internal(why),
    }
}

/// Stores the verdict in the session, and redirects the client.
fn answer(
    decision: Result<Decision, LedgerError>,
    attempt: &Attempt,
    session: Option<&mut SessionData>,
) -> Result<Redirect, Error> {
    let decision = decision.map_err(failed)?;
    let session = session.ok_or_else(|| Error::internal("a login without a session"))?;
    match decision.verdict {
        AttemptVerdict::Success => {
            begin(session, attempt, decision.previous)?;
            Ok(Redirect::found("/mypage"))
        }
        refused => {
            notice(session, refused.notice().unwrap_or_default())?;
            Ok(Redirect::found("/"))
        }
    }
}

/// Sets the login page's notice, replacing one that was not shown yet.
fn notice(session: &mut SessionData, text: &str) -> Result<(), SessionError> {
    session.take_flashes();
    session.flash(NOTICE, text)
}

/// Logs a customer in: a new session with the previous login, or with this one if it is the first.
fn begin(session: &mut SessionData, attempt: &Attempt, previous: Option<Login>) -> Result<(), SessionError> {
    let Attempt { at, login, address, .. } = attempt;
    let (last_at, last_address) = match &previous {
        Some(Login { at, address }) => (at, address),
        None => (at, address),
    };
    session.take_flashes();
    session.renew()?;
    let customer =
        Customer { login: login.into(), last_at: clock::local(*last_at).into(), last_address: last_address.into() };
    session.set(CUSTOMER, &customer)
}

fn log_out(session: Session<'_>) -> Redirect {
    session.clear();
    Redirect::found("/")
}

fn my_page(session: Session<'_>) -> Result<Response, SessionError> {
    let Some(Customer { login, last_at, last_address }) = session.get(CUSTOMER)? else {
        session.take_flashes();
        session.flash(NOTICE, MUST_LOG_IN)?;
        return Ok(Redirect::found("/").respond());
    };
    let page = MyPage { login: &login, last_at: &last_at, last_address: &last_address };
    Ok(Html(page).respond())
}

fn report(Shared(bank): Shared<Bank>) -> Result<Json<LockReport>, Error> {
    bank.ledger().report(bank.rules()).map(Json).map_err(failed)
}
