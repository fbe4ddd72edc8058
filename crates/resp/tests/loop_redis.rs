//! The client on an event loop, with a real redis-server: both protocols, TCP, Unix sockets, TLS, restarts, messages.

use crate::certificate::Authority;
use crate::on_loop::{OnLoop, PATIENCE, one_loop, resolve};
use crate::redis_server::RedisServer;
use crate::redis_tls::TlsRedis;
use reactor::{LoopContext, LoopState, RunningReactor};
use resp::{ClientSettings, CommandError, LoopSubscriber, Pipeline, ReplyValue, SubscriberEvent};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

fn with_protocol(address: &str, protocol: &str) -> ClientSettings {
    let joint = if address.contains('?') { '&' } else { '?' };
    ClientSettings::of(&format!("{address}{joint}protocol={protocol}")).unwrap()
}

#[test]
fn commands_give_typed_results_over_every_transport_in_both_protocols() {
    let authority = Authority::new();
    let Some(plain) = RedisServer::start(&[]) else { return };
    let tls = TlsRedis::start(&authority, &["--tls-auth-clients", "no"]);
    let addresses = [Some(plain.address()), Some(plain.unix_address()), tls.as_ref().map(TlsRedis::tls_address)];
    for address in addresses.into_iter().flatten() {
        for protocol in ["resp2", "resp3"] {
            check_types(&OnLoop::start(with_protocol(&address, protocol)));
        }
    }
}

fn check_types(on_loop: &OnLoop) {
    on_loop.command::<()>("FLUSHALL").unwrap();
    assert!(on_loop.command::<bool>(("SET", "k", "text")).unwrap());
    assert_eq!(on_loop.command::<String>(("GET", "k")).unwrap(), "text");
    assert_eq!(on_loop.command::<Option<Vec<u8>>>(("GET", "none")).unwrap(), None);
    on_loop.command::<()>(("HSET", "h", [("a", 1), ("b", 2)])).unwrap();
    let map: HashMap<String, i64> = on_loop.command(("HGETALL", "h")).unwrap();
    assert_eq!(map, HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    on_loop.command::<()>(("ZADD", "z", 1.5, "m")).unwrap();
    assert_eq!(on_loop.command::<Option<f64>>(("ZSCORE", "z", "m")).unwrap(), Some(1.5));
    match on_loop.command::<i64>(("GET", "k")) {
        Err(CommandError::Conversion(mismatch)) => assert!(mismatch.got.contains("text"), "{mismatch}"),
        other => panic!("{other:?}"),
    }
    match on_loop.command::<i64>(("INCR", "k")) {
        Err(CommandError::Server(error)) => assert_eq!(error.code(), "ERR"),
        other => panic!("{other:?}"),
    }
    let value: Vec<u8> = (0..5u32 << 20).map(|at| (at % 251) as u8).collect();
    on_loop.command::<()>(("SET", "large", value.clone())).unwrap();
    assert!(on_loop.command::<Vec<u8>>(("GET", "large")).unwrap() == value);
}

#[test]
fn pipelines_and_transactions_give_a_result_for_each_command() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let on_loop = OnLoop::start(server.settings());
    let outcome = on_loop.ask(|client, at, sender| {
        let mut pipeline = Pipeline::new();
        pipeline.add("MULTI").add(("SET", "a", "x")).add(("INCR", "a")).add(("STRLEN", "a")).add("EXEC");
        client.pipeline::<ReplyValue>(at, &pipeline, move |results, _| sender.send(results.unwrap()).unwrap()).unwrap();
    });
    let results = outcome.recv_timeout(PATIENCE).unwrap();
    let Ok(ReplyValue::Array(executed)) = &results[4] else { panic!("{results:?}") };
    assert!(matches!(&executed[1], ReplyValue::Error(error) if error.text().contains("not an integer")));
    assert_eq!(executed[2], ReplyValue::Integer(1));
}

#[test]
fn commands_without_replies_are_executed_in_order_with_the_others() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let on_loop = OnLoop::start(server.settings());
    let outcome = on_loop.ask(|client, at, sender| {
        for number in 0..5_000 {
            client.noreply(at, ("RPUSH", "list", number)).unwrap();
        }
        client.noreply(at, ("NOSUCH", "x")).unwrap();
        let mut pipeline = Pipeline::new();
        pipeline.add(("RPUSH", "list", 5_000)).add(("RPUSH", "list", 5_001));
        client.noreply_pipeline(at, &pipeline).unwrap();
        client.command(at, ("LRANGE", "list", 0, -1), move |list, _| sender.send(list).unwrap()).unwrap();
    });
    let list: Vec<i32> = outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(list.into_iter().eq(0..5_002));
}

