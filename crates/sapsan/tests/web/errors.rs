//! Failures as replies: pages, problem documents, panics.

use super::client::{Client, get, request, started};
use sapsan::{App, Error, Status};

fn fails() -> Result<&'static str, std::io::Error> {
    Err(std::io::Error::other("the secret cause"))
}

fn app() -> App {
    App::new()
        .get("/fails", fails)
        .get("/panics", || -> &'static str { panic!("the secret text") })
        .get("/teapot", || Error::new(Status(422), "<not> this").with_header("X-Why", "so"))
        .get("/fine", || "fine")
}

const HTML: &str = "Accept: text/html,application/xhtml+xml\r\n";

#[test]
fn an_error_is_a_problem_document_and_to_a_browser_a_page() {
    let running = started(app());
    let problem = get(&running, "/teapot");
    assert_eq!((problem.status, problem.header("Content-Type")), (422, Some("application/problem+json")));
    assert_eq!(problem.header("X-Why"), Some("so"));
    assert_eq!(problem.body, r#"{"title":"Unprocessable Content","status":422,"detail":"<not> this"}"#);
    let page = Client::to(running.address()).ask(&request("GET", "/teapot", HTML));
    assert_eq!((page.status, page.header("Content-Type")), (422, Some("text/html; charset=utf-8")));
    assert!(page.body.contains("<p>&lt;not&gt; this</p>"), "{}", page.body);
    let missing = Client::to(running.address()).ask(&request("GET", "/nowhere", HTML));
    assert!(missing.status == 404 && missing.body.contains("<h1>404 Not Found</h1>"), "{missing:?}");
    running.stop();
}

#[test]
fn an_application_has_its_own_page() {
    let running = started(app().error_page(|error| format!("<i>{}</i>", error.status().0)));
    assert_eq!(Client::to(running.address()).ask(&request("GET", "/nowhere", HTML)).told(), "404 <i>404</i>");
    running.stop();
}

#[test]
fn a_cause_and_a_panic_are_500_and_tell_the_client_nothing() {
    let running = started(app());
    let mut client = Client::to(running.address());
    for target in ["/fails", "/panics"] {
        for fields in ["", HTML] {
            let reply = client.ask(&request("GET", target, fields));
            assert_eq!(reply.status, 500, "{target}");
            assert!(!reply.body.contains("secret") && !reply.head.contains("secret"), "{reply:?}");
        }
    }
    assert_eq!(client.ask(&request("GET", "/fine", "")).told(), "200 fine");
    running.stop();
}
