//! Sharded channels: SSUBSCRIBE, SUNSUBSCRIBE and SPUBLISH, over nodes and over a cluster's slots.

use crate::nodes::cluster::Cluster;
use crate::nodes::{Plain, Sharded, address_of, eventually, is_there};
use proxy::placement::slot_of;

/// A confirmation or a message in the encoding of RESP2.
fn array(words: &[&str], count: Option<usize>) -> String {
    let bulk: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    let number = count.map_or(String::new(), |count| format!(":{count}\r\n"));
    format!("*{}\r\n{bulk}{number}", words.len() + usize::from(count.is_some()))
}

fn next(plain: &mut Plain) -> String {
    String::from_utf8(plain.next_reply()).unwrap()
}

#[test]
fn sharded_channels_are_listened_to_on_the_nodes_of_their_names() {
    if !is_there("redis-server") {
        return;
    }
    let sharded = Sharded::start(|_| {});
    let (mut listening, mut other) = (sharded.connect(), sharded.connect());
    let channels: Vec<String> = (0..4).map(|node| sharded.key_of(node)).collect();
    for (count, channel) in channels.iter().enumerate() {
        assert_eq!(listening.text(&["SSUBSCRIBE", channel]), array(&["ssubscribe", channel], Some(count + 1)));
    }
    // Channels of the other kind are counted separately.
    assert_eq!(listening.text(&["SUBSCRIBE", "c"]), array(&["subscribe", "c"], Some(1)));
    assert!(listening.text(&["GET", "a"]).starts_with("-ERR Can't execute 'get'"));
    for channel in &channels {
        assert_eq!(other.text(&["SPUBLISH", channel, "m"]), ":1\r\n");
        assert_eq!(next(&mut listening), array(&["smessage", channel, "m"], None));
    }
    let mut named = other.text(&["PUBSUB", "SHARDCHANNELS"]);
    assert!(channels.iter().all(|channel| named.contains(channel.as_str())), "{named}");
    assert_eq!(listening.text(&["SUNSUBSCRIBE", &channels[0]]), array(&["sunsubscribe", &channels[0]], Some(3)));
    listening.write(b"sunsubscribe\r\n");
    let counts: Vec<u8> = (0..3).map(|_| *listening.next_reply().iter().rev().nth(2).unwrap()).collect();
    assert_eq!(counts, b"210");
    assert_eq!(other.text(&["SPUBLISH", &channels[1], "m"]), ":0\r\n");
    named = other.text(&["PUBSUB", "SHARDCHANNELS"]);
    assert_eq!(named, "*0\r\n");
    assert_eq!(listening.text(&["UNSUBSCRIBE"]), array(&["unsubscribe", "c"], Some(0)));
    assert_eq!(listening.text(&["GET", "a"]), "$-1\r\n");
}

#[test]
fn a_channel_whose_slot_moves_ends_and_is_found_where_it_went() {
    if !is_there("redis-server") {
        return;
    }
    let cluster = Cluster::start(0);
    let proxy = cluster.proxy(|_| {});
    let (mut listening, mut late) = (Plain::connect(address_of(&proxy)), Plain::connect(address_of(&proxy)));
    let mut other = Plain::connect(address_of(&proxy));
    let confirmed = array(&["ssubscribe", "c{t}"], Some(1));
    assert_eq!(listening.text(&["SSUBSCRIBE", "c{t}"]), confirmed);
    assert_eq!(other.text(&["SPUBLISH", "c{t}", "m"]), ":1\r\n");
    assert_eq!(next(&mut listening), array(&["smessage", "c{t}", "m"], None));
    let slot = slot_of(b"{t}");
    let from = usize::from(slot / 5462);
    cluster.move_slot(slot, from, (from + 1) % 3, || {});
    // The node has ended the subscription, and the client is informed.
    assert_eq!(next(&mut listening), array(&["sunsubscribe", "c{t}"], Some(0)));
    // The table of slots may be outdated: the subscription is redirected.
    assert_eq!(late.text(&["SSUBSCRIBE", "c{t}"]), confirmed);
    assert_eq!(listening.text(&["SSUBSCRIBE", "c{t}"]), confirmed);
    eventually("a message reaches both", || other.text(&["SPUBLISH", "c{t}", "n"]) == ":2\r\n");
    for plain in [&mut listening, &mut late] {
        assert_eq!(next(plain), array(&["smessage", "c{t}", "n"], None));
    }
    proxy.drain(std::time::Duration::ZERO);
    proxy.join().unwrap();
}
