//! What is refused and said by default: pages of other origins, forms without a token, security headers.

use super::client::{Client, Reply, get, request, started, with_body};
use sapsan::{
    App, Error, FormTokens, Keys, Method, Origins, Response, RunningApp, SecurityHeaders, Session, Sessions, Status,
    later,
};

fn app() -> App {
    let app = App::new().get("/", || "page").post("/", || "changed").post("/hooks/{name}", || "called");
    [Method::Put, Method::Patch, Method::Delete]
        .into_iter()
        .fold(app, |app, method| app.route(method, "/", || "changed"))
}

fn ask(running: &RunningApp, method: &str, target: &str, fields: &str) -> Reply {
    Client::to(running.address()).ask(&request(method, target, fields))
}

#[track_caller]
fn check(running: &RunningApp, fields: &str, expected: u16) {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert_eq!(ask(running, method, "/", fields).status, expected, "{method} {fields}");
    }
    assert_eq!(ask(running, "GET", "/", fields).status, 200, "GET {fields}");
}

#[test]
fn pages_of_other_origins_cannot_send_what_changes_something() {
    let running = started(app());
    for fields in [
        "",
        "Sec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Sec-Fetch-Site: same-origin\r\nOrigin: https://proxy-changed-the-host.example\r\n",
        "Origin: http://localhost\r\n",
        "Origin: https://LOCALHOST:443\r\n",
        "Sec-Fetch-Site:\r\nOrigin: http://localhost\r\n",
    ] {
        check(&running, fields, 200);
    }
    for fields in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost\r\n",
        "Sec-Fetch-Site: Same-Origin\r\n",
        "Origin: https://evil.example\r\n",
        "Origin: http://localhost:8080\r\n",
        "Origin: http://localhost.evil.example\r\n",
        "Origin: null\r\n",
        "Origin:\r\n",
    ] {
        check(&running, fields, 403);
    }
    let form = with_body("POST", "/", "application/x-www-form-urlencoded", "a=b")
        .replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    let refused = Client::to(running.address()).ask(&form);
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("a page of another site sent this request"), "{}", refused.body);
    assert_eq!(refused.header("X-Frame-Options"), Some("DENY"), "a refusal has the headers too");
    running.stop();
}

#[test]
fn origins_can_be_named_routes_exempt_and_all_let_in() {
    let running = started(app().origins(Origins::same().trust("https://shop.example").exempt("/hooks/{name}")));
    check(&running, "Sec-Fetch-Site: cross-site\r\nOrigin: https://shop.example\r\n", 200);
    check(&running, "Origin: https://shop.example\r\n", 200);
    for origin in ["http://shop.example", "https://shop.example.evil.example", "https://shop.example:8443"] {
        check(&running, &format!("Origin: {origin}\r\n"), 403);
    }
    assert_eq!(ask(&running, "POST", "/hooks/a", "Sec-Fetch-Site: cross-site\r\n").status, 200);
    assert_eq!(ask(&running, "POST", "/hooks/a/b", "Sec-Fetch-Site: cross-site\r\n").status, 403);
    running.stop();
    let running = started(app().origins(Origins::any()));
    check(&running, "Sec-Fetch-Site: cross-site\r\nOrigin: null\r\n", 200);
    running.stop();
}

/// The token of a form and the cookie of its session.
fn form(running: &RunningApp, cookie: &str) -> (String, String) {
    let reply = ask(running, "GET", "/form", &format!("Cookie: {cookie}\r\n"));
    let field = reply.header("Set-Cookie").map_or(cookie, |field| field.split(';').next().unwrap());
    (reply.body.clone(), field.to_owned())
}

fn submit(running: &RunningApp, target: &str, cookie: &str, fields: &str, body: &str) -> Reply {
    let request = with_body("POST", target, "application/x-www-form-urlencoded", body);
    Client::to(running.address()).ask(&request.replace("\r\n\r\n", &format!("\r\nCookie: {cookie}\r\n{fields}\r\n")))
}

