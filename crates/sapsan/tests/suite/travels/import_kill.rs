//! `kill -9` of an import at any moment: nothing half done is left, the folder is sound, and the import can be run again.

use super::client::Client;
use super::model::KINDS;
use super::process::{Server, import, sapsan, travels_toml};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The test ends after this number of killed imports, or after this time (the last import and its check apart).
const KILLS: u32 = 6;
const BUDGET: Duration = Duration::from_secs(20);
/// Kills without which the test says too little: it goes on for them after its time.
const KILLS_MIN: u32 = 3;
/// Its end if the imports are never caught.
const ROUNDS_MAX: u32 = 20;
/// Travels of a size at which reading, sorting and building each take a while, and sorts need files.
const USERS: u64 = 30_000;
const LOCATIONS: u64 = 20_000;
const VISITS: u64 = 300_000;

#[track_caller]
pub(crate) fn verify(folder: &Path) {
    let output = sapsan(&["verify"]).arg(folder).arg("--config").arg(travels_toml()).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

/// How many documents of each kind a server shows: all of the file's, or none.
pub(crate) fn counts(folder: &Path) -> Vec<u64> {
    let server = Server::start(folder, 0);
    let mut client = Client::new(server.address);
    let count = |kind: &str| {
        let query = format!("{{\"sql\":\"SELECT COUNT(*) AS n FROM {kind}\"}}");
        let answer = client.request("POST", "/_/query", Some(query.as_bytes()));
        let rows: serde_json::Value = serde_json::from_slice(&answer.body).expect("rows");
        rows[0]["n"].as_u64().unwrap_or_else(|| panic!("a count: {rows}"))
    };
    KINDS.map(|kind| kind.name()).map(count).to_vec()
}

/// Data of so many users, locations and visits.
pub(crate) fn generate(file: &Path, counts: [u64; 3]) {
    let counts = ["--users", "--locations", "--visits"].into_iter().zip(counts);
    let arguments = counts.flat_map(|(name, count)| [name.to_owned(), count.to_string()]);
    let status = sapsan(&["generate", "travels"]).args(arguments).arg(file).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "the data is generated");
}

/// Files that a stopped import leaves and the next start removes.
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("the data folder").map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.contains("sort") || name.ends_with(".new")).collect()
}

#[test]
fn an_import_that_is_killed_at_any_moment_leaves_nothing_half_done() {
    let random = &mut ChaCha8Rng::seed_from_u64(11);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("data.zip");
    generate(&file, [USERS, LOCATIONS, VISITS]);
    let all = [USERS, LOCATIONS, VISITS].to_vec();
    let whole = Instant::now();
    import(&folder.path().join("whole"), &file);
    let mut whole = whole.elapsed();
    let (mut killed, mut round) = (0, 0);
    let mut data = folder.path().join("data-0");
    let began = Instant::now();
    while killed < KILLS && (began.elapsed() < BUDGET || (killed < KILLS_MIN && round < ROUNDS_MAX)) {
        let mut child = sapsan(&["import"])
            .arg(travels_toml())
            .arg("--data")
            .arg(&data)
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the sapsan binary starts");
        // Also into its last moments, where the trees become visible.
        let moment = whole.mul_f64(random.random_range(0.0..1.15));
        std::thread::sleep(moment);
        let has_ended = child.try_wait().expect("the child can be waited for").is_some();
        if has_ended {
            // The first import may have met a busier machine.
            whole = whole.min(moment);
        }
        let _ = child.kill();
        child.wait().expect("the child can be waited for");
        round += 1;
        killed += u32::from(!has_ended);
        if data.join("tree").is_file() {
            verify(&data);
            let found = counts(&data);
            assert!(found == all || (!has_ended && found == [0, 0, 0]), "round {round}: {found:?}");
            assert_eq!(leftovers(&data), Vec::<String>::new(), "round {round}");
            if found == all {
                std::fs::remove_dir_all(&data).expect("the folder can be removed");
                data = folder.path().join(format!("data-{round}"));
            }
        }
    }
    assert!(killed >= KILLS_MIN, "{killed} of {round} imports were killed: this says too little");
    if !data.join("tree").is_file() || counts(&data) == [0, 0, 0] {
        import(&data, &file);
    }
    assert_eq!(counts(&data), all);
    verify(&data);
}
