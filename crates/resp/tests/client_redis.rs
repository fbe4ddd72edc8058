//! The client with a real redis-server: commands, pipelines, sessions, large values, a restart.

use crate::redis_server::RedisServer;
use resp::{Client, ClientSettings, CommandError, Pipeline, ReplyValue, ServerError};
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[test]
fn commands_give_typed_results_over_tcp_and_unix_sockets_in_both_protocols() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for address in [server.address(), server.unix_address()] {
        for protocol in ["resp2", "resp3"] {
            let mut client = Client::connect(&format!("{address}?protocol={protocol}")).unwrap();
            client.command::<()>("FLUSHALL").unwrap();
            check_types(&mut client);
        }
    }
}

fn check_types(client: &mut Client) {
    assert!(client.command::<bool>(("SET", "k", "text")).unwrap());
    assert!(!client.command::<bool>(("SET", "k", "other", "NX")).unwrap());
    assert_eq!(client.command::<String>(("GET", "k")).unwrap(), "text");
    assert_eq!(client.command::<Option<Vec<u8>>>(("GET", "none")).unwrap(), None);
    assert_eq!(client.command::<i64>(("INCRBY", "n", 41)).unwrap(), 41);
    assert_eq!(client.command::<f64>(("INCRBYFLOAT", "n", 0.5)).unwrap(), 41.5);
    client.command::<()>(("HSET", "h", [("a", 1), ("b", 2)])).unwrap();
    let map: HashMap<String, i64> = client.command(("HGETALL", "h")).unwrap();
    assert_eq!(map, HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    client.command::<()>(("ZADD", "z", 1.5, "m")).unwrap();
    assert_eq!(client.command::<Option<f64>>(("ZSCORE", "z", "m")).unwrap(), Some(1.5));
    client.command::<()>(("RPUSH", "l", ["x", "y"])).unwrap();
    assert_eq!(client.command::<Vec<String>>(("LRANGE", "l", 0, -1)).unwrap(), ["x", "y"]);
    let (cursor, keys): (u64, Vec<String>) = client.command(("SCAN", 0, "COUNT", 100)).unwrap();
    assert_eq!((cursor, keys.len()), (0, 5));
    assert_eq!(client.view(("GET", "k")).unwrap().text(), Some(&b"text"[..]));
    match client.command::<i64>(("GET", "k")) {
        Err(CommandError::Conversion(mismatch)) => assert!(mismatch.got.contains("text"), "{mismatch}"),
        other => panic!("{other:?}"),
    }
    match client.command::<i64>(("INCR", "k")) {
        Err(CommandError::Server(error)) => assert_eq!(error.code(), "ERR"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.command::<String>(("ECHO", "still in step")).unwrap(), "still in step");
}

#[test]
fn the_error_of_one_command_of_a_pipeline_is_its_result_alone() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut pipeline = Pipeline::new();
    pipeline.add(("SET", "a", "x")).add(("INCR", "a")).add(("GET", "a")).add("NOSUCH");
    let results = server.client().pipeline::<ReplyValue>(&pipeline).unwrap();
    assert_eq!(results.len(), 4);
    assert!(matches!(&results[0], Ok(ReplyValue::Simple(text)) if text == "OK"));
    assert!(matches!(&results[1], Err(CommandError::Server(error)) if error.text().contains("not an integer")));
    assert!(matches!(&results[2], Ok(ReplyValue::Bulk(text)) if text == b"x"));
    assert!(matches!(&results[3], Err(CommandError::Server(error)) if error.text().contains("unknown command")));
}

#[test]
fn a_transaction_gives_the_errors_of_its_commands_as_values() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut pipeline = Pipeline::new();
    pipeline.add("MULTI").add(("SET", "a", "x")).add(("INCR", "a")).add(("STRLEN", "a")).add("EXEC");
    let mut client = server.client();
    let mut results = None;
    client
        .pipeline_with(&pipeline, |at, reply| {
            if at == 4 {
                results = Some(<Vec<Result<ReplyValue, ServerError>> as resp::FromReply>::from_reply(reply).unwrap());
            }
        })
        .unwrap();
    let results = results.unwrap();
    assert!(results[0].is_ok() && results[1].as_ref().unwrap_err().code() == "ERR");
    assert_eq!(results[2], Ok(ReplyValue::Integer(1)));
}

#[test]
fn a_long_pipeline_and_a_large_value_pass_whole() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut client = server.client();
    let value: Vec<u8> = (0..20u32 << 20).map(|at| (at % 251) as u8).collect();
    client.command::<()>(("SET", "large", &value)).unwrap();
    assert!(client.command::<Vec<u8>>(("GET", "large")).unwrap() == value);
    let mut pipeline = Pipeline::new();
    for number in 0..200_000 {
        pipeline.add(("ECHO", number));
    }
    let mut next = 0;
    client
        .pipeline_with(&pipeline, |at, reply| {
            assert_eq!(reply.text(), Some(at.to_string().as_bytes()));
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 200_000);
    assert_eq!(client.command::<String>("PING").unwrap(), "PONG");
}

