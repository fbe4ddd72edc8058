//! Long campaigns with tools of the nightly toolchain. Each says what is missing instead of failing obscurely.

use crate::tools;
use std::process::Command;

fn require_nightly() -> Result<(), String> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    match listed {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("nightly") => Ok(()),
        _ => {
            Err("the nightly toolchain is missing: `rustup toolchain install nightly`, then run this again".to_string())
        }
    }
}

fn require_component(component: &str) -> Result<(), String> {
    require_nightly()?;
    let listed = Command::new("rustup").args(["component", "list", "--toolchain", "nightly", "--installed"]).output();
    match listed {
        Ok(output) if String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with(component)) => Ok(()),
        _ => Err(format!(
            "the nightly component `{component}` is missing: `rustup component add --toolchain nightly {component}`, \
             then run this again"
        )),
    }
}

/// `cargo xtask fuzz [TARGET] [SECONDS]`
pub(crate) fn fuzz(arguments: &[String]) -> Result<(), String> {
    require_nightly()?;
    if !tools::is_on_path("cargo-fuzz") {
        return Err("cargo-fuzz is missing: `cargo install cargo-fuzz`, then run this again".to_string());
    }
    let seconds = arguments.get(1).map_or("60", String::as_str);
    let targets: Vec<String> = match arguments.first() {
        Some(target) => vec![target.clone()],
        None => fuzz_targets()?,
    };
    for target in targets {
        println!("== fuzz {target} for {seconds} s");
        tools::run_with(Command::new("cargo").args([
            "+nightly",
            "fuzz",
            "run",
            "--fuzz-dir",
            "fuzz",
            &target,
            "--",
            &format!("-max_total_time={seconds}"),
            "-rss_limit_mb=2048",
        ]))?;
    }
    Ok(())
}

/// The targets are the files of `fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>, String> {
    let folder = tools::root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// `cargo xtask miri [CRATE]`
pub(crate) fn miri(arguments: &[String]) -> Result<(), String> {
    require_component("miri")?;
    let package = arguments.first().map_or("store", String::as_str);
    // Files and sockets are the kernel's: Miri runs the library's own tests, which stay in memory.
    tools::run_with(
        Command::new("cargo")
            .args(["+nightly", "miri", "test", "--package", package, "--lib"])
            .env("MIRIFLAGS", "-Zmiri-disable-isolation"),
    )
}

/// `cargo xtask sanitize [address|thread]`
pub(crate) fn sanitize(arguments: &[String]) -> Result<(), String> {
    require_component("rust-src")?;
    let sanitizer = arguments.first().map_or("address", String::as_str);
    if !["address", "thread"].contains(&sanitizer) {
        return Err(format!("`{sanitizer}` is no sanitizer of this command; allowed: address, thread"));
    }
    tools::run_with(
        Command::new("cargo")
            .args(["+nightly", "test", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu", "--package", "store"])
            .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")),
    )
}