#[test]
fn a_form_needs_a_token_of_its_session_where_that_is_asked_for() {
    let sessions = || Sessions::signed(Keys::from_bytes(&[1; 32]).unwrap());
    let running = started(
        app()
            .sessions(sessions())
            .form_tokens(FormTokens::new().exempt("/hooks/{*name}"))
            .get("/form", |session: Session<'_>| session.form_token()),
    );
    let (token, cookie) = form(&running, "");
    let (second, same) = form(&running, &cookie);
    assert!(same == cookie && second != token, "the session is there, the token another text");
    for token in [&token, &second] {
        assert_eq!(submit(&running, "/", &cookie, "", &format!("a=b&csrf_token={token}")).status, 200);
        assert_eq!(submit(&running, "/", &cookie, &format!("X-CSRF-Token: {token}\r\n"), "a=b").status, 200);
    }
    let (other, other_cookie) = form(&running, "");
    for (cookie, fields, body) in [
        (&cookie, "", "a=b".to_owned()),
        (&cookie, "", "csrf_token=".to_owned()),
        (&cookie, "", format!("csrf_token={other}")),
        (&other_cookie, "", format!("csrf_token={token}")),
        (&String::new(), "", format!("csrf_token={token}")),
        (&cookie, "X-CSRF-Token: x\r\n", format!("csrf_token={token}")),
    ] {
        let refused = submit(&running, "/", cookie, fields, &body);
        assert_eq!(refused.status, 403, "{fields} {body}");
        assert!(refused.body.contains("load the page again"), "{}", refused.body);
    }
    assert_eq!(submit(&running, "/hooks/a", "", "", "a=b").status, 200);
    running.stop();
    let fault = app().form_tokens(FormTokens::new()).start("127.0.0.1:0").map(|_| ()).unwrap_err().to_string();
    assert!(fault.contains("form tokens are of a session: give keys by App::sessions"), "{fault}");
}

const NAMES: [&str; 4] = ["X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Content-Security-Policy"];

#[track_caller]
fn check_headers(reply: &Reply, expected: [Option<&str>; 4]) {
    assert_eq!(NAMES.map(|name| reply.header(name)), expected, "{}", reply.head);
    for name in NAMES {
        assert!(reply.head.matches(name).count() <= 1, "{}", reply.head);
    }
}

#[test]
fn every_reply_has_security_headers() {
    let policy = "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'";
    let defaults = [Some("nosniff"), Some("DENY"), Some("same-origin"), Some(policy)];
    let late = || later(|responder| responder.send("late"));
    let own =
        || Response::empty(Status(204)).with_header("content-security-policy", "sandbox").with_header("X-Other", "1");
    let app = app()
        .get("/late", late)
        .get("/own", own)
        .get("/panic", || {
            if true {
                panic!("as it is to")
            }
        })
        .get("/error", || Err::<(), _>(Error::internal("cause")));
    let running = started(app);
    for (target, status) in [("/", 200), ("/late", 200), ("/error", 500), ("/panic", 500), ("/none", 404)] {
        let reply = get(&running, target);
        assert_eq!(reply.status, status);
        check_headers(&reply, defaults);
        assert_eq!(reply.header("Strict-Transport-Security"), None);
    }
    let reply = get(&running, "/own");
    assert_eq!((reply.header("Content-Security-Policy"), reply.header("X-Other")), (Some("sandbox"), Some("1")));
    assert_eq!(reply.head.to_lowercase().matches("content-security-policy").count(), 1, "what the handler says counts");
    assert_eq!(reply.header("X-Frame-Options"), Some("DENY"));
    running.stop();
}

#[test]
fn security_headers_can_be_changed_and_switched_off() {
    let headers = SecurityHeaders::new()
        .content_security_policy("default-src *")
        .strict_transport_security(60)
        .without("x-frame-options")
        .set("Permissions-Policy", "camera=()");
    let running = started(app().security_headers(headers));
    let reply = get(&running, "/");
    check_headers(&reply, [Some("nosniff"), None, Some("same-origin"), Some("default-src *")]);
    assert_eq!(reply.header("Strict-Transport-Security"), Some("max-age=60"));
    assert_eq!(reply.header("Permissions-Policy"), Some("camera=()"));
    running.stop();
    let running = started(app().security_headers(SecurityHeaders::none()));
    check_headers(&get(&running, "/"), [None; 4]);
    running.stop();
    let wrong = app().security_headers(SecurityHeaders::new().referrer_policy("a\r\nb"));
    let fault = wrong.start("127.0.0.1:0").map(|_| ()).unwrap_err().to_string();
    assert!(fault.contains("security headers: the header field \"Referrer-Policy\""), "{fault}");
}
