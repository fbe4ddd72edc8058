//! `sapsan loadtest` beside the server's own numbers: processor time, memory and queues are in its recording and on its page.

use super::process::{Server, sapsan};

#[test]
fn a_report_shows_the_processor_time_and_the_memory_that_the_server_tells() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(&folder.path().join("data"), 0);
    let (page, recording) = (folder.path().join("run.html"), folder.path().join("run.json"));
    let (url, metrics) =
        (format!("http://{}/_/health", server.address), format!("http://{}/_/metrics", server.address));
    // Longer than a second, in which the numbers are asked for once.
    let output = sapsan(&["loadtest", &url, "--rate", "50", "--duration", "2500ms", "--quiet", "--metrics", &metrics])
        .arg("--report")
        .arg(&page)
        .arg("--record")
        .arg(&recording)
        .output()
        .expect("the sapsan binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recording = std::fs::read(recording).expect("a recording");
    let recording: serde_json::Value = serde_json::from_slice(&recording).expect("JSON");
    let samples = recording["server"].as_array().expect("a list");
    let of = |name: &str| -> Vec<f64> { samples.iter().filter_map(|sample| sample["values"][name].as_f64()).collect() };
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "sapsan_store_queue_depth"] {
        assert_eq!(of(name).len(), samples.len(), "{name} in {samples:?}");
    }
    assert!(!samples.is_empty() && of("process_cpu_seconds_total").is_sorted(), "{samples:?}");
    let page = std::fs::read_to_string(page).expect("a page");
    for chart in ["server-cpu", "server-memory", "server-queues"] {
        assert!(page.contains(chart), "{chart}");
    }
    server.stop();
}
