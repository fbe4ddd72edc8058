//! Functions around handlers, and layers: their order, what they see, and late replies.

use super::client::{Client, get, request, started};
use sapsan::{App, Exchange, Head, Layer, Next, Path, Request, Respond, Response, State, Status, later};

struct Mark(&'static str);

impl Layer for Mark {
    fn before(&self, request: &Request<'_>) -> Option<Response> {
        let mut exchange = request.exchange();
        let before = exchange.remove::<String>().unwrap_or_default();
        exchange.insert(before + self.0);
        (request.header("X-Stop") == Some(self.0)).then(|| (Status(403), "stopped").respond())
    }

    fn behind(&self, exchange: &mut Exchange, response: &mut Response, head: &mut Head<'_>) {
        let before = exchange.get::<String>().cloned().unwrap_or_default();
        head.header("X-Layer", &format!("{} {before} {}", self.0, response.status().0));
    }
}

fn outer(request: &Request<'_>, next: Next<'_>) -> Response {
    if request.path() == "/closed" {
        return (Status(401), "closed").respond();
    }
    next.run(request).with_header("X-Around", "outer")
}

fn inner(request: &Request<'_>, next: Next<'_>) -> Response {
    let response = next.run(request);
    let told = format!("inner {} {}", response.status().0, response.is_late());
    response.with_header("X-Around", told)
}

fn app() -> App {
    App::new()
        .layer(Mark("a"))
        .layer(Mark("b"))
        .around(outer)
        .around(inner)
        .get("/now", || "now")
        .get("/panics", || -> &'static str { panic!("as it is to") })
        .get("/late", || later(|responder| drop(std::thread::spawn(|| responder.send((Status(201), "late"))))))
}

fn fields<'r>(reply: &'r super::client::Reply, name: &str) -> Vec<&'r str> {
    let fields = reply.head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(field, _)| *field == name).map(|(_, value)| value).collect()
}

#[test]
fn functions_stand_around_in_the_order_in_which_they_were_added() {
    let running = started(app());
    assert_eq!(fields(&get(&running, "/now"), "X-Around"), ["inner 200 false", "outer"]);
    assert_eq!(fields(&get(&running, "/late"), "X-Around"), ["inner 202 true", "outer"]);
    assert_eq!(fields(&get(&running, "/nowhere"), "X-Around"), ["inner 404 false", "outer"]);
    let closed = get(&running, "/closed");
    assert_eq!((closed.told().as_str(), fields(&closed, "X-Around").len()), ("401 closed", 0));
    running.stop();
}

#[test]
fn a_nested_application_has_its_functions_around_its_routes_alone() {
    let admin = App::new()
        .state("the admin")
        .around(|request: &Request<'_>, next: Next<'_>| next.run(request).with_header("X-Admin", "yes"))
        .get("/", |name: State<'_, &'static str>| name.to_string())
        .get("/users/{id}", |Path(id): Path<u32>| id.to_string());
    let running = started(app().nest("/admin", admin));
    for (target, told) in [("/admin", "200 the admin"), ("/admin/users/7", "200 7")] {
        let reply = get(&running, target);
        assert_eq!((reply.told().as_str(), fields(&reply, "X-Admin")), (told, vec!["yes"]));
        assert_eq!(fields(&reply, "X-Around"), ["inner 200 false", "outer"], "those of the outer application");
    }
    assert!(fields(&get(&running, "/now"), "X-Admin").is_empty());
    running.stop();
}

#[test]
fn layers_see_every_request_first_and_every_reply_last() {
    let running = started(app());
    for (target, status) in [("/now", 200), ("/late", 201), ("/nowhere", 404), ("/closed", 401), ("/panics", 500)] {
        let reply = get(&running, target);
        assert_eq!(reply.status, status, "{target}");
        assert_eq!(fields(&reply, "X-Layer"), [format!("b ab {status}"), format!("a ab {status}")], "{target}");
    }
    let stopped = Client::to(running.address()).ask(&request("GET", "/now", "X-Stop: a\r\n"));
    assert_eq!(stopped.told(), "403 stopped");
    assert_eq!(fields(&stopped, "X-Layer"), ["b a 403", "a a 403"]);
    assert!(fields(&stopped, "X-Around").is_empty());
    running.stop();
}
