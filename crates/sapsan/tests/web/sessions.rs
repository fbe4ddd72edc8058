//! Sessions from a client's side: what a cookie brings, what a reply says, what is no session.

use super::client::{Client, Reply, get, request, started};
use sapsan::{App, Error, Keys, Later, Path, Redirect, RunningApp, Session, Sessions, Status, later};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

fn keys(byte: u8) -> Keys {
    Keys::from_bytes(&[byte; 32]).unwrap()
}

fn app(sessions: Sessions) -> App {
    App::new()
        .sessions(sessions)
        .get("/set/{user}", |session: Session<'_>, Path(user): Path<u32>| session.set("user", &user))
        .get("/user", |session: Session<'_>| Ok::<_, Error>(format!("{:?}", session.get::<u32>("user")?)))
        .get("/large", |session: Session<'_>| session.set("large", &"x".repeat(4000)))
        .get("/full", |session: Session<'_>| session.set("full", &"x".repeat(2900)))
        .get("/clear", |session: Session<'_>| session.clear())
        .get("/renew", |session: Session<'_>| {
            session.renew()?;
            Ok::<_, Error>(format!("{:?}", session.id()))
        })
        .get("/fail", |session: Session<'_>| {
            session.set("user", &666)?;
            Err::<(), _>(Error::internal("half done"))
        })
        .get("/refuse", |session: Session<'_>| {
            session.flash("notice", "no")?;
            Err::<(), _>(Error::forbidden("no"))
        })
        .get("/submit", |session: Session<'_>| {
            session.flash("notice", "It's <sent>; \"й\"")?;
            Ok::<_, Error>(Redirect::found("/notice"))
        })
        .get("/notice", |session: Session<'_>| session.take_flash("notice").unwrap_or_else(|| "none".to_owned()))
        .get("/late", late)
        .get("/plain", || "plain")
}

fn late(_session: Session<'_>) -> Later {
    later(|mut responder| {
        std::thread::spawn(move || {
            let set = responder.session().map(|session| session.set("user", &9));
            responder.send((Status(200), format!("{}", matches!(set, Some(Ok(()))))));
        });
    })
}

/// The cookies that a browser has of one application.
struct Browser<'a> {
    running: &'a RunningApp,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    fn new(running: &'a RunningApp) -> Browser<'a> {
        Browser { running, cookie: None }
    }

    fn with(running: &'a RunningApp, cookie: &str) -> Browser<'a> {
        Browser { running, cookie: Some(cookie.to_owned()) }
    }

    fn get(&mut self, target: &str) -> Reply {
        let field = self
            .cookie
            .as_ref()
            .map_or_else(String::new, |cookie| format!("Cookie: theme=dark; {cookie}; x=\"y\"\r\n"));
        let reply = Client::to(self.running.address()).ask(&request("GET", target, &field));
        if let Some(field) = reply.header("Set-Cookie") {
            let pair = field.split(';').next().unwrap();
            self.cookie = (!field.contains("Max-Age=0")).then(|| pair.to_owned());
        }
        reply
    }

    #[track_caller]
    fn check_user(&mut self, expected: &str) {
        let reply = self.get("/user");
        assert_eq!(reply.told(), format!("200 {expected}"));
        assert_eq!(reply.header("Set-Cookie"), None);
    }
}

#[test]
fn a_session_comes_back_and_is_sent_only_where_it_changed() {
    for sessions in [Sessions::signed(keys(1)), Sessions::encrypted(keys(1))] {
        let running = started(app(sessions));
        let mut browser = Browser::new(&running);
        browser.check_user("None");
        let reply = browser.get("/set/7");
        let field = reply.header("Set-Cookie").unwrap();
        assert!(field.starts_with("__Host-session="), "{field}");
        assert!(field.ends_with("; Path=/; Max-Age=1209600; HttpOnly; Secure; SameSite=Lax"), "{field}");
        assert_eq!(reply.header("Cache-Control"), Some("no-store"));
        browser.check_user("Some(7)");
        assert_eq!(browser.get("/set/7").header("Set-Cookie"), None, "the same value");
        assert!(browser.get("/set/8").header("Set-Cookie").is_some());
        browser.check_user("Some(8)");
        assert_eq!(browser.get("/plain").header("Set-Cookie"), None);
        running.stop();
    }
}

#[test]
fn cookies_that_are_not_ours_are_no_session() {
    let running = started(app(Sessions::signed(keys(1)).plain_http()));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let cookie = browser.cookie.clone().unwrap();
    let other = started(app(Sessions::signed(keys(2)).plain_http()));
    Browser::with(&other, &cookie).check_user("None");
    let swapped = if cookie.ends_with('A') { 'B' } else { 'A' };
    let forged = format!("{}{swapped}{}", &cookie[..20], &cookie[21..]);
    assert_ne!(forged, cookie);
    let oversized = format!("{cookie}{}", "A".repeat(4000));
    for wrong in
        [&forged, &cookie[..cookie.len() - 1], "session=", "session", "session=\"\"", &oversized, "session=%00;"]
    {
        Browser::with(&running, wrong).check_user("None");
    }
    // Planted by another host of the domain, before ours.
    Browser::with(&running, &format!("session=planted; {cookie}")).check_user("Some(7)");
    other.stop();
    running.stop();
}

