//! Clients that do not read, deep pipelines, large replies, many clients: memory stays bounded, and other clients
//! are served.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::nodes::{Plain, Sharded, eventually, is_there};

#[test]
fn a_client_that_never_reads_is_cut_and_holds_up_nobody_for_ever() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.limits.stall_max = Duration::from_millis(500));
    let mut plain = sharded.connect();
    let value = "x".repeat(1_000_000);
    assert_eq!(plain.text(&["SET", "a{t}", &value]), "+OK\r\n");
    let silent = sharded.connect();
    let get = b"*2\r\n$3\r\nGET\r\n$4\r\na{t}\r\n".repeat(2000);
    let mut writing = silent.stream().try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&get).is_ok());
    // The same node answers other clients meanwhile, at the latest when the silent client is disconnected.
    for _ in 0..20 {
        assert_eq!(plain.text(&["STRLEN", "a{t}"]), ":1000000\r\n");
    }
    eventually("it is cut", || sharded.proxy().counters()[0].stalled.get() >= 1);
    writer.join().unwrap();
    assert_eq!(plain.text(&["STRLEN", "a{t}"]), ":1000000\r\n");
}

#[test]
fn many_clients_that_never_read_hold_up_a_node_for_one_stall_together() {
    if !is_there("redis-server") {
        return;
    }
    const SILENT: usize = 8;
    let stall_max = Duration::from_secs(2);
    let sharded = Sharded::start(|config| config.limits.stall_max = stall_max);
    let mut plain = sharded.connect();
    assert_eq!(plain.text(&["SET", "a{t}", &"x".repeat(1_000_000)]), "+OK\r\n");
    let get = |times| b"*2\r\n$3\r\nGET\r\n$4\r\na{t}\r\n".repeat(times);
    let mut silent: Vec<Plain> = (0..SILENT).map(|_| sharded.connect()).collect();
    silent.iter_mut().for_each(|silent| silent.write(&get(40)));
    std::thread::sleep(Duration::from_millis(300));
    // A client that reads gets all of its replies, however long they wait.
    let mut reader = sharded.connect();
    reader.write(&get(30));
    let reading = std::thread::spawn(move || {
        (0..30).for_each(|_| {
            assert_eq!(reader.next_reply().len(), 1_000_012);
            std::thread::sleep(Duration::from_millis(20));
        });
    });
    let began = Instant::now();
    assert_eq!(plain.text(&["STRLEN", "a{t}"]), ":1000000\r\n");
    let waited = began.elapsed();
    assert!(waited < 3 * stall_max, "{waited:?}");
    reading.join().unwrap();
    eventually("they are cut", || sharded.proxy().counters()[0].stalled.get() >= SILENT as u64);
}

#[test]
fn deep_pipelines_keep_their_replies_within_bounds() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(plain.text(&["SET", key, &key.repeat(400)]), "+OK\r\n");
    }
    const DEPTH: usize = 10_000;
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let (mut plain, keys) = (sharded.connect(), keys.clone());
            std::thread::spawn(move || {
                let mut writing = plain.stream().try_clone().unwrap();
                let requests: Vec<u8> = keys
                    .iter()
                    .flat_map(|key| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes())
                    .collect();
                let writer = std::thread::spawn(move || writing.write_all(&requests.repeat(DEPTH / 100)).unwrap());
                for number in 0..DEPTH {
                    let key = &keys[number % 100];
                    let expected = format!("${}\r\n{}\r\n", key.len() * 400, key.repeat(400));
                    assert!(plain.next_reply() == expected.as_bytes(), "reply {number}");
                }
                writer.join().unwrap();
            })
        })
        .collect();
    let mut most = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        most = most.max(sharded.proxy().counters()[0].kept_bytes.get());
        std::thread::sleep(Duration::from_millis(1));
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    // Ten clients, each at its bound plus one read.
    assert!(most <= 12 << 20, "{most} bytes were kept");
    eventually("nothing is left", || sharded.proxy().counters()[0].kept_bytes.get() == 0);
}

#[test]
fn a_large_reply_passes_in_pieces() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut plain, mut other) = (sharded.connect(), sharded.connect());
    let key = sharded.key_of(0);
    let mut node = Plain::connect(sharded.nodes[0].address);
    // 60 MB, which the client need not send.
    assert_eq!(node.text(&["SETRANGE", &key, "60000000", "end"]), ":60000003\r\n");
    let mut held = 0;
    for _ in 0..3 {
        plain.send([&[b"GET".as_slice(), key.as_bytes()][..]]);
        held = held.max(sharded.proxy().counters()[0].kept_bytes.get());
        assert_eq!(other.text(&["GET", &sharded.key_of(1)]), "$-1\r\n");
        assert_eq!(plain.next_reply().len(), 60_000_003 + "$60000003\r\n\r\n".len());
    }
    assert_eq!(held, 0);
    // A joined reply above its bound is an error.
    let sharded = Sharded::start(|config| config.limits.joined_bytes_max = 1000);
    let mut plain = sharded.connect();
    for number in 0..200 {
        plain.text(&["SET", &format!("k{number}"), "v"]);
    }
    assert!(plain.text(&["KEYS", "*"]).starts_with("-ERR the joined reply is larger"));
    assert_eq!(plain.text(&["DBSIZE"]), ":200\r\n");
}