#[test]
fn chains_of_commands_are_answered_each_by_its_own_replies() {
    const CHAINS: u32 = 100;
    let Some(server) = RedisServer::start(&[]) else { return };
    let on_loop = OnLoop::start(server.settings());
    let done = on_loop.ask(|client, at, sender| {
        for chain in 0..CHAINS {
            echo(client.clone(), at, (chain, 0), sender.clone());
        }
    });
    for _ in 0..CHAINS {
        done.recv_timeout(PATIENCE * 2).unwrap();
    }
}

/// Commands of one chain; each is sent after the reply to the one before.
const LINKS: u32 = 300;

/// Echoes a number, and the next one after its reply.
fn echo(client: resp::LoopClient, at: &mut reactor::Neighbourhood<'_>, (chain, link): (u32, u32), done: Sender<()>) {
    let sent = client.clone().command(at, ("ECHO", chain * LINKS + link), move |echoed, at| {
        let echoed: u32 = echoed.unwrap();
        assert_eq!(echoed, chain * LINKS + link);
        match link + 1 {
            LINKS => done.send(()).unwrap(),
            next => echo(client, at, (chain, next), done),
        }
    });
    sent.unwrap();
}

#[test]
fn commands_wait_for_a_server_that_restarts_and_its_session_is_opened_again() {
    let Some(mut server) = RedisServer::start(&["--requirepass", "secret"]) else { return };
    for protocol in ["resp2", "resp3"] {
        let address = format!("redis://:secret@127.0.0.1:{}/3", server.port());
        let on_loop = OnLoop::start(with_protocol(&address, protocol));
        let selected = on_loop.ask(|client, at, sender| {
            client.select(at, 5, move |outcome, _| sender.send(outcome.is_ok()).unwrap()).unwrap();
        });
        assert!(selected.recv_timeout(PATIENCE).unwrap());
        server.kill();
        // Once the end of the connection has been noticed, commands wait.
        let _ = on_loop.begin::<()>("PING", Duration::from_millis(100)).recv_timeout(PATIENCE).unwrap();
        on_loop.run(|client, at| client.noreply(at, ("SET", "k", "v")).unwrap());
        let waiting = on_loop.begin::<String>(("GET", "k"), PATIENCE);
        server.run();
        assert_eq!(waiting.recv_timeout(PATIENCE * 2).unwrap().unwrap(), "v");
        let info: String = on_loop.command(("CLIENT", "INFO")).unwrap();
        assert!(info.contains(" db=5 "), "{info}");
        assert!(info.contains(if protocol == "resp3" { " resp=3" } else { " resp=2" }), "{info}");
    }
}

/// The events of a subscriber, as text.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Message(String),
    Subscribed(String),
    Unsubscribed(String),
    Reconnected,
    Error(String),
}

fn heard(event: Result<SubscriberEvent<'_>, CommandError>) -> Heard {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event {
        Ok(SubscriberEvent::Message { pattern, channel, payload }) => {
            let pattern = pattern.map(|pattern| text(pattern) + " ").unwrap_or_default();
            Heard::Message(format!("{pattern}{}: {}", text(channel), text(payload)))
        }
        Ok(SubscriberEvent::Subscribed { channel }) => Heard::Subscribed(text(channel)),
        Ok(SubscriberEvent::Unsubscribed { channel }) => Heard::Unsubscribed(text(channel)),
        Ok(SubscriberEvent::Reconnected) => Heard::Reconnected,
        Err(error) => Heard::Error(error.to_string()),
    }
}

type Job = Box<dyn FnOnce(&LoopSubscriber, &mut reactor::Neighbourhood<'_>) + Send>;

/// Applies a job of the test to the subscriber.
struct Listening {
    subscriber: LoopSubscriber,
    jobs: Receiver<Job>,
}

impl LoopState for Listening {
    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        while let Ok(job) = self.jobs.try_recv() {
            job(&self.subscriber, &mut at.neighbourhood());
        }
    }
}

struct Listener {
    running: RunningReactor,
    jobs: Sender<Job>,
    heard: Receiver<Heard>,
}

