//! Work on executors: by name, with a bound, and with its panics.

use super::client::{Client, get, request, started};
use sapsan::{App, Error, Path, Status, Threads, blocking};
use std::sync::Mutex;
use std::sync::mpsc::channel;

fn one_thread(queue_max: usize) -> Threads {
    Threads { count: 1, queue_max }
}

#[test]
fn a_handler_runs_on_its_executor_with_arguments_that_own() {
    let app = App::new().executor("reports", one_thread(4)).get(
        "/{a}/{b}",
        blocking("reports", |Path((a, b)): Path<(u32, String)>| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            if b == "panic" {
                panic!("as it is to");
            }
            if b == "none" { Err(Error::not_found()) } else { Ok((Status(203), format!("{a} {b} {name}"))) }
        }),
    );
    let running = started(app);
    assert_eq!(get(&running, "/7/x%20y").told(), "203 7 x y reports-0");
    assert_eq!(get(&running, "/7/none").status, 404);
    assert_eq!(get(&running, "/7/panic").status, 500);
    assert_eq!(get(&running, "/x/y").status, 404, "extracted on the loop");
    assert_eq!(get(&running, "/8/z").told(), "203 8 z reports-0", "the thread lives on");
    running.stop();
}

#[test]
fn a_full_queue_is_503_and_the_loop_goes_on() {
    let (begun_give, begun) = channel::<()>();
    let (give, take) = channel::<()>();
    let (begun_give, take) = (Mutex::new(begun_give), Mutex::new(take));
    let wait = move || {
        begun_give.lock().unwrap().send(()).unwrap();
        take.lock().unwrap().recv().unwrap();
        "waited"
    };
    let app = App::new().executor("slow", one_thread(1)).get("/wait", blocking("slow", wait)).get("/now", || "now");
    let running = started(app);
    let mut first = Client::to(running.address());
    first.send(&request("GET", "/wait", ""));
    begun.recv().unwrap();
    let mut second = Client::to(running.address());
    // Both arrive together and are taken in before a reply leaves: the queue is full then.
    second.send(&(request("GET", "/now", "") + &request("GET", "/wait", "")));
    assert_eq!(second.reply().told(), "200 now");
    let refused = get(&running, "/wait");
    assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")));
    assert_eq!(get(&running, "/now").told(), "200 now");
    for mut client in [first, second] {
        give.send(()).unwrap();
        assert_eq!(client.reply().told(), "200 waited");
    }
    running.stop();
}
