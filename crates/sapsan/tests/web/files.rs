//! Static files of an application: embedded ones, those of a folder, and what is told where there are none.

use super::client::{Client, get, request, started};
use sapsan::{App, Error, Files};

#[test]
fn embedded_files_and_a_folder_are_served_beside_handlers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("site.css"), "body {}").unwrap();
    let large = "x".repeat(300_000);
    std::fs::write(folder.path().join("large.txt"), &large).unwrap();
    let running = started(
        App::new()
            .files("/assets/{*path}", Files::folder(folder.path()).unwrap())
            .files("/src/{*path}", Files::embedded(sapsan::embed!("src", "lib.rs", "database/mod.rs")))
            .get("/assets/handled", || "by a handler")
            .around(|request: &sapsan::Request<'_>, next: sapsan::Next<'_>| {
                next.run(request).with_header("A", "around")
            }),
    );
    let css = get(&running, "/assets/site.css");
    assert_eq!((css.status, css.body.as_str(), css.header("A")), (200, "body {}", Some("around")));
    assert_eq!(css.header("Content-Type"), Some("text/css; charset=utf-8"));
    assert!(get(&running, "/assets/large.txt").body == large);
    assert_eq!(get(&running, "/assets/handled").body, "by a handler");
    assert_eq!(get(&running, "/src/lib.rs").body, include_str!("../../src/lib.rs"));
    for path in ["/assets/none", "/assets/", "/assets/../site.css", "/src/main.rs", "/src/database"] {
        assert_eq!(get(&running, path).status, 404, "{path}");
    }
    running.stop();
}

#[test]
fn a_folder_has_an_index_and_a_missing_file_the_application_s_page() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>").unwrap();
    let running = started(
        App::new()
            .files("/{*path}", Files::folder(folder.path()).unwrap().index(true))
            .error_page(|error: &Error| format!("page {}", error.status().0)),
    );
    assert_eq!(get(&running, "/").body, "<p>");
    let mut client = Client::to(running.addresses()[0]);
    client.send(&request("GET", "/none", "Accept: text/html\r\n"));
    assert_eq!(client.reply().told(), "404 page 404");
    running.stop();
}

#[test]
fn a_folder_behind_another_parameter_is_answered_with_its_index() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "<p>").unwrap();
    std::fs::write(folder.path().join("tenant"), "a file named as the other parameter").unwrap();
    let files = Files::folder(folder.path()).unwrap().index(true);
    let running = started(App::new().files("/{tenant}/assets/{*path}", files));
    assert_eq!(get(&running, "/tenant/assets/").body, "<p>");
    running.stop();
}

#[test]
fn a_pattern_that_says_not_which_file_is_a_mistake() {
    let files = || Files::embedded(sapsan::embed!("src", "lib.rs"));
    for pattern in ["/assets", "/assets/{path}", "/assets/{*path}/more"] {
        let error = App::new().files(pattern, files()).start("127.0.0.1:0").err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("has to end in a parameter")), "{pattern}");
    }
}
