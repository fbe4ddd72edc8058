//! Sessions from cookie to cookie, without a server.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: u32 = 1_800_000_000;
const DAY: u32 = 86_400;

fn keys(byte: u8) -> Keys {
    Keys::from_bytes(&[byte; 32]).unwrap()
}

fn signed() -> Codec {
    Sessions::signed(keys(1)).build().unwrap()
}

fn both() -> [Codec; 2] {
    [signed(), Sessions::encrypted(keys(1)).build().unwrap()]
}

fn load(codec: &Codec, cookie: &str, now: u32) -> SessionData {
    codec.load_first([cookie.as_bytes()].into_iter(), now)
}

/// The `Set-Cookie` field that a reply sends, after `change`, to a client whose cookie has this value.
fn reply(codec: &Codec, cookie: &str, now: u32, change: impl FnOnce(&mut SessionData)) -> Option<String> {
    let mut data = load(codec, cookie, now);
    change(&mut data);
    codec.set_cookie(&data, now).unwrap()
}

/// The cookie's value in a `Set-Cookie` field.
#[track_caller]
fn value(field: Option<String>) -> String {
    let field = field.expect("a cookie is set");
    let pair = field.split(';').next().unwrap();
    pair.split_once('=').unwrap().1.to_owned()
}

/// The cookie of a session with one number.
fn cookie(codec: &Codec) -> String {
    value(reply(codec, "", NOW, |data| data.set("user", &7).unwrap()))
}

fn user(codec: &Codec, cookie: &str, now: u32) -> Option<u32> {
    load(codec, cookie, now).get("user").unwrap()
}

#[test]
fn what_is_set_comes_back_and_is_not_sent_again() {
    for codec in both() {
        let cookie = cookie(&codec);
        assert_eq!(user(&codec, &cookie, NOW + 1), Some(7));
        assert_eq!(reply(&codec, &cookie, NOW + 1, |data| data.set("user", &7).unwrap()), None, "the same value");
        assert_eq!(reply(&codec, &cookie, NOW + 1, |data| assert!(!data.remove("other"))), None);
        assert_eq!(reply(&codec, "", NOW, |data| assert!(data.is_empty())), None, "no session begins by itself");
    }
}

#[test]
fn the_cookie_has_the_attributes_that_were_set() {
    let field = reply(&signed(), "", NOW, |data| data.set("a", &1).unwrap()).unwrap();
    assert!(field.starts_with("__Host-session="), "{field}");
    assert!(field.ends_with("; Path=/; Max-Age=1209600; HttpOnly; Secure; SameSite=Lax"), "{field}");
    let codec = Sessions::signed(keys(1)).plain_http().path("/a").domain("b.c").until_browser_closes().build().unwrap();
    let field = reply(&codec, "", NOW, |data| data.set("a", &1).unwrap()).unwrap();
    assert!(
        field.starts_with("session=") && field.ends_with("; Path=/a; Domain=b.c; HttpOnly; SameSite=Lax"),
        "{field}"
    );
}

#[test]
fn a_value_of_another_type_is_an_error() {
    let codec = signed();
    let error = load(&codec, &cookie(&codec), NOW).get::<String>("user").unwrap_err();
    assert!(error.to_string().starts_with("session: the value of `user`: invalid type"), "{error}");
}

#[test]
fn every_flipped_bit_and_every_cut_ends_the_session() {
    for codec in both() {
        let cookie = cookie(&codec);
        for at in 0..cookie.len() {
            for bit in 0..7 {
                let mut forged = cookie.clone().into_bytes();
                forged[at] ^= 1 << bit;
                let forged = String::from_utf8(forged).unwrap();
                assert_eq!(user(&codec, &forged, NOW), None, "{forged}");
            }
            assert_eq!(user(&codec, &cookie[..at], NOW), None);
            assert_eq!(user(&codec, &cookie[at + 1..], NOW), None);
        }
        assert_eq!(user(&codec, &format!("{cookie}A"), NOW), None);
        assert_eq!(user(&codec, &format!("{cookie}="), NOW), None);
    }
}

