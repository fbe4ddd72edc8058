//! Encoded values decode to themselves; random and mutated bytes never panic, and mean the same however they are
//! cut.

use crate::fuzz_check::{check_replies, check_requests};
use crate::mutation::{apply, edits};
use proptest::prelude::*;
use resp::codec::{Arguments, FrameLimits, ProtocolVersion, ReplyView, ReplyWriter, write_command};

/// A reply to encode.
#[derive(Clone, Debug)]
enum Reply {
    Null,
    Simple(String),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Double(f64),
    Boolean(bool),
    BigNumber(u128),
    Verbatim(Vec<u8>),
    BlobError(Vec<u8>),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

fn reply() -> impl Strategy<Value = Reply> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let leaf = prop_oneof![
        Just(Reply::Null),
        "[ -~]{0,12}".prop_map(Reply::Simple),
        "[A-Z]{1,5} [a-z]{0,9}".prop_map(|text| Reply::Error(text.into_bytes())),
        any::<i64>().prop_map(Reply::Integer),
        bytes().prop_map(Reply::Bulk),
        any::<f64>().prop_map(Reply::Double),
        any::<bool>().prop_map(Reply::Boolean),
        any::<u128>().prop_map(Reply::BigNumber),
        bytes().prop_map(Reply::Verbatim),
        bytes().prop_map(Reply::BlobError),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let many = || prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            many().prop_map(Reply::Array),
            many().prop_map(Reply::Set),
            many().prop_map(Reply::Push),
            prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Reply::Map),
        ]
    })
}

fn write(reply: &Reply, writer: &mut ReplyWriter<'_>) {
    match reply {
        Reply::Null => writer.null(),
        Reply::Simple(text) => writer.simple(text),
        Reply::Error(text) => writer.error(text),
        Reply::Integer(integer) => writer.integer(*integer),
        Reply::Bulk(bytes) => writer.bulk(bytes),
        Reply::Double(double) => writer.double(*double),
        Reply::Boolean(boolean) => writer.boolean(*boolean),
        Reply::BigNumber(number) => writer.big_number(&number.to_string()),
        Reply::Verbatim(text) => writer.verbatim(*b"txt", text),
        Reply::BlobError(text) => writer.blob_error(text),
        Reply::Array(replies) => write_all(|writer, count| writer.array(count), replies, writer),
        Reply::Set(replies) => write_all(|writer, count| writer.set(count), replies, writer),
        Reply::Push(replies) => write_all(|writer, count| writer.push(count), replies, writer),
        Reply::Map(pairs) => {
            writer.map(pairs.len() as u64);
            pairs.iter().for_each(|(key, value)| {
                write(key, writer);
                write(value, writer);
            });
        }
    }
}

fn write_all(begin: fn(&mut ReplyWriter<'_>, u64), replies: &[Reply], writer: &mut ReplyWriter<'_>) {
    begin(writer, replies.len() as u64);
    replies.iter().for_each(|reply| write(reply, writer));
}

/// Whether the view is what RESP3 makes of the reply.
fn is_alike(reply: &Reply, view: ReplyView<'_>) -> bool {
    let all = |replies: &[Reply], view: ReplyView<'_>| {
        let elements = view.elements().expect("an aggregate");
        elements.len() == replies.len() && replies.iter().zip(elements).all(|(reply, view)| is_alike(reply, view))
    };
    match (reply, view) {
        (Reply::Null, ReplyView::Null) => true,
        (Reply::Simple(text), ReplyView::Simple(got)) => text.as_bytes() == got,
        (Reply::Error(text) | Reply::BlobError(text), ReplyView::Error(got)) => text == got,
        (Reply::Integer(integer), ReplyView::Integer(got)) => *integer == got,
        (Reply::Bulk(bytes), ReplyView::Bulk(got)) => bytes == got,
        (Reply::Double(double), ReplyView::Double(got)) => double.is_nan() && got.is_nan() || *double == got,
        (Reply::Boolean(boolean), ReplyView::Boolean(got)) => *boolean == got,
        (Reply::BigNumber(number), ReplyView::BigNumber(got)) => number.to_string().as_bytes() == got,
        (Reply::Verbatim(text), ReplyView::Verbatim { format, text: got }) => format == b"txt" && text == got,
        (Reply::Array(replies), ReplyView::Array(_))
        | (Reply::Set(replies), ReplyView::Set(_))
        | (Reply::Push(replies), ReplyView::Push(_)) => all(replies, view),
        (Reply::Map(pairs), ReplyView::Map(_)) => {
            let flat: Vec<Reply> = pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            all(&flat, view)
        }
        _ => false,
    }
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..9, 1..6)
}

const WORDS: [&[u8]; 24] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"$",
    b"*",
    b"+",
    b"-",
    b":",
    b"%1\r\n",
    b"|1\r\n",
    b"~2\r\n",
    b">2\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",inf\r\n",
    b"(1\r\n",
    b"=4\r\ntxt:\r\n",
    b"!1\r\nx\r\n",
    b"?",
    b"0",
    b"9223372036854775807",
    b"\"",
];

proptest! {
    #[test]
    fn what_is_written_is_read_again(reply in reply(), cuts in cuts()) {
        let mut bytes = Vec::new();
        write(&reply, &mut ReplyWriter::new(&mut bytes, ProtocolVersion::Resp3));
        let (view, length) = ReplyView::parse(&bytes, FrameLimits::default()).expect("RESP").expect("a whole reply");
        prop_assert_eq!(length, bytes.len());
        prop_assert!(is_alike(&reply, view), "{:?} of {}", view, bytes.escape_ascii());
        check_replies(&bytes, &cuts);
        // RESP2 has fewer types: the result is one complete reply of those types.
        let mut bytes = Vec::new();
        write(&reply, &mut ReplyWriter::new(&mut bytes, ProtocolVersion::Resp2));
        prop_assert!(!bytes.is_empty() && b"+-:$*".contains(&bytes[0]));
        check_replies(&bytes, &cuts);
        prop_assert_eq!(ReplyView::parse(&bytes, FrameLimits::default()).expect("RESP").expect("a whole reply").1, bytes.len());
    }

    #[test]
    fn commands_are_read_again(
        arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6),
        cuts in cuts(),
    ) {
        let mut bytes = Vec::new();
        write_command(&mut bytes, &arguments);
        prop_assert_eq!(Arguments::of(&bytes).collect::<Vec<_>>(), arguments);
        check_requests(&bytes, &cuts);
    }

    #[test]
    fn random_bytes_mean_the_same_however_they_are_cut(
        bytes in prop::collection::vec(prop::sample::select(&b"*$+-:%|~>#_,(!=0123\r\nab\"' "[..]), 0..60),
        cuts in cuts(),
    ) {
        check_replies(&bytes, &cuts);
        check_requests(&bytes, &cuts);
    }

    #[test]
    fn mutated_messages_mean_the_same_however_they_are_cut(reply in reply(), edits in edits(4), cuts in cuts()) {
        let mut bytes = Vec::new();
        write(&reply, &mut ReplyWriter::new(&mut bytes, ProtocolVersion::Resp3));
        check_replies(&apply(&bytes, &edits, &WORDS), &cuts);
        let request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\nGET \"a b\" c\r\n";
        check_requests(&apply(request, &edits, &WORDS), &cuts);
    }
}
