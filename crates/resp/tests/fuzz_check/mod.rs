//! Checks of the codec on any bytes: the result is that of a plain parser, wherever the input is cut, and the framer
//! reads each byte once. The fuzz targets and the property tests share them.

#![allow(dead_code, reason = "each program that includes this file uses a part of it")]

mod plain;

use plain::{Nothing, Tree};
use resp::codec::{
    Advance, Arguments, FrameLimits, ProtocolError, ReplyFramer, ReplyView, RequestFramer, RequestKind, rewrite_inline,
};

/// A view as a tree that owns its bytes.
pub(crate) fn tree(view: ReplyView<'_>) -> Tree {
    match view {
        ReplyView::Null => Tree::Null,
        ReplyView::Simple(text) => Tree::Text(b'+', text.to_vec()),
        // The plain parser keeps another type byte for an error with a length: see `alike`.
        ReplyView::Error(text) => Tree::Text(b'-', text.to_vec()),
        ReplyView::BigNumber(text) => Tree::Text(b'(', text.to_vec()),
        ReplyView::Bulk(text) => Tree::Text(b'$', text.to_vec()),
        ReplyView::Verbatim { text, .. } => Tree::Text(b'=', text.to_vec()),
        ReplyView::Integer(integer) => Tree::Integer(integer),
        ReplyView::Double(double) => Tree::Double(double.to_bits()),
        ReplyView::Boolean(boolean) => Tree::Boolean(boolean),
        ReplyView::Array(elements) => Tree::Aggregate(b'*', elements.map(tree).collect()),
        ReplyView::Map(elements) => Tree::Aggregate(b'%', elements.map(tree).collect()),
        ReplyView::Set(elements) => Tree::Aggregate(b'~', elements.map(tree).collect()),
        ReplyView::Push(elements) => Tree::Aggregate(b'>', elements.map(tree).collect()),
    }
}

/// The plain parser's result, with values made equal that a view does not distinguish.
fn alike(tree: Tree) -> Tree {
    match tree {
        Tree::Text(b'!', text) => Tree::Text(b'-', text),
        Tree::Text(b'=', text) => Tree::Text(b'=', text[4..].to_vec()),
        Tree::Aggregate(kind, trees) => Tree::Aggregate(kind, trees.into_iter().map(alike).collect()),
        other => other,
    }
}

/// How the messages of a stream ended.
type Ends = (Vec<usize>, Option<ProtocolError>);

/// Feeds a stream in pieces of these sizes, in rotation, and returns the ends of its messages. Each byte is fed once,
/// and the framer must consume all of a piece that holds no end.
fn ends(stream: &[u8], cuts: &[usize], mut advance: impl FnMut(&[u8]) -> Result<Advance, ProtocolError>) -> Ends {
    let (mut found, mut at, mut piece) = (Vec::new(), 0, 0);
    while at < stream.len() {
        let size = cuts[piece % cuts.len()].clamp(1, stream.len() - at);
        piece += 1;
        let mut input = &stream[at..at + size];
        at += size;
        while !input.is_empty() {
            match advance(input) {
                Ok(Advance { consumed, is_complete }) => {
                    assert!(is_complete || consumed == input.len());
                    assert!(consumed > 0);
                    input = &input[consumed..];
                    if is_complete {
                        found.push(at - input.len());
                    }
                }
                Err(error) => {
                    assert_eq!(advance(input), Err(error), "an error stays");
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

/// Replies: whole, cut, and with the plain parser.
pub(crate) fn check_replies(stream: &[u8], cuts: &[usize]) {
    let mut framer = ReplyFramer::new(FrameLimits::default());
    let whole = ends(stream, &[stream.len().max(1)], |input| framer.advance(input));
    let mut framer = ReplyFramer::new(FrameLimits::default());
    assert_eq!(ends(stream, cuts, |input| framer.advance(input)), whole);
    let mut rest = stream;
    for end in &whole.0 {
        let (expected, behind) = plain::reply(rest, 0).expect("what the framer found complete");
        let bytes = &rest[..rest.len() - behind.len()];
        assert_eq!(stream.len() - behind.len(), *end);
        let (view, length) = ReplyView::parse(bytes, FrameLimits::default()).expect("RESP").expect("a whole reply");
        assert_eq!(length, bytes.len());
        assert_eq!(tree(view), alike(expected));
        rest = behind;
    }
    check_rest(plain::reply(rest, 0).map(drop), whole.1);
}

/// After the last message: bytes that the framer refuses are not a whole message, and bytes that it waits on are neither
/// whole nor wrong.
fn check_rest(plain: Result<(), Nothing>, error: Option<ProtocolError>) {
    match plain {
        Ok(()) => panic!("a whole message that the framer did not find: {error:?}"),
        // Only the framer finds an error inside an incomplete message: the plain parser needs whole lines.
        Err(Nothing::Incomplete) => {}
        Err(Nothing::Wrong) => assert!(error.is_some(), "wrong bytes that the framer took"),
    }
}

/// Requests: whole, cut, and with the plain parser.
pub(crate) fn check_requests(stream: &[u8], cuts: &[usize]) {
    let mut framer = RequestFramer::new(FrameLimits::default());
    let whole = ends(stream, &[stream.len().max(1)], |input| framer.advance(input));
    let mut framer = RequestFramer::new(FrameLimits::default());
    assert_eq!(ends(stream, cuts, |input| framer.advance(input)), whole);
    let mut rest = stream;
    for end in &whole.0 {
        let (expected, behind) = plain::request(rest).expect("what the framer found complete");
        assert_eq!(stream.len() - behind.len(), *end);
        check_request(&rest[..rest.len() - behind.len()], &expected);
        rest = behind;
    }
    check_rest(plain::request(rest).map(drop), whole.1);
    // The complete arguments of an incomplete request can be read; for other bytes the result does not matter.
    let cut = Arguments::of(rest);
    cut.for_each(drop);
    let _ = cut.rest();
}

fn check_request(bytes: &[u8], expected: &[Vec<u8>]) {
    let mut framer = RequestFramer::new(FrameLimits::default());
    let advance = framer.advance(bytes).expect("RESP");
    assert_eq!(advance, Advance { consumed: bytes.len(), is_complete: true });
    match framer.kind() {
        RequestKind::Multibulk => {
            assert_eq!(framer.arguments(), expected.len() as u64);
            let arguments: Vec<&[u8]> = Arguments::of(bytes).collect();
            assert_eq!(arguments, expected);
        }
        RequestKind::Inline => {
            let mut rewritten = Vec::new();
            if let Ok(count) = rewrite_inline(bytes, &mut rewritten) {
                assert_eq!(Arguments::of(&rewritten).count(), count);
            }
        }
    }
}
