//! The contract of the pages through real sockets, with either ledger.

use crate::model::Model;
use crate::server::{Server, USERS};
use crate::visitor::Visitor;
use bank::attempt::{Attempt, AttemptVerdict, LockReport, Rules};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;

const RULES: Rules = Rules { ban_after: 10, lock_after: 3 };

/// Runs a check with the embedded ledger, and with the ledger in Redis if there is a redis-server.
fn with_both(check: impl Fn(&Server)) {
    check(&Server::embedded());
    if let Some(server) = Server::redis() {
        check(&server);
    }
}

#[track_caller]
fn check_report(server: &Server, banned: &[&str], locked: &[&str]) {
    let reply = server.visitor("192.0.2.250").get("/report");
    assert_eq!((reply.status, reply.header("Content-Type")), (200, Some("application/json")));
    let report: LockReport = serde_json::from_slice(&reply.body).unwrap();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(report, LockReport { banned_ips: names(banned), locked_users: names(locked) });
}

/// Checks the target of a redirect.
#[track_caller]
fn check_sent_to(reply: &crate::visitor::Reply, place: &str) {
    assert_eq!((reply.status, reply.header("Location")), (302, Some(place)));
}

#[test]
fn the_index_page_has_the_form_and_what_it_refers_to() {
    let server = Server::embedded();
    let page = server.visitor("192.0.2.1").get("/");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
    for part in [
        "action=\"/login\"",
        "name=\"login\"",
        "name=\"password\"",
        "type=\"submit\"",
        "href=\"/stylesheets/bootstrap.min.css\"",
        "href=\"/stylesheets/bootflat.min.css\"",
        "href=\"/stylesheets/isucon-bank.css\"",
        "src=\"/images/isucon-bank.png\"",
    ] {
        assert!(page.text().contains(part), "{part}");
    }
    assert_eq!(page.element("notice-message"), None);
}

#[test]
fn a_customer_sees_the_login_before_this_one_and_first_the_login_itself() {
    with_both(|server| {
        let mut first = server.visitor("192.0.2.1");
        check_sent_to(&first.log_in("user1", "password1"), "/mypage");
        let page = first.get("/mypage");
        assert_eq!((page.status, page.element("last-logined-ip").as_deref()), (200, Some("192.0.2.1")));
        let at = page.element("last-logined-at").unwrap().to_owned();
        assert!(bank::clock::seconds(&at).is_some(), "{at}");

        let mut second = server.visitor("2001:db8::1");
        check_sent_to(&second.log_in("user1", "password1"), "/mypage");
        let page = second.get("/mypage");
        assert_eq!(
            (page.element("last-logined-ip").as_deref(), page.element("last-logined-at").as_deref()),
            (Some("192.0.2.1"), Some(&*at))
        );
        check_sent_to(&second.log_in("user1", "password1"), "/mypage");
        assert_eq!(second.get("/mypage").element("last-logined-ip").as_deref(), Some("2001:db8::1"));
        // An earlier session still shows the same.
        assert_eq!(first.get("/mypage").element("last-logined-ip").as_deref(), Some("192.0.2.1"));
    });
}

#[test]
fn without_a_session_the_page_is_refused_with_a_notice_that_is_shown_once() {
    let server = Server::embedded();
    let mut visitor = server.visitor("192.0.2.1");
    check_sent_to(&visitor.get("/mypage"), "/");
    assert_eq!(visitor.get("/").element("notice-message").as_deref(), Some("You must be logged in"));
    assert_eq!(visitor.get("/").element("notice-message"), None);
}

#[test]
fn after_the_logout_the_page_is_refused() {
    let server = Server::embedded();
    let mut visitor = server.visitor("192.0.2.1");
    visitor.log_in("user1", "password1");
    check_sent_to(&visitor.post("/logout", ""), "/");
    check_sent_to(&visitor.get("/mypage"), "/");
}

#[test]
fn the_third_failure_locks_a_user_and_the_right_password_does_not_help() {
    with_both(|server| {
        let mut visitor = server.visitor("192.0.2.1");
        for _ in 0..2 {
            assert_eq!(visitor.refused("user1", "guess"), "Wrong username or password");
        }
        check_sent_to(&server.visitor("192.0.2.2").log_in("user1", "password1"), "/mypage");
        for _ in 0..3 {
            assert_eq!(visitor.refused("user1", "guess"), "Wrong username or password");
        }
        assert_eq!(visitor.refused("user1", "password1"), "This account is locked.");
        assert_eq!(server.visitor("192.0.2.3").refused("user1", "password1"), "This account is locked.");
        check_report(server, &[], &["user1"]);
    });
}

#[test]
fn only_the_last_notice_is_shown_and_a_login_takes_it_away() {
    with_both(|server| {
        let mut visitor = server.visitor("192.0.2.1");
        for _ in 0..3 {
            check_sent_to(&visitor.log_in("user1", "guess"), "/");
        }
        check_sent_to(&visitor.log_in("user1", "password1"), "/");
        assert_eq!(visitor.get("/").element("notice-message").as_deref(), Some("This account is locked."));
        assert_eq!(visitor.get("/").element("notice-message"), None);
        for _ in 0..200 {
            check_sent_to(&visitor.get("/mypage"), "/");
        }
        check_sent_to(&visitor.log_in("user2", "password2"), "/mypage");
        assert_eq!(visitor.get("/").element("notice-message"), None);
    });
}

