//! Requests: every sample cut at every byte, arguments of incomplete ones, limits, Redis's error texts.

use crate::fuzz_check::check_requests;
use resp::codec::{
    Advance, Arguments, FrameLimits, PartialArgument, ProtocolError, RequestFramer, RequestKind, write_command,
};

const SAMPLES: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n",
    b"*2\r\n$3\r\nGET\r\n$6\r\na\r\nb\r\n\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"PING\r\n",
    b"set a \"b c\"\n",
    b"\r\n",
    b"\n",
];

#[test]
fn every_request_is_found_wherever_it_is_cut() {
    for sample in SAMPLES {
        for cut in 1..=sample.len() {
            check_requests(sample, &[cut, usize::MAX]);
            check_requests(&[*sample, *sample, b"PING\r\n"].concat(), &[cut]);
        }
    }
}

#[test]
fn no_byte_is_shown_to_the_framer_twice() {
    for sample in SAMPLES {
        for cut in 1..sample.len() {
            let mut framer = RequestFramer::new(FrameLimits::default());
            let first = framer.advance(&sample[..cut]).unwrap();
            assert_eq!(first, Advance { consumed: cut, is_complete: false });
            let last = framer.advance(&sample[cut..]).unwrap();
            assert_eq!(last, Advance { consumed: sample.len() - cut, is_complete: true });
            assert_eq!(framer.bytes(), sample.len() as u64);
        }
    }
}

#[test]
fn command_and_key_are_known_before_the_value_has_arrived() {
    let mut request = Vec::new();
    write_command(&mut request, &[&b"SET"[..], b"key", &vec![b'v'; 1 << 20]]);
    let mut framer = RequestFramer::new(FrameLimits::default());
    let (read, rest) = request.split_at(40);
    assert_eq!(framer.advance(read), Ok(Advance { consumed: 40, is_complete: false }));
    assert_eq!((framer.kind(), framer.arguments()), (RequestKind::Multibulk, 3));
    assert_eq!(framer.bulk_bytes_to_come(), rest.len() as u64);
    let mut arguments = Arguments::of(read);
    assert_eq!(arguments.by_ref().collect::<Vec<_>>(), [&b"SET"[..], b"key"]);
    let value = arguments.rest().unwrap();
    assert_eq!((value.bytes, value.start), (1 << 20, &b"vvvvvvvv"[..]));
    assert_eq!(framer.advance(rest), Ok(Advance { consumed: rest.len(), is_complete: true }));
    assert_eq!(framer.bulk_bytes_to_come(), 0);
}

#[test]
fn arguments_of_every_beginning_of_a_request_are_those_that_are_complete() {
    let request = b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n";
    for cut in 0..=request.len() {
        let mut arguments = Arguments::of(&request[..cut]);
        let complete: Vec<&[u8]> = arguments.by_ref().collect();
        assert_eq!(complete, &[&b"GET"[..], b"ab"][..usize::from(cut >= 13) + usize::from(cut >= 21)], "{cut}");
        let start: &[u8] = match cut {
            8..13 => &b"GET"[..(cut - 8).min(3)],
            17..21 => &b"ab"[..(cut - 17).min(2)],
            _ => {
                assert_eq!(arguments.rest(), None, "{cut}");
                continue;
            }
        };
        let bytes = if cut < 13 { 3 } else { 2 };
        assert_eq!(arguments.rest(), Some(PartialArgument { start, bytes }), "{cut}");
    }
}

#[track_caller]
fn check_refused(bytes: &[u8], expected: ProtocolError, text: &str) {
    for cut in 1..=bytes.len() {
        let mut framer = RequestFramer::new(FrameLimits::default());
        let outcome = framer.advance(&bytes[..cut]).and_then(|_| framer.advance(&bytes[cut..]));
        assert_eq!(outcome, Err(expected), "{} cut at {cut}", bytes.escape_ascii());
    }
    assert_eq!(expected.to_string(), text);
}

#[test]
fn what_redis_refuses_is_refused_with_its_texts() {
    let invalid_multibulk = "Protocol error: invalid multibulk length";
    for count in [&b"*x\r\n"[..], b"*\r\n", b"*1048577\r\n", b"*01\r\n", b"*9223372036854775808\r\n"] {
        check_refused(count, ProtocolError::MultibulkLength, invalid_multibulk);
    }
    for (bytes, got) in [(&b"*1\r\nx"[..], b'x'), (b"*1\r\n*1\r\n", b'*'), (b"*1\r\n\r\n", b'\r')] {
        let text = format!("Protocol error: expected '$', got '{}'", got.escape_ascii());
        check_refused(bytes, ProtocolError::ExpectedBulk(got), &text);
    }
    for length in [&b"*1\r\n$x\r\n"[..], b"*1\r\n$-1\r\n", b"*1\r\n$536870913\r\n", b"*1\r\n$\r\n"] {
        check_refused(length, ProtocolError::BulkLength, "Protocol error: invalid bulk length");
    }
    check_refused(b"*1\r\n$1\r\nab\r\n", ProtocolError::LineEnd, "Protocol error: expected CR LF");
    check_refused(b"*1\rx", ProtocolError::LineEnd, "Protocol error: expected CR LF");
}

#[test]
fn lines_without_an_end_are_refused_with_redis_texts() {
    let digits = vec![b'1'; (64 << 10) + 1];
    for (before, expected, text) in [
        (&b"*"[..], ProtocolError::MultibulkLineTooLong, "Protocol error: too big mbulk count string"),
        (b"*1\r\n$", ProtocolError::BulkLineTooLong, "Protocol error: too big bulk count string"),
        (b"", ProtocolError::InlineTooLong, "Protocol error: too big inline request"),
    ] {
        let mut framer = RequestFramer::new(FrameLimits::default());
        assert!(framer.advance(&[before, &digits[1..]].concat()).is_ok());
        assert_eq!(framer.advance(b"1"), Err(expected));
        assert_eq!(expected.to_string(), text);
    }
}

#[test]
fn a_million_arguments_are_a_request() {
    let mut request = b"*1048576\r\n".to_vec();
    request.extend_from_slice(&b"$0\r\n\r\n".repeat(1 << 20));
    let mut framer = RequestFramer::new(FrameLimits::default());
    assert_eq!(framer.advance(&request), Ok(Advance { consumed: request.len(), is_complete: true }));
    assert_eq!(Arguments::of(&request).count(), 1 << 20);
}