#[test]
fn the_session_is_opened_again_after_the_server_was_restarted() {
    let Some(mut server) = RedisServer::start(&["--requirepass", "secret"]) else { return };
    for protocol in ["resp2", "resp3"] {
        let address = format!("redis://:secret@127.0.0.1:{}/3?protocol={protocol}", server.port());
        let mut client = Client::connect(&address).unwrap();
        client.select(5).unwrap();
        client.command::<()>(("SET", "k", 1)).unwrap();
        server.kill();
        assert!(client.command::<()>("PING").is_err() || server.port() == 0);
        server.run();
        // The first command after the restart may be lost, if the loss was not yet noticed; the next one is not.
        let _ = client.command::<()>("PING");
        let info: String = client.command(("CLIENT", "INFO")).unwrap();
        assert!(info.contains(" db=5 "), "{info}");
        assert!(info.contains(if protocol == "resp3" { " resp=3" } else { " resp=2" }), "{info}");
    }
}

#[test]
fn a_refused_password_is_not_a_lost_connection() {
    let Some(server) = RedisServer::start(&["--requirepass", "secret"]) else { return };
    let wrong = format!("redis://:wrong@127.0.0.1:{}", server.port());
    match Client::connect(&wrong) {
        Err(CommandError::NotSent(resp::NotSent::Handshake(error))) => assert_eq!(error.code(), "WRONGPASS"),
        other => panic!("{other:?}"),
    }
    let mut client = Client::new(ClientSettings::of(&server.address()).unwrap());
    assert!(matches!(client.command::<()>("DBSIZE"), Err(CommandError::Server(error)) if error.code() == "NOAUTH"));
    client.authenticate(None, "secret").unwrap();
    assert_eq!(client.command::<i64>("DBSIZE").unwrap(), 0);
}

#[test]
fn commands_without_replies_are_executed_in_order_and_leave_the_connection_in_step() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for protocol in ["resp2", "resp3"] {
        let mut client = Client::connect(&format!("{}?protocol={protocol}", server.address())).unwrap();
        client.command::<()>("FLUSHALL").unwrap();
        let before: String = client.command(("CLIENT", "ID")).unwrap();
        for round in 1..=3 {
            for _ in 0..1000 {
                client.noreply(("INCR", "n")).unwrap();
            }
            client.noreply(("NOSUCH", "x")).unwrap();
            let mut pipeline = Pipeline::new();
            pipeline.add(("INCR", "n")).add(("INCR", "n"));
            client.noreply_pipeline(&pipeline).unwrap();
            assert_eq!(client.command::<i64>(("GET", "n")).unwrap(), round * 1002);
            assert_eq!(client.command::<String>("PING").unwrap(), "PONG");
        }
        assert_eq!(client.command::<String>(("CLIENT", "ID")).unwrap(), before, "one connection all along");
    }
}

#[test]
fn the_last_commands_of_a_burst_without_replies_reach_the_server_without_a_further_one() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (mut client, mut reader) = (server.client(), server.client());
    (0..100).for_each(|_| client.noreply(("INCR", "n")).unwrap());
    let started = Instant::now();
    while reader.command::<Option<i64>>(("GET", "n")).unwrap() != Some(100) {
        assert!(started.elapsed() < Duration::from_secs(20), "the last commands did not come");
    }
}

#[test]
fn a_server_that_refuses_client_reply_is_read_and_its_replies_dropped() {
    let Some(server) = RedisServer::start(&["--rename-command", "CLIENT", ""]) else { return };
    let mut client = server.client();
    for round in 1..=3 {
        for _ in 0..1000 {
            client.noreply(("INCR", "n")).unwrap();
        }
        assert_eq!(client.command::<i64>(("GET", "n")).unwrap(), round * 1000);
    }
}

#[test]
fn commands_without_replies_wait_for_the_server_and_are_sent_first() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let mut settings = server.settings();
    settings.queue_bytes_max = 100;
    server.kill();
    let mut client = Client::new(settings);
    client.noreply(("SET", "a", 1)).unwrap();
    client.noreply(("INCR", "a")).unwrap();
    assert!(client.queued_bytes() > 0);
    let full = (0..10).find_map(|_| client.noreply(("INCR", "a")).err());
    assert!(matches!(full, Some(CommandError::NotSent(resp::NotSent::QueueFull))), "{full:?}");
    let queued = client.queued_bytes();
    server.run();
    // SET takes 27 bytes, each INCR 21.
    let expected = 1 + (queued as i64 - 27) / 21;
    assert_eq!(client.command::<i64>(("GET", "a")).unwrap(), expected);
    assert_eq!(client.queued_bytes(), 0);
}

#[test]
fn the_codec_refuses_what_redis_refuses_in_the_same_words() {
    use std::io::{Read, Write};
    let Some(server) = RedisServer::start(&[]) else { return };
    for bytes in [
        &b"*x\r\n"[..],
        b"*1048577000000\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$536870913\r\n",
        b"set \"a\r\n",
        b"set 'a'b\r\n",
        b"*01\r\n",
        b"*1\r\n$00\r\n",
    ] {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        socket.write_all(bytes).unwrap();
        let mut redis = String::new();
        socket.read_to_string(&mut redis).unwrap();
        let mut framer = resp::codec::RequestFramer::new(resp::codec::FrameLimits::default());
        let error =
            framer.advance(bytes).and_then(|_| resp::codec::rewrite_inline(bytes, &mut Vec::new())).unwrap_err();
        let mut ours = Vec::new();
        resp::codec::ReplyWriter::new(&mut ours, resp::codec::ProtocolVersion::Resp2).protocol_error(error);
        assert_eq!(String::from_utf8(ours).unwrap(), redis, "{}", bytes.escape_ascii());
    }
}