#[test]
fn the_tenth_failure_bans_an_address_unknown_logins_included() {
    with_both(|server| {
        let mut visitor = server.visitor("192.0.2.1");
        for number in 0..10 {
            assert_eq!(visitor.refused(&format!("nobody{number}"), "guess"), "Wrong username or password");
        }
        assert_eq!(visitor.refused("user1", "password1"), "You're banned.");
        check_sent_to(&server.visitor("192.0.2.2").log_in("user1", "password1"), "/mypage");
        check_report(server, &["192.0.2.1"], &[]);
    });
}

#[test]
fn only_a_trusted_proxy_says_where_a_client_is() {
    let server = Server::start(None, &["--ban-after", "2", "--lock-after", "1"]);
    for number in 0..2 {
        server.visitor(&format!("192.0.2.{number}")).log_in("nobody", "guess");
    }
    check_report(&server, &["127.0.0.1"], &[]);
}

#[test]
fn forged_and_cut_cookies_are_no_session() {
    let server = Server::embedded();
    let mut visitor = server.visitor("192.0.2.1");
    visitor.log_in("user1", "password1");
    let (name, value) = visitor.cookies.iter().next().map(|(name, value)| (name.clone(), value.clone())).unwrap();
    let middle = value.len() / 2;
    let other = if value.as_bytes()[middle] == b'A' { "B" } else { "A" };
    let forged = format!("{}{other}{}", &value[..middle], &value[middle + 1..]);
    for wrong in [forged.as_str(), &value[..middle], "", "{}", "user_id=1"] {
        let mut thief = Visitor { cookies: [(name.clone(), wrong.to_owned())].into(), ..visitor.clone() };
        check_sent_to(&thief.get("/mypage"), "/");
    }
    assert_eq!(visitor.get("/mypage").status, 200);
}

#[test]
fn a_form_of_a_foreign_page_is_refused_and_counts_for_nobody() {
    let server = Server::embedded();
    for fields in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let mut visitor = Visitor { fields: fields.to_owned(), ..server.visitor("192.0.2.1") };
        for _ in 0..4 {
            assert_eq!(visitor.log_in("user1", "guess").status, 403);
        }
    }
    check_report(&server, &[], &[]);
    let own = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.address);
    let mut visitor = Visitor { fields: own, ..server.visitor("192.0.2.1") };
    check_sent_to(&visitor.log_in("user1", "password1"), "/mypage");
}

#[test]
fn odd_forms_are_refused_and_odd_logins_are_nobody() {
    let server = Server::embedded();
    let mut visitor = server.visitor("192.0.2.1");
    for form in ["", "login=user1", "password=x", "login=%ff&password=x", "login=%zz&password=x"] {
        let status = visitor.post("/login", form).status;
        assert!((400..500).contains(&status), "{form}: {status}");
    }
    check_report(&server, &[], &[]);
    for login in ["", "%00", "%F0%9F%A6%85", "user1%09", &"x".repeat(3000)] {
        assert_eq!(visitor.refused(login, "guess"), "Wrong username or password", "{login}");
    }
}

#[test]
fn assets_come_byte_for_byte_from_the_program_or_from_a_folder() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("public");
    let names = ["stylesheets/bootstrap.min.css", "stylesheets/isucon-bank.css", "images/isucon-bank.png"];
    let server = Server::embedded();
    for name in names {
        let reply = server.visitor("192.0.2.1").get(&format!("/{name}"));
        assert_eq!((reply.status, reply.body), (200, std::fs::read(own.join(name)).unwrap()), "{name}");
    }
    assert_eq!(server.visitor("192.0.2.1").get("/images/../bank.toml").status, 404);
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, name).unwrap();
    }
    let other = Server::start(None, &["--assets", folder.path().to_str().unwrap()]);
    for name in names {
        let reply = other.visitor("192.0.2.1").get(&format!("/{name}"));
        assert_eq!((reply.status, reply.text()), (200, name));
    }
}

/// Logins from many addresses, compared with the model.
#[test]
fn a_random_walk_of_logins_is_answered_as_the_model_says() {
    with_both(|server| {
        let (seed, steps) = (11, if server.is_redis() { 300 } else { 150 });
        let (mut random, mut model) = (ChaCha8Rng::seed_from_u64(seed), Model::default());
        for step in 0..steps {
            let user = random.random_range(0..=USERS);
            let is_right = user > 0 && random.random_bool(0.5);
            let address = format!("192.0.2.{}", random.random_range(0..8));
            let password = if is_right { format!("password{user}") } else { "guess".to_owned() };
            let login = format!("user{user}");
            let attempt = Attempt { at: 0, user: Some(user).filter(|user| *user > 0), login, address, is_right };
            let verdict = model.attempt(&attempt, RULES).verdict;
            let reply = server.visitor(&attempt.address).log_in(&attempt.login, &password);
            let place = if verdict == AttemptVerdict::Success { "/mypage" } else { "/" };
            assert_eq!(reply.header("Location"), Some(place), "seed {seed}, step {step}: {attempt:?}");
        }
        let reply = server.visitor("192.0.2.250").get("/report");
        assert_eq!(serde_json::from_slice::<LockReport>(&reply.body).unwrap(), model.report(RULES), "seed {seed}");
    });
}
