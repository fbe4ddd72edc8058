//! Replies: every sample cut at every byte, values read in place, limits, errors.

use crate::fuzz_check::check_replies;
use resp::codec::{Advance, DEPTH_MAX, FrameLimits, ProtocolError, ReplyFramer, ReplyKind, ReplyView};

/// One sample of each kind, and some nested ones.
const SAMPLES: &[(&[u8], ReplyKind)] = &[
    (b"+OK\r\n", ReplyKind::Simple),
    (b"+\r\n", ReplyKind::Simple),
    (b"-ERR unknown command\r\n", ReplyKind::Error),
    (b"!5\r\na\r\nb!\r\n", ReplyKind::Error),
    (b":-9223372036854775808\r\n", ReplyKind::Integer),
    (b"$5\r\nhello\r\n", ReplyKind::Bulk),
    (b"$0\r\n\r\n", ReplyKind::Bulk),
    (b"$4\r\n\r\n\r\n\r\n", ReplyKind::Bulk),
    (b"$-1\r\n", ReplyKind::Null),
    (b"*-1\r\n", ReplyKind::Null),
    (b"_\r\n", ReplyKind::Null),
    (b"#t\r\n", ReplyKind::Boolean),
    (b",3.25\r\n", ReplyKind::Double),
    (b",-inf\r\n", ReplyKind::Double),
    (b",nan\r\n", ReplyKind::Double),
    (b"(3492890328409238509324850943850943825024385\r\n", ReplyKind::BigNumber),
    (b"=15\r\ntxt:Some string\r\n", ReplyKind::Verbatim),
    (b"*0\r\n", ReplyKind::Array),
    (b"*3\r\n:1\r\n$2\r\nab\r\n*2\r\n+x\r\n$-1\r\n", ReplyKind::Array),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", ReplyKind::Map),
    (b"~2\r\n#t\r\n#f\r\n", ReplyKind::Set),
    (b">2\r\n+message\r\n+x\r\n", ReplyKind::Push),
    (b"*1\r\n*1\r\n*1\r\n*0\r\n", ReplyKind::Array),
    (b"|1\r\n+ttl\r\n:3600\r\n$3\r\nabc\r\n", ReplyKind::Bulk),
    (b"|0\r\n:1\r\n", ReplyKind::Integer),
    (b"*2\r\n|1\r\n+a\r\n*1\r\n+b\r\n:1\r\n:2\r\n", ReplyKind::Array),
    (b"*2\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n:3\r\n", ReplyKind::Array),
];

#[test]
fn every_reply_is_found_and_read_wherever_it_is_cut() {
    for &(sample, kind) in SAMPLES {
        for cut in 1..=sample.len() {
            check_replies(sample, &[cut, usize::MAX]);
            check_replies(&[sample, sample, b"+next\r\n"].concat(), &[cut]);
        }
        let mut framer = ReplyFramer::new(FrameLimits::default());
        assert_eq!(framer.advance(sample), Ok(Advance { consumed: sample.len(), is_complete: true }));
        assert_eq!((framer.kind(), framer.bytes()), (Some(kind), sample.len() as u64));
    }
}

#[test]
fn no_byte_is_shown_to_the_framer_twice() {
    for &(sample, _) in SAMPLES {
        for cut in 0..=sample.len() {
            let mut framer = ReplyFramer::new(FrameLimits::default());
            let mut looked_at = 0;
            let mut feed = |piece: &[u8]| {
                looked_at += piece.len();
                framer.advance(piece).expect("RESP")
            };
            let first = feed(&sample[..cut]);
            assert_eq!(first, Advance { consumed: cut, is_complete: cut == sample.len() });
            if cut < sample.len() {
                assert_eq!(feed(&sample[cut..]), Advance { consumed: sample.len() - cut, is_complete: true });
            }
            assert_eq!(looked_at, sample.len(), "{} cut at {cut}", sample.escape_ascii());
        }
    }
}