#[test]
fn a_cookie_of_another_key_name_or_way_is_no_session() {
    let [signed, encrypted] = both();
    let other_name = Sessions::signed(keys(1)).name("other").build().unwrap();
    let other_key = Sessions::signed(keys(2)).build().unwrap();
    for from in [&other_name, &other_key, &encrypted] {
        assert_eq!(user(from, &cookie(from), NOW), Some(7));
        assert_eq!(user(&signed, &cookie(from), NOW), None);
    }
    assert_eq!(user(&encrypted, &cookie(&signed), NOW), None);
}

#[test]
fn a_session_under_an_older_key_is_sent_again_under_the_first() {
    let sessions = |keys| {
        [Sessions::signed(Keys::clone(&keys)), Sessions::encrypted(keys)].map(|sessions| sessions.build().unwrap())
    };
    let both_keys = keys(2).and_older(keys(1)).unwrap();
    for ((old, rotated), new) in sessions(keys(1)).iter().zip(&sessions(both_keys)).zip(&sessions(keys(2))) {
        let sent = value(reply(rotated, &cookie(old), NOW, |data| assert_eq!(data.get("user").unwrap(), Some(7))));
        assert_eq!(user(new, &sent, NOW), Some(7));
        assert_eq!(user(old, &sent, NOW), None);
        assert_eq!(reply(rotated, &sent, NOW, |_| {}), None);
    }
}

#[test]
fn a_session_ends_when_it_was_not_used_or_its_lifetime_is_over() {
    let sessions = Sessions::signed(keys(1)).idle(Duration::from_secs(1000)).lifetime(Duration::from_secs(2500));
    let codec = sessions.build().unwrap();
    let mut cookie = cookie(&codec);
    assert_eq!(user(&codec, &cookie, NOW + 999), Some(7));
    assert_eq!(user(&codec, &cookie, NOW + 1000), None);
    assert_eq!(user(&codec, &cookie, NOW - DAY), Some(7), "a clock that was set back");
    assert_eq!(reply(&codec, &cookie, NOW + 99, |_| {}), None, "less than a tenth of the idle time");
    for (now, age) in [(100, 1000), (1000, 1000), (1900, 600)] {
        let field = reply(&codec, &cookie, NOW + now, |_| {}).unwrap();
        assert!(field.contains(&format!("; Max-Age={age};")), "{field}");
        cookie = value(Some(field));
    }
    assert_eq!(user(&codec, &cookie, NOW + 2499), Some(7));
    assert_eq!(user(&codec, &cookie, NOW + 2500), None);
}

#[test]
fn what_does_not_fit_the_cookie_is_refused_where_it_is_set() {
    for codec in both() {
        let mut data = load(&codec, "", NOW);
        data.set("user", &7).unwrap();
        let error = data.set("text", &"x".repeat(4000)).unwrap_err().to_string();
        assert!(error.starts_with("session: `text` does not fit: a session's entries have at most 29"), "{error}");
        assert!(error.contains("the others have 8"), "{error}");
        let fits = (2900..3000).rev().find(|&bytes| data.set("text", &"x".repeat(bytes)).is_ok()).unwrap();
        // An entry that grows replaces the old one, whose bytes do not count.
        data.set("text", &"y".repeat(fits)).unwrap();
        data.set("text", &"y".repeat(fits + 1)).unwrap_err();
        data.flash("a", "").unwrap_err();
        assert_eq!(data.get::<String>("text").unwrap().unwrap(), "y".repeat(fits), "a refusal changes nothing");
        let field = codec.set_cookie(&data, NOW).unwrap().unwrap();
        let bytes = field.split(';').next().unwrap().len();
        assert!((3990..=4000).contains(&bytes), "{bytes}");
        assert_eq!(user(&codec, &value(Some(field)), NOW), Some(7));
    }
}

#[test]
fn names_and_values_that_cannot_be_are_refused() {
    let mut data = load(&signed(), "", NOW);
    data.set(&"a".repeat(64), &1).unwrap();
    let error = data.set(&"a".repeat(65), &1).unwrap_err().to_string();
    assert_eq!(error, format!("session: the name `{}` has 65 bytes; 1 to 64 are allowed", "a".repeat(65)));
    data.set("", &1).unwrap_err();
    data.flash("", "text").unwrap_err();
    let error = data.set("map", &BTreeMap::from([((1, 2), 3)])).unwrap_err().to_string();
    assert!(error.starts_with("session: the value of `map`: "), "{error}");
    assert_eq!(data.names().count(), 1);
}