impl Listener {
    fn start(settings: ClientSettings) -> Listener {
        let ((jobs, received), (hears, heard_by)) = (mpsc::channel(), mpsc::channel());
        let once = Mutex::new(Some((resolve(settings), received, hears)));
        let mut reactor = one_loop();
        reactor.set_up(move |setup| {
            let (settings, jobs, hears) = once.lock().unwrap().take().unwrap();
            let subscriber = LoopSubscriber::new(settings, setup, move |event, _| drop(hears.send(heard(event))));
            setup.add_state(Box::new(Listening { subscriber, jobs }));
        });
        Listener { running: reactor.start().unwrap(), jobs, heard: heard_by }
    }

    fn run(&self, job: impl FnOnce(&LoopSubscriber, &mut reactor::Neighbourhood<'_>) + Send + 'static) {
        self.jobs.send(Box::new(job)).unwrap();
        self.running.loops()[0].run(Box::new(|_| {}));
    }

    #[track_caller]
    fn expect(&self, expected: Heard) {
        assert_eq!(self.heard.recv_timeout(PATIENCE).expect("an event"), expected);
    }

    /// A server that is being killed may accept a connection and close it, so that one more loss is reported.
    #[track_caller]
    fn expect_behind_reconnects(&self, expected: Heard) {
        let heard = std::iter::from_fn(|| self.heard.recv_timeout(PATIENCE).ok());
        assert_eq!(heard.into_iter().find(|heard| *heard != Heard::Reconnected), Some(expected));
    }

    fn stop(self) {
        self.running.drain(PATIENCE);
        self.running.join().unwrap();
    }
}

#[test]
fn messages_of_channels_and_patterns_come_in_both_protocols() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut publisher = server.client();
    for protocol in ["resp2", "resp3"] {
        let listener = Listener::start(with_protocol(&server.address(), protocol));
        listener.run(|subscriber, at| {
            subscriber.subscribe(at, &["news"]);
            subscriber.psubscribe(at, &["n*"]);
        });
        listener.expect(Heard::Subscribed("news".to_owned()));
        listener.expect(Heard::Subscribed("n*".to_owned()));
        assert_eq!(publisher.publish("news", "hello").unwrap(), 2);
        listener.expect(Heard::Message("news: hello".to_owned()));
        listener.expect(Heard::Message("n* news: hello".to_owned()));
        listener.run(|subscriber, at| subscriber.punsubscribe(at, &["n*"]));
        listener.expect(Heard::Unsubscribed("n*".to_owned()));
        listener.run(|subscriber, at| subscriber.unsubscribe(at, &["news"]));
        listener.expect(Heard::Unsubscribed("news".to_owned()));
        assert_eq!(publisher.publish("news", "nobody").unwrap(), 0);
        listener.stop();
    }
}

#[test]
fn a_subscriber_subscribes_again_after_a_restart_and_says_that_messages_may_be_missing() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let listener = Listener::start(server.settings());
    listener.run(|subscriber, at| subscriber.subscribe(at, &["a", "b"]));
    ["a", "b"].into_iter().for_each(|channel| listener.expect(Heard::Subscribed(channel.to_owned())));
    listener.run(|subscriber, at| subscriber.unsubscribe(at, &["b"]));
    listener.expect(Heard::Unsubscribed("b".to_owned()));
    server.kill();
    // Without a connection the subscription is remembered.
    listener.run(|subscriber, at| subscriber.psubscribe(at, &["c*"]));
    server.run();
    listener.expect(Heard::Reconnected);
    listener.expect_behind_reconnects(Heard::Subscribed("a".to_owned()));
    listener.expect(Heard::Subscribed("c*".to_owned()));
    assert_eq!(server.client().publish("a", "again").unwrap(), 1);
    listener.expect(Heard::Message("a: again".to_owned()));
    listener.stop();
}

#[test]
fn a_subscriber_is_told_what_the_server_refuses() {
    let Some(server) = RedisServer::start(&["--requirepass", "secret"]) else { return };
    let address = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let listener = Listener::start(ClientSettings::of(&address).unwrap());
    match listener.heard.recv_timeout(PATIENCE).unwrap() {
        Heard::Error(text) => assert!(text.contains("WRONGPASS"), "{text}"),
        other => panic!("{other:?}"),
    }
    listener.stop();
    let listener = Listener::start(server.settings());
    listener.run(|subscriber, at| subscriber.subscribe(at, &["a"]));
    match listener.heard.recv_timeout(PATIENCE).unwrap() {
        Heard::Error(text) => assert!(text.contains("NOAUTH"), "{text}"),
        other => panic!("{other:?}"),
    }
    listener.stop();
}