#[test]
fn values_are_slices_of_the_buffer() {
    let bytes = b"*3\r\n$5\r\nhello\r\n%1\r\n+k\r\n,1.5\r\n=6\r\nmkd:ab\r\n";
    let (view, _) = ReplyView::parse(bytes, FrameLimits::default()).unwrap().unwrap();
    let mut elements = view.elements().unwrap();
    assert_eq!(elements.len(), 3);
    let Some(ReplyView::Bulk(hello)) = elements.next() else { panic!("no bulk string") };
    assert!(bytes.as_ptr_range().contains(&hello.as_ptr()));
    assert_eq!(hello, b"hello");
    let map: Vec<ReplyView> = elements.next().unwrap().elements().unwrap().collect();
    assert_eq!(map, [ReplyView::Simple(b"k"), ReplyView::Double(1.5)]);
    assert_eq!(elements.next(), Some(ReplyView::Verbatim { format: b"mkd", text: b"ab" }));
    assert_eq!(elements.next(), None);
}

#[test]
fn attributes_belong_to_the_value_behind_them() {
    let bytes = b"|1\r\n+ttl\r\n:3600\r\n*2\r\n:1\r\n|1\r\n+x\r\n*2\r\n:7\r\n:8\r\n:2\r\n";
    let mut framer = ReplyFramer::new(FrameLimits::default());
    assert!(framer.advance(bytes).unwrap().is_complete);
    let attributes: Vec<ReplyView> = framer.attributes(bytes).unwrap().collect();
    assert_eq!(attributes, [ReplyView::Simple(b"ttl"), ReplyView::Integer(3600)]);
    let mut elements = framer.view(bytes).elements().unwrap();
    assert_eq!(elements.collect::<Vec<_>>(), [ReplyView::Integer(1), ReplyView::Integer(2)]);
    assert_eq!(elements.next_described(), Some((None, ReplyView::Integer(1))));
    let (attributes, value) = elements.next_described().unwrap();
    assert_eq!((attributes.unwrap().count(), value), (2, ReplyView::Integer(2)));
    let mut framer = ReplyFramer::new(FrameLimits::default());
    assert!(framer.advance(b":1\r\n").unwrap().is_complete);
    assert!(framer.attributes(b":1\r\n").is_none());
}

#[test]
fn a_huge_bulk_string_can_be_forwarded_while_it_arrives() {
    let mut framer = ReplyFramer::new(FrameLimits::default());
    let head = b"*2\r\n:1\r\n$536870912\r\nstart";
    assert_eq!(framer.advance(head), Ok(Advance { consumed: head.len(), is_complete: false }));
    assert_eq!(framer.kind(), Some(ReplyKind::Array));
    assert_eq!(framer.bulk_bytes_to_come(), (512 << 20) - 5 + 2);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..511 {
        assert_eq!(framer.advance(&piece), Ok(Advance { consumed: 1 << 20, is_complete: false }));
    }
    assert_eq!(framer.bulk_bytes_to_come(), (1 << 20) - 5 + 2);
    framer.advance(&piece[5..]).unwrap();
    assert_eq!(framer.advance(b"\r\n+next\r\n"), Ok(Advance { consumed: 2, is_complete: true }));
    assert_eq!(framer.bytes(), head.len() as u64 - 5 + (512 << 20) + 2);
}

#[track_caller]
fn check_refused(bytes: &[u8], expected: ProtocolError, text: &str) {
    for cut in 1..=bytes.len() {
        let mut framer = ReplyFramer::new(FrameLimits::default());
        let outcome = framer.advance(&bytes[..cut]).and_then(|_| framer.advance(&bytes[cut..]));
        assert_eq!(outcome, Err(expected), "{} cut at {cut}", bytes.escape_ascii());
    }
    assert_eq!(expected.to_string(), text);
}