#[test]
fn a_cleared_session_deletes_its_cookie_and_begins_anew() {
    let codec = signed();
    let cookie = cookie(&codec);
    let field = reply(&codec, &cookie, NOW, SessionData::clear).unwrap();
    assert!(field.starts_with("__Host-session=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970"), "{field}");
    assert!(field.ends_with("; HttpOnly; Secure; SameSite=Lax"), "browsers delete by name, path and prefix: {field}");
    assert_eq!(reply(&codec, "", NOW, SessionData::clear), None, "there was none");
    assert_eq!(reply(&codec, &cookie, NOW, |data| assert!(data.remove("user"))), Some(field), "nothing is left");
    let before = load(&codec, &cookie, NOW).id();
    let after = value(reply(&codec, &cookie, NOW, |data| {
        data.clear();
        data.set("user", &8).unwrap();
    }));
    assert_ne!(load(&codec, &after, NOW).id(), before);
    assert_eq!(user(&codec, &after, NOW), Some(8));
    // The documented limit of cookies: a copy of the old one is still valid.
    assert_eq!(user(&codec, &cookie, NOW), Some(7));
}

#[test]
fn a_renewed_session_has_another_id_and_lives_from_now_on() {
    let codec =
        Sessions::signed(keys(1)).idle(Duration::from_secs(100)).lifetime(Duration::from_secs(150)).build().unwrap();
    let first = cookie(&codec);
    let renewed = value(reply(&codec, &first, NOW + 90, |data| data.renew().unwrap()));
    assert_ne!(load(&codec, &first, NOW).id(), load(&codec, &renewed, NOW + 90).id());
    assert_eq!(user(&codec, &renewed, NOW + 180), Some(7));
    assert_eq!(reply(&codec, "", NOW, |data| data.renew().unwrap()), None, "there was none");
}

#[test]
fn flash_messages_are_seen_once_and_in_their_order() {
    let codec = signed();
    let kept = value(reply(&codec, "", NOW, |data| {
        data.set("notice", &1).unwrap();
        for text in ["one", "two; \"й\""] {
            data.flash("notice", text).unwrap();
        }
        data.flash("error", "three").unwrap();
    }));
    let mut data = load(&codec, &kept, NOW);
    assert_eq!(data.take_flash("other"), None);
    assert!(!data.is_to_be_sent());
    assert_eq!(data.take_flash("notice").as_deref(), Some("one"));
    let flash = |kind: &str, text: &str| Flash { kind: kind.to_owned(), text: text.to_owned() };
    assert_eq!(data.take_flashes(), [flash("notice", "two; \"й\""), flash("error", "three")]);
    assert_eq!(data.take_flashes(), []);
    let after = load(&codec, &value(codec.set_cookie(&data, NOW).unwrap()), NOW);
    assert_eq!((after.get("notice").unwrap(), after.names().count()), (Some(1), 1));
    assert!(load(&codec, &value(codec.set_cookie(&data, NOW).unwrap()), NOW).take_flashes().is_empty());
}

#[test]
fn a_form_token_is_of_one_session() {
    let rotated = Sessions::signed(keys(2).and_older(keys(1)).unwrap()).build().unwrap();
    let codec = signed();
    let mut data = load(&codec, "", NOW);
    let tokens = [codec.form_token(&mut data).unwrap(), codec.form_token(&mut data).unwrap()];
    assert_ne!(tokens[0], tokens[1], "a mask hides the signature");
    let kept = value(codec.set_cookie(&data, NOW).unwrap());
    for (codec, token) in [(&codec, &tokens[0]), (&codec, &tokens[1]), (&rotated, &tokens[0])] {
        assert!(codec.is_form_token(&load(codec, &kept, NOW), token.as_bytes()));
    }
    let kept = load(&codec, &kept, NOW);
    for wrong in ["", "A", &tokens[0][1..], &format!("{}A", tokens[0]), &"A".repeat(86), &"A".repeat(1000)] {
        assert!(!codec.is_form_token(&kept, wrong.as_bytes()), "{wrong}");
    }
    assert!(!codec.is_form_token(&load(&codec, "", NOW), tokens[0].as_bytes()), "no session");
    assert!(!codec.is_form_token(&load(&codec, &cookie(&codec), NOW), tokens[0].as_bytes()), "another session");
    data.renew().unwrap();
    assert!(!codec.is_form_token(&data, tokens[0].as_bytes()), "renewed");
}

