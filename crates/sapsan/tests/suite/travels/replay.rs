//! The train data: both phases over real sockets, every answer compared; then power is cut and everything that was
//! acknowledged must still be there.

use super::client::Client;
use super::data;
use super::model::{KINDS, Kind, Model};
use super::process::{Server, import};
use super::{ammo, client::Answer};
use serde_json::Value;
use std::io::Write;

#[test]
fn the_train_data_is_answered_right_in_all_phases_and_survives_kill() {
    let Some(folder) = data::train_folder() else {
        // Not by `println!`, which libtest keeps to itself where a test passes: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: the train data is not beside this checkout (../shared/travels/train)\n";
        std::io::stdout().write_all(line.as_bytes()).expect("somebody listens");
        return;
    };
    let now = data::now_of(&folder);
    let store = tempfile::tempdir().expect("a temporary folder");
    import(store.path(), &folder.join("data.zip"));
    let mut model = data::model_of(&folder.join("data.zip"), now);

    let server = Server::start(store.path(), now);
    replay(&server, &folder, "phase_1_get", &mut model);
    replay(&server, &folder, "phase_2_post", &mut model);
    server.kill();

    let server = Server::start(store.path(), now);
    compare_everything(&server, &mut model);
}

/// Sends a phase's requests as they are, stray bytes included, and compares with the answers file and the model.
fn replay(server: &Server, folder: &std::path::Path, phase: &str, model: &mut Model) {
    let requests = ammo::requests(&folder.join(format!("ammo/{phase}.ammo")));
    let answers = ammo::answers(&folder.join(format!("answers/{phase}.answ")));
    assert_eq!(requests.len(), answers.len(), "{phase}: an answer for each request");
    let mut client = Client::new(server.address);
    for (request, line) in requests.iter().zip(&answers) {
        let answer = client.send(request).and_then(|()| client.receive());
        let answer = answer.unwrap_or_else(|error| panic!("{} {}: no reply: {error}", line.method, line.target));
        check(&answer, &line.target, line.status, line.body.as_ref());
        if line.method == "POST" {
            let (status, _) = model.answer("POST", &line.target, ammo::body_of(request));
            assert_eq!(status, line.status, "the reference disagrees with the answers file on POST {}", line.target);
        }
    }
}

/// What phase 3 of the contest does: reads what phase 2 wrote, here all of it.
fn compare_everything(server: &Server, model: &mut Model) {
    let mut client = Client::new(server.address);
    let mut targets: Vec<String> = Vec::new();
    for kind in KINDS {
        targets.extend(model.table(kind).keys().map(|id| format!("/{}/{id}", kind.name())));
    }
    // The reference looks at every visit for a list: a part of them fits the time.
    let sample = |kind: Kind, tail: &str| -> Vec<String> {
        let ids = model.table(kind).keys();
        ids.step_by(101).map(|id| format!("/{}/{id}/{tail}", kind.name())).collect()
    };
    targets.extend(sample(Kind::Users, "visits"));
    targets.extend(sample(Kind::Locations, "avg"));
    for target in targets {
        let (status, body) = model.answer("GET", &target, None);
        check(&client.request("GET", &target, None), &target, status, body.as_ref());
    }
}

#[track_caller]
fn check(answer: &Answer, target: &str, status: u16, body: Option<&Value>) {
    assert_eq!(answer.status, status, "{target}: {}", String::from_utf8_lossy(&answer.body));
    if let Some(body) = body {
        let got: Value = serde_json::from_slice(&answer.body).expect("a JSON body");
        assert!(same(&got, body), "{target}: expected {body}, got {got}");
    }
}

/// Equal as JSON, numbers compared as numbers (3 and 3.0 are one).
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}
