//! `sapsan lab` through the real binary: an experiment with its files, and a server that ends when it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    command.arg("lab").args(arguments);
    command
}

#[test]
fn experiments_give_a_table_and_a_page_and_a_wrong_number_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--only", "1,12,15", "--requests", "501", "--scale", "0.01", "--report", "lab.html"];
    let output = lab(&arguments).current_dir(folder.path()).output().expect("the binary runs");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && table.contains("control values of every run: result 1.62"), "{table}");
    assert!(table.contains("P event loops, waits suspended"), "{table}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("running sequential"));
    let page = std::fs::read_to_string(folder.path().join("lab.html")).expect("the page");
    assert!(page.contains("15. P event loops, waits suspended"));
    let output = lab(&["--only", "99"]).output().expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("there is no experiment 99"), "{told}");
}

/// A server, killed when the test is over.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_server_answers_and_ends_well_when_it_is_told_to() {
    let mut command = lab(&["serve", "--model", "hybrid", "--listen", "127.0.0.1:0"]);
    let mut serving = Serving(command.stdout(Stdio::piped()).spawn().expect("the binary runs"));
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET /500 HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n").expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("The peregrine falcon"), "{reply}");
    let told = Command::new("kill").args(["-TERM", &serving.0.id().to_string()]).status().expect("kill runs");
    assert!(told.success() && serving.0.wait().expect("it ends").success());
}
