//! `cargo xtask redis-clients`: libraries of other languages with which the Redis proxy is tested, in `target/redis-clients`.
//!
//! redis-py and ioredis take seconds, and `cargo xtask test` installs them. go-redis and Jedis need the compilers of their
//! languages.

use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library: its name, the programs needed to install it, and the installer.
struct Library {
    name: &'static str,
    needs: &'static [&'static str],
    is_cheap: bool,
    install: fn(&Path) -> Result<(), String>,
}

const LIBRARIES: [Library; 4] = [
    Library { name: "redis-py", needs: &["python3"], is_cheap: true, install: install_redis_py },
    Library { name: "ioredis", needs: &["npm", "node"], is_cheap: true, install: install_ioredis },
    Library { name: "go-redis", needs: &["go"], is_cheap: false, install: install_go_redis },
    Library { name: "jedis", needs: &["mvn", "javac", "java"], is_cheap: false, install: install_jedis },
];

/// Major versions with which the tests were run. go-redis's is in its `go.mod`, Jedis's in its `pom.xml`.
const REDIS_PY: &str = "redis>=5,<9";
const IOREDIS: &str = "ioredis@5";

/// Installs the named libraries; all of them if no name is given.
pub(crate) fn install(names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| LIBRARIES.iter().all(|library| library.name != **name)) {
        let known: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
        return Err(format!("`{unknown}` is not known; allowed: {}", known.join(", ")));
    }
    install_all(|library| names.is_empty() || names.iter().any(|name| name == library.name))
}

/// Installs the cheap ones.
pub(crate) fn install_cheap(_arguments: &[String]) -> Result<(), String> {
    install_all(|library| library.is_cheap)
}

/// Continues if one cannot be installed, and reports all that failed.
fn install_all(is_wanted: impl Fn(&Library) -> bool) -> Result<(), String> {
    let mut failed = Vec::new();
    for library in LIBRARIES.iter().filter(|library| is_wanted(library)) {
        if let Err(why) = install_one(library) {
            failed.push(format!("{}: {why}", library.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn install_one(library: &Library) -> Result<(), String> {
    if let Some(missing) = library.needs.iter().find(|program| !tools::is_on_path(program)) {
        return Err(format!("`{missing}` is not on this machine"));
    }
    let folder = tools::target().join("redis-clients").join(library.name);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    (library.install)(&folder)
}

fn install_redis_py(folder: &Path) -> Result<(), String> {
    if folder.join("redis").is_dir() {
        return Ok(());
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", REDIS_PY, "--target"];
    tools::run_with(Command::new("python3").args(pip).arg(folder))
}

fn install_ioredis(folder: &Path) -> Result<(), String> {
    if folder.join("node_modules/ioredis").is_dir() {
        return Ok(());
    }
    let npm = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", IOREDIS, "--prefix"];
    tools::run_with(Command::new("npm").args(npm).arg(folder))
}

/// Builds the test's program; go rebuilds it only after a change.
fn install_go_redis(folder: &Path) -> Result<(), String> {
    tools::run_with(Command::new("go").arg("-C").arg(source("go-redis")).args(["build", "-o"]).arg(folder))
}

fn install_jedis(folder: &Path) -> Result<(), String> {
    let pom = source("jedis/pom.xml");
    let mut copy = Command::new("mvn");
    copy.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]).arg(&pom);
    tools::run_with(copy.arg(format!("-DoutputDirectory={}", folder.display())))?;
    let mut compile = Command::new("javac");
    compile.arg("-cp").arg(folder.join("*")).arg("-d").arg(folder);
    tools::run_with(compile.arg(source("jedis/Clients.java")))
}

fn source(name: &str) -> PathBuf {
    tools::root().join("crates/proxy/tests/clients").join(name)
}