#[test]
fn many_clients_are_served_beside_one_another() {
    if !is_there("redis-server") {
        return;
    }
    const CLIENTS: usize = 3000;
    let sharded = Sharded::start(|_| {});
    let mut clients: Vec<Plain> = (0..CLIENTS).map(|_| sharded.connect()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let (key, value) = (format!("k{number}"), format!("{round}"));
            client.send([&[b"SET".as_slice(), key.as_bytes(), value.as_bytes()][..], &[b"GET", key.as_bytes()]]);
        }
        for client in &mut clients {
            assert_eq!(client.next_reply(), b"+OK\r\n");
            assert_eq!(client.next_reply(), format!("$1\r\n{round}\r\n").as_bytes());
        }
    }
    assert_eq!(sharded.proxy().counters()[0].clients.get(), CLIENTS as u64);
    drop(clients);
    eventually("all are gone", || sharded.proxy().counters()[0].clients.get() == 0);
}

#[test]
fn clients_wait_where_all_together_hold_too_much_and_go_on_afterwards() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| {
        config.limits.total_bytes_max = 16 << 20;
        config.limits.stall_max = Duration::from_secs(20);
    });
    let mut plain = sharded.connect();
    for number in 0..40 {
        assert_eq!(plain.text(&["SET", &format!("k{number}"), &"x".repeat(10_000)]), "+OK\r\n");
    }
    // Each requests 4 MB, 80 MB in all.
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut plain = sharded.connect();
            std::thread::spawn(move || {
                let requests: Vec<Vec<u8>> = (0..400).map(|number| format!("k{}", number % 40).into_bytes()).collect();
                let slices: Vec<[&[u8]; 2]> = requests.iter().map(|key| [b"GET".as_slice(), key.as_slice()]).collect();
                plain.send(slices.iter().map(|words| &words[..]));
                for _ in 0..400 {
                    assert_eq!(plain.next_reply().len(), 10_010);
                    std::thread::sleep(Duration::from_micros(100));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(sharded.proxy().counters()[0].stalled.get(), 0);
}

#[test]
fn an_idle_client_is_ended_after_the_timeout() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|config| config.idle_timeout = Some(Duration::from_millis(200)));
    let mut plain = sharded.connect();
    assert_eq!(plain.text(&["GET", "a"]), "$-1\r\n");
    assert!(plain.has_ended());
    // A client that waits in a blocking command is not idle.
    let mut waiting = sharded.connect();
    assert_eq!(waiting.text(&["BLPOP", "l", "1"]), "*-1\r\n");
}

/// Parts of joined replies wait for a node that does not answer: what clients hold so stays within the bound of all.
#[test]
fn parts_of_joined_replies_count_as_held() {
    if !is_there("redis-server") {
        return;
    }
    const TOTAL: u64 = 16 << 20;
    const CLIENTS: usize = 12;
    let sharded = Sharded::start(|config| {
        config.limits.total_bytes_max = TOTAL as usize;
        config.limits.stall_max = Duration::from_secs(600);
    });
    let mut plain = sharded.connect();
    let large = sharded.key_of(0);
    assert_eq!(plain.text(&["SET", &large, &"x".repeat(1_000_000)]), "+OK\r\n");
    let stopped = sharded.key_of(1);
    assert_eq!(plain.text(&["SET", &stopped, "y"]), "+OK\r\n");
    sharded.nodes[1].signal("STOP");
    let counters = &sharded.proxy().counters()[0];
    let (mut clients, mut most) = (Vec::new(), 0);
    for _ in 0..CLIENTS {
        // 4 MB each.
        let mut client = sharded.connect();
        let keys: Vec<&[u8]> = std::iter::once(b"MGET".as_slice())
            .chain(std::iter::repeat_n(large.as_bytes(), 4))
            .chain([stopped.as_bytes()])
            .collect();
        client.send([&keys[..]]);
        let answered = counters.nodes[0].requests.answered.get();
        eventually("its part has come, or it waits or is gone", || {
            most = most.max(counters.kept_bytes.get());
            counters.nodes[0].requests.answered.get() > answered || counters.stalled.get() > 0
        });
        clients.push(client);
    }
    assert!(most <= TOTAL + (4 << 20), "{most} bytes were held");
    eventually("those that hold most are disconnected", || counters.stalled.get() > 0);
    sharded.nodes[1].signal("CONT");
    eventually("nothing is held", || {
        clients.retain_mut(|client| {
            client.stream().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            !client.has_ended()
        });
        counters.kept_bytes.get() == 0
    });
    assert_eq!(sharded.connect().text(&["GET", &stopped]), "$1\r\ny\r\n");
}

#[test]
fn names_of_clients_and_channels_are_bounded() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let mut plain = sharded.connect();
    for words in [&["CLIENT", "SETNAME", &"x".repeat(2000)][..], &["HELLO", "3", "SETNAME", &"x".repeat(2000)]] {
        assert!(plain.text(words).starts_with("-ERR Client names have at most"), "{:?}", &words[..2]);
    }
    assert_eq!(plain.text(&["CLIENT", "SETNAME", "me"]), "+OK\r\n");
    let channel = |number: usize| format!("{number:04}{}", "x".repeat(100_000));
    let refused = (0..20).filter(|number| plain.text(&["SUBSCRIBE", &channel(*number)]).starts_with("-ERR")).count();
    assert!((9..12).contains(&refused), "{refused} of 20 are refused");
    let held = || sharded.proxy().counters()[0].kept_bytes.get();
    eventually("they count as held", || (900_000..1_200_000).contains(&held()));
    assert!(plain.text(&["UNSUBSCRIBE", &channel(0)]).starts_with("*3\r\n$11\r\nunsubscribe"));
    assert!(plain.text(&["SUBSCRIBE", &channel(19)]).starts_with("*3\r\n$9\r\nsubscribe"));
    drop(plain);
    eventually("nothing is held", || held() == 0);
}
