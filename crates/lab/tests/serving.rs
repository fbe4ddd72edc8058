//! The requests behind the HTTP server, through each model.

use executor::Model;
use lab::{ServeSettings, Served, TEXT, Workload, serve};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

fn start(model: &str, queue_max: usize, scale: f64) -> Served {
    let listen = "127.0.0.1:0".parse().unwrap();
    let (model, workload) = (Model::parse(model, 2).unwrap(), Arc::new(Workload::source(scale, 1)));
    serve(ServeSettings { listen, loops: 1, model, queue_max, workload }).unwrap()
}

/// Requests these paths in one write and reads until the server closes.
fn get(served: &Served, paths: &[&str]) -> String {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let last = paths.len() - 1;
    let requests = paths.iter().enumerate().map(|(index, path)| {
        let connection = if index == last { "Connection: close\r\n" } else { "" };
        format!("GET {path} HTTP/1.1\r\nHost: lab\r\n{connection}\r\n")
    });
    stream.write_all(requests.collect::<String>().as_bytes()).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    replies
}

#[test]
fn each_model_answers_with_the_requests_text() {
    for model in [
        "inline",
        "thread-per-task",
        "semaphore",
        "waves:4",
        "pool",
        "io-aware",
        "work-stealing",
        "event-loop",
        "hybrid",
    ] {
        let served = start(model, 64, 0.001);
        let replies = get(&served, &["/7", "/500", "/", "/8"]);
        assert_eq!(replies.matches("HTTP/1.1 200").count(), 4, "{model}");
        assert_eq!(replies.matches(&TEXT.replace('v', "V")).count(), 4, "{model}");
        let metrics = served.metrics();
        served.end(Duration::from_secs(20)).unwrap();
        assert_eq!(metrics.refused, 0, "{model}");
    }
}

#[test]
fn a_full_executor_answers_503_and_each_reply_stands_in_its_place() {
    let served = start("pool:1", 1, 0.05);
    let paths = ["/0"; 10];
    let replies = get(&served, &paths);
    let [answered, refused] = ["HTTP/1.1 200", "HTTP/1.1 503"].map(|status| replies.matches(status).count());
    assert!(answered >= 1 && refused >= 1 && answered + refused == 10, "{answered} answered, {refused} refused");
    assert_eq!(served.metrics().refused, refused as u64);
    served.end(Duration::from_secs(20)).unwrap();
}
