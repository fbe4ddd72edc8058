//! Messages: channels, patterns, both protocols, a restart of the server.

use crate::redis_server::RedisServer;
use resp::{ClientSettings, Subscriber, SubscriberEvent};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

#[track_caller]
fn check_next(subscriber: &mut Subscriber, expected: SubscriberEvent<'_>) {
    assert_eq!(subscriber.next(LONG).unwrap(), Some(expected));
}

fn message<'s>(pattern: Option<&'s str>, channel: &'s str, payload: &'s str) -> SubscriberEvent<'s> {
    SubscriberEvent::Message {
        pattern: pattern.map(str::as_bytes),
        channel: channel.as_bytes(),
        payload: payload.as_bytes(),
    }
}

#[test]
fn messages_of_channels_and_patterns_come_in_both_protocols() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut client = server.client();
    for protocol in ["resp2", "resp3"] {
        let settings = ClientSettings::of(&format!("{}?protocol={protocol}", server.address())).unwrap();
        let mut subscriber = Subscriber::connect(settings).unwrap();
        assert_eq!(subscriber.next(Duration::from_millis(20)).unwrap(), None);
        subscriber.subscribe(&["news"]).unwrap();
        subscriber.psubscribe(&["n*"]).unwrap();
        check_next(&mut subscriber, SubscriberEvent::Subscribed { channel: b"news" });
        check_next(&mut subscriber, SubscriberEvent::Subscribed { channel: b"n*" });
        assert_eq!(client.publish("news", "hello").unwrap(), 2);
        check_next(&mut subscriber, message(None, "news", "hello"));
        check_next(&mut subscriber, message(Some("n*"), "news", "hello"));
        subscriber.punsubscribe(&["n*"]).unwrap();
        check_next(&mut subscriber, SubscriberEvent::Unsubscribed { channel: b"n*" });
        subscriber.unsubscribe(&["news"]).unwrap();
        check_next(&mut subscriber, SubscriberEvent::Unsubscribed { channel: b"news" });
        assert_eq!(client.publish("news", "nobody").unwrap(), 0);
    }
}

#[test]
fn a_subscriber_subscribes_again_after_a_restart_and_says_that_messages_may_be_missing() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let mut subscriber = Subscriber::connect(server.settings()).unwrap();
    subscriber.subscribe(&["a", "b"]).unwrap();
    subscriber.unsubscribe(&["b"]).unwrap();
    for channel in ["a", "b"] {
        check_next(&mut subscriber, SubscriberEvent::Subscribed { channel: channel.as_bytes() });
    }
    check_next(&mut subscriber, SubscriberEvent::Unsubscribed { channel: b"b" });
    server.kill();
    assert_eq!(subscriber.next(Duration::from_millis(50)).unwrap(), None);
    server.run();
    check_next(&mut subscriber, SubscriberEvent::Reconnected);
    check_next(&mut subscriber, SubscriberEvent::Subscribed { channel: b"a" });
    assert_eq!(server.client().publish("a", "again").unwrap(), 1);
    check_next(&mut subscriber, message(None, "a", "again"));
}
