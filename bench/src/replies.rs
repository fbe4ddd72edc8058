//! As much of HTTP as a load client needs: where a reply ends, and its status. Replies must carry Content-Length.

/// What stands at the front of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A whole reply of so many bytes.
    Whole { bytes: usize, status: u16 },
    /// More bytes are needed.
    Partial,
}

const LENGTH: &[u8] = b"content-length:";

pub(crate) fn next_reply(bytes: &[u8]) -> Reply {
    let Some(head_end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Reply::Partial };
    let head = &bytes[..head_end];
    let status = head.get(9..12).and_then(digits).unwrap_or(0) as u16;
    let mut length = 0;
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        if line.len() > LENGTH.len() && line[..LENGTH.len()].eq_ignore_ascii_case(LENGTH) {
            length = digits(line[LENGTH.len()..].trim_ascii()).unwrap_or(0);
        }
    }
    let whole = head_end + 4 + length;
    if bytes.len() < whole { Reply::Partial } else { Reply::Whole { bytes: whole, status } }
}

fn digits(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod framing {
    use super::{Reply, next_reply};

    #[test]
    fn a_reply_is_whole_with_its_body_and_partial_before() {
        let reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200";
        assert_eq!(next_reply(reply), Reply::Whole { bytes: 48, status: 404 });
        for cut in [0, 10, 30, 43, 46] {
            assert_eq!(next_reply(&reply[..cut]), Reply::Partial, "{cut}");
        }
    }
}