#[test]
fn a_rotated_key_keeps_sessions_and_signs_them_anew() {
    let [old, both, new] =
        [keys(1), keys(2).and_older(keys(1)).unwrap(), keys(2)].map(|keys| started(app(Sessions::signed(keys))));
    let mut browser = Browser::new(&old);
    browser.get("/set/7");
    browser.running = &both;
    let reply = browser.get("/user");
    assert_eq!(reply.told(), "200 Some(7)");
    assert!(reply.header("Set-Cookie").is_some(), "signed by the first key");
    browser.check_user("Some(7)");
    browser.running = &new;
    browser.check_user("Some(7)");
    browser.running = &old;
    browser.check_user("None");
    [old, both, new].into_iter().for_each(RunningApp::stop);
}

/// Seconds since 1970, as the tests of expiry have them.
static CLOCK: AtomicU64 = AtomicU64::new(1_800_000_000);

#[test]
fn a_session_in_use_is_renewed_now_and_then_and_else_expires() {
    let clock = || SystemTime::UNIX_EPOCH + Duration::from_secs(CLOCK.load(Ordering::SeqCst));
    let sessions = Sessions::signed(keys(1)).idle(Duration::from_secs(1000)).clock(clock);
    let running = started(app(sessions));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let first = browser.cookie.clone().unwrap();
    CLOCK.fetch_add(99, Ordering::SeqCst);
    browser.check_user("Some(7)");
    CLOCK.fetch_add(1, Ordering::SeqCst);
    assert_eq!(browser.get("/plain").header("Set-Cookie"), None, "nobody looked at the session");
    assert!(browser.get("/user").header("Set-Cookie").is_some_and(|field| field.contains("Max-Age=1000;")));
    browser.check_user("Some(7)");
    CLOCK.fetch_add(900, Ordering::SeqCst);
    Browser::with(&running, &first).check_user("None");
    assert_eq!(browser.get("/user").told(), "200 Some(7)");
    running.stop();
}

#[test]
fn a_value_that_does_not_fit_fails_the_request_and_keeps_the_session() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let reply = browser.get("/large");
    assert_eq!((reply.status, reply.header("Set-Cookie")), (500, None));
    assert!(!reply.body.contains("large"), "the cause is for the log: {}", reply.body);
    let reply = browser.get("/full");
    let pair = reply.header("Set-Cookie").and_then(|field| field.split(';').next()).unwrap();
    assert!((3900..=4000).contains(&pair.len()), "{}", pair.len());
    browser.check_user("Some(7)");
    running.stop();
}

#[test]
fn a_cleared_session_is_gone_and_a_kept_copy_is_not() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let copy = browser.cookie.clone().unwrap();
    let field = browser.get("/clear").header("Set-Cookie").unwrap().to_owned();
    assert!(field.starts_with("__Host-session=; Path=/; Max-Age=0; "), "{field}");
    assert_eq!(browser.cookie, None);
    browser.check_user("None");
    assert_eq!(browser.get("/clear").header("Set-Cookie"), None);
    Browser::with(&running, &copy).check_user("Some(7)");
    running.stop();
}

#[test]
fn a_renewed_session_has_another_id() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let ids = [browser.get("/renew").body, browser.get("/renew").body];
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.starts_with("Some(") && id.len() == 38), "{ids:?}");
    browser.check_user("Some(7)");
    running.stop();
}

#[test]
fn an_internal_error_changes_no_session_and_a_refusal_does() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    browser.get("/set/7");
    let reply = browser.get("/fail");
    assert_eq!((reply.status, reply.header("Set-Cookie")), (500, None));
    browser.check_user("Some(7)");
    assert_eq!(browser.get("/refuse").status, 403);
    assert_eq!(browser.get("/notice").body, "no");
    running.stop();
}

#[test]
fn a_flash_message_is_seen_once() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    assert_eq!(browser.get("/submit").header("Location"), Some("/notice"));
    let reply = browser.get("/notice");
    assert_eq!(reply.body, "It's <sent>; \"й\"");
    assert!(reply.header("Set-Cookie").is_some_and(|field| field.contains("Max-Age=0")), "nothing is left");
    assert_eq!(browser.get("/notice").body, "none");
    running.stop();
}

#[test]
fn a_late_reply_takes_the_session_along() {
    let running = started(app(Sessions::signed(keys(1))));
    let mut browser = Browser::new(&running);
    assert_eq!(browser.get("/late").told(), "200 true");
    browser.check_user("Some(9)");
    running.stop();
}

#[test]
fn an_application_without_keys_for_its_sessions_does_not_start() {
    let start = |app: App| app.threads(1).start("127.0.0.1:0").map(|_| ()).unwrap_err().to_string();
    let fault = start(App::new().get("/", |_: Session<'_>| ()));
    assert!(fault.contains("route \"GET /\": sessions are missing: give their keys by App::sessions"), "{fault}");
    let fault = start(app(Sessions::signed(keys(1)).name("a b")));
    assert!(fault.contains("sessions: the cookie's name is empty or has a byte outside"), "{fault}");
    assert!(!fault.contains("sessions are missing"), "one mistake is told once: {fault}");
    let running = started(App::new().get("/", || "fine"));
    assert_eq!(get(&running, "/").told(), "200 fine");
    running.stop();
}