#[test]
fn bytes_that_are_no_reply_are_refused_with_the_reason() {
    check_refused(b"x\r\n", ProtocolError::ReplyType(b'x'), "Protocol error: unknown reply type 'x'");
    check_refused(b"\0", ProtocolError::ReplyType(0), "Protocol error: unknown reply type '\\x00'");
    check_refused(b":1a\r\n", ProtocolError::Integer, "Protocol error: invalid integer");
    check_refused(b":\r\n", ProtocolError::Integer, "Protocol error: invalid integer");
    check_refused(b"$-2\r\n", ProtocolError::BulkLength, "Protocol error: invalid bulk length");
    check_refused(b"$536870913\r\n", ProtocolError::BulkLength, "Protocol error: invalid bulk length");
    check_refused(b"!-1\r\n", ProtocolError::BulkLength, "Protocol error: invalid bulk length");
    check_refused(b"=3\r\n", ProtocolError::BulkLength, "Protocol error: invalid bulk length");
    check_refused(b"$2\r\nabc\r\n", ProtocolError::LineEnd, "Protocol error: expected CR LF");
    check_refused(b"+a\rb", ProtocolError::LineEnd, "Protocol error: expected CR LF");
    check_refused(b"*-2\r\n", ProtocolError::AggregateLength, "Protocol error: invalid aggregate length");
    check_refused(b"%-1\r\n", ProtocolError::AggregateLength, "Protocol error: invalid aggregate length");
    check_refused(b"*4294967296\r\n", ProtocolError::AggregateLength, "Protocol error: invalid aggregate length");
    check_refused(b",1,5\r\n", ProtocolError::Double, "Protocol error: invalid double");
    check_refused(b"#x\r\n", ProtocolError::Boolean, "Protocol error: invalid boolean");
    check_refused(b"_x\r\n", ProtocolError::Null, "Protocol error: invalid null");
    for streamed in [&b"$?\r\n"[..], b"*?\r\n", b"%?\r\n", b"~?\r\n", b";4\r\n", b".\r\n"] {
        check_refused(streamed, ProtocolError::Streamed, "Protocol error: streamed replies are not supported");
    }
}

#[test]
fn nesting_is_bounded() {
    let deepest = [b"*1\r\n".repeat(DEPTH_MAX), b":1\r\n".to_vec()].concat();
    check_replies(&deepest, &[3]);
    assert!(ReplyView::parse(&deepest, FrameLimits::default()).unwrap().is_some());
    let deeper = [b"*1\r\n".repeat(DEPTH_MAX + 1), b":1\r\n".to_vec()].concat();
    assert_eq!(ReplyView::parse(&deeper, FrameLimits::default()), Err(ProtocolError::Depth));
    // Empty aggregates take no level of nesting.
    let empty = [b"*1\r\n".repeat(DEPTH_MAX), b"*0\r\n".to_vec()].concat();
    assert!(ReplyView::parse(&empty, FrameLimits::default()).unwrap().is_some());
}

#[test]
fn lines_are_bounded() {
    let limits = FrameLimits { line_bytes_max: 8, ..FrameLimits::default() };
    assert!(ReplyView::parse(b"+12345678\r\n", limits).unwrap().is_some());
    for line in [&b"+123456789"[..], b"-123456789\r\n", b":123456789"] {
        assert_eq!(ReplyView::parse(line, limits), Err(ProtocolError::LineTooLong));
    }
    let double = [b",".to_vec(), b"1".repeat(65)].concat();
    assert_eq!(ReplyView::parse(&double, FrameLimits::default()), Err(ProtocolError::LineTooLong));
}

#[test]
fn bulk_strings_are_bounded_also_where_they_are_whole() {
    let limits = FrameLimits { bulk_bytes_max: 3, elements_max: 1, ..FrameLimits::default() };
    assert!(ReplyView::parse(b"$3\r\nabc\r\n", limits).unwrap().is_some());
    assert!(ReplyView::parse(b"*1\r\n:1\r\n", limits).unwrap().is_some());
    for bulk in [&b"$4\r\nabcd\r\n"[..], b"$4\r\n", b"!4\r\n", b"=4\r\n", b"*1\r\n$4\r\nabcd\r\n"] {
        assert_eq!(ReplyView::parse(bulk, limits), Err(ProtocolError::BulkLength), "{}", bulk.escape_ascii());
    }
    assert_eq!(ReplyView::parse(b"*2\r\n:1\r\n:2\r\n", limits), Err(ProtocolError::AggregateLength));
}