#[test]
fn of_several_cookies_the_first_that_is_right_counts() {
    let codec = signed();
    let cookie = cookie(&codec);
    let user_of = |cookies: &[&str]| {
        let values = cookies.iter().map(|cookie| cookie.as_bytes());
        codec.load_first(values, NOW).get::<u32>("user").unwrap()
    };
    assert_eq!(user_of(&["planted", "", &cookie]), Some(7));
    assert_eq!(user_of(&["planted", "", "", &cookie]), None, "no more than three are tried");
}

#[test]
fn encrypted_sessions_hide_what_they_hold() {
    use base64::Engine;
    let bytes = both().map(|codec| {
        let cookie = value(reply(&codec, "", NOW, |data| data.set("user", "secret").unwrap()));
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(cookie).unwrap()
    });
    let shows = bytes.map(|bytes| bytes.windows(6).any(|window| window == b"secret"));
    assert_eq!(shows, [true, false]);
}

#[test]
fn neither_values_nor_keys_are_shown() {
    let codec = signed();
    let mut data = load(&codec, "", NOW);
    data.set("user", "secret").unwrap();
    let shown = format!("{data:?} {codec:?}");
    assert!(shown.contains("\"user\"") && !shown.contains("secret\""), "{shown}");
    assert!(!shown.contains("[1, 1"), "{shown}");
}

#[derive(Clone, Debug)]
enum Step {
    Set(String, String),
    Remove(String),
    Flash(String),
    Take,
    Clear,
    Renew,
    Send,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || "[ab]{1,2}";
    let step = prop_oneof![
        4 => (name(), "\\PC{0,10}").prop_map(|(name, value)| Step::Set(name, value)),
        2 => name().prop_map(Step::Remove),
        1 => "\\PC{0,10}".prop_map(Step::Flash),
        1 => Just(Step::Take),
        1 => Just(Step::Clear),
        1 => Just(Step::Renew),
        3 => Just(Step::Send),
    ];
    prop::collection::vec(step, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A client that keeps the cookies that it receives sees the same content as a map and a list.
    #[test]
    fn a_session_is_a_map_and_a_list_of_messages(steps in steps(), is_encrypted in any::<bool>()) {
        let codec = &both()[usize::from(is_encrypted)];
        let (mut map, mut messages, mut kept) = (BTreeMap::new(), Vec::new(), String::new());
        let mut data = load(codec, &kept, NOW);
        for step in steps {
            match step {
                Step::Set(name, value) => {
                    data.set(&name, &value).unwrap();
                    map.insert(name, value);
                }
                Step::Remove(name) => prop_assert_eq!(data.remove(&name), map.remove(&name).is_some()),
                Step::Flash(text) => {
                    data.flash("a", &text).unwrap();
                    messages.push(text);
                }
                Step::Take => {
                    let taken: Vec<String> = data.take_flashes().into_iter().map(|flash| flash.text).collect();
                    prop_assert_eq!(taken, std::mem::take(&mut messages));
                }
                Step::Clear => {
                    data.clear();
                    (map, messages) = Default::default();
                }
                Step::Renew => data.renew().unwrap(),
                Step::Send => {
                    if let Some(field) = codec.set_cookie(&data, NOW).unwrap() {
                        kept = value(Some(field));
                    }
                    data = load(codec, &kept, NOW);
                }
            }
            let mut names: Vec<_> = data.names().collect();
            names.sort_unstable();
            prop_assert_eq!(names, map.keys().collect::<Vec<_>>());
            for (name, value) in &map {
                prop_assert_eq!(data.get::<String>(name).unwrap(), Some(value.clone()));
            }
        }
    }

    #[test]
    fn no_cookie_makes_it_panic(value in "[A-Za-z0-9_=-]{0,120}", bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for codec in both() {
            for value in [value.as_bytes(), &bytes] {
                prop_assert!(codec.load_first([value].into_iter(), NOW).is_empty());
                prop_assert!(!codec.is_form_token(&load(&codec, "", NOW), value));
            }
        }
    }
}
