//! Commands on what is no data folder, or no file: an error, and nothing is made or changed.

use super::process::{sapsan, travels_toml};
use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    sapsan(arguments).output().expect("the sapsan binary starts")
}

#[test]
fn commands_that_look_into_a_folder_make_no_store_in_a_foreign_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("letter.txt"), "mine").expect("a file");
    let (data, config) = (folder.path().to_string_lossy().into_owned(), travels_toml());
    let config = config.to_string_lossy();
    for arguments in [
        &["stat", &data] as &[&str],
        &["verify", &data],
        &["verify", &data, "--config", &config],
        &["query", &config, "--data", &data, "SELECT id FROM users"],
    ] {
        let output = run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("is no data folder"), "{arguments:?}: {told}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1, "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_config_file_without_an_end_is_refused() {
    let output = run(&["check-config", "/dev/zero"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("regular file"));
}
